package billing

import (
	"fmt"
	"math/big"

	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Tiering says how a price depends on the quantity of a pool: organization × SKU
// family × meter × calendar month (60-billing §2).
type Tiering string

// The tierings. Flat is one price.
const (
	Flat      Tiering = ""
	Graduated Tiering = "graduated" // each part of the pool at the price of its own step
	Volume    Tiering = "volume"    // the whole pool at the price of the step it reaches; not monotonic
	Package   Tiering = "package"   // whole packages, the last one full
)

// Step is a part of a tiered price, in priced units (GPU-hours). Steps are ordered
// and follow each other without a gap; the last has no end.
type Step struct {
	UpTo  *big.Rat    // inclusive end of the step, nil for the last
	Price money.Price // per priced unit; of a Package, per package
}

// Tiers is a tiered price. PackageSize counts priced units and is set for Package
// only, which has one step.
type Tiers struct {
	Kind        Tiering
	Steps       []Step
	PackageSize *big.Rat
}

// maxSteps bounds a tiered price: more is a mistake in somebody's spreadsheet.
const maxSteps = 100

// smallestPackage is the least package in priced units: smaller ones are a flat price.
var smallestPackage = big.NewRat(1, 10)

// IsZero reports whether there is no tiered price.
func (t Tiers) IsZero() bool { return t.Kind == Flat && len(t.Steps) == 0 && t.PackageSize == nil }

// Check fails with fault.Invalid, naming the field below pointer, unless the steps
// follow each other, only the last is open, every end and package is a whole number
// of the meter's quantity units and all prices are in the currency.
func (t Tiers) Check(pointer string, meter metering.Meter, c money.Currency) error {
	unit, err := metering.UnitOf(meter)
	if err != nil {
		return refuse(pointer, fmt.Sprintf("The meter %.32q is unknown.", string(meter)))
	}
	if t.Kind != Graduated && t.Kind != Volume && t.Kind != Package {
		return refuse(pointer+"/kind", fmt.Sprintf("The tiering %.32q is unknown.", string(t.Kind))).
			Suggest("Use graduated, volume or package.")
	}
	if len(t.Steps) == 0 || len(t.Steps) > maxSteps {
		return refuse(pointer+"/steps", fmt.Sprintf("A tiered price has 1 to %d steps.", maxSteps))
	}
	if err := t.checkPackage(pointer, unit); err != nil {
		return err
	}
	return t.checkSteps(pointer, unit, c)
}

func (t Tiers) checkPackage(pointer string, unit metering.Unit) error {
	if t.Kind != Package {
		if t.PackageSize != nil {
			return refuse(pointer+"/package_size", "Only a package price has a package size.")
		}
		return nil
	}
	if len(t.Steps) != 1 {
		return refuse(pointer+"/steps", "A package price has exactly one step.")
	}
	if t.PackageSize == nil || t.PackageSize.Cmp(smallestPackage) < 0 || !whole(t.PackageSize, unit) {
		return refuse(pointer+"/package_size", fmt.Sprintf("A package holds at least 0.1 %s and a whole number of %s.", unit.Priced, unit.Quantity)).
			Suggest("Choose a larger or a rounder size.")
	}
	return nil
}

func (t Tiers) checkSteps(pointer string, unit metering.Unit, c money.Currency) error {
	before := new(big.Rat)
	for i, s := range t.Steps {
		at, last := fmt.Sprintf("%s/steps/%d", pointer, i), i == len(t.Steps)-1
		switch {
		case s.Price.Currency() != c:
			return refuse(at+"/price", fmt.Sprintf("The price of a step is in another currency than %s.", c))
		case last != (s.UpTo == nil):
			return refuse(at+"/up_to", "The last step has no end and every other step has one.")
		case !last && s.UpTo.Cmp(before) <= 0:
			return refuse(at+"/up_to", "Steps end later one after another, the first above 0.")
		case !last && !whole(s.UpTo, unit):
			return refuse(at+"/up_to", fmt.Sprintf("A step ends at a whole number of %s.", unit.Quantity)).
				Suggest("Choose a rounder end.")
		}
		if !last {
			before = s.UpTo
		}
	}
	return nil
}

// whole reports whether so many priced units are a whole number of quantity units.
func whole(priced *big.Rat, unit metering.Unit) bool {
	return new(big.Rat).Mul(priced, new(big.Rat).SetInt64(unit.Divisor)).IsInt()
}

// First returns what the first unit costs: the price of the first step; of a
// package, its price for one priced unit, rounded up at 12 decimals. It is what an
// offer shows and a lock holds. The zero price where there is no step.
func (t Tiers) First() money.Price {
	if len(t.Steps) == 0 {
		return money.Price{}
	}
	p := t.Steps[0].Price
	if t.Kind != Package || t.PackageSize == nil || t.PackageSize.Sign() <= 0 {
		return p
	}
	each := new(big.Rat).Quo(new(big.Rat).SetInt(p.Pico()), t.PackageSize)
	up := new(big.Int).Add(each.Num(), new(big.Int).Sub(each.Denom(), big.NewInt(1)))
	first, err := money.PriceOf(up.Quo(up, each.Denom()), p.Currency())
	if err != nil { // a dear package of less than a unit: beyond what a price can say
		return p
	}
	return first
}
