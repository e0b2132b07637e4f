package billing

import (
	"math/big"
	"time"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Scope selects usage; an empty field selects all. Meter, Family and SKU must all match.
type Scope struct {
	Meter  metering.Meter
	Family string // SKU.Family
	SKU    [16]byte
}

// Terms is what an organization agreed beside its price book, as far as it touches
// one period. The zero value changes nothing. Intervals are half-open business time;
// an open end means until further notice.
type Terms struct {
	Prices         []ContractPrice
	Discounts      []ScopedDiscount
	Reservations   []ReservedCapacity
	FreeQuotas     []FreeQuota
	Minimums       []Minimum
	Caps           []Cap
	Commitments    []CommittedAmount
	FixedDiscounts []AmountOff
	Promos         []Promo
	Starts         []Start       // of the starts that ended in the period, for Minimums
	SpotSeries     []SpotPrice   // piece-wise constant, of every (region, SKU) with spot usage
	NoticeFree     time.Duration // a preempted spot run shorter than this is free; 0: never
}

// ContractPrice replaces the list price. A price lock is still a ceiling.
type ContractPrice struct {
	Contract id.Contract
	Key      PriceKey
	During   metering.Interval
	Price    money.Price // Flat
	Tiers    Tiers       // or tiered
}

// ScopedDiscount takes a fraction off usage lines; several multiply.
type ScopedDiscount struct {
	Contract id.Contract
	Discount
	Scope  Scope
	During metering.Interval
}

// ReservedCapacity covers usage of a family in a region: covered(t) = min(running,
// reserved), oldest start first. An elastic quota's guarantee is one, too. What it
// costs is metered apart, on the reservation meter.
type ReservedCapacity struct {
	ID     id.Reservation
	Name   string
	Family string
	Region string
	Units  int64 // slices at once
	During metering.Interval
}

// FreeQuota is what costs nothing each calendar month, in quantity units of the
// meter (gpu_us).
type FreeQuota struct {
	Contract id.Contract
	Name     string
	Scope    Scope // Meter is set
	Quantity *big.Int
	During   metering.Interval
}

// Minimum is the least time a start is charged for, once over all months, at the
// period where the start ends; waived unless the tenant ended it.
type Minimum struct {
	Scope  Scope
	Micros int64
	During metering.Interval // holds the start's first instant
}

// Start is a start that ended after the period's first instant and not after its
// end.
type Start struct {
	ID        [16]byte // start_id
	Ended     time.Time
	Party     string // who ended it: tenant, operator, ""
	Preempted bool   // the capacity was taken back
	Earlier   int64  // microseconds of gpu time in months before the period
}

// Cap bounds what a calendar month costs: the hours that one slot is charged for, or
// an amount. A slot is an instance's place: what replaces a unit that stopped counts
// on. Usage beyond either is taken off as a negative line.
type Cap struct {
	Contract id.Contract
	Scope    Scope
	Hours    int64        // per slot, 672 for example; 0 where Amount is set
	Amount   money.Amount // net, of everything in scope; zero: none
	During   metering.Interval
}

// CommittedAmount is the least an organization pays a calendar month for what its
// scope selects, net and after caps.
type CommittedAmount struct {
	Contract id.Contract
	Name     string
	Scope    Scope
	Amount   money.Amount
	During   metering.Interval
}

// AmountOff is a fixed discount of a calendar month, at most the eligible net.
type AmountOff struct {
	Contract id.Contract
	Name     string
	Scope    Scope
	Amount   money.Amount
	During   metering.Interval
}

// Promo is a promotional grant's balance at the end of the period, used in order of
// Priority, then Expires, then id. It reduces the tax base.
type Promo struct {
	Grant     id.Grant
	Name      string
	Priority  int       // lower first
	Expires   time.Time // zero: never
	Scope     Scope
	Remaining money.Amount
}

// SpotPrice is a piece of a spot series.
type SpotPrice struct {
	Region string
	SKU    [16]byte
	During metering.Interval
	Price  money.Price // per priced unit
}
