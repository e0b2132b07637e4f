package rating

import (
	"bytes"
	"cmp"
	"math/big"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
)

// slotKey is a slot under a cap in a calendar month.
type slotKey struct {
	cap   *hourCap
	slot  [16]byte
	month int64
}

// slotUse is what a slot was charged for.
type slotUse struct {
	sum   quantity
	units int64 // the most of a segment
	parts map[slotPart]*quantity
}

type slotPart struct {
	line    *line
	subject metering.Subject
}

// capMatches reports whether a cap counts a class: a cap without a meter is about
// the time of GPUs, and what is counted has no hours.
func capMatches(s billing.Scope, c *class) bool {
	if s.Meter == "" {
		s.Meter = metering.GPU
	}
	return !c.counted && c.in(s)
}

// seeSlot counts a charge for the lowest cap that touches it.
func (b *bill) seeSlot(c charge, l *line) {
	for _, k := range c.class.caps {
		from, to := max(c.from, k.from), min(c.to, k.to)
		if from >= to {
			continue
		}
		slot := c.u.Slot
		if slot == ([16]byte{}) {
			slot = c.u.Subject.ID
		}
		for from < to {
			month := monthOf(from)
			end := min(to, month[1])
			b.slot(slotKey{k, slot, month[0]}).see(slotPart{l, c.u.Subject}, times(c.units, end-from), c.u.Units)
			from = end
		}
		return
	}
}

func (b *bill) slot(k slotKey) *slotUse {
	s := b.slots[k]
	if s == nil {
		s = &slotUse{parts: map[slotPart]*quantity{}}
		b.slots[k] = s
	}
	return s
}

func (s *slotUse) see(p slotPart, q quantity, units int64) {
	s.sum, s.units = s.sum.add(q), max(s.units, units)
	if s.parts[p] == nil {
		s.parts[p] = new(quantity)
	}
	*s.parts[p] = s.parts[p].add(q)
}

// capped returns what slots used beyond their caps, taken from their lines in
// proportion to the quantities there.
func (b *bill) capped() []*derived {
	type madeKey struct {
		base      *line
		reference string
	}
	made := map[madeKey]*derived{}
	var out []*derived
	for key, s := range b.slots {
		limit := new(big.Int).Mul(big.NewInt(key.cap.Hours*hourMicros), big.NewInt(s.units))
		excess := new(big.Int).Sub(s.sum.big(), limit)
		if excess.Sign() <= 0 {
			continue
		}
		parts := s.ordered()
		weights := make([]*big.Int, len(parts))
		for i, p := range parts {
			weights[i] = s.parts[p].big()
		}
		for i, off := range apportioned(excess, weights) {
			if off.Sign() == 0 {
				continue
			}
			k := madeKey{parts[i].line, key.cap.Contract.String()}
			d := made[k]
			if d == nil {
				d = newDerived(parts[i].line, billing.CapCredit, k.reference)
				made[k] = d
				out = append(out, d)
			}
			d.add(parts[i].subject, off.Neg(off), parts[i].line.price.Pico())
		}
	}
	return out
}

const hourMicros = 3_600_000_000

func (s *slotUse) ordered() []slotPart {
	parts := make([]slotPart, 0, len(s.parts))
	for p := range s.parts {
		parts = append(parts, p)
	}
	slices.SortFunc(parts, func(x, y slotPart) int {
		return cmp.Or(
			compareKeys(x.line.key, y.line.key, x.line.class.key.sku.Code, y.line.class.key.sku.Code, x.line.from, y.line.from),
			bytes.Compare(x.subject.ID[:], y.subject.ID[:]), cmp.Compare(x.subject.Kind, y.subject.Kind))
	})
	return parts
}
