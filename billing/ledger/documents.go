package ledger

import (
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Funding is what beside the customer's debt a document touches. Amounts are
// positive; those left out are 0.
type Funding struct {
	// Prepaid is what the wallet pays of the total; of a credit note: what goes back
	// to it.
	Prepaid money.Amount
	// Promo is what promotional grants get back by a credit note. What an invoice
	// takes of them is read from its lines.
	Promo money.Amount
	// Accrued is what was accrued for the period and is taken back by its invoice.
	Accrued money.Amount
	// AdvanceTax is the tax that was invoiced with the prepayments which the document
	// deducts (billing.AdvanceOffset); of a credit note: of those that it gives back.
	AdvanceTax money.Amount
	// AdvanceNet is of a credit note only: the net prepayments that it gives back.
	AdvanceNet money.Amount
}

// ForInvoice returns the journal that finalizing a document writes, effective on
// the last day of its period: receivable against revenue and tax, revenue before
// promotional grants and deducted advances, what the wallet pays out of what was
// burned, and the accrual taken back. The tax posting is there even at 0, so that a
// report can tell "no tax" from "not posted". An advance invoice posts nothing but
// its tax: the money is posted when it is received. It fails with fault.Internal
// for a preview and for sums that do not add up.
func ForInvoice(v billing.Invoice, f Funding) (Journal, error) {
	if v.ID.IsZero() || v.State == billing.Preview {
		return Journal{}, broken("a preview is not posted")
	}
	e := Entry{Org: v.Org, Reference: v.ID, On: v.Period.To.Add(-time.Microsecond)}
	if v.Kind == billing.AdvanceInvoice {
		e.On = v.TaxPoint
		return e.build(InvoiceFinalized, v.Currency).debit(Advance, v.TaxTotal).credit(Tax, v.TaxTotal).done()
	}
	promo, err := taken(v, billing.PromoCredit)
	if err != nil {
		return Journal{}, err
	}
	advance, err := taken(v, billing.AdvanceOffset)
	if err != nil {
		return Journal{}, err
	}
	f.Promo, f.AdvanceNet = promo, advance
	return document(e, InvoiceFinalized, v, v.ID, f)
}

// ForCreditNote returns the journal of a credit note or cancellation of the
// document named: what ForInvoice wrote, the other way round. The amounts of v are
// negative; f is what goes back, positive: to the wallet it goes as balance, not as
// burned. The note on an advance invoice posts its tax alone, as that did. It fails
// with fault.Internal for sums that do not add up.
func ForCreditNote(v billing.Invoice, of id.Invoice, f Funding) (Journal, error) {
	if v.ID.IsZero() || v.State == billing.Preview {
		return Journal{}, broken("a preview is not posted")
	}
	e := Entry{Org: v.Org, Reference: v.ID, On: v.FinalizedAt}
	if e.On.IsZero() {
		e.On = v.Period.To.Add(-time.Microsecond)
	}
	if len(v.Lines) > 0 && v.Lines[0].Key.Reference == string(billing.AdvancePaid) {
		return e.build(CreditNoteIssued, v.Currency).debit(Advance, v.TaxTotal).credit(Tax, v.TaxTotal).done()
	}
	var err error
	for _, a := range []*money.Amount{&f.Prepaid, &f.Promo, &f.AdvanceTax, &f.AdvanceNet} {
		if a.Currency().IsZero() {
			continue
		}
		if *a, err = a.Neg(); err != nil {
			return Journal{}, fmt.Errorf("posting a credit note: %w", err)
		}
	}
	f.Accrued = money.Amount{}
	return document(e, CreditNoteIssued, v, of, f)
}

// document posts total, subtotal and tax of a document with what funds it.
func document(e Entry, kind Kind, v billing.Invoice, about id.Invoice, f Funding) (Journal, error) {
	zero := money.NewAmount(0, v.Currency)
	for _, a := range []*money.Amount{&f.Prepaid, &f.Promo, &f.Accrued, &f.AdvanceTax, &f.AdvanceNet} {
		if a.Currency().IsZero() {
			*a = zero
		}
	}
	owed, err := v.Total.Sub(f.Prepaid)
	if err != nil {
		return Journal{}, fmt.Errorf("posting what is owed: %w", err)
	}
	revenue, err := money.Sum(v.Currency, v.Subtotal, f.Promo, f.AdvanceNet)
	if err != nil {
		return Journal{}, fmt.Errorf("posting revenue: %w", err)
	}
	deducted, err := f.AdvanceNet.Add(f.AdvanceTax)
	if err != nil {
		return Journal{}, fmt.Errorf("posting deducted advances: %w", err)
	}
	wallet := PrepaidUsed
	if kind == CreditNoteIssued {
		wallet = Prepaid
	}
	return e.build(kind, v.Currency).about(about).
		debit(Receivable, owed).debitIf(wallet, f.Prepaid).
		about([16]byte{}).debitIf(wallet, deducted).debitIf(Promo, f.Promo). // deducted by the document's lines, not paid on it
		credit(Revenue, revenue).credit(Tax, v.TaxTotal).creditIf(Advance, f.AdvanceTax).
		debitIf(Revenue, f.Accrued).creditIf(Unbilled, f.Accrued).done()
}

// taken sums the lines of a component, as a positive amount.
func taken(v billing.Invoice, c billing.Component) (money.Amount, error) {
	sum := money.NewAmount(0, v.Currency)
	for _, l := range v.Lines {
		if l.Key.Component != c {
			continue
		}
		next, err := sum.Sub(l.Amount)
		if err != nil {
			return money.Amount{}, fmt.Errorf("summing lines of %s: %w", c, err)
		}
		sum = next
	}
	return sum, nil
}
