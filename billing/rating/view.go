package rating

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Cost is the exact money of all usage of the inputs' period: nothing is rounded. It
// fails like Views.
func Cost(in Inputs) (money.Exact, error) {
	total := money.ZeroExact(in.Currency)
	views, err := Views(in, []metering.Interval{in.Period}, func(Usage) string { return "" })
	if err != nil {
		return money.Exact{}, err
	}
	for _, v := range views {
		if total, err = total.Add(v.full); err != nil {
			return money.Exact{}, err
		}
	}
	return total, nil
}

// View is the usage of one group in one bucket.
type View struct {
	Bucket   metering.Interval
	Group    string
	Unit     string // of Quantity
	Quantity *big.Int
	// Exact has 12 decimals at most. It is the difference of the group's running
	// totals, each cut to 12 decimals, so buckets of any size sum to the same.
	Exact money.Exact
	full  money.Exact
}

// MaxViews bounds the views of one answer: a long window in small buckets, by subject,
// would otherwise be as large as the product of the three.
const MaxViews = 100_000

// Hidden is the group of usage that counts in pools and is not shown: what others of
// the organization used.
const Hidden = "\x00hidden"

// Views sums usage by bucket and group: components 1 to 3, covered usage at no
// price, exact. Buckets are ordered and disjoint; usage outside of them does not
// count, and neither does In.Period. Reservations, free quotas and tiers belong to
// an organization and a calendar month, so with any of them the inputs hold all
// usage of the organization from the first instant of the first bucket's month; a
// group of Hidden keeps out what is not to be shown. Quantities of different units
// are never added: such a group has one view a unit. Views without usage are left
// out; the rest is ordered by bucket, group, unit. It fails like Rate, and with
// fault.Invalid for more than MaxViews.
func Views(in Inputs, buckets []metering.Interval, group func(Usage) string) ([]View, error) {
	if len(buckets) == 0 {
		return nil, nil
	}
	first, last := monthOf(buckets[0].From.UnixMicro()), monthOf(buckets[len(buckets)-1].To.UnixMicro()-1)
	e, err := newEngine(&in, metering.Between(time.UnixMicro(first[0]), time.UnixMicro(last[1])))
	if err != nil {
		return nil, err
	}
	s := &viewer{buckets: buckets, group: group, sums: map[viewKey]*viewSum{}}
	if err := e.run(s.add); err != nil {
		return nil, err
	}
	return s.telescoped(in.Currency)
}

type viewKey struct {
	bucket      int
	group, unit string
}

// viewSum is a view in the making: quantities by the rate that prices them.
type viewSum struct {
	quantity quantity
	parts    []viewPart
	divisor  int64
}

type viewPart struct {
	rate     *rate
	tier     int
	quantity quantity
	packages int64
}

type viewer struct {
	buckets []metering.Interval
	group   func(Usage) string
	sums    map[viewKey]*viewSum
	lastOf  *Usage // the usage whose group is known
	name    string
}

func (v *viewer) add(c charge) error {
	if c.u != v.lastOf {
		v.lastOf, v.name = c.u, v.group(*c.u)
	}
	if v.name == Hidden {
		return nil
	}
	point := c.from == c.to
	for i := v.firstAfter(c.from); i < len(v.buckets); i++ {
		from, to := micros(v.buckets[i])
		if from > c.from && from >= c.to || point && from > c.from {
			return nil
		}
		part := c
		if !point {
			part.from, part.to = max(c.from, from), min(c.to, to)
		}
		k := viewKey{bucket: i, group: v.name, unit: c.class.unit.Quantity}
		s := v.sums[k]
		if s == nil {
			if len(v.sums) == MaxViews {
				return tooManyViews()
			}
			s = &viewSum{divisor: c.class.unit.Divisor}
			v.sums[k] = s
		}
		s.add(part)
		if point {
			return nil
		}
	}
	return nil
}

func (s *viewSum) add(c charge) {
	q := quantity{}
	if c.packages == 0 {
		q = c.quantity()
	}
	s.quantity = s.quantity.add(q)
	if c.rate == nil {
		return
	}
	for i := len(s.parts) - 1; i >= 0; i-- {
		if p := &s.parts[i]; p.rate == c.rate && p.tier == c.tier {
			p.quantity, p.packages = p.quantity.add(q), p.packages+c.packages
			return
		}
	}
	s.parts = append(s.parts, viewPart{rate: c.rate, tier: c.tier, quantity: q, packages: c.packages})
}

// exact is the money of the view: each price times its quantity.
func (s *viewSum) exact() *big.Rat {
	sum := new(big.Rat)
	divisor := new(big.Int).Mul(pico, big.NewInt(s.divisor))
	for _, p := range s.parts {
		price := p.rate.price(p.tier).Pico()
		money := new(big.Rat)
		if p.rate.packaged() {
			money.SetFrac(price.Mul(price, big.NewInt(p.packages)), pico)
		} else {
			money.SetFrac(price.Mul(price, p.quantity.big()), divisor)
		}
		sum.Add(sum, money.Mul(money, p.rate.factor))
	}
	return sum
}

func tooManyViews() error {
	return fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("The usage has more than %d items.", MaxViews)).
		Suggest("Ask for a shorter window, a larger bucket or fewer groups.").
		With(fault.Field{Pointer: "bucket", Code: "range", Detail: "too many items"})
}

// firstAfter returns the index of the first bucket that ends after an instant.
func (v *viewer) firstAfter(at int64) int {
	i, _ := slices.BinarySearchFunc(v.buckets, at, func(b metering.Interval, at int64) int {
		if b.To.UnixMicro() > at {
			return 1
		}
		return -1
	})
	return i
}

// telescoped orders the views and gives each the growth of its group's shown total.
func (v *viewer) telescoped(c money.Currency) ([]View, error) {
	keys := make([]viewKey, 0, len(v.sums))
	for k := range v.sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b viewKey) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.group, b.group), cmp.Compare(a.unit, b.unit))
	})
	running := map[viewKey]money.Exact{} // by group and unit
	out := make([]View, 0, len(keys))
	for _, k := range keys {
		s, series := v.sums[k], viewKey{group: k.group, unit: k.unit}
		view := View{Bucket: v.buckets[k.bucket], Group: k.group, Unit: k.unit, Quantity: s.quantity.big(), full: money.NewExact(s.exact(), c)}
		before, ok := running[series]
		if !ok {
			before = money.ZeroExact(c)
		}
		after, err := before.Add(view.full)
		if err != nil {
			return nil, err
		}
		running[series] = after
		if view.Exact, err = after.Truncated().Sub(before.Truncated()); err != nil {
			return nil, err
		}
		out = append(out, view)
	}
	return out, nil
}
