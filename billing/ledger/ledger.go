// Package ledger owns double-entry journals: which accounts a document touches and
// that every journal sums to nothing. Pure; amounts are whole minor units, debits
// positive and credits negative.
//
// It does not own documents (billing) or storage (internal/store).
package ledger

import (
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Account names a side of the books.
type Account string

// The accounts.
const (
	Receivable Account = "receivable" // what customers owe; debit grows it
	Revenue    Account = "revenue"    // what was earned; credit grows it
	Tax        Account = "tax"        // what is owed to tax offices; credit grows it
)

// Kind says why a journal was written; with the reference it is written once.
type Kind string

// InvoiceFinalized is the journal of an invoice that became open.
const InvoiceFinalized Kind = "invoice_finalized"

// Posting moves an amount on one account: positive debits, negative credits.
type Posting struct {
	Account Account
	Amount  money.Amount
}

// Journal is at least two postings of one currency that sum to 0.
type Journal struct {
	Org         id.Org
	Kind        Kind
	Reference   [16]byte // the document
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

// ForInvoice returns the journal that finalizing an invoice writes, effective on
// the last day of its period: receivable against revenue and tax. The tax posting
// is there even at 0, so that a report can tell "no tax" from "not posted". It
// fails with fault.Internal for a preview and for sums that do not add up.
func ForInvoice(v billing.Invoice) (Journal, error) {
	if v.ID.IsZero() || v.State == billing.Preview {
		return Journal{}, broken("a preview is not posted")
	}
	revenue, err := v.Subtotal.Neg()
	if err != nil {
		return Journal{}, fmt.Errorf("posting revenue: %w", err)
	}
	tax, err := v.TaxTotal.Neg()
	if err != nil {
		return Journal{}, fmt.Errorf("posting tax: %w", err)
	}
	y, m, d := v.Period.To.Add(-time.Microsecond).Date()
	j := Journal{
		Org: v.Org, Kind: InvoiceFinalized, Reference: v.ID, Currency: v.Currency,
		EffectiveOn: time.Date(y, m, d, 0, 0, 0, 0, time.UTC),
		Postings:    []Posting{{Receivable, v.Total}, {Revenue, revenue}, {Tax, tax}},
	}
	return j, j.Check()
}

func broken(format string, args ...any) error {
	return fault.New(fault.Internal, "internal", "The ledger does not add up.").Because(fmt.Errorf(format, args...))
}
