package rating

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// piece is a part of a class's schedule with one rate, or the reason why it has none.
type piece struct {
	from, to int64
	rate     *rate
	err      error
}

// rate is a price, possibly tiered, with the discounts on it.
type rate struct {
	key       billing.LineKey // of its usage, tier 0
	tariff    tariff
	discounts []billing.Discount
	factor    *big.Rat
	inside    []bool  // of agreed.amounts: whether this piece lies in them; nil: in all
	lines     []*line // of Rate, by tier
}

// price of a tier; 0 and 1 are the first.
func (r *rate) price(tier int) money.Price { return r.tariff.steps[max(tier, 1)-1].price }

// newClass builds the schedule of a class over the window.
func (e *engine) newClass(key classKey) (*class, error) {
	unit, err := metering.UnitOf(key.meter)
	if err != nil {
		return nil, err
	}
	c := &class{key: key, unit: unit, counted: key.meter == metering.Egress, digest: digestOf(key)}
	switch key.pricing {
	case billing.OnDemand, billing.Reserved, billing.Spot:
	default:
		return nil, internal("Usage of the pricing kind %q cannot be rated.", key.pricing)
	}
	if key.pricing != billing.Spot {
		for _, k := range e.terms.caps {
			if capMatches(k.Scope, c) {
				c.caps = append(c.caps, k)
			}
		}
	}
	bounds := e.boundsOf(c)
	for i := 0; i+1 < len(bounds); i++ {
		p := piece{from: bounds[i], to: bounds[i+1]}
		p.rate, p.err = e.rateAt(c, time.UnixMicro(p.from).UTC())
		if p.err == nil && p.rate.tariff.tiered() {
			e.pools[poolKey{key.sku.Family, key.meter}] = true
		}
		c.pieces = append(c.pieces, p)
	}
	return c, nil
}

// boundsOf returns the instants at which the price of the class may change, and the
// window's ends.
func (e *engine) boundsOf(c *class) []int64 {
	bounds := []int64{e.lo, e.hi}
	add := func(during metering.Interval) {
		from, to := micros(during)
		for _, at := range []int64{from, to} {
			if at > e.lo && at < e.hi {
				bounds = append(bounds, at)
			}
		}
	}
	if c.key.pricing == billing.Spot {
		for _, s := range e.terms.spot[spotKey(c.key.sku.ID, c.key.region)] {
			add(s.During)
		}
	} else {
		for _, v := range e.in.Books[c.key.book].Versions {
			add(metering.Interval{From: v.EffectiveFrom})
		}
		for _, p := range e.in.Terms.Prices {
			if p.Key == c.priceKey() {
				add(p.During)
			}
		}
	}
	for _, d := range e.terms.discounts {
		if c.in(d.Scope) {
			add(d.During)
		}
	}
	for _, t := range e.terms.amounts {
		if t.partial && c.in(t.scope) {
			add(t.during)
		}
	}
	slices.Sort(bounds)
	return slices.Compact(bounds)
}

func (c *class) priceKey() billing.PriceKey {
	return billing.PriceKey{SKU: c.key.sku.ID, Meter: c.key.meter}
}

func (c *class) in(s billing.Scope) bool {
	return s.Matches(c.key.meter, c.key.sku.Family, c.key.sku.ID)
}

// rateAt resolves the price and the discounts of a class at an instant.
func (e *engine) rateAt(c *class, at time.Time) (*rate, error) {
	r := &rate{key: billing.LineKey{
		Component: billing.UsageCharge, Project: c.key.project, Meter: c.key.meter, SKU: c.key.sku.ID,
		IsolationGPU: c.key.sku.IsolationGPU, IsolationHost: c.key.sku.IsolationHost, Pricing: c.key.pricing, TaxCategory: billing.OutsideScope,
	}}
	resolve := e.listed
	if c.key.pricing == billing.Spot {
		resolve = e.spotted
	}
	variant, err := resolve(c, at, r)
	if err != nil {
		return nil, err
	}
	r.discounts = slices.Clone(e.in.Discounts)
	for _, d := range e.terms.discounts {
		if c.in(d.Scope) && holds(d.During, at) {
			r.discounts = append(r.discounts, d.Discount)
		}
	}
	slices.SortFunc(r.discounts, func(a, b billing.Discount) int {
		return compareText(a.Name, b.Name, fmt.Sprintf("%09d", a.PPM), fmt.Sprintf("%09d", b.PPM))
	})
	if r.factor, err = billing.Factor(r.discounts); err != nil {
		return nil, err
	}
	for _, d := range r.discounts {
		variant += fmt.Sprintf("discount %q %d\n", d.Name, d.PPM)
	}
	for i, t := range e.terms.amounts {
		if !t.partial || !c.in(t.scope) {
			continue
		}
		if r.inside == nil {
			r.inside = slices.Repeat([]bool{true}, len(e.terms.amounts))
		}
		r.inside[i] = holds(t.during, at)
		variant += fmt.Sprintf("inside %d %t\n", i, r.inside[i])
	}
	if variant != "" {
		sum := sha256.Sum256([]byte(variant))
		r.key.Variant = hex.EncodeToString(sum[:8])
	}
	return r, nil
}

// holds reports whether an interval holds an instant.
func holds(i metering.Interval, at time.Time) bool {
	return !at.Before(i.From) && (i.Open() || at.Before(i.To))
}

// spotted fills the rate from the spot series. Locks and contracts never apply.
func (e *engine) spotted(c *class, at time.Time, r *rate) (variant string, err error) {
	r.key.Reference = "spot"
	series := e.terms.spot[spotKey(c.key.sku.ID, c.key.region)]
	next, _ := slices.BinarySearchFunc(series, at, func(s billing.SpotPrice, at time.Time) int {
		if s.During.From.After(at) {
			return 1
		}
		return -1
	})
	if next > 0 && holds(series[next-1].During, at) {
		r.tariff = flatTariff(series[next-1].Price)
		return "", nil
	}
	return "", internal("The spot series of %s in %q has no price at %s.", c.key.sku.Code, c.key.region, at.Format(time.RFC3339))
}

// listed fills the rate from the contract or else the list, capped by the lock.
func (e *engine) listed(c *class, at time.Time, r *rate) (variant string, err error) {
	book := e.in.Books[c.key.book]
	key, priced := c.priceKey(), false
	for _, p := range e.in.Terms.Prices {
		if p.Key == key && holds(p.During, at) {
			r.key.Reference, priced = p.Contract.String(), true
			r.tariff = tariffOf(p.Price, p.Tiers, c.unit)
			variant = fmt.Sprintf("contract %s %d\n%s", p.Contract, p.During.From.UnixMicro(), r.tariff)
		}
	}
	if v, ok := book.At(at); ok && !priced {
		if price, listed := v.Prices[key]; listed {
			r.key.PriceVersion, priced = v.ID, true
			r.tariff = tariffOf(price, v.Tiers[key], c.unit)
		}
	}
	if !c.key.locked {
		if !priced {
			return "", internal("The price book %s has no price for a SKU at %s.", book.ID, at.Format(time.RFC3339))
		}
		return variant, nil
	}
	lock := lockedTariff(book, c)
	if !priced {
		r.tariff, r.key.PriceVersion = lock, c.key.lock.Version
		return "", nil
	}
	lower, err := r.tariff.capped(lock)
	if err != nil {
		return "", fmt.Errorf("capping a price by its lock: %w", err)
	}
	switch {
	case lower.same(r.tariff):
	case lower.same(lock):
		r.tariff, r.key.Reference, r.key.PriceVersion, variant = lower, "", c.key.lock.Version, ""
	default:
		r.tariff = lower
		variant += fmt.Sprintf("locked %s\n%s", c.key.lock.Version, lower)
	}
	return variant, nil
}

// lockedTariff is the price of the locked version, with its tiers where the book
// knows them.
func lockedTariff(book billing.Book, c *class) tariff {
	for _, v := range book.Versions {
		if v.ID == c.key.lock.Version {
			if tiers, ok := v.Tiers[c.priceKey()]; ok {
				return tariffOf(c.key.lock.Price, tiers, c.unit)
			}
		}
	}
	return flatTariff(c.key.lock.Price)
}

func digestOf(k classKey) [8]byte {
	var b bytes.Buffer
	b.Write(k.project[:])
	b.Write(k.sku.ID[:])
	b.Write(k.book[:])
	b.Write(k.lock.Version[:])
	fmt.Fprintf(&b, "%q %q %q %q %q %s %q %q", k.meter, k.sku.Code, k.sku.Family, k.sku.IsolationGPU, k.sku.IsolationHost, k.lock.Price, k.pricing, k.region)
	sum := sha256.Sum256(b.Bytes())
	return [8]byte(sum[:8])
}
