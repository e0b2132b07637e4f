package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Latency is how long calls take. A call with a maximum takes a random time from
// its minimum to it.
type Latency struct {
	Read       time.Duration
	Create     time.Duration // each GPU instance or share
	CreateMax  time.Duration
	Compute    time.Duration // each compute instance; 0 takes the time of Create
	ComputeMax time.Duration
	Destroy    time.Duration // each of them
	DestroyMax time.Duration
	SetMode    time.Duration // a reset, too
	// Lookup is added to each list of GPU instances, once for every list that is
	// being read at the time, up to ten seconds: drivers look MIG UUIDs up slowly
	// under load.
	Lookup time.Duration
	Seed   uint64 // of the random times
}

// DefaultLatency is short enough for a demo and long enough to show races.
func DefaultLatency() Latency {
	return Latency{Create: 10 * time.Millisecond, Destroy: 10 * time.Millisecond, SetMode: 50 * time.Millisecond}
}

// DriverLatency is like that of real drivers, as far as that is known: it was
// reported by others, not measured.
func DriverLatency() Latency {
	return Latency{
		Read:    200 * time.Microsecond,
		Create:  100 * time.Millisecond,
		Compute: 50 * time.Millisecond, ComputeMax: 300 * time.Millisecond,
		CreateMax: time.Second,
		Destroy:   100 * time.Millisecond, DestroyMax: time.Second,
		SetMode: 2 * time.Second,
		Lookup:  5 * time.Millisecond,
	}
}

// maxLookup is the slowest list of MIG devices that was reported.
const maxLookup = 10 * time.Second

// dice are the random times of one driver.
type dice struct {
	mu      *sync.Mutex
	rng     *rand.Rand
	reading *atomic.Int64
}

func newDice(seed uint64) dice {
	return dice{mu: new(sync.Mutex), rng: rand.New(rand.NewPCG(seed, 0)), reading: new(atomic.Int64)}
}

// between draws a time; low if there is no range.
func (d dice) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return low + time.Duration(d.rng.Int64N(int64(high-low)+1))
}

func (d *Driver) creation() time.Duration {
	return d.dice.between(d.latency.Create, d.latency.CreateMax)
}

func (d *Driver) filling() time.Duration {
	if d.latency.Compute == 0 {
		return d.creation()
	}
	return d.dice.between(d.latency.Compute, d.latency.ComputeMax)
}

func (d *Driver) destruction() time.Duration {
	return d.dice.between(d.latency.Destroy, d.latency.DestroyMax)
}

// lookup takes the time of finding MIG devices among all who do so now. done ends
// it.
func (d *Driver) lookup(ctx context.Context, uuid string) (done func(), err error) {
	crowd := d.dice.reading.Add(1)
	done = func() { d.dice.reading.Add(-1) }
	if err := d.wait(ctx, OpRead, uuid, min(d.latency.Lookup*time.Duration(crowd), maxLookup)); err != nil {
		done()
		return nil, err
	}
	return done, nil
}
