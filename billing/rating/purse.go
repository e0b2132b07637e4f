package rating

import (
	"bytes"
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// pot is what a line still comes to while amounts of the whole month are taken off.
type pot struct {
	net  money.Amount
	line *line // nil: of no usage, such as a shortfall
}

// purse holds the pots of a period and makes components 5 (in money) to 8 from them.
type purse struct {
	e      *engine
	pots   []*pot
	lines  []billing.Line
	promos []PromoUse
}

func (p *purse) put(l *line, net money.Amount) *pot {
	v := &pot{net: net, line: l}
	p.pots = append(p.pots, v)
	return v
}

// sort brings pots into the order of the document: amounts are split over them by
// largest remainder, ties to the earlier.
func (p *purse) sort() {
	slices.SortStableFunc(p.pots, func(x, y *pot) int {
		return compareKeys(x.line.key, y.line.key, x.line.class.key.sku.Code, y.line.class.key.sku.Code, x.line.from, y.line.from)
	})
}

// components makes the lines about the month's money.
func (p *purse) components() ([]billing.Line, error) {
	t := p.e.terms.amounts
	if len(t) == 0 && len(p.e.in.Terms.Promos) == 0 {
		return nil, nil
	}
	month := monthOf(p.e.in.Period.From.UnixMicro())
	if p.e.in.Period.Open() || p.e.in.Period.To.UnixMicro() > month[1] {
		return nil, internal("Terms with monthly amounts are rated one calendar month at a time.")
	}
	for i, term := range t {
		var err error
		switch term.component {
		case billing.CapCredit:
			err = p.capMoney(i, term)
		case billing.Commitment:
			err = p.commit(i, term, metering.Between(time.UnixMicro(month[0]), time.UnixMicro(month[1])))
		default:
			_, err = p.takeOff(term.component, term.reference, term.name, term.amount, p.eligible(i, term.scope))
		}
		if err != nil {
			return nil, fmt.Errorf("applying %s %s: %w", term.component, term.reference, err)
		}
	}
	return p.lines, p.promote()
}

// eligible returns the pots that a scope selects. Of an amount term that holds for a
// part of the month, only usage inside it counts.
func (p *purse) eligible(term int, s billing.Scope) []*pot {
	var out []*pot
	for _, v := range p.pots {
		switch {
		case v.line == nil:
			if s != (billing.Scope{}) {
				continue
			}
		case !v.line.class.in(s):
			continue
		case term >= 0 && v.line.rate != nil && v.line.rate.inside != nil && !v.line.rate.inside[term]:
			continue
		}
		out = append(out, v)
	}
	return out
}

func (p *purse) net(pots []*pot) (money.Amount, error) {
	sum := money.NewAmount(0, p.e.in.Currency)
	for _, v := range pots {
		next, err := sum.Add(v.net)
		if err != nil {
			return money.Amount{}, err
		}
		sum = next
	}
	return sum, nil
}

// takeOff adds a negative line of at most the pots' net, and takes it out of them by
// largest remainder. It returns how much that was.
func (p *purse) takeOff(component billing.Component, reference, name string, amount money.Amount, pots []*pot) (money.Amount, error) {
	net, err := p.net(pots)
	if err != nil {
		return money.Amount{}, err
	}
	off := money.NewAmount(max(min(amount.Minor(), net.Minor()), 0), p.e.in.Currency)
	if off.IsZero() {
		return off, nil
	}
	weights := make([]*big.Rat, len(pots))
	for i, v := range pots {
		weights[i] = new(big.Rat).SetInt64(max(v.net.Minor(), 0))
	}
	parts, err := money.Apportion(off, weights)
	if err != nil {
		return money.Amount{}, err
	}
	for i, v := range pots {
		if v.net, err = v.net.Sub(parts[i]); err != nil {
			return money.Amount{}, err
		}
	}
	negative, err := off.Neg()
	if err != nil {
		return money.Amount{}, err
	}
	p.add(component, reference, name, negative.Exact(), negative)
	return off, nil
}

// capMoney takes off what the month's net exceeds the contract's cap by.
func (p *purse) capMoney(i int, term amountTerm) error {
	pots := p.eligible(i, term.scope)
	net, err := p.net(pots)
	if err != nil {
		return err
	}
	excess, err := net.Sub(term.amount)
	if err != nil || excess.Sign() <= 0 {
		return err
	}
	_, err = p.takeOff(term.component, term.reference, "monthly cap", excess, pots)
	return err
}

// commit adds what eligible usage lacks of the committed amount, once the period is
// over. Of a commitment that holds for a part of the month, that part is due.
func (p *purse) commit(i int, term amountTerm, month metering.Interval) error {
	if p.e.in.At.Before(p.e.in.Period.To) {
		return nil
	}
	net, err := p.net(p.eligible(i, term.scope))
	if err != nil {
		return err
	}
	due := term.amount.Exact()
	if held := term.during.Intersect(month); held != month {
		due = due.Scale(big.NewRat(held.Micros(), month.Micros()))
	}
	lacks, err := due.Sub(net.Exact())
	if err != nil || lacks.Rat().Sign() <= 0 {
		return err
	}
	amount, err := lacks.Round()
	if err != nil || amount.IsZero() {
		return err
	}
	p.add(term.component, term.reference, term.name, lacks, amount)
	p.put(nil, amount)
	return nil
}

// promote uses promotional grants in their order on what is left.
func (p *purse) promote() error {
	promos := slices.Clone(p.e.in.Terms.Promos)
	slices.SortFunc(promos, func(a, b billing.Promo) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), compareExpiry(a.Expires, b.Expires), bytes.Compare(a.Grant[:], b.Grant[:]))
	})
	for _, g := range promos {
		use := PromoUse{Grant: g.Grant, Used: money.NewAmount(0, p.e.in.Currency), Left: g.Remaining}
		if g.Expires.IsZero() || g.Expires.After(p.e.in.Period.From) {
			used, err := p.takeOff(billing.PromoCredit, g.Grant.String(), g.Name, g.Remaining, p.eligible(-1, g.Scope))
			if err != nil {
				return fmt.Errorf("using grant %s: %w", g.Grant, err)
			}
			use.Used = used
			if use.Left, err = g.Remaining.Sub(used); err != nil {
				return fmt.Errorf("using grant %s: %w", g.Grant, err)
			}
		}
		p.promos = append(p.promos, use)
	}
	return nil
}

// compareExpiry puts what never expires last.
func compareExpiry(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return cmp.Compare(boolInt(a.IsZero()), boolInt(b.IsZero()))
	}
	return a.Compare(b)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// add appends a flat line. Two terms of one contract with one name are told apart.
func (p *purse) add(component billing.Component, reference, name string, exact money.Exact, amount money.Amount) {
	key := billing.LineKey{Component: component, Reference: reference, Variant: name, TaxCategory: billing.OutsideScope}
	for n := 2; slices.ContainsFunc(p.lines, func(l billing.Line) bool { return l.Key == key }); n++ {
		key.Variant = fmt.Sprintf("%s (%d)", name, n)
	}
	p.lines = append(p.lines, billing.Line{
		Key: key, Description: cmp.Or(name, string(component)), Quantity: new(big.Int), Divisor: 1,
		UnitPrice: zeroPrice(amount.Currency()), Exact: exact, Amount: amount, During: p.e.in.Period,
	})
}
