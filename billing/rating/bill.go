package rating

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// bill gathers the charges of a period into lines, and what later components need
// to know of them: the last charge of each start, the time of each slot.
type bill struct {
	e     *engine
	lines map[billing.LineKey]*line
	ends  map[[16]byte]*lastCharge // of the starts with a possible minimum
	slots map[slotKey]*slotUse
}

// line gathers the charges of one key.
type line struct {
	key       billing.LineKey
	class     *class
	rate      *rate // of the first charge; nil if covered
	cover     *cover
	price     money.Price
	sum       quantity
	byPrice   map[money.Price]*quantity // of a spot line, whose price varies
	packages  int64
	from, to  int64
	simulated bool
	project   named
	shares    map[metering.Subject]*share
	last      *share // of the subject that came last: segments come subject by subject
	lastOf    metering.Subject
}

// named is the newest name of something.
type named struct {
	name string
	at   int64
}

func (n *named) see(name string, at int64) {
	if at > n.at || n.name == "" || at == n.at && name > n.name {
		n.name, n.at = name, at
	}
}

type share struct {
	named
	sum   quantity
	facts []fact
}

// fact is a part of a segment in a share.
type fact struct {
	u               *Usage
	class           *class
	from, to, units int64
}

func (b *bill) add(c charge) error {
	l, err := b.lineOf(c)
	if err != nil {
		return err
	}
	q := c.quantity()
	if l.byPrice != nil {
		p := c.rate.price(c.tier)
		if l.byPrice[p] == nil {
			l.byPrice[p] = new(quantity)
		}
		*l.byPrice[p] = l.byPrice[p].add(q)
	}
	l.sum = l.sum.add(q)
	l.packages += c.packages
	l.from, l.to = min(l.from, c.from), max(l.to, c.to)
	l.simulated = l.simulated || c.u.Simulated
	l.project.see(c.u.ProjectName, c.from)
	s := l.last
	if s == nil || l.lastOf != c.u.Subject {
		if s = l.shares[c.u.Subject]; s == nil {
			s = &share{facts: make([]fact, 0, 8)}
			l.shares[c.u.Subject] = s
		}
		l.last, l.lastOf = s, c.u.Subject
	}
	s.see(c.u.SubjectName, c.from)
	if c.packages == 0 {
		s.sum = s.sum.add(q)
		s.facts = append(s.facts, fact{c.u, c.class, c.from, c.to, c.units})
		b.remember(c, l)
	}
	return nil
}

// lineOf returns the line of a charge. Two prices under one key are a fault: the
// document could not say how its amount came about.
func (b *bill) lineOf(c charge) (*line, error) {
	if c.cover != nil {
		return b.line(c.key(), c, b.e.in.Currency), nil
	}
	r := c.rate
	for len(r.lines) <= c.tier {
		r.lines = append(r.lines, nil)
	}
	if l := r.lines[c.tier]; l != nil {
		return l, nil
	}
	l := b.line(c.key(), c, b.e.in.Currency)
	if l.price != r.price(c.tier) && l.byPrice == nil {
		return nil, internal("One price version gives %s and %s for one SKU.", l.price, r.price(c.tier))
	}
	r.lines[c.tier] = l
	return l, nil
}

func coveredKey(c charge) billing.LineKey {
	return billing.LineKey{
		Component: c.cover.component, Reference: c.cover.reference, Variant: c.cover.variant,
		Project: c.class.key.project, Meter: c.class.key.meter, SKU: c.class.key.sku.ID,
		IsolationGPU: c.class.key.sku.IsolationGPU, IsolationHost: c.class.key.sku.IsolationHost,
		Pricing: c.cover.pricing, TaxCategory: billing.OutsideScope,
	}
}

func (b *bill) line(key billing.LineKey, c charge, currency money.Currency) *line {
	if l := b.lines[key]; l != nil {
		return l
	}
	l := &line{key: key, class: c.class, rate: c.rate, cover: c.cover, from: c.from, to: c.to, shares: map[metering.Subject]*share{}}
	switch {
	case c.cover != nil:
		l.price = zeroPrice(currency)
	case key.Pricing == billing.Spot:
		l.byPrice = map[money.Price]*quantity{}
	default:
		l.price = c.rate.price(c.tier)
	}
	b.lines[key] = l
	return l
}

func zeroPrice(c money.Currency) money.Price {
	p, err := money.PriceOf(new(big.Int), c)
	if err != nil {
		panic("rating: nothing is a price")
	}
	return p
}

// gross is the exact money of the line before discounts: one division.
func (l *line) gross() *big.Rat {
	if l.packages > 0 || l.packaged() {
		return new(big.Rat).SetFrac(new(big.Int).Mul(l.price.Pico(), big.NewInt(l.packages)), pico)
	}
	sum := new(big.Int)
	if l.byPrice == nil {
		sum.Mul(l.price.Pico(), l.sum.big())
	}
	for p, q := range l.byPrice {
		sum.Add(sum, new(big.Int).Mul(p.Pico(), q.big()))
	}
	return new(big.Rat).SetFrac(sum, new(big.Int).Mul(pico, big.NewInt(l.class.unit.Divisor)))
}

// pico is one currency unit in the unit of prices.
var pico = big.NewInt(1_000_000_000_000)

func (r *rate) packaged() bool { return r.tariff.kind == billing.Package }

func (l *line) packaged() bool { return l.rate != nil && l.rate.packaged() }

// unitPrice is the price of the line; of a spot line the mean, rounded.
func (l *line) unitPrice() (money.Price, error) {
	if len(l.byPrice) == 0 {
		return l.price, nil
	}
	mean := l.gross()
	if l.sum.zero() {
		for p := range l.byPrice { // nothing was used: any of its prices
			l.price = cmp.Or(l.price, p)
		}
		return l.price, nil
	}
	mean.Mul(mean, new(big.Rat).SetFrac(new(big.Int).Mul(pico, big.NewInt(l.class.unit.Divisor)), l.sum.big()))
	return money.PriceOf(money.RoundHalfAway(mean.Num(), mean.Denom()), l.currency())
}

func (l *line) currency() money.Currency {
	for p := range l.byPrice {
		return p.Currency()
	}
	return l.price.Currency()
}

// factor is what discounts leave of the line.
func (l *line) factor() *big.Rat {
	if l.rate == nil {
		return big.NewRat(1, 1)
	}
	return l.rate.factor
}

// sorted returns the lines in the order of their keys, so that everything computed
// from them is computed in one order.
func (b *bill) sorted() []*line {
	out := make([]*line, 0, len(b.lines))
	for _, l := range b.lines {
		out = append(out, l)
	}
	slices.SortFunc(out, func(x, y *line) int {
		return compareKeys(x.key, y.key, x.class.key.sku.Code, y.class.key.sku.Code, x.from, y.from)
	})
	return out
}
