package focus

import (
	"math/big"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// charge is one row before the prepaid balance splits it. Amounts are minor units.
type charge struct {
	line      *billing.Line  // nil for tax
	share     *billing.Share // nil where the line has no resources
	tax       *billing.Tax
	unused    *reservation // the row of what a reservation had left
	billed    int64
	effective int64
	prepaid   int64 // of billed
}

// charges are the rows of one document.
type charges struct {
	v    billing.Invoice
	rows []charge
}

// reservation is what one reservation cost in a document and who used it.
type reservation struct {
	id       string
	line     *billing.Line
	share    *billing.Share
	cost     int64
	quantity *big.Int // reserved
	left     *big.Int // not used
	uses     []int    // rows it covered
}

func chargesOf(v billing.Invoice) (charges, error) {
	c := charges{v: v}
	reservations := map[string]*reservation{}
	var order []*reservation
	for i := range v.Lines {
		l := &v.Lines[i]
		if len(l.Subjects) == 0 {
			c.rows = append(c.rows, charge{line: l, billed: l.Amount.Minor(), effective: l.Amount.Minor()})
			continue
		}
		for j := range l.Subjects {
			s := &l.Subjects[j]
			c.rows = append(c.rows, charge{line: l, share: s, billed: s.Amount.Minor(), effective: s.Amount.Minor()})
			if !reserves(l) {
				continue
			}
			name := id.Reservation(s.Subject.ID).String()
			r := reservations[name]
			if r == nil {
				r = &reservation{id: name, line: l, share: s, quantity: new(big.Int)}
				reservations[name], order = r, append(order, r)
			}
			r.cost += s.Amount.Minor()
			r.quantity.Add(r.quantity, s.Quantity)
		}
	}
	c.amortize(reservations)
	for _, r := range order {
		if err := c.spread(r); err != nil {
			return charges{}, err
		}
	}
	if err := c.taxes(); err != nil {
		return charges{}, err
	}
	return c, c.applyPrepaid()
}

// reserves reports whether a line is the price of a reservation.
func reserves(l *billing.Line) bool {
	return l.Key.Meter == metering.Reservation && (l.Key.Component == billing.UsageCharge || l.Key.Component == "")
}

// coveredBy returns the reservation that covers a line, "" for none.
func coveredBy(l *billing.Line) string {
	if l.Key.Component == billing.Covered && l.Key.Pricing == billing.Reserved {
		return l.Key.Reference
	}
	return ""
}

// amortize takes the cost of purchases off their rows and finds who used them.
func (c *charges) amortize(reservations map[string]*reservation) {
	for i := range c.rows {
		l := c.rows[i].line
		switch {
		case reserves(l) && c.rows[i].share != nil, ahead(l):
			c.rows[i].effective = 0
		case coveredBy(l) != "" && c.rows[i].share != nil:
			if r := reservations[coveredBy(l)]; r != nil {
				r.uses = append(r.uses, i)
			}
		}
	}
}

// ahead reports whether a line is money for later: an advance, or its deduction.
func ahead(l *billing.Line) bool {
	return l.Key.Component == billing.AdvancePaid || l.Key.Component == billing.AdvanceOffset
}

// spread gives the cost of a reservation to what it covered and what stayed unused, by
// largest remainder over quantities.
func (c *charges) spread(r *reservation) error {
	r.left = new(big.Int).Set(r.quantity)
	weights := make([]*big.Rat, 0, len(r.uses)+1)
	for _, i := range r.uses {
		r.left.Sub(r.left, c.rows[i].share.Quantity)
		weights = append(weights, new(big.Rat).SetInt(c.rows[i].share.Quantity))
	}
	if r.left.Sign() < 0 {
		r.left.SetInt64(0)
	}
	weights = append(weights, new(big.Rat).SetInt(r.left))
	parts, err := money.Apportion(money.NewAmount(r.cost, c.v.Currency), weights)
	if err != nil {
		return err
	}
	for n, i := range r.uses {
		c.rows[i].effective = parts[n].Minor()
	}
	if r.left.Sign() > 0 {
		c.rows = append(c.rows, charge{line: r.line, unused: r, effective: parts[len(r.uses)].Minor()})
	}
	return nil
}

// taxes adds a row a tax. The tax of an advance belongs to the usage that it is
// deducted from: there EffectiveCost is the tax of what was used.
func (c *charges) taxes() error {
	for i := range c.v.Taxes {
		t := &c.v.Taxes[i]
		base := money.NewAmount(0, c.v.Currency)
		for j := range c.v.Lines {
			l := &c.v.Lines[j]
			if !ahead(l) || l.Key.TaxCategory != t.Category || l.TaxRatePPM != t.RatePPM {
				continue
			}
			var err error
			if base, err = base.Add(l.Amount); err != nil {
				return err
			}
		}
		before, err := base.Exact().Scale(big.NewRat(t.RatePPM, 1_000_000)).Round()
		if err != nil {
			return err
		}
		x := charge{tax: t, billed: t.Amount.Minor(), effective: t.Amount.Minor() - before.Minor()}
		if c.v.Kind == billing.AdvanceInvoice {
			x.effective = 0
		}
		if x.billed != 0 || x.effective != 0 {
			c.rows = append(c.rows, x)
		}
	}
	return nil
}

// applyPrepaid splits what the prepaid balance paid over the rows that cost something;
// of a credit note, what went back to it over the rows that give something back.
func (c *charges) applyPrepaid() error {
	paid := c.v.Settlement.Prepaid
	if paid.IsZero() {
		return nil
	}
	weights := make([]*big.Rat, len(c.rows))
	for i, x := range c.rows {
		weights[i] = new(big.Rat).SetInt64(max(x.billed*int64(paid.Sign()), 0))
	}
	parts, err := money.Apportion(paid, weights)
	if err != nil {
		return err
	}
	for i := range c.rows {
		c.rows[i].prepaid = parts[i].Minor()
	}
	return nil
}
