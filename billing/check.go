package billing

import (
	"fmt"
	"math/big"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Check asserts that the document adds up: total = Σ lines + Σ taxes, each tax is
// that of its group, shares sum to their line, each line is its exact value rounded
// once, and the content hash is the content's. It fails with fault.Internal, naming
// what does not hold.
func (v Invoice) Check() error {
	for _, l := range v.Lines {
		if err := l.check(); err != nil {
			return err
		}
	}
	if err := v.checkTaxes(); err != nil {
		return err
	}
	again, err := v.totalled()
	if err != nil {
		return err
	}
	if again.Subtotal != v.Subtotal || again.TaxTotal != v.TaxTotal || again.Total != v.Total {
		return broken("the sums of invoice %s do not hold: lines %s, tax %s, total %s", v.ID, again.Subtotal, again.TaxTotal, v.Total)
	}
	if again.ContentHash != v.ContentHash {
		return broken("the content of invoice %s does not have its hash", v.ID)
	}
	return nil
}

// checkTaxes asserts that the taxes are of just the groups there are. The tax of a
// credit note depends on the notes before it, that of an advance is inside its
// gross; both are within a minor unit of base × rate a document they follow.
func (v Invoice) checkTaxes() error {
	bases, order, err := v.bases()
	if err != nil {
		return err
	}
	if len(order) > 0 && len(order) != len(v.Taxes) {
		return broken("invoice %s has %d tax groups and %d taxes", v.ID, len(order), len(v.Taxes))
	}
	for _, t := range v.Taxes {
		base, known := bases[group{t.Category, t.RatePPM}]
		if known && base != t.Base || !known && !t.Base.IsZero() {
			return broken("the tax base of group %s is %s, its lines sum to %s", t.Category, t.Base, base)
		}
		amount, err := taxOf(t.Base, t.RatePPM)
		if err != nil {
			return fmt.Errorf("taxing group %s: %w", t.Category, err)
		}
		off := amount.Minor() - t.Amount.Minor()
		if v.Kind == CreditNote || v.Kind == AdvanceInvoice {
			if off >= -1 && off <= 1 {
				continue
			}
		}
		if off != 0 {
			return broken("the tax of group %s is %s, %s of its base", t.Category, t.Amount, amount)
		}
	}
	return nil
}

func (l Line) check() error {
	rounded, err := l.Exact.Round()
	if err != nil {
		return fmt.Errorf("rounding line %d: %w", l.No, err)
	}
	if rounded != l.Amount {
		return broken("line %d is %s, its exact value %s", l.No, l.Amount, l.Exact)
	}
	used := l.Key.Component == UsageCharge || l.Key.Component == Covered || l.Key.Component == ""
	if len(l.Subjects) == 0 && !used {
		return nil
	}
	quantity, amount := new(big.Int), money.NewAmount(0, l.Amount.Currency())
	for _, s := range l.Subjects {
		quantity.Add(quantity, s.Quantity)
		if amount, err = amount.Add(s.Amount); err != nil {
			return fmt.Errorf("summing the shares of line %d: %w", l.No, err)
		}
	}
	if quantity.Cmp(l.Quantity) != 0 || amount != l.Amount {
		return broken("the shares of line %d sum to %s and %s, the line is %s and %s", l.No, quantity, amount, l.Quantity, l.Amount)
	}
	return nil
}

func broken(format string, args ...any) error {
	return fault.New(fault.Internal, "internal", "An invoice does not add up.").Because(fmt.Errorf(format, args...))
}
