package billing

import (
	"math/big"

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
