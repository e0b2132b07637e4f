package rating

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
)

// engine turns usage into charges: every unit·microsecond of the window belongs to
// exactly one charge. Lines, views and traces are sums of charges.
type engine struct {
	in      *Inputs
	lo, hi  int64 // the window, already cut at Inputs.At
	usage   []*Usage
	entries []entry // of the usage inside the window, in its order
	classes map[classKey]*class
	terms   agreed
	first   map[startKey]int64 // first instants of starts, if a term asks for them
	early   map[[16]byte]bool  // starts that were preempted within the free notice
	pools   map[poolKey]bool   // pools with a tiered price
	emit    func(charge) error
}

// entry is a segment's part in the window.
type entry struct {
	u        *Usage
	class    *class
	from, to int64
}

// charge is a part of a segment with one price: units at once over [from, to). Of a
// counted meter, from = to and units is the quantity.
type charge struct {
	u        *Usage
	class    *class
	rate     *rate // nil if covered
	from, to int64
	units    int64
	tier     int    // 1… of a tiered price
	cover    *cover // what makes it free, nil: nothing
	packages int64  // whole packages that this instant opens; units is 0 then
}

func (c charge) quantity() quantity {
	if c.class.counted {
		return quantity{lo: uint64(c.units)}
	}
	return times(c.units, c.to-c.from)
}

// cover is what makes usage free.
type cover struct {
	component billing.Component
	pricing   billing.PricingKind
	reference string
	variant   string
	name      string
}

// atom is a part of a segment on its way to a charge.
type atom struct {
	u        *Usage
	class    *class
	rate     *rate // once its price is known
	from, to int64
	units    int64
}

// classKey is what prices usage: segments that share it share their prices at any
// instant.
type classKey struct {
	project [16]byte
	meter   metering.Meter
	sku     billing.SKU
	book    [16]byte
	locked  bool
	lock    billing.Lock
	pricing billing.PricingKind
	region  string
}

// class is the price schedule of one classKey over the window.
type class struct {
	key     classKey
	unit    metering.Unit
	counted bool
	pieces  []piece
	digest  [8]byte
	caps    []*hourCap
	plain   bool // no coverage, quota or pool touches it
}

type startKey struct {
	subject metering.Subject
	start   [16]byte
}

type poolKey struct {
	family string
	meter  metering.Meter
}

// newEngine arranges the inputs over a window. It fails with fault.Internal for
// usage that contradicts itself, with fault.Invalid for terms that fail their check.
func newEngine(in *Inputs, window metering.Interval) (*engine, error) {
	if err := in.Terms.Check(in.Currency); err != nil {
		return nil, fmt.Errorf("checking terms: %w", err)
	}
	usage, err := arranged(in.Usage)
	if err != nil {
		return nil, err
	}
	e := &engine{in: in, usage: usage, classes: map[classKey]*class{}, pools: map[poolKey]bool{}}
	e.lo, e.hi = micros(window)
	e.hi = min(e.hi, in.At.UnixMicro())
	if e.terms, err = agree(in, window); err != nil {
		return nil, err
	}
	if e.terms.needStarts {
		e.findStarts()
	}
	return e, e.classify()
}

// span returns the part of a segment inside the window; false if there is none.
func (e *engine) span(u *Usage) (from, to int64, ok bool) {
	from, to = micros(u.During)
	if u.Meter == metering.Egress { // counted: all of it belongs to its first instant
		return from, from, from >= e.lo && from < e.hi
	}
	from, to = max(from, e.lo), min(to, e.hi)
	return from, to, from < to
}

// classify finds the class of each segment in the window.
func (e *engine) classify() error {
	e.entries = make([]entry, 0, len(e.usage))
	var last *class
	for _, u := range e.usage {
		from, to, ok := e.span(u)
		if !ok {
			continue
		}
		if last == nil || !last.prices(u) {
			key := keyOf(u)
			if last = e.classes[key]; last == nil {
				made, err := e.newClass(key)
				if err != nil {
					return err
				}
				last, e.classes[key] = made, made
			}
		}
		e.entries = append(e.entries, entry{u, last, from, to})
	}
	for _, c := range e.classes {
		c.plain = !e.touched(c)
	}
	return nil
}

// prices reports whether the class is that of a segment.
func (c *class) prices(u *Usage) bool {
	if c.key.locked != (u.Lock != nil) || c.key.locked && c.key.lock != *u.Lock {
		return false
	}
	return c.key.project == u.Project && c.key.meter == u.Meter && c.key.book == u.Book && c.key.pricing == u.Pricing &&
		c.key.region == u.Region && c.key.sku == u.SKU
}

func keyOf(u *Usage) classKey {
	k := classKey{project: u.Project, meter: u.Meter, sku: u.SKU, book: u.Book, pricing: u.Pricing, region: u.Region}
	if u.Lock != nil {
		k.locked, k.lock = true, *u.Lock
	}
	return k
}

// touched reports whether what a unit of the class costs depends on other usage.
func (e *engine) touched(c *class) bool {
	if c.key.pricing == billing.Spot {
		return false
	}
	if e.pools[poolKey{c.key.sku.Family, c.key.meter}] {
		return true
	}
	if c.key.meter == metering.GPU && len(e.terms.reserved[placeKey{c.key.sku.Family, c.key.region}]) > 0 {
		return true
	}
	return slices.ContainsFunc(e.terms.quotas, func(q quota) bool { return q.scope.Matches(c.key.meter, c.key.sku.Family, c.key.sku.ID) })
}

// run emits every charge of the window.
func (e *engine) run(emit func(charge) error) error {
	e.emit = emit
	later := map[int64][]atom{} // by first microsecond of the month
	var month [2]int64
	for _, v := range e.entries {
		u, from, to := v.u, v.from, v.to
		a := atom{u: u, class: v.class, from: from, to: to, units: u.Units}
		var err error
		switch {
		case len(e.early) > 0 && e.early[u.StartID] && u.Meter == metering.GPU:
			err = e.emit(charge{u: u, class: a.class, from: from, to: to, units: a.units, cover: preemptedEarly})
		case a.class.plain:
			err = e.pieces(a, e.flat)
		default:
			for a.from < to || a.class.counted {
				if a.from < month[0] || a.from >= month[1] {
					month = monthOf(a.from)
				}
				part := a
				part.to = min(to, month[1])
				later[month[0]] = append(later[month[0]], part)
				a.from = part.to
				if a.class.counted {
					break
				}
			}
		}
		if err != nil {
			return err
		}
	}
	months := make([]int64, 0, len(later))
	for m := range later {
		months = append(months, m)
	}
	slices.Sort(months)
	for _, m := range months {
		if err := e.pooled(later[m]); err != nil {
			return err
		}
	}
	return nil
}

// monthOf returns the bounds of the calendar month (UTC) of an instant.
func monthOf(at int64) [2]int64 {
	y, m, _ := time.UnixMicro(at).UTC().Date()
	first := time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
	return [2]int64{first.UnixMicro(), first.AddDate(0, 1, 0).UnixMicro()}
}

// flat emits an atom whose price does not depend on a pool.
func (e *engine) flat(a atom) error {
	return e.emit(charge{u: a.u, class: a.class, rate: a.rate, from: a.from, to: a.to, units: a.units})
}

// pieces cuts an atom where its price changes.
func (e *engine) pieces(a atom, each func(atom) error) error {
	all := a.class.pieces
	i := 0
	if len(all) > 1 {
		i, _ = slices.BinarySearchFunc(all, a.from, func(p piece, at int64) int {
			if p.to > at {
				return 1
			}
			return -1
		})
	}
	for ; i < len(all); i++ {
		p := &all[i]
		part := a
		part.rate = p.rate
		if !a.class.counted {
			part.from, part.to = max(a.from, p.from), min(a.to, p.to)
		}
		if p.err != nil {
			return fmt.Errorf("pricing segment %s: %w", a.u.ID, p.err)
		}
		if err := each(part); err != nil {
			return err
		}
		if p.to >= a.to || a.class.counted {
			return nil
		}
	}
	return nil
}

// pooled charges the usage of one month of which the price depends on other usage:
// reservations first, free quotas next, tiers of what is left.
func (e *engine) pooled(atoms []atom) error {
	atoms, err := e.reserve(atoms)
	if err != nil {
		return err
	}
	for i := range e.terms.quotas {
		if atoms, err = e.free(&e.terms.quotas[i], atoms); err != nil {
			return err
		}
	}
	pools := map[poolKey][]atom{}
	for _, a := range atoms {
		err := e.pieces(a, func(a atom) error {
			k := poolKey{a.class.key.sku.Family, a.class.key.meter}
			if !e.pools[k] {
				return e.flat(a)
			}
			pools[k] = append(pools[k], a)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, pool := range pools {
		if err := e.tiers(pool); err != nil {
			return err
		}
	}
	return nil
}

// findStarts notes the first instant of every start.
func (e *engine) findStarts() {
	e.first = map[startKey]int64{}
	length := map[[16]byte]int64{}
	for _, u := range e.usage {
		k := startKey{u.Subject, u.StartID}
		from, to := micros(u.During)
		if !u.Started.IsZero() {
			from = u.Started.UnixMicro()
		}
		if known, ok := e.first[k]; !ok || from < known {
			e.first[k] = from
		}
		if u.Meter == metering.GPU {
			length[u.StartID] += min(to, e.hi) - u.During.From.UnixMicro()
		}
	}
	e.early = map[[16]byte]bool{}
	for _, s := range e.in.Terms.Starts {
		if s.Preempted && s.Earlier+length[s.ID] < e.in.Terms.NoticeFree.Microseconds() {
			e.early[s.ID] = true
		}
	}
}

// compareSubjects is the order of consumption at one instant.
func compareSubjects(a, b *Usage) int {
	return cmp.Or(bytes.Compare(a.Subject.ID[:], b.Subject.ID[:]), cmp.Compare(a.Subject.Kind, b.Subject.Kind))
}
