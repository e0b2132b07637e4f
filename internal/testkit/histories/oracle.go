package histories

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
)

// Charge is what a line must be: whole microseconds and minor units.
type Charge struct {
	Micros int64
	Exact  *big.Rat // in currency units, before its one rounding
	Minor  int64
}

// Owed is what each line of a month must be, by LineName: what truly ran, times the
// price in force at each instant, a lock being a ceiling; summed exactly, rounded once.
func (c *Customer) Owed(month metering.Interval) map[string]Charge {
	out := map[string]Charge{}
	for _, t := range c.Truths {
		from, to := max(t.From, month.From.UnixMicro()), min(t.To, month.To.UnixMicro())
		for from < to {
			version, until := c.inForce(from, to)
			name, price := c.priced(t, version)
			owed := out[name]
			if owed.Exact == nil {
				owed.Exact = new(big.Rat)
			}
			owed.Micros += until - from
			hours := big.NewRat(until-from, hour)
			owed.Exact.Add(owed.Exact, hours.Mul(hours, price))
			out[name] = owed
			from = until
		}
	}
	for name, owed := range out {
		owed.Minor = roundHalfAway(owed.Exact, c.Currency.Exponent())
		out[name] = owed
	}
	return out
}

// inForce is the newest version that has started at an instant, and until when.
func (c *Customer) inForce(at, limit int64) (version int, until int64) {
	until = limit
	for i, v := range c.Book.Versions {
		if start := v.EffectiveFrom.UnixMicro(); start <= at {
			version = i
		} else {
			until = min(until, start)
		}
	}
	return version, until
}

func (c *Customer) priced(t Truth, version int) (name string, price *big.Rat) {
	key := billing.PriceKey{SKU: c.SKUs[t.SKU].ID, Meter: t.Meter}
	price = decimal(c.Book.Versions[version].Prices[key].Decimal())
	inst := c.Instances[t.Instance]
	if inst.Locked >= 0 && t.Meter == metering.GPU {
		if ceiling := decimal(c.Book.Versions[inst.Locked].Prices[key].Decimal()); ceiling.Cmp(price) < 0 {
			version, price = inst.Locked, ceiling
		}
	}
	return fmt.Sprintf("%s %s %s %s", c.Projects[inst.Project], t.Meter, c.SKUs[t.SKU].Code, c.Book.Versions[version].ID), price
}

// LineName names a line of the product as Owed does.
func LineName(l billing.Line) string {
	return fmt.Sprintf("%s %s %s %s", l.Key.Project, l.Key.Meter, l.SKUCode, l.Key.PriceVersion)
}

// DownMicros is how much of recorded usage lies in time when the platform was down.
func (c *Customer) DownMicros(instance int, during []metering.Interval) int64 {
	var sum int64
	for _, d := range c.Down {
		if d.Instance != instance {
			continue
		}
		for _, u := range during {
			sum += max(0, min(d.To, u.To.UnixMicro())-max(d.From, u.From.UnixMicro()))
		}
	}
	return sum
}

// TwiceMicros is how much time intervals share with each other.
func TwiceMicros(during []metering.Interval) int64 {
	sorted := slices.SortedFunc(slices.Values(during), func(a, b metering.Interval) int { return a.From.Compare(b.From) })
	var sum, reached int64
	for _, d := range sorted {
		from, to := d.From.UnixMicro(), d.To.UnixMicro()
		sum += max(0, min(reached, to)-from)
		reached = max(reached, to)
	}
	return sum
}

func decimal(text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		panic("histories: not a decimal: " + text)
	}
	return r
}

// roundHalfAway is units × 10^exponent rounded half away from zero.
func roundHalfAway(units *big.Rat, exponent int) int64 {
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(exponent)), nil))
	x := new(big.Rat).Mul(units, scale)
	half := big.NewRat(1, 2)
	if x.Sign() < 0 {
		half.Neg(half)
	}
	x.Add(x, half)
	return new(big.Int).Quo(x.Num(), x.Denom()).Int64()
}
