package sim

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Config opens a simulated host.
type Config struct {
	Dir     string    // data folder, made if missing; "" keeps the state in memory
	Host    FleetHost // what the host has
	Latency Latency   // zero: answer at once
	// Now is the wall clock of energy counters; nil is time.Now.
	Now func() time.Time
	// Faults are what shall happen, counted from Open; they were checked against the
	// fleet. Steps that cannot be taken are logged.
	Faults Script
	Log    *slog.Logger // nil is silent
}

// Driver is the simulated driver of one host. It is safe for concurrent use.
type Driver struct {
	disk    disk
	latency Latency
	now     func() time.Time
	can     FleetDriver

	mu     sync.Mutex
	st     state
	faults []Fault
	calls  int

	script *runner
	dice   dice

	watching sync.Mutex
	watchers map[*watcher]struct{}
}

var _ gpudrv.Driver = (*Driver)(nil)

// Open loads the host's GPUs from the data folder, or makes them new in the
// modes of the fleet file. One process at a time may have a folder open. It fails
// if the stored GPUs are not those of the fleet file.
func Open(c Config) (*Driver, error) {
	if err := c.Host.check(); err != nil {
		return nil, err
	}
	d, err := openDisk(c.Dir)
	if err != nil {
		return nil, err
	}
	drv := &Driver{disk: d, latency: c.Latency, dice: newDice(c.Latency.Seed), now: c.Now, can: c.Host.Driver, watchers: map[*watcher]struct{}{}}
	if drv.now == nil {
		drv.now = time.Now
	}
	if err := drv.start(c.Host); err != nil {
		_ = d.close() // the first error says more
		return nil, err
	}
	drv.script = newRunner(drv, c)
	return drv, nil
}

func (d *Driver) start(h FleetHost) error {
	s, ok, err := d.disk.load()
	if err != nil {
		return err
	}
	if !ok {
		s = fresh(h, d.now())
	} else if err := s.matches(h); err != nil {
		return err
	}
	s.upgrade(h)
	d.st = s
	return d.disk.save(d.st)
}

// upgrade gives empty cards the driver variant of the fleet file; the others
// keep what their instances were made by.
func (s state) upgrade(h FleetHost) {
	for _, dev := range h.Devices() {
		for i := range s.GPUs {
			if c := &s.GPUs[i]; c.UUID == dev.UUID && len(c.Instances) == 0 {
				c.Variant = dev.Variant
			}
		}
	}
}

// Close lets another process open the folder. Slices stay.
func (d *Driver) Close() error {
	d.script.stop()
	return d.disk.close()
}

// wait lets the call take its time; it fails with Hung when ctx ends first.
func (d *Driver) wait(ctx context.Context, op, uuid string, lag time.Duration) error {
	if err := ctx.Err(); err != nil {
		return gpudrv.Refuse(gpudrv.Hung, op, uuid, "no answer in time").Because(err)
	}
	if lag <= 0 {
		return nil
	}
	t := time.NewTimer(lag)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return gpudrv.Refuse(gpudrv.Hung, op, uuid, "no answer in time").Because(ctx.Err())
	}
}

// read runs a read of one card.
func (d *Driver) read(ctx context.Context, op, uuid string, f func(card)) error {
	if err := d.wait(ctx, op, uuid, d.latency.Read); err != nil {
		return err
	}
	if hit := d.strike(ctx, op, uuid); hit != nil {
		return hit.end()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	i, err := d.st.find(op, uuid)
	if err != nil {
		return err
	}
	f(d.st.GPUs[i])
	return nil
}

// change runs a change of one card and stores it before it returns; nothing
// changes if f fails.
func (d *Driver) change(ctx context.Context, op, uuid string, lag time.Duration, f func(*card) error) error {
	if err := d.wait(ctx, op, uuid, lag); err != nil {
		return err
	}
	hit := d.strike(ctx, op, uuid)
	if hit != nil && !hit.late {
		return hit.end()
	}
	err := d.apply(op, uuid, f)
	if hit != nil {
		return hit.end()
	}
	return err
}

// apply changes one card under the lock.
func (d *Driver) apply(op, uuid string, f func(*card) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, err := d.st.find(op, uuid)
	if err != nil {
		return err
	}
	next := d.st.clone()
	next.GPUs[i].settleEnergy(d.now())
	if err := f(&next.GPUs[i]); err != nil {
		return err
	}
	if err := d.disk.save(next); err != nil {
		return gpudrv.Refuse(gpudrv.Broken, op, uuid, "store simulated state").Because(err)
	}
	d.st = next
	return nil
}

// find returns the card's position: Mismatch, NotFound or GPULost.
func (s state) find(op, uuid string) (int, error) {
	if s.Mismatch {
		return 0, gpudrv.Refuse(gpudrv.Mismatch, op, uuid, "library and kernel module are of different versions")
	}
	i := slices.IndexFunc(s.GPUs, func(c card) bool { return c.UUID == uuid })
	if i < 0 {
		return 0, gpudrv.Refuse(gpudrv.NotFound, op, uuid, "no gpu with this uuid")
	}
	if s.GPUs[i].Lost {
		return 0, gpudrv.Refuse(gpudrv.GPULost, op, uuid, "gpu has fallen off the bus")
	}
	return i, nil
}

// settleEnergy counts the energy up to an instant at the present power.
func (c *card) settleEnergy(at time.Time) {
	if dt := at.Sub(c.EnergyAt); dt > 0 {
		c.EnergyMJ += c.milliwatts() * dt.Milliseconds() / 1000
		c.EnergyAt = at
	}
}

// SetMode implements gpudrv.Writer.
func (d *Driver) SetMode(ctx context.Context, uuid string, m gpu.Mode) error {
	const op = OpSetMode
	pending, switched := false, false
	err := d.change(ctx, op, uuid, d.latency.SetMode, func(c *card) error {
		model := c.model()
		if !m.Valid() {
			return gpudrv.Refuse(gpudrv.Invalid, op, uuid, "no such mode")
		}
		if m.Kind == gpu.MIG && len(model.profiles) == 0 {
			return gpudrv.Refuse(gpudrv.Unsupported, op, uuid, "%s has no MIG", c.Model)
		}
		busy, who := c.occupied()
		if busy || c.VFIO || len(c.Instances) > 0 || len(c.Shares) > 0 || len(c.Functions) > 0 {
			return gpudrv.Refuse(gpudrv.InUse, op, uuid, "gpu holds %d instances, %d shares, %d functions",
				len(c.Instances), len(c.Shares), len(c.Functions)).HeldBy(who...)
		}
		c.MIGPending = m.Kind == gpu.MIG
		if model.modeNeedsReset && c.MIGPending != (c.Mode.Kind == gpu.MIG) {
			pending = true
			return nil
		}
		switched = (c.Mode.Kind == gpu.MIG) != c.MIGPending
		c.Mode = m
		return nil
	})
	if err == nil && switched {
		d.tell(whole(gpudrv.EventMIGConfig, uuid))
	}
	if err == nil && pending {
		return gpudrv.Refuse(gpudrv.NeedsReset, op, uuid, "MIG switch is pending until the gpu is reset")
	}
	return err
}

// CreateGPUInstance implements gpudrv.Writer.
func (d *Driver) CreateGPUInstance(ctx context.Context, uuid string, profile int, at gpudrv.Placement) (gpudrv.GPUInstance, error) {
	const op = OpCreateGPUInstance
	var out gpudrv.GPUInstance
	err := d.change(ctx, op, uuid, d.creation(), func(c *card) error {
		if c.Mode.Kind != gpu.MIG {
			return gpudrv.Refuse(gpudrv.Unsupported, op, uuid, "MIG is off")
		}
		m := c.model()
		e, ok := m.entry(profile)
		if !ok {
			return gpudrv.Refuse(gpudrv.Invalid, op, uuid, "no profile with id %d", profile)
		}
		if kind, why := c.canCreate(e, at); kind != "" {
			return gpudrv.Refuse(kind, op, uuid, "%s", why)
		}
		in := instance{ID: m.instanceID(at), Profile: profile, Start: at.Start}
		c.Instances = append(c.Instances, in)
		slices.SortFunc(c.Instances, func(a, b instance) int { return a.ID - b.ID })
		out = c.describe(in)
		return nil
	})
	return out, err
}

// DestroyGPUInstance implements gpudrv.Writer.
func (d *Driver) DestroyGPUInstance(ctx context.Context, uuid string, gi int) error {
	const op = OpDestroyGPUInstance
	return d.change(ctx, op, uuid, d.destruction(), func(c *card) error {
		i, err := c.instance(op, gi)
		if err != nil {
			return err
		}
		busy, who := c.holders(func(cl client) bool { return cl.GPUInstance == gi })
		if busy || c.Instances[i].HasCompute {
			return gpudrv.Refuse(gpudrv.InUse, op, uuid, "gpu instance %d is in use", gi).HeldBy(who...)
		}
		c.Instances = slices.Delete(c.Instances, i, i+1)
		return nil
	})
}

// CreateComputeInstance implements gpudrv.Writer.
func (d *Driver) CreateComputeInstance(ctx context.Context, uuid string, gi int) (gpudrv.ComputeInstance, error) {
	const op = OpCreateComputeInstance
	var out gpudrv.ComputeInstance
	err := d.change(ctx, op, uuid, d.filling(), func(c *card) error {
		i, err := c.instance(op, gi)
		if err != nil {
			return err
		}
		if c.Instances[i].HasCompute {
			return gpudrv.Refuse(gpudrv.NoRoom, op, uuid, "gpu instance %d has its compute instance", gi)
		}
		c.Instances[i].HasCompute = true
		out = c.describe(c.Instances[i]).Compute[0]
		return nil
	})
	return out, err
}

// DestroyComputeInstance implements gpudrv.Writer.
func (d *Driver) DestroyComputeInstance(ctx context.Context, uuid string, gi, ci int) error {
	const op = OpDestroyComputeInstance
	return d.change(ctx, op, uuid, d.destruction(), func(c *card) error {
		i, err := c.instance(op, gi)
		if err != nil {
			return err
		}
		if ci != 0 || !c.Instances[i].HasCompute {
			return gpudrv.Refuse(gpudrv.NotFound, op, uuid, "no compute instance %d in gpu instance %d", ci, gi)
		}
		busy, who := c.holders(func(cl client) bool { return cl.GPUInstance == gi })
		if dm := c.daemonOn(migUUID(c.UUID, gi, 0)); dm >= 0 {
			busy, who = true, append(who, gpudrv.Holder{PID: c.Daemons[dm].PID, Name: daemonName})
		}
		if busy {
			return gpudrv.Refuse(gpudrv.InUse, op, uuid, "compute instance %d/%d is in use", gi, ci).HeldBy(who...)
		}
		c.Instances[i].HasCompute = false
		return nil
	})
}

func (c *card) instance(op string, gi int) (int, error) {
	i := slices.IndexFunc(c.Instances, func(in instance) bool { return in.ID == gi })
	if i < 0 {
		return 0, gpudrv.Refuse(gpudrv.NotFound, op, c.UUID, "no gpu instance %d", gi)
	}
	return i, nil
}

// CreateShare implements gpudrv.Writer.
func (d *Driver) CreateShare(ctx context.Context, uuid string, unit int) (gpudrv.Share, error) {
	const op = OpCreateShare
	var out gpudrv.Share
	err := d.change(ctx, op, uuid, d.creation(), func(c *card) error {
		if c.Mode.Shares == 0 {
			return gpudrv.Refuse(gpudrv.Unsupported, op, uuid, "mode %s has no shares", c.Mode)
		}
		if unit < 0 || unit >= c.Mode.Shares {
			return gpudrv.Refuse(gpudrv.Invalid, op, uuid, "mode %s has no unit %d", c.Mode, unit)
		}
		if slices.Contains(c.Shares, unit) || slices.Contains(c.Functions, unit) {
			return gpudrv.Refuse(gpudrv.NoRoom, op, uuid, "unit %d is handed out", unit)
		}
		c.Shares = append(c.Shares, unit)
		slices.Sort(c.Shares)
		out = c.share(unit)
		return nil
	})
	return out, err
}

// DestroyShare implements gpudrv.Writer.
func (d *Driver) DestroyShare(ctx context.Context, uuid string, unit int) error {
	const op = OpDestroyShare
	return d.change(ctx, op, uuid, d.destruction(), func(c *card) error {
		i := slices.Index(c.Shares, unit)
		if i < 0 {
			return gpudrv.Refuse(gpudrv.NotFound, op, uuid, "unit %d is not handed out", unit)
		}
		if busy, who := c.holders(func(cl client) bool { return cl.Unit == unit }); busy {
			return gpudrv.Refuse(gpudrv.InUse, op, uuid, "unit %d is in use", unit).HeldBy(who...)
		}
		c.Shares = slices.Delete(c.Shares, i, i+1)
		return nil
	})
}
