package rating

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/tranche-cloud/tranche/internal/metering"
)

// part is what one reservation covers of an atom at an instant.
type part struct {
	by    *reserved
	units int64
}

// running is an atom in the sweep: what has covered it since an instant.
type running struct {
	atom
	started int64
	since   int64
	parts   []part
}

// reserve charges what reservations cover and returns the rest. For each family and
// region it sweeps over the instants at which something starts or ends: covered(t) =
// min(running, reserved), oldest start first, ties by subject.
func (e *engine) reserve(atoms []atom) ([]atom, error) {
	if len(e.terms.reserved) == 0 {
		return atoms, nil
	}
	var rest []atom
	groups := map[placeKey][]atom{}
	for _, a := range atoms {
		k := placeKey{a.class.key.sku.Family, a.class.key.region}
		if a.class.key.meter != metering.GPU || len(e.terms.reserved[k]) == 0 {
			rest = append(rest, a)
			continue
		}
		groups[k] = append(groups[k], a)
	}
	for k, group := range groups {
		s := sweep{e: e, reserved: e.terms.reserved[k]}
		if err := s.run(group); err != nil {
			return nil, err
		}
		rest = append(rest, s.rest...)
	}
	return rest, nil
}

type sweep struct {
	e        *engine
	reserved []*reserved
	active   []*running // oldest start first
	covered  int        // how many of active have parts, at most
	rest     []atom
	scratch  []part
}

func (s *sweep) run(group []atom) error {
	slices.SortFunc(group, func(a, b atom) int { return cmp.Or(cmp.Compare(a.from, b.from), compareSubjects(a.u, b.u)) })
	instants := make([]int64, 0, 2*len(group)+2*len(s.reserved))
	for _, a := range group {
		instants = append(instants, a.from, a.to)
	}
	for _, r := range s.reserved {
		instants = append(instants, r.from, r.to)
	}
	slices.Sort(instants)
	ends := ending{}
	next := 0
	for _, t := range slices.Compact(instants) {
		for len(ends) > 0 && ends[0].to == t {
			r := ends.pop()
			if err := s.flush(r, t); err != nil {
				return err
			}
			at := slices.Index(s.active, r)
			s.active = slices.Delete(s.active, at, at+1)
		}
		for ; next < len(group) && group[next].from == t; next++ {
			r := &running{atom: group[next], since: t, started: s.e.first[startKey{group[next].u.Subject, group[next].u.StartID}]}
			at, _ := slices.BinarySearchFunc(s.active, r, compareRunning)
			s.active = slices.Insert(s.active, at, r)
			ends.push(r)
			if at < s.covered {
				s.covered++
			}
		}
		if err := s.allocate(t); err != nil {
			return err
		}
	}
	return nil
}

func compareRunning(a, b *running) int {
	return cmp.Or(cmp.Compare(a.started, b.started), compareSubjects(a.u, b.u), cmp.Compare(a.from, b.from))
}

// allocate gives the reserved units from t on to the oldest starts.
func (s *sweep) allocate(t int64) error {
	i, left := 0, int64(0)
	takes := func() bool { // moves on to a reservation with units left
		for left == 0 && i < len(s.reserved) {
			if r := s.reserved[i]; r.from <= t && t < r.to {
				left = r.Units
			}
			if left == 0 {
				i++
			}
		}
		return left > 0
	}
	reach := 0
	for at, r := range s.active {
		parts := s.scratch[:0]
		for want := r.units; want > 0 && takes(); {
			units := min(want, left)
			parts = append(parts, part{s.reserved[i], units})
			want, left = want-units, left-units
			if left == 0 {
				i++
			}
		}
		s.scratch = parts
		if len(parts) == 0 && at >= s.covered {
			break
		}
		if len(parts) > 0 {
			reach = at + 1
		}
		if slices.Equal(parts, r.parts) {
			continue
		}
		if err := s.flush(r, t); err != nil {
			return err
		}
		r.parts = append(r.parts[:0], parts...)
	}
	s.covered = reach
	return nil
}

// flush charges what covered an atom until t and keeps what did not.
func (s *sweep) flush(r *running, t int64) error {
	if r.since == t {
		return nil
	}
	bare := r.units
	for _, p := range r.parts {
		c := charge{u: r.u, class: r.class, from: r.since, to: t, units: p.units, cover: &p.by.cover}
		if err := s.e.emit(c); err != nil {
			return err
		}
		p.by.used = p.by.used.add(c.quantity())
		bare -= p.units
	}
	if bare > 0 {
		a := r.atom
		a.from, a.to, a.units = r.since, t, bare
		s.rest = append(s.rest, a)
	}
	r.since = t
	return nil
}

// ending is a heap of running atoms, the first to end on top.
type ending []*running

func (h *ending) push(r *running) {
	*h = append(*h, r)
	q := *h
	for i := len(q) - 1; i > 0 && q[i].to < q[(i-1)/2].to; i = (i - 1) / 2 {
		q[i], q[(i-1)/2] = q[(i-1)/2], q[i]
	}
}

func (h *ending) pop() *running {
	q := *h
	top := q[0]
	q[0] = q[len(q)-1]
	q = q[:len(q)-1]
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < len(q) && q[child+1].to < q[child].to {
			child++
		}
		if child >= len(q) || q[i].to <= q[child].to {
			break
		}
		q[i], q[child] = q[child], q[i]
		i = child
	}
	*h = q
	return top
}

// uses reports what each reservation of the window covered, ordered by id.
func (e *engine) uses() []ReservationUse {
	var out []ReservationUse
	for _, all := range e.terms.reserved {
		for _, r := range all {
			length := min(r.to, e.hi) - max(r.from, e.lo)
			if length <= 0 {
				continue
			}
			use := ReservationUse{ID: r.ID, Name: r.Name, Family: r.Family, Region: r.Region, Reserved: times(r.Units, length).big(), Used: r.used.big()}
			use.Unused = new(big.Int).Sub(use.Reserved, use.Used)
			out = append(out, use)
		}
	}
	slices.SortFunc(out, func(a, b ReservationUse) int {
		return cmp.Or(cmp.Compare(a.ID.String(), b.ID.String()), a.Reserved.Cmp(b.Reserved))
	})
	return out
}
