package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Post writes a journal with its postings; the database checks that they sum to 0.
// A day of a closed month becomes the next open day. It fails with state.conflict
// for a journal that was written before (kind and reference).
func (t *SystemTx) Post(ctx context.Context, j ledger.Journal) error {
	if err := j.Check(); err != nil {
		return err
	}
	journal := uuid.New()
	err := t.q.InsertJournal(ctx, t.raw, db.InsertJournalParams{
		OrgID: uuid.UUID(j.Org), JournalID: journal, Kind: string(j.Kind), ReferenceID: j.Reference,
		Currency: j.Currency.Code(), EffectiveOn: j.EffectiveOn,
	})
	if err != nil {
		return mapError(err)
	}
	p := db.InsertPostingsParams{OrgID: uuid.UUID(j.Org), JournalID: journal, Currency: j.Currency.Code()}
	for _, x := range j.Postings {
		p.Accounts = append(p.Accounts, string(x.Account))
		p.Amounts = append(p.Amounts, x.Amount.Minor())
		p.Documents = append(p.Documents, x.Document)
	}
	return mapError(t.q.InsertPostings(ctx, t.raw, p))
}

// SettlementsOf derives what happened to the totals of documents from postings.
// Credited is there, too. A document without postings has none.
func (t *tx) SettlementsOf(ctx context.Context, org id.Org, c money.Currency, invoices []id.Invoice) (map[id.Invoice]billing.Settlement, error) {
	documents := make([]uuid.UUID, len(invoices))
	for i, v := range invoices {
		documents[i] = uuid.UUID(v)
	}
	rows, err := t.q.PostingsOfDocuments(ctx, t.raw, uuid.UUID(org), documents)
	if err != nil {
		return nil, mapError(err)
	}
	minor := map[id.Invoice]*[4]int64{}
	for _, r := range rows {
		sums := minor[id.Invoice(r.DocumentID)]
		if sums == nil {
			sums = &[4]int64{}
			minor[id.Invoice(r.DocumentID)] = sums
		}
		settle(sums, ledger.Kind(r.Kind), ledger.Account(r.Account), r.AmountMinor)
	}
	out := map[id.Invoice]billing.Settlement{}
	for v, sums := range minor {
		out[v] = billing.Settlement{
			Prepaid: money.NewAmount(sums[0], c), Paid: money.NewAmount(sums[1], c),
			Credited: money.NewAmount(sums[2], c), WrittenOff: money.NewAmount(sums[3], c),
		}
	}
	return out, nil
}

// settle adds a posting to the sums of prepaid, paid, credited and written off.
func settle(sums *[4]int64, kind ledger.Kind, account ledger.Account, minor int64) {
	switch {
	case kind == ledger.InvoiceFinalized && account == ledger.PrepaidUsed:
		sums[0] += minor
	case kind == ledger.CreditNoteIssued && account == ledger.Prepaid:
		sums[0] += minor // what went back to the wallet, negative
		sums[2] -= minor
	case kind == ledger.CreditNoteIssued && account == ledger.Receivable:
		sums[2] -= minor
	case account != ledger.Receivable || kind == ledger.InvoiceFinalized:
	case kind == ledger.WriteOffKind || kind == ledger.Recovery:
		sums[3] -= minor
	default:
		sums[1] -= minor
	}
}

// AccountBalance is what an account stands at, debit positive.
type AccountBalance struct {
	Account ledger.Account
	Balance money.Amount
}

// AccountBalances reads the ledger before a day (midnight UTC): of one organization,
// or of all for the zero id.
func (t *SystemTx) AccountBalances(ctx context.Context, org id.Org, before time.Time) ([]AccountBalance, error) {
	rows, err := t.q.AccountBalances(ctx, t.raw, before, nullable(org))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]AccountBalance, 0, len(rows))
	for _, r := range rows {
		a, err := amountIn(r.Balance, r.Currency)
		if err != nil {
			return nil, err
		}
		out = append(out, AccountBalance{Account: ledger.Account(r.Account), Balance: a})
	}
	return out, nil
}

func amountIn(minor int64, code string) (money.Amount, error) {
	c, err := money.ParseCurrency(code)
	if err != nil {
		return money.Amount{}, fmt.Errorf("reading an amount: %w", err)
	}
	return money.NewAmount(minor, c), nil
}

// TrialRow is an account over a month; Closing = Opening + Debits + Credits.
type TrialRow struct {
	Currency, Account                 string
	Opening, Debits, Credits, Closing int64
}

// OpenDocument is what is owed of one document, zero id: of none.
type OpenDocument struct {
	Org              id.Org
	OrgName          string
	Currency, Number string
	Document         id.Invoice
	Issued           time.Time
	Minor            int64
}

// TaxRow is the base and tax of a month by countries, category and rate.
type TaxRow struct {
	Currency, Seller, Buyer, Category string
	RatePPM, Base, Tax                int64
}

// MovementRow is what one kind of journal moved on an account.
type MovementRow struct {
	Currency, Account, Kind string
	Minor                   int64
}

// PostingRow is a posting as the journal lists it.
type PostingRow struct {
	Org                          id.Org
	Journal, Reference, Document [16]byte
	Kind, Account, Currency      string
	Line                         int
	Minor                        int64
	EffectiveOn, PostedAt        time.Time
}

// MonthBooks is everything that closing a month freezes.
type MonthBooks struct {
	Trial     []TrialRow
	Open      []OpenDocument
	Taxes     []TaxRow
	Movements []MovementRow // of the accounts that are rolled forward
	Postings  []PostingRow
}

// MonthBooks reads the ledger of a month.
func (t *SystemTx) MonthBooks(ctx context.Context, month metering.Interval, rolled []ledger.Account) (MonthBooks, error) {
	var b MonthBooks
	trial, err := t.q.TrialBalance(ctx, t.raw, month.From, month.To)
	if err != nil {
		return b, mapError(err)
	}
	for _, r := range trial {
		b.Trial = append(b.Trial, TrialRow{
			Currency: r.Currency, Account: r.Account, Opening: r.Opening, Debits: r.Debits, Credits: r.Credits,
			Closing: r.Opening + r.Debits + r.Credits,
		})
	}
	open, err := t.q.OpenReceivables(ctx, t.raw, month.To)
	if err != nil {
		return b, mapError(err)
	}
	for _, r := range open {
		b.Open = append(b.Open, OpenDocument{
			Org: id.Org(r.OrgID), OrgName: r.OrgName, Currency: r.Currency, Number: r.Number, Document: orZero[id.Invoice](r.DocumentID),
			Issued: r.IssuedAt, Minor: r.AmountMinor,
		})
	}
	taxes, err := t.q.TaxesOfMonth(ctx, t.raw, month.From, month.To)
	if err != nil {
		return b, mapError(err)
	}
	for _, r := range taxes {
		b.Taxes = append(b.Taxes, TaxRow{
			Currency: r.Currency, Seller: r.SellerCountry, Buyer: r.BuyerCountry, Category: r.Category,
			RatePPM: r.RatePpm, Base: r.BaseMinor, Tax: r.AmountMinor,
		})
	}
	accounts := make([]string, len(rolled))
	for i, a := range rolled {
		accounts[i] = string(a)
	}
	moved, err := t.q.Movements(ctx, t.raw, db.MovementsParams{Accounts: accounts, FromAt: month.From, ToAt: month.To})
	if err != nil {
		return b, mapError(err)
	}
	for _, r := range moved {
		b.Movements = append(b.Movements, MovementRow{Currency: r.Currency, Account: r.Account, Kind: r.Kind, Minor: r.AmountMinor})
	}
	b.Postings, err = t.postings(ctx, month)
	return b, err
}

func (t *SystemTx) postings(ctx context.Context, month metering.Interval) ([]PostingRow, error) {
	rows, err := t.q.JournalRows(ctx, t.raw, month.From, month.To)
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]PostingRow, 0, len(rows))
	for _, r := range rows {
		out = append(out, PostingRow{
			Org: id.Org(r.OrgID), Journal: r.ID, Reference: r.ReferenceID, Document: orZero[id.Invoice](r.DocumentID), Kind: r.Kind,
			Account: r.Account, Currency: r.Currency, Line: int(r.LineNo), Minor: r.AmountMinor, EffectiveOn: r.EffectiveOn, PostedAt: r.PostedAt,
		})
	}
	return out, nil
}

// LockBooks keeps everybody from posting until the transaction ends, and returns
// the last closed day; the year 1 for none.
func (t *SystemTx) LockBooks(ctx context.Context) (time.Time, error) {
	through, err := t.q.LockBooks(ctx, t.raw)
	return through, mapError(err)
}

// MonthClose is a closed month: its report as JSON and the SHA-256 over report and
// journal.
type MonthClose struct {
	Period   string
	Report   []byte
	SHA256   [32]byte
	ClosedBy string
	ClosedAt time.Time
}

// CloseBooks lets nobody post into the days up to and with the last one any more.
func (t *SystemTx) CloseBooks(ctx context.Context, last time.Time) error {
	return mapError(t.q.CloseBooks(ctx, t.raw, last))
}

// InsertMonthClose stores a closed month and reports whether it was the first to.
func (t *SystemTx) InsertMonthClose(ctx context.Context, m MonthClose, journal []byte) (bool, error) {
	n, err := t.q.InsertMonthClose(ctx, t.raw, db.InsertMonthCloseParams{
		Period: m.Period, Report: m.Report, JournalCsv: journal, Sha256: m.SHA256[:], ClosedBy: m.ClosedBy, ClosedAt: m.ClosedAt,
	})
	return n == 1, mapError(err)
}

// MonthClose reads a closed month. It fails with resource.not_found.
func (t *SystemTx) MonthClose(ctx context.Context, period string) (MonthClose, error) {
	r, err := t.q.MonthClose(ctx, t.raw, period)
	if err != nil {
		return MonthClose{}, mapError(err)
	}
	return MonthClose{Period: r.Period, Report: r.Report, SHA256: [32]byte(r.Sha256), ClosedBy: r.ClosedBy, ClosedAt: r.ClosedAt.UTC()}, nil
}

// MonthJournal reads the journal of a closed month as CSV. It fails with
// resource.not_found.
func (t *SystemTx) MonthJournal(ctx context.Context, period string) ([]byte, error) {
	text, err := t.q.MonthCloseCSV(ctx, t.raw, period)
	return text, mapError(err)
}

// Uninvoiced counts who used something in a month and has no document of it.
func (t *SystemTx) Uninvoiced(ctx context.Context, period string) (int64, error) {
	n, err := t.q.UninvoicedOrganizations(ctx, t.raw, period)
	return n, mapError(err)
}
