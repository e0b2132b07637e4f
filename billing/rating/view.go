package rating

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Cost is the exact money of all usage of the inputs: nothing is rounded. It fails
// like Rate.
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

// Views sums usage by bucket and group. Buckets are ordered and disjoint; usage
// outside of them does not count, and neither does In.Period. Quantities of
// different units are never added: such a group has one view a unit. Views without
// usage are left out; the rest is ordered by bucket, group, unit. It fails like Rate, and with fault.Invalid
// for more than MaxViews.
func Views(in Inputs, buckets []metering.Interval, group func(Usage) string) ([]View, error) {
	if len(buckets) == 0 {
		return nil, nil
	}
	in.Period = metering.Interval{From: buckets[0].From, To: buckets[len(buckets)-1].To}
	usage, err := firstDistinct(in.Usage)
	if err != nil {
		return nil, err
	}
	charges, err := firstCharges(in, usage)
	if err != nil {
		return nil, err
	}
	factor, err := billing.Factor(in.Discounts)
	if err != nil {
		return nil, err
	}
	views := map[viewKey]*View{}
	for _, c := range charges {
		for i := firstAfter(buckets, c.during); i < len(buckets) && buckets[i].From.Before(c.during.To); i++ {
			part := c.during.Intersect(buckets[i])
			k := viewKey{bucket: i, group: group(*c.usage), unit: c.unit.Quantity}
			v := views[k]
			if v == nil {
				if len(views) == MaxViews {
					return nil, tooManyViews()
				}
				v = &View{Bucket: buckets[i], Group: k.group, Unit: k.unit, Quantity: new(big.Int), full: money.ZeroExact(in.Currency)}
				views[k] = v
			}
			quantity := metering.Quantity(c.usage.Units, part)
			v.Quantity.Add(v.Quantity, quantity)
			if v.full, err = v.full.Add(c.price.Times(quantity, c.unit.Divisor).Scale(factor)); err != nil {
				return nil, err
			}
		}
	}
	return telescoped(views)
}

func tooManyViews() error {
	return fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("The usage has more than %d items.", MaxViews)).
		Suggest("Ask for a shorter window, a larger bucket or fewer groups.").
		With(fault.Field{Pointer: "bucket", Code: "range", Detail: "too many items"})
}

type viewKey struct {
	bucket      int
	group, unit string
}

// firstAfter returns the index of the first bucket that ends after during begins.
func firstAfter(buckets []metering.Interval, during metering.Interval) int {
	i, _ := slices.BinarySearchFunc(buckets, during, func(b, d metering.Interval) int {
		if b.To.After(d.From) {
			return 1
		}
		return -1
	})
	return i
}

// telescoped orders the views and gives each the growth of its group's shown total.
func telescoped(views map[viewKey]*View) ([]View, error) {
	keys := make([]viewKey, 0, len(views))
	for k := range views {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b viewKey) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.group, b.group), cmp.Compare(a.unit, b.unit))
	})
	running := map[viewKey]money.Exact{} // by group and unit
	out := make([]View, 0, len(keys))
	for _, k := range keys {
		v, series := *views[k], viewKey{group: k.group, unit: k.unit}
		before, ok := running[series]
		if !ok {
			before = money.ZeroExact(v.full.Currency())
		}
		after, err := before.Add(v.full)
		if err != nil {
			return nil, err
		}
		running[series] = after
		if v.Exact, err = after.Truncated().Sub(before.Truncated()); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}
