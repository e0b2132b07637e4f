package rating

import (
	"math/big"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// PriceInputs is what the price of an instance depends on at an instant.
type PriceInputs struct {
	At        time.Time
	Currency  money.Currency
	Book      billing.Book
	SKU       billing.SKU
	Region    string
	Pricing   billing.PricingKind
	Lock      *billing.Lock
	Discounts []billing.Discount
	Terms     billing.Terms
}

// PreviewPrice returns one rule for each state of an instance, by the same prices
// and terms that Rate uses. The state that keeps a stopped slice is left out where
// it has no price: it is not sold. It fails with fault.Internal without a price for
// running.
func PreviewPrice(in PriceInputs) ([]billing.PriceRule, error) {
	at := metering.Instant(in.At)
	window := metering.Interval{From: at, To: at.Add(time.Microsecond)}
	inputs := Inputs{
		Period: window, At: window.To, Currency: in.Currency, Discounts: in.Discounts, Terms: in.Terms,
		Books: map[id.PriceBook]billing.Book{in.Book.ID: in.Book},
	}
	e, err := newEngine(&inputs, window)
	if err != nil {
		return nil, err
	}
	running, err := e.rule(in, metering.GPU, in.Lock)
	if err != nil {
		return nil, err
	}
	running.State = billing.Running
	rules := []billing.PriceRule{{State: billing.Preparing}, running, {State: billing.StoppedRelease}}
	if in.Pricing != billing.Spot {
		if kept, err := e.rule(in, metering.GPURetained, nil); err == nil {
			kept.State = billing.StoppedRetain
			rules = append(rules, kept)
		}
	} else if in.Terms.NoticeFree > 0 {
		rules = append(rules, billing.PriceRule{State: billing.PreemptedEarly})
	}
	return append(rules, billing.PriceRule{State: billing.Unavailable}, billing.PriceRule{State: billing.DeletedInstance}), nil
}

// rule is the price of one meter at the window's first instant.
func (e *engine) rule(in PriceInputs, meter metering.Meter, lock *billing.Lock) (billing.PriceRule, error) {
	u := Usage{SKU: in.SKU, Book: in.Book.ID, Pricing: in.Pricing, Region: in.Region, Lock: lock}
	u.Meter = meter
	c, err := e.newClass(keyOf(&u))
	if err != nil {
		return billing.PriceRule{}, err
	}
	if c.pieces[0].err != nil {
		return billing.PriceRule{}, c.pieces[0].err
	}
	r := c.pieces[0].rate
	out := billing.PriceRule{
		Meter: meter, PricedUnit: c.unit.Priced, Price: r.price(1), Tiers: r.tariff.tiers(c.unit), Discounts: r.discounts,
		Source: billing.FromList, PriceVersion: r.key.PriceVersion, Minimum: e.minimumNow(c),
	}
	out.Net = money.NewExact(new(big.Rat).SetFrac(out.Price.Pico(), pico), in.Currency).Scale(r.factor)
	switch {
	case in.Pricing == billing.Spot:
		out.Source, out.NoticeFree = billing.FromSpot, in.Terms.NoticeFree
	case r.key.Reference != "":
		out.Source, out.Contract = billing.FromContract, r.key.Reference
	case lock != nil && r.key.PriceVersion == lock.Version:
		out.Source = billing.FromLock
	}
	for _, k := range c.caps {
		if e.lo >= k.from && e.lo < k.to {
			out.CapHours = k.Hours
			break
		}
	}
	return out, nil
}

// minimumNow is the longest minimum that a start of the class would have.
func (e *engine) minimumNow(c *class) time.Duration {
	longest := int64(0)
	for _, m := range e.in.Terms.Minimums {
		from, to := micros(m.During)
		if c.key.meter == metering.GPU && c.in(m.Scope) && e.lo >= from && e.lo < to {
			longest = max(longest, m.Micros)
		}
	}
	return time.Duration(longest) * time.Microsecond
}

// tiers writes a tariff as a published price; a flat one has none.
func (t tariff) tiers(unit metering.Unit) billing.Tiers {
	if !t.tiered() {
		return billing.Tiers{}
	}
	out := billing.Tiers{Kind: t.kind}
	priced := func(q quantity) *big.Rat { return new(big.Rat).SetFrac(q.big(), big.NewInt(unit.Divisor)) }
	for i, s := range t.steps {
		next := billing.Step{Price: s.price}
		if i < len(t.steps)-1 {
			next.UpTo = priced(s.upTo)
		}
		out.Steps = append(out.Steps, next)
	}
	if t.kind == billing.Package {
		out.PackageSize = priced(t.size)
	}
	return out
}
