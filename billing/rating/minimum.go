package rating

import (
	"math/big"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
)

// lastCharge is where a start ended: its top-up has the price of that moment.
type lastCharge struct {
	start billing.Start
	at    charge
	line  *line
}

// derived is a line made from other lines: a top-up or what a cap takes off.
type derived struct {
	base      *line
	component billing.Component
	reference string
	sum       *big.Int // may be negative
	gross     *big.Rat
	shares    map[metering.Subject]*big.Int
}

func newDerived(base *line, component billing.Component, reference string) *derived {
	return &derived{
		base: base, component: component, reference: reference,
		sum: new(big.Int), gross: new(big.Rat), shares: map[metering.Subject]*big.Int{},
	}
}

// add puts a quantity at a price, of one subject.
func (d *derived) add(subject metering.Subject, q *big.Int, pico12 *big.Int) {
	d.sum.Add(d.sum, q)
	money := new(big.Rat).SetFrac(new(big.Int).Mul(pico12, q), new(big.Int).Mul(pico, big.NewInt(d.base.class.unit.Divisor)))
	d.gross.Add(d.gross, money)
	if d.shares[subject] == nil {
		d.shares[subject] = new(big.Int)
	}
	d.shares[subject].Add(d.shares[subject], q)
}

// expectMinimums lists the starts that may owe a minimum: those the tenant ended in
// the window.
func (b *bill) expectMinimums() {
	b.ends = map[[16]byte]*lastCharge{}
	if len(b.e.in.Terms.Minimums) == 0 {
		return
	}
	for _, s := range b.e.in.Terms.Starts {
		ended := s.Ended.UnixMicro()
		if s.Party == "tenant" && !s.Preempted && ended > b.e.lo && ended <= b.e.hi {
			b.ends[s.ID] = &lastCharge{start: s}
		}
	}
}

// remember keeps the charge in which a start ended, and the time of slots.
func (b *bill) remember(c charge, l *line) {
	if len(b.ends) > 0 && c.class.key.meter == metering.GPU {
		if end := b.ends[c.u.StartID]; end != nil && end.before(c) {
			end.at, end.line = c, l
		}
	}
	if len(c.class.caps) > 0 && c.cover == nil && !l.packaged() {
		b.seeSlot(c, l)
	}
}

// before reports whether a charge is a later end: at one instant the paid and higher
// tier counts, so that a start is waived only if its last unit was all covered.
func (l *lastCharge) before(c charge) bool {
	if l.line == nil || l.at.to != c.to {
		return l.line == nil || l.at.to < c.to
	}
	if (l.at.cover == nil) != (c.cover == nil) {
		return c.cover == nil
	}
	return l.at.tier < c.tier
}

// minimums returns what short starts lack of their minimum: once a start, over all
// months, at the price of their end.
func (b *bill) minimums() []*derived {
	if len(b.ends) == 0 {
		return nil
	}
	made := map[*line]*derived{}
	var out []*derived
	wall := map[[16]byte]int64{}
	for _, v := range b.e.entries {
		if v.u.Meter == metering.GPU && b.ends[v.u.StartID] != nil {
			wall[v.u.StartID] += v.to - v.from
		}
	}
	for start, end := range b.ends {
		if end.line == nil || end.at.cover != nil || end.line.packaged() {
			continue
		}
		missing := b.minimumOf(end) - end.start.Earlier - wall[start]
		if missing <= 0 {
			continue
		}
		d := made[end.line]
		if d == nil {
			d = newDerived(end.line, billing.MinimumCharge, end.line.key.Reference)
			made[end.line] = d
			out = append(out, d)
		}
		q := times(end.at.u.Units, missing).big()
		d.add(end.at.u.Subject, q, end.at.rate.price(end.at.tier).Pico())
	}
	return out
}

// minimumOf is the longest minimum that was agreed when the start began.
func (b *bill) minimumOf(end *lastCharge) int64 {
	first := b.e.first[startKey{end.at.u.Subject, end.at.u.StartID}]
	longest := int64(0)
	for _, m := range b.e.in.Terms.Minimums {
		from, to := micros(m.During)
		if end.at.class.in(m.Scope) && first >= from && first < to {
			longest = max(longest, m.Micros)
		}
	}
	return longest
}
