// Package ledger owns double-entry journals: which accounts a document, a payment
// or a prepaid balance touches, and that every journal sums to nothing. Pure;
// amounts are whole minor units, debits positive and credits negative.
//
// It does not own documents (billing), balances that are spent (billing/wallet) or
// storage (internal/store).
package ledger

import (
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Account names a side of the books.
type Account string

// The accounts.
const (
	Unbilled   Account = "unbilled_receivable" // earned, on no document yet; debit grows it
	Receivable Account = "receivable"          // what customers owe; debit grows it
	Clearing   Account = "clearing"            // money at payment providers; debit grows it
	Bank       Account = "bank"                // money in the bank; debit grows it
	Disputes   Account = "disputes"            // money that a dispute holds back; debit grows it
	Advance    Account = "advance"             // tax of prepayments that were invoiced and are not used yet; debit grows it

	Tax           Account = "tax"            // what is owed to tax offices; credit grows it
	Prepaid       Account = "prepaid"        // prepaid balances of customers; credit grows it
	PrepaidUsed   Account = "prepaid_used"   // burned balances that no document took yet; credit grows it
	Promo         Account = "promo"          // promotional grants that were not used yet; credit grows it
	UnappliedCash Account = "unapplied_cash" // money that pays for no document yet; credit grows it

	Revenue      Account = "revenue"       // what was earned; credit grows it
	Breakage     Account = "breakage"      // grants that expired unused; credit grows it
	PromoExpense Account = "promo_expense" // what was given away: contra revenue; debit grows it
	Fees         Account = "fees"          // what payment providers keep; debit grows it
	WriteOff     Account = "write_off"     // what will not be paid; debit grows it
)

// Accounts lists all accounts in the order of a trial balance.
var Accounts = []Account{
	Unbilled, Receivable, Clearing, Bank, Disputes, Advance, Tax, Prepaid, PrepaidUsed, Promo, UnappliedCash,
	Revenue, Breakage, PromoExpense, Fees, WriteOff,
}

// Kind says why a journal was written; with the reference it is written once.
type Kind string

// The kinds of journals.
const (
	InvoiceFinalized   Kind = "invoice_finalized"
	CreditNoteIssued   Kind = "credit_note"
	Accrual            Kind = "accrual"
	Burn               Kind = "burn"
	PrepaymentIn       Kind = "prepayment"
	PrepaymentOut      Kind = "prepayment_returned"
	GrantGiven         Kind = "grant_issued"
	GrantEnded         Kind = "grant_expired"
	Payment            Kind = "payment"
	UnappliedUse       Kind = "unapplied_used"
	Refund             Kind = "refund"
	Fee                Kind = "fee"
	ChargebackOpening  Kind = "chargeback"
	ChargebackWin      Kind = "chargeback_won"
	ChargebackLoss     Kind = "chargeback_lost"
	RefundLoss         Kind = "refund_lost" // of money that was spent already
	WriteOffKind       Kind = "write_off"
	Recovery           Kind = "recovery"
	Deposit            Kind = "deposit"
	UnappliedCollected Kind = "unapplied_collected"
)

// Posting moves an amount on one account: positive debits, negative credits.
type Posting struct {
	Account Account
	Amount  money.Amount
	// Document is the invoice that a posting on Receivable concerns: ageing and
	// settlement are read from it. Zero: none.
	Document [16]byte
}

// Journal is at least two postings of one currency that sum to 0.
type Journal struct {
	Org         id.Org
	Kind        Kind
	Reference   [16]byte // the document, payment, grant or tick
	Currency    money.Currency
	EffectiveOn time.Time // a date, midnight UTC
	Postings    []Posting
}

// Check asserts that the journal is one. It fails with fault.Internal.
func (j Journal) Check() error {
	if len(j.Postings) < 2 {
		return broken("a journal has %d postings", len(j.Postings))
	}
	sum := money.NewAmount(0, j.Currency)
	for _, p := range j.Postings {
		next, err := sum.Add(p.Amount)
		if err != nil {
			return broken("adding %s on %s: %w", p.Amount, p.Account, err)
		}
		sum = next
	}
	if !sum.IsZero() {
		return broken("a journal sums to %s", sum)
	}
	return nil
}

// Entry is what every journal beside those of documents begins with. Reference
// derives from content: with the kind it is written once. On is an instant of the
// day that the journal is effective on.
type Entry struct {
	Org       id.Org
	Reference [16]byte
	On        time.Time
}

// day is the date of an instant, in UTC.
func day(at time.Time) time.Time {
	y, m, d := at.UTC().Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// builder sums up the postings of a journal; the first failure stays.
type builder struct {
	j   Journal
	doc [16]byte
	err error
}

func (e Entry) build(kind Kind, c money.Currency) *builder {
	return &builder{j: Journal{Org: e.Org, Kind: kind, Reference: e.Reference, Currency: c, EffectiveOn: day(e.On)}}
}

// debit adds a posting; an amount that was left out (no currency) is 0.
func (b *builder) debit(a Account, amount money.Amount) *builder {
	if amount.Currency().IsZero() {
		amount = money.NewAmount(0, b.j.Currency)
	}
	p := Posting{Account: a, Amount: amount}
	if a == Receivable || a == PrepaidUsed || a == Prepaid {
		p.Document = b.doc
	}
	b.j.Postings = append(b.j.Postings, p)
	return b
}

func (b *builder) credit(a Account, amount money.Amount) *builder {
	if amount.Currency().IsZero() {
		return b.debit(a, amount)
	}
	n, err := amount.Neg()
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("crediting %s: %w", a, err)
	}
	return b.debit(a, n)
}

// debitIf and creditIf leave out what is nothing.
func (b *builder) debitIf(a Account, amount money.Amount) *builder {
	if amount.IsZero() {
		return b
	}
	return b.debit(a, amount)
}

func (b *builder) creditIf(a Account, amount money.Amount) *builder {
	if amount.IsZero() {
		return b
	}
	return b.credit(a, amount)
}

// about names the document of the receivable postings that follow.
func (b *builder) about(document [16]byte) *builder {
	b.doc = document
	return b
}

func (b *builder) done() (Journal, error) {
	if b.err != nil {
		return Journal{}, b.err
	}
	if err := b.j.Check(); err != nil {
		return Journal{}, err
	}
	return b.j, nil
}

func broken(format string, args ...any) error {
	return fault.New(fault.Internal, "internal", "The ledger does not add up.").Because(fmt.Errorf(format, args...))
}
