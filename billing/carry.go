package billing

import (
	"fmt"
	"math/big"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// CarriedLine is the line that takes the net of a carried document on, at the tax of that
// document's time.
func CarriedLine(c Invoice, no int, locale, category string, ratePPM int64) Line {
	return Line{
		No: no, Key: LineKey{Component: CarryOver, Reference: c.ID.String(), TaxCategory: category}, TaxRatePPM: ratePPM,
		Description: fmt.Sprintf(caption(CarryOver, locale), metering.PeriodOf(c.Period.From)),
		Exact:       c.Subtotal.Exact(), Amount: c.Subtotal, During: c.Period,
	}
}

// Deduct returns a composed document with an advance taken off: as much of its net as
// the total reaches, at the tax that was invoiced with it.
func Deduct(v Invoice, advance id.Invoice, number string, net money.Amount, category string, ratePPM int64) (Invoice, error) {
	most, err := v.Total.Exact().Scale(big.NewRat(million, million+ratePPM)).Round()
	if err != nil {
		return Invoice{}, fmt.Errorf("deducting an advance: %w", err)
	}
	for minor := min(net.Minor(), most.Minor()); minor > 0; minor-- {
		off := money.NewAmount(-minor, v.Currency)
		with := v
		with.Lines = append(v.Lines[:len(v.Lines):len(v.Lines)], Line{
			No: len(v.Lines) + 1, Key: LineKey{Component: AdvanceOffset, Reference: advance.String(), TaxCategory: category},
			TaxRatePPM: ratePPM, Description: fmt.Sprintf(caption(AdvanceOffset, v.Locale), number), Exact: off.Exact(), Amount: off,
		})
		if with, err = with.Compose(); err != nil {
			return Invoice{}, err
		}
		if with.Total.Sign() >= 0 { // a cent of rounding may be too much: at most one round more
			return with, nil
		}
	}
	return v, nil
}

// BeforeAdvances returns the document as it would be without deductions: what it
// bills. It fails like Compose.
func (v Invoice) BeforeAdvances() (Invoice, error) {
	var lines []Line
	for _, l := range v.Lines {
		if l.Key.Component != AdvanceOffset {
			lines = append(lines, l)
		}
	}
	if len(lines) == len(v.Lines) {
		return v, nil
	}
	v.Lines = lines
	return v.Compose()
}

// AdvancesTaken is what the document deducts, in minor units by advance invoice.
func (v Invoice) AdvancesTaken() map[string]int64 {
	out := map[string]int64{}
	for _, l := range v.Lines {
		if l.Key.Component == AdvanceOffset {
			out[l.Key.Reference] -= l.Amount.Minor()
		}
	}
	return out
}

// OwnUsage returns the document without what it takes over from others: as it is
// carried on itself. It fails like Compose.
func (v Invoice) OwnUsage() (Invoice, error) {
	var lines []Line
	for _, l := range v.Lines {
		if l.Key.Component != CarryOver && l.Key.Component != AdvanceOffset {
			lines = append(lines, l)
		}
	}
	v.Lines = lines
	return v.Compose()
}
