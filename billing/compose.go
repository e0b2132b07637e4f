package billing

import (
	"fmt"
	"math/big"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// noTaxTable is the mention of a document without a tax decision.
const noTaxTable = "No tax was computed: the issuer has no tax table."

// group is what is taxed together: one tax a group, on the summed net.
type group struct {
	category string
	rate     int64
}

func (l Line) group() group { return group{l.Key.TaxCategory, l.TaxRatePPM} }

// ownTax reports whether a line brings the tax of another document along.
func (l Line) ownTax() bool {
	switch l.Key.Component {
	case CarryOver, AdvanceOffset, Correction:
		return true
	}
	return false
}

// WithTax returns the document with a tax decision on every line but those that
// bring their own (carried amounts, advances, corrections), and its legal mention.
// Compose does the sums.
func (v Invoice) WithTax(category string, ratePPM int64, note string) Invoice {
	lines := make([]Line, len(v.Lines))
	for i, l := range v.Lines {
		if !l.ownTax() {
			l.Key.TaxCategory, l.TaxRatePPM = category, ratePPM
		}
		lines[i] = l
	}
	v.Lines = lines
	v.Taxes = append(v.Taxes[:len(v.Taxes):len(v.Taxes)], Tax{Category: category, RatePPM: ratePPM, Note: note})
	return v
}

// Compose fills taxes, sums and the content hash of an invoice from its lines and
// parties. Each group of lines with one category and rate bears one tax, rounded
// once; Taxes may hold mentions of groups beforehand. It fails with money.ErrRange
// or money.ErrMismatch.
func (v Invoice) Compose() (Invoice, error) {
	v.Lines = v.normal()
	bases, order, err := v.bases()
	if err != nil {
		return Invoice{}, err
	}
	notes := v.notes()
	if len(order) == 0 { // the tax line is printed on an empty document, too
		order = []group{{category: OutsideScope}}
		if len(v.Taxes) > 0 {
			order[0] = group{v.Taxes[0].Category, v.Taxes[0].RatePPM}
		}
		bases[order[0]] = money.NewAmount(0, v.Currency)
	}
	taxes := make([]Tax, 0, len(order))
	for _, g := range order {
		amount, err := taxOf(bases[g], g.rate)
		if err != nil {
			return Invoice{}, fmt.Errorf("taxing group %s: %w", g.category, err)
		}
		taxes = append(taxes, Tax{Category: g.category, RatePPM: g.rate, Base: bases[g], Amount: amount, Note: notes[g]})
	}
	v.Taxes = taxes
	return v.totalled()
}

// normal gives lines without a quantity or a price those of nothing, so that a
// document reads the same from its store.
func (v Invoice) normal() []Line {
	lines := make([]Line, len(v.Lines))
	for i, l := range v.Lines {
		if l.Quantity == nil {
			l.Quantity = new(big.Int)
		}
		if l.Divisor == 0 {
			l.Divisor = 1
		}
		if l.UnitPrice.Currency().IsZero() {
			if p, err := money.PriceOf(new(big.Int), v.Currency); err == nil {
				l.UnitPrice = p
			}
		}
		if l.Key.TaxCategory == "" {
			l.Key.TaxCategory = OutsideScope
		}
		lines[i] = l
	}
	return lines
}

// bases sums the lines of each group; order is that of their first lines.
func (v Invoice) bases() (map[group]money.Amount, []group, error) {
	bases := map[group]money.Amount{}
	var order []group
	for _, l := range v.Lines {
		g := l.group()
		if _, seen := bases[g]; !seen {
			bases[g] = money.NewAmount(0, v.Currency)
			order = append(order, g)
		}
		sum, err := bases[g].Add(l.Amount)
		if err != nil {
			return nil, nil, fmt.Errorf("summing line %d: %w", l.No, err)
		}
		bases[g] = sum
	}
	return bases, order, nil
}

func (v Invoice) notes() map[group]string {
	notes := map[group]string{{category: OutsideScope}: noTaxTable}
	for _, t := range v.Taxes {
		notes[group{t.Category, t.RatePPM}] = t.Note
	}
	return notes
}

// taxOf is base × rate, rounded once.
func taxOf(base money.Amount, ratePPM int64) (money.Amount, error) {
	return base.Exact().Scale(big.NewRat(ratePPM, million)).Round()
}

// Because returns the document with why it is written, which is content. It fails like
// Compose.
func (v Invoice) Because(reason string) (Invoice, error) {
	v.Reason = reason
	return v.totalled()
}

// totalled sums lines and taxes as they are and hashes the content.
func (v Invoice) totalled() (Invoice, error) {
	v.Subtotal, v.TaxTotal = money.NewAmount(0, v.Currency), money.NewAmount(0, v.Currency)
	var err error
	for _, l := range v.Lines {
		if v.Subtotal, err = v.Subtotal.Add(l.Amount); err != nil {
			return Invoice{}, fmt.Errorf("summing line %d: %w", l.No, err)
		}
	}
	for _, t := range v.Taxes {
		if v.TaxTotal, err = v.TaxTotal.Add(t.Amount); err != nil {
			return Invoice{}, fmt.Errorf("summing tax %s: %w", t.Category, err)
		}
	}
	if v.Total, err = v.Subtotal.Add(v.TaxTotal); err != nil {
		return Invoice{}, fmt.Errorf("summing an invoice: %w", err)
	}
	if v.ContentVersion == 0 {
		v.ContentVersion = newestContent
	}
	v.ContentHash = v.hash()
	return v.Settled(v.Settlement)
}

// Settled returns the document with what happened to its total, and what is due.
// Amounts without a currency are nothing. It fails with money.ErrRange or
// money.ErrMismatch.
func (v Invoice) Settled(s Settlement) (Invoice, error) {
	v.Due = v.Total
	for _, a := range []*money.Amount{&s.Prepaid, &s.Paid, &s.Credited, &s.WrittenOff} {
		if a.Currency().IsZero() {
			*a = money.NewAmount(0, v.Currency)
		}
		due, err := v.Due.Sub(*a)
		if err != nil {
			return Invoice{}, fmt.Errorf("settling an invoice: %w", err)
		}
		v.Due = due
	}
	v.Settlement = s
	return v, nil
}

// The labels of open documents, derived from what happened to their total.
const (
	LabelPaid          = "paid"
	LabelVoid          = "void"
	LabelUncollectible = "uncollectible"
)

// Label is the state for people: that of the document, or of an open one what its
// settlement makes of it.
func (v Invoice) Label() string {
	switch {
	case v.State != Open:
		return string(v.State)
	case v.Cancelled:
		return LabelVoid
	case v.Due.Sign() > 0 || v.Kind == CreditNote:
		return string(Open)
	case v.Settlement.WrittenOff.Sign() > 0:
		return LabelUncollectible
	case v.Settlement.Credited == v.Total && v.Total.Sign() > 0:
		return LabelVoid
	}
	return LabelPaid
}

// Finalized returns the draft with its number, open and immutable from at on, and
// due so many days later in the issuer's time zone. It fails with fault.Conflict
// unless it is a draft and with fault.Internal if the sums or the hash do not hold.
func (v Invoice) Finalized(number string, at time.Time, zone *time.Location, days int) (Invoice, error) {
	v, err := v.moved(Finalize)
	if err != nil {
		return Invoice{}, err
	}
	v.Number, v.FinalizedAt = number, metering.Instant(at)
	y, m, d := at.In(zone).Date()
	v.DueOn = time.Date(y, m, d+days, 0, 0, 0, 0, time.UTC)
	return v, nil
}

// CarriedOn returns the draft as one that is never issued. It fails like Finalized.
func (v Invoice) CarriedOn() (Invoice, error) { return v.moved(CarryNext) }

func (v Invoice) moved(a Action) (Invoice, error) {
	next, ok := Next(v.State, a)
	if !ok {
		return Invoice{}, fault.New(fault.Conflict, "state.conflict", fmt.Sprintf("An invoice in state %s cannot be finalized.", v.State))
	}
	if err := v.Check(); err != nil {
		return Invoice{}, err
	}
	v.State = next
	return v, nil
}
