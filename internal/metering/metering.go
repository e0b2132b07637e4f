// Package metering owns what usage is: segments of time, the meters they are
// recorded on, when a meter runs, and the set arithmetic of intervals.
//
// It does not own prices (billing), money (internal/money) or the recording of a
// segment (internal/store). All instants are business time, UTC, whole
// microseconds; intervals are half-open; quantities are integers and never rounded.
package metering

import (
	"fmt"
	"math/big"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
)

// Meter names a kind of billable use.
type Meter string

// The meters.
const (
	GPU         Meter = "gpu"
	GPURetained Meter = "gpu_retained" // a stopped instance that keeps its slice
	IP          Meter = "ip"
	Reservation Meter = "reservation"
	Storage     Meter = "storage"
	Egress      Meter = "egress"
)

// Unit says what a meter counts and what its price is for.
type Unit struct {
	Quantity string // what one unit of a quantity is, for programs: gpu_us
	Priced   string // what a price is for, for people: GPU-hour
	Divisor  int64  // quantity units in one priced unit
}

const hour int64 = 3_600_000_000 // microseconds

// units is the meter table. Time meters count unit·microseconds.
var units = map[Meter]Unit{
	GPU:         {Quantity: "gpu_us", Priced: "GPU-hour", Divisor: hour},
	GPURetained: {Quantity: "gpu_us", Priced: "retained GPU-hour", Divisor: hour},
	IP:          {Quantity: "ip_us", Priced: "IP-hour", Divisor: hour},
	Reservation: {Quantity: "gpu_us", Priced: "reserved GPU-hour", Divisor: hour},
	Storage:     {Quantity: "mib_us", Priced: "GiB-hour", Divisor: 1024 * hour},
	Egress:      {Quantity: "byte", Priced: "GiB", Divisor: 1 << 30},
}

// UnitOf returns the unit of a meter. It fails with fault.Internal for a meter
// that is not in the table: such a segment cannot be priced.
func UnitOf(m Meter) (Unit, error) {
	u, ok := units[m]
	if !ok {
		return Unit{}, fault.New(fault.Internal, "internal", fmt.Sprintf("The meter %.32q is unknown.", string(m)))
	}
	return u, nil
}

// Subject is what is metered: an instance, later a disk or an address.
type Subject struct {
	Kind string // "instance"
	ID   [16]byte
}

// Segment is one interval of billable use of one subject on one meter. During has
// a zero To while the meter runs. StartID is shared by the segments of one start.
type Segment struct {
	ID      id.Segment
	Org     id.Org
	Project id.Project
	Subject Subject
	Meter   Meter
	StartID [16]byte
	Seq     int64 // 1… per (subject, meter)
	Run     int
	Units   int64 // how many at once, ≥ 1
	During  Interval
}

// Quantity is units × microseconds up to at while the segment is open, to its end
// otherwise; 0 if it starts after at.
func (s Segment) Quantity(at time.Time) *big.Int {
	return Quantity(s.Units, s.During.Until(at))
}

// Quantity is units × the microseconds of a closed interval.
func Quantity(units int64, during Interval) *big.Int {
	return new(big.Int).Mul(big.NewInt(units), big.NewInt(during.Micros()))
}
