package rating

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// agreed is the terms of a window in their fixed orders.
type agreed struct {
	discounts  []billing.ScopedDiscount
	reserved   map[placeKey][]*reserved
	quotas     []quota
	amounts    []amountTerm // money caps, commitments, fixed discounts
	caps       []*hourCap
	spot       map[placeKey][]billing.SpotPrice // by region and SKU
	needStarts bool
}

// placeKey is a region with a SKU family, or with a SKU.
type placeKey struct{ what, region string }

func spotKey(sku [16]byte, region string) placeKey { return placeKey{string(sku[:]), region} }

// reserved is a reservation with what it covered so far.
type reserved struct {
	billing.ReservedCapacity
	from, to int64
	used     quantity
	cover    cover
}

// quota is a free quota with its bound as a quantity.
type quota struct {
	scope    billing.Scope
	bound    quantity
	from, to int64
	cover    cover
}

// hourCap bounds the charged time of a slot in a month.
type hourCap struct {
	billing.Cap
	from, to int64
}

// amountTerm is a term about the money of a month.
type amountTerm struct {
	component billing.Component
	reference string
	name      string
	scope     billing.Scope
	during    metering.Interval
	amount    money.Amount
	partial   bool // the window is not all inside During: usage is told apart
}

var preemptedEarly = &cover{
	component: billing.Covered, pricing: billing.Spot, reference: "preempted_early", name: "preempted within the free notice",
}

func agree(in *Inputs, window metering.Interval) (agreed, error) {
	t := in.Terms
	a := agreed{
		reserved: map[placeKey][]*reserved{}, spot: map[placeKey][]billing.SpotPrice{},
		needStarts: len(t.Reservations) > 0 || len(t.Minimums) > 0 || t.NoticeFree > 0,
		discounts:  slices.Clone(t.Discounts),
	}
	slices.SortFunc(a.discounts, func(x, y billing.ScopedDiscount) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.PPM, y.PPM), bytes.Compare(x.Contract[:], y.Contract[:]))
	})
	for _, r := range t.Reservations {
		v := &reserved{ReservedCapacity: r, cover: cover{
			component: billing.Covered, pricing: billing.Reserved, reference: r.ID.String(), name: "reserved: " + r.Name,
		}}
		v.from, v.to = micros(r.During)
		k := placeKey{r.Family, r.Region}
		a.reserved[k] = append(a.reserved[k], v)
	}
	for _, all := range a.reserved {
		slices.SortFunc(all, func(x, y *reserved) int {
			return cmp.Or(cmp.Compare(x.from, y.from), bytes.Compare(x.ID[:], y.ID[:]))
		})
	}
	for _, s := range t.SpotSeries {
		k := spotKey(s.SKU, s.Region)
		a.spot[k] = append(a.spot[k], s)
	}
	for _, all := range a.spot {
		slices.SortFunc(all, func(x, y billing.SpotPrice) int { return x.During.From.Compare(y.During.From) })
	}
	var err error
	if a.quotas, err = quotasOf(t.FreeQuotas); err != nil {
		return agreed{}, err
	}
	for _, k := range t.Caps {
		if k.Hours > 0 {
			from, to := micros(k.During)
			a.caps = append(a.caps, &hourCap{Cap: k, from: from, to: to})
		}
	}
	slices.SortFunc(a.caps, func(x, y *hourCap) int {
		return cmp.Or(cmp.Compare(x.Hours, y.Hours), bytes.Compare(x.Contract[:], y.Contract[:]), compareScopes(x.Scope, y.Scope), cmp.Compare(x.from, y.from))
	})
	a.amounts = amountsOf(t, window)
	return a, nil
}

func quotasOf(all []billing.FreeQuota) ([]quota, error) {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(x, y billing.FreeQuota) int {
		return cmp.Or(bytes.Compare(x.Contract[:], y.Contract[:]), cmp.Compare(x.Name, y.Name),
			compareScopes(x.Scope, y.Scope), x.During.From.Compare(y.During.From), x.Quantity.Cmp(y.Quantity))
	})
	out := make([]quota, 0, len(sorted))
	for _, f := range sorted {
		bound, err := quantityOf(f.Quantity)
		if err != nil {
			return nil, err
		}
		q := quota{scope: f.Scope, bound: bound, cover: cover{
			component: billing.Covered, pricing: billing.OnDemand, reference: f.Contract.String(), variant: f.Name, name: "free quota: " + f.Name,
		}}
		q.from, q.to = micros(f.During)
		out = append(out, q)
	}
	return out, nil
}

// amountsOf lists what touches the window in the order it is applied: money caps,
// commitments, fixed discounts.
func amountsOf(t billing.Terms, window metering.Interval) []amountTerm {
	var out []amountTerm
	add := func(component billing.Component, contract interface{ String() string }, name string, scope billing.Scope, amount money.Amount, during metering.Interval) {
		if !during.Overlaps(window) {
			return
		}
		inside := !during.From.After(window.From) && (during.Open() || !window.Open() && !during.To.Before(window.To))
		out = append(out, amountTerm{
			component: component, reference: contract.String(), name: name, scope: scope, amount: amount, during: during, partial: !inside,
		})
	}
	for _, k := range t.Caps {
		if k.Hours == 0 {
			add(billing.CapCredit, k.Contract, "", k.Scope, k.Amount, k.During)
		}
	}
	for _, m := range t.Commitments {
		add(billing.Commitment, m.Contract, m.Name, m.Scope, m.Amount, m.During)
	}
	for _, d := range t.FixedDiscounts {
		add(billing.FixedDiscount, d.Contract, d.Name, d.Scope, d.Amount, d.During)
	}
	slices.SortFunc(out, func(x, y amountTerm) int {
		return cmp.Or(cmp.Compare(x.component.Order(), y.component.Order()), cmp.Compare(x.reference, y.reference), cmp.Compare(x.name, y.name),
			compareScopes(x.scope, y.scope), x.during.From.Compare(y.during.From), cmp.Compare(x.amount.Minor(), y.amount.Minor()))
	})
	return out
}

func compareScopes(a, b billing.Scope) int {
	return cmp.Or(compareText(string(a.Meter), string(b.Meter), a.Family, b.Family), bytes.Compare(a.SKU[:], b.SKU[:]))
}
