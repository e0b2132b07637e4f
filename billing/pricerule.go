package billing

import (
	"time"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// ChargeState is a state of an instance as far as money goes.
type ChargeState string

// The states, in the order of a price list.
const (
	Preparing       ChargeState = "preparing"        // accepted, main process not yet started
	Running         ChargeState = "running"          // from the start of the main process
	StoppedRelease  ChargeState = "stopped"          // the slice is given back
	StoppedRetain   ChargeState = "stopped_retained" // the slice is kept
	Unavailable     ChargeState = "unavailable"      // by a fault of ours
	PreemptedEarly  ChargeState = "preempted_early"  // spot: taken back within NoticeFree of its start
	DeletedInstance ChargeState = "deleted"          // from acceptance
)

// PriceSource says where a price comes from.
type PriceSource string

// The sources.
const (
	FromList     PriceSource = "list"
	FromLock     PriceSource = "lock"
	FromContract PriceSource = "contract"
	FromSpot     PriceSource = "spot"
)

// PriceRule is what a unit of an instance costs in one state. Meter is empty where
// nothing is charged; the rest is zero then.
type PriceRule struct {
	State        ChargeState
	Meter        metering.Meter
	PricedUnit   string      // of Price: GPU-hour
	Price        money.Price // of a first unit, before discounts
	Net          money.Exact // Price × Π(1 − discount)
	Tiers        Tiers       // where the price depends on the quantity of the month
	Discounts    []Discount
	Source       PriceSource
	PriceVersion id.PriceVersion // of the list or the lock
	Contract     string          // of a contract price, its id
	Minimum      time.Duration   // the least time a start is charged for; 0: none
	CapHours     int64           // the most hours a slot is charged for in a month; 0: none
	NoticeFree   time.Duration   // spot: free if preempted within it; 0: never
}
