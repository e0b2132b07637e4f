package rating

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// tariff is a price by position in a pool. A flat one has one step.
type tariff struct {
	kind     billing.Tiering
	steps    []step
	size     quantity // of a package
	sizeText string   // of a package, in priced units
}

type step struct {
	upTo  quantity // inclusive; zero in the last, which has no end
	price money.Price
}

func flatTariff(p money.Price) tariff { return tariff{steps: []step{{price: p}}} }

// tariffOf reads a price with its tiers, which were checked when they were published.
func tariffOf(p money.Price, tiers billing.Tiers, unit metering.Unit) tariff {
	if tiers.IsZero() {
		return flatTariff(p)
	}
	t := tariff{kind: tiers.Kind}
	for _, s := range tiers.Steps {
		next := step{price: s.Price}
		if s.UpTo != nil {
			next.upTo = inUnits(s.UpTo, unit)
		}
		t.steps = append(t.steps, next)
	}
	if tiers.PackageSize != nil {
		t.size = inUnits(tiers.PackageSize, unit)
		t.sizeText = tiers.PackageSize.RatString()
	}
	return t
}

// inUnits is priced units as a whole number of quantity units, cut where it is not.
func inUnits(priced *big.Rat, unit metering.Unit) quantity {
	v := new(big.Rat).Mul(priced, new(big.Rat).SetInt64(unit.Divisor))
	q, err := quantityOf(new(big.Int).Quo(v.Num(), v.Denom()))
	if err != nil { // beyond anything that can be used: a step that is never left
		return quantity{hi: 1 << 56}
	}
	return q
}

func (t tariff) tiered() bool { return t.kind != billing.Flat }

// tierAt returns the 1-based step in which the pool's part that ends at bound lies;
// unbounded is the pool's last part.
func (t tariff) tierAt(bound quantity, unbounded bool) int {
	if !unbounded {
		for i, s := range t.steps[:len(t.steps)-1] {
			if !s.upTo.less(bound) {
				return i + 1
			}
		}
	}
	return len(t.steps)
}

func (t tariff) same(u tariff) bool {
	return t.kind == u.kind && t.size == u.size && slices.Equal(t.steps, u.steps)
}

// capped returns the lower of a tariff and a ceiling, step by step. Of a package and
// another kind the one is taken whole whose first unit is cheaper; volume against
// graduated is volume. It fails with money.ErrMismatch over two currencies.
func (t tariff) capped(lock tariff) (tariff, error) {
	if t.kind == billing.Package || lock.kind == billing.Package {
		mine, theirs := t.first(), lock.first()
		if t.steps[0].price.Currency() != lock.steps[0].price.Currency() {
			return tariff{}, money.ErrMismatch
		}
		if theirs.Cmp(mine) < 0 {
			return lock, nil
		}
		return t, nil
	}
	out := tariff{kind: t.kind}
	if lock.kind == billing.Volume || t.kind == billing.Flat {
		out.kind = lock.kind
	}
	for i, j := 0, 0; i < len(t.steps) && j < len(lock.steps); {
		a, b := t.steps[i], lock.steps[j]
		price, err := a.price.Lower(b.price)
		if err != nil {
			return tariff{}, err
		}
		next := step{price: price}
		lastA, lastB := i == len(t.steps)-1, j == len(lock.steps)-1
		switch {
		case lastA && lastB:
			i++
		case lastB || !lastA && a.upTo.less(b.upTo):
			next.upTo = a.upTo
			i++
		case lastA || b.upTo.less(a.upTo):
			next.upTo = b.upTo
			j++
		default:
			next.upTo = a.upTo
			i, j = i+1, j+1
		}
		if n := len(out.steps); n > 0 && out.steps[n-1].price == price {
			out.steps[n-1].upTo = next.upTo
			continue
		}
		out.steps = append(out.steps, next)
	}
	if len(out.steps) == 1 {
		out.kind = billing.Flat
	}
	return out, nil
}

// first is the price of a first unit in 10^-12, a package's spread over it.
func (t tariff) first() *big.Rat {
	p := new(big.Rat).SetInt(t.steps[0].price.Pico())
	if t.kind != billing.Package {
		return p
	}
	size, ok := new(big.Rat).SetString(t.sizeText)
	if !ok || size.Sign() <= 0 {
		return p
	}
	return p.Quo(p, size)
}

// String is the content of a tariff, one step a line.
func (t tariff) String() string {
	text := fmt.Sprintf("tariff %q %s\n", t.kind, t.size.big())
	for _, s := range t.steps {
		text += fmt.Sprintf("step %s %s\n", s.upTo.big(), s.price)
	}
	return text
}
