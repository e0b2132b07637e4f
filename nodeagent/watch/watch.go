// Package watch runs what looks after a host beside its keeper: the monitor of GPU
// health, the meter, the guard of shared GPUs where there is one, and the Prometheus
// endpoint. It is the one place that knows all of them; it decides nothing and keeps
// nothing itself.
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/tranche-cloud/tranche/internal/group"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/guard"
	"github.com/tranche-cloud/tranche/nodeagent/health"
	"github.com/tranche-cloud/tranche/nodeagent/meter"
	"github.com/tranche-cloud/tranche/nodeagent/metrics"
	"github.com/tranche-cloud/tranche/nodeagent/spool"
)

// NoMetrics as an address runs no endpoint.
const NoMetrics = "none"

// Config is what is watched and with what. Host, Keeper, Driver and Spool are needed.
type Config struct {
	Host   nodeagent.Host
	Keeper *nodeagent.Keeper
	// Driver is the host's with its writing part: the monitor resets empty GPUs.
	Driver gpudrv.Driver
	Spool  *spool.Spool
	// NoResets leaves resets to the host's operator: a GPU that needs one is shut until
	// the next reboot.
	NoResets bool
	Linked   func() bool // to the control plane; nil is never

	Policy        string // file that replaces parts of the Xid policy; "" is none
	MetricsListen string // "" is metrics.DefaultListen; NoMetrics is none

	// Every is the time between two looks at the GPUs, HungAfter how long one may take to
	// answer; 0 is the monitor's default.
	Every, HungAfter time.Duration

	// MPSProof shows that a fresh client of a GPU's MPS server works; nil is not asked.
	MPSProof func(ctx context.Context, uuid string) error
	// SliceOf returns the assignment in whose container a process runs; nil knows none.
	SliceOf func(pid int) (assignment string, ok bool)
	// Traffic returns what passed each run's network; nil measures none.
	Traffic func(ctx context.Context) (map[string]meter.Traffic, error)
	// Guard makes the guard with the place where it tells what it did; nil is none.
	Guard func(guard.Sink) *guard.Guard
}

// Watch is all of them; make it with New, call Register before the keeper adopts, then
// Run.
type Watch struct {
	Health  *health.Monitor
	Meter   *meter.Meter
	metrics *metrics.Exporter
	guard   *guard.Guard
	listen  string
}

// New makes everything and tells the keeper what is known of its GPUs from before. It
// fails for a policy or a file of an earlier process that cannot be read.
func New(c Config) (*Watch, error) {
	policy := health.DefaultPolicy()
	if c.Policy != "" {
		var err error
		if policy, err = health.LoadPolicy(c.Policy); err != nil {
			return nil, err
		}
	}
	log := c.Host.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var driver health.Driver = c.Driver
	if c.NoResets {
		driver = unreset{c.Driver}
	}
	h, err := health.New(health.Config{
		Driver: driver, Keeper: c.Keeper, Spool: c.Spool, SelfTest: c.Host.SelfTest, MPSProof: c.MPSProof, Policy: policy,
		Dir: c.Host.Dir, BootID: c.Host.BootID, Uptime: c.Host.Uptime, Clock: c.Host.Clock, Log: log,
		Every: c.Every, HungAfter: c.HungAfter,
	})
	if err != nil {
		return nil, err
	}
	m, err := meter.New(meter.Config{
		Driver: c.Driver, Tenants: c.Keeper.Tenancies, Spool: c.Spool, Depth: c.Spool.Len, Stats: c.Host.Runtime.Stats,
		SliceOf: c.SliceOf, Traffic: c.Traffic, Dir: c.Host.Dir, BootID: c.Host.BootID, Uptime: c.Host.Uptime,
		Clock: c.Host.Clock, Log: log,
	})
	if err != nil {
		return nil, err
	}
	linked := c.Linked
	if linked == nil {
		linked = func() bool { return false }
	}
	w := &Watch{Health: h, Meter: m, listen: c.MetricsListen, metrics: metrics.New(metrics.Config{
		Slices: m.Latest, Healths: c.Keeper.Healths, Condition: c.Keeper.Condition, Spool: c.Spool, Linked: linked,
		Broken: c.Keeper.Broken,
	})}
	if c.Guard != nil {
		w.guard = c.Guard(h)
	}
	return w, nil
}

// unreset is a driver that resets nothing.
type unreset struct{ gpudrv.Driver }

// Reset implements gpudrv.Tuner.
func (unreset) Reset(_ context.Context, uuid string) error {
	return gpudrv.Refuse(gpudrv.Unsupported, "reset", uuid, "resets are left to the host's operator")
}

// Register begins to take the driver's events; those before it are lost.
func (w *Watch) Register(ctx context.Context) error {
	if err := w.Health.Watch(ctx); err != nil {
		return fmt.Errorf("register for gpu events: %w", err)
	}
	return nil
}

// Run watches until ctx ends, and returns nil then. It fails if the metrics' address
// cannot be listened on.
func (w *Watch) Run(ctx context.Context) error {
	jobs := []group.Job{w.Health.Run, w.Meter.Run}
	if w.guard != nil {
		jobs = append(jobs, func(ctx context.Context) error {
			if err := w.guard.Run(ctx); ctx.Err() == nil {
				return err
			}
			return nil
		})
	}
	if w.listen != NoMetrics {
		jobs = append(jobs, func(ctx context.Context) error { return w.metrics.Serve(ctx, w.listen) })
	}
	err := group.Run(ctx, jobs...)
	w.Health.Settle()
	return err
}
