package rating

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/money"
)

// A pool is consumed in order of instant, then subject, unit by unit. It reaches a
// bound inside one microsecond, of which the first units lie below the bound and the
// rest above. That microsecond is a cut.
type cut struct {
	at    int64         // the microsecond
	below map[int]int64 // of the atoms of that microsecond: units below the bound
}

// cuts returns where a pool of atoms reaches each of the ordered bounds; bounds that
// it does not reach have none.
func cuts(atoms []atom, bounds []quantity) ([]cut, error) {
	var out []cut
	err := stretches(atoms, func(from, to, rate int64, filled quantity) {
		end := filled.add(times(rate, to-from))
		for len(out) < len(bounds) && !end.less(bounds[len(out)]) {
			whole, rest := bounds[len(out)].sub(filled).over(rate)
			out = append(out, cut{at: from + whole, below: spread(atoms, from+whole, rest)})
		}
	})
	return out, err
}

// stretches calls f for each stretch of time in which the same atoms run: so many
// units at once, so much consumed before.
func stretches(atoms []atom, f func(from, to, rate int64, filled quantity)) error {
	type change struct{ at, units int64 }
	changes := make([]change, 0, 2*len(atoms))
	for _, a := range atoms {
		changes = append(changes, change{a.from, a.units}, change{a.to, -a.units})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.units, b.units)) })
	rate, filled := int64(0), quantity{}
	for i, c := range changes {
		if i > 0 && rate > 0 && changes[i-1].at < c.at {
			f(changes[i-1].at, c.at, rate, filled)
			filled = filled.add(times(rate, c.at-changes[i-1].at))
		}
		if rate += c.units; rate > math.MaxInt64/4 {
			return fmt.Errorf("%w: %d units at once", money.ErrRange, rate)
		}
	}
	return nil
}

// during returns the atoms that run in a microsecond, in the order of consumption.
func during(atoms []atom, at int64) []int {
	var running []int
	for i, a := range atoms {
		if a.from <= at && at < a.to {
			running = append(running, i)
		}
	}
	slices.SortFunc(running, func(a, b int) int { return compareSubjects(atoms[a].u, atoms[b].u) })
	return running
}

// spread gives the first units of a microsecond to its atoms in order.
func spread(atoms []atom, at, units int64) map[int]int64 {
	if units == 0 {
		return nil
	}
	below := map[int]int64{}
	for _, i := range during(atoms, at) {
		below[i] = min(units, atoms[i].units)
		if units -= below[i]; units == 0 {
			break
		}
	}
	return below
}

// divide emits the parts of every atom with the 0-based part of the pool they lie
// in: part k ends at bound k, the last has no end.
func divide(atoms []atom, bounds []quantity, emit func(a atom, k int) error) error {
	if len(atoms) > 0 && atoms[0].class.counted {
		return divideCounted(atoms, bounds, emit)
	}
	reached, err := cuts(atoms, bounds)
	if err != nil {
		return err
	}
	for i, a := range atoms {
		if err := divideOne(i, a, reached, emit); err != nil {
			return err
		}
	}
	return nil
}

func divideOne(i int, a atom, reached []cut, emit func(a atom, k int) error) error {
	gone := int64(0) // units of the microsecond at a.from that were emitted already
	upTo := func(end int64, k int) error {
		if gone > 0 && a.from < end {
			first := a
			first.to, first.units = a.from+1, a.units-gone
			a.from, gone = a.from+1, 0
			if first.units > 0 {
				if err := emit(first, k); err != nil {
					return err
				}
			}
		}
		if a.from >= end {
			return nil
		}
		part := a
		part.to = end
		a.from = end
		return emit(part, k)
	}
	for k, c := range reached {
		if c.at >= a.to {
			return upTo(a.to, k)
		}
		if c.at < a.from {
			continue
		}
		if err := upTo(c.at, k); err != nil {
			return err
		}
		if below := c.below[i]; below > gone {
			part := a
			part.to, part.units = a.from+1, below-gone
			gone = below
			if err := emit(part, k); err != nil {
				return err
			}
		}
	}
	return upTo(a.to, len(reached))
}

// divideCounted is divide for what is counted at instants.
func divideCounted(atoms []atom, bounds []quantity, emit func(a atom, k int) error) error {
	sorted := slices.Clone(atoms)
	slices.SortFunc(sorted, func(a, b atom) int { return cmp.Or(cmp.Compare(a.from, b.from), compareSubjects(a.u, b.u)) })
	filled, k := quantity{}, 0
	for _, a := range sorted {
		for a.units > 0 {
			part := a
			if k < len(bounds) {
				room := bounds[k].sub(filled)
				if room.zero() {
					k++
					continue
				}
				if room.less(quantity{lo: uint64(a.units)}) {
					part.units = int64(room.lo)
				}
			}
			filled = filled.add(quantity{lo: uint64(part.units)})
			a.units -= part.units
			if err := emit(part, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// free charges what a free quota covers and returns the rest.
func (e *engine) free(q *quota, atoms []atom) ([]atom, error) {
	var pool, rest []atom
	for _, a := range atoms {
		inside, outside := q.part(a)
		pool, rest = append(pool, inside...), append(rest, outside...)
	}
	err := divide(pool, []quantity{q.bound}, func(a atom, k int) error {
		if k > 0 {
			rest = append(rest, a)
			return nil
		}
		return e.emit(charge{u: a.u, class: a.class, from: a.from, to: a.to, units: a.units, cover: &q.cover})
	})
	return rest, err
}

// part tells the part of an atom that the quota is for from the rest.
func (q *quota) part(a atom) (inside, outside []atom) {
	if !a.class.in(q.scope) || a.from >= q.to || a.class.counted && a.from < q.from {
		return nil, []atom{a}
	}
	if a.class.counted {
		return []atom{a}, nil
	}
	if a.from < q.from {
		before := a
		before.to = min(a.to, q.from)
		outside, a.from = append(outside, before), before.to
	}
	if a.to > q.to {
		after := a
		after.from, a.to = q.to, q.to
		outside = append(outside, after)
	}
	if a.from < a.to {
		inside = append(inside, a)
	}
	return inside, outside
}

// tiers charges a pool at the steps of its prices. Steps of all prices are read at
// one position: that of the whole pool.
func (e *engine) tiers(pool []atom) error {
	var bounds []quantity
	total := quantity{}
	packages := map[string][]atom{}
	seen := map[*rate]bool{}
	for _, a := range pool {
		total = total.add(charge{class: a.class, from: a.from, to: a.to, units: a.units}.quantity())
		if a.rate.tariff.kind == billing.Package {
			k := a.rate.tariff.String()
			packages[k] = append(packages[k], a)
		}
		if a.rate.tariff.kind != billing.Graduated || seen[a.rate] {
			continue
		}
		seen[a.rate] = true
		for _, s := range a.rate.tariff.steps[:len(a.rate.tariff.steps)-1] {
			bounds = append(bounds, s.upTo)
		}
	}
	slices.SortFunc(bounds, compareQuantities)
	bounds = slices.Compact(bounds)
	err := divide(pool, bounds, func(a atom, k int) error {
		c := charge{u: a.u, class: a.class, rate: a.rate, from: a.from, to: a.to, units: a.units}
		switch t := a.rate.tariff; t.kind {
		case billing.Graduated:
			last := k == len(bounds)
			if last {
				c.tier = t.tierAt(quantity{}, true)
			} else {
				c.tier = t.tierAt(bounds[k], false)
			}
		case billing.Volume:
			c.tier = t.tierAt(total, false)
		case billing.Package:
			c.tier = 1
		}
		return e.emit(c)
	})
	if err != nil {
		return err
	}
	for _, atoms := range packages {
		if err := e.openings(atoms); err != nil {
			return err
		}
	}
	return nil
}

func compareQuantities(a, b quantity) int {
	return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo))
}

// openings charges whole packages: whoever uses the first unit of one pays it.
func (e *engine) openings(atoms []atom) error {
	size := atoms[0].rate.tariff.size
	due := quantity{} // the position at which the next package opens
	open := func(a atom, at int64) error {
		return e.emit(charge{u: a.u, class: a.class, rate: a.rate, from: at, to: at, tier: 1, packages: 1})
	}
	if atoms[0].class.counted {
		return openCounted(atoms, size, open)
	}
	var failed error
	err := stretches(atoms, func(from, to, rate int64, filled quantity) {
		end := filled.add(times(rate, to-from))
		var running []int
		for due.less(end) && failed == nil {
			if running == nil {
				running = during(atoms, from)
			}
			whole, rest := due.sub(filled).over(rate)
			for _, i := range running {
				if rest < atoms[i].units {
					failed = open(atoms[i], from+whole)
					break
				}
				rest -= atoms[i].units
			}
			due = due.add(size)
		}
	})
	return cmp.Or(err, failed)
}

func openCounted(atoms []atom, size quantity, open func(atom, int64) error) error {
	sorted := slices.Clone(atoms)
	slices.SortFunc(sorted, func(a, b atom) int { return cmp.Or(cmp.Compare(a.from, b.from), compareSubjects(a.u, b.u)) })
	filled, due := quantity{}, quantity{}
	for _, a := range sorted {
		filled = filled.add(quantity{lo: uint64(a.units)})
		for due.less(filled) {
			if err := open(a, a.from); err != nil {
				return err
			}
			due = due.add(size)
		}
	}
	return nil
}
