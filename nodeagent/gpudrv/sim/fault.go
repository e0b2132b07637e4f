package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// The calls that faults may hit; the text is the error's Op.
const (
	OpRead                   = "read"
	OpSetMode                = "set_mode"
	OpCreateGPUInstance      = "create_gpu_instance"
	OpDestroyGPUInstance     = "destroy_gpu_instance"
	OpCreateComputeInstance  = "create_compute_instance"
	OpDestroyComputeInstance = "destroy_compute_instance"
	OpCreateShare            = "create_share"
	OpDestroyShare           = "destroy_share"
	OpReset                  = "reset"
	OpSetTimeslice           = "set_timeslice"
	OpSetComputeMode         = "set_compute_mode"
	OpSetMemoryLimit         = "set_memory_limit"
)

// Names that stand for several calls.
const (
	OpAny   = ""      // every call
	OpWrite = "write" // every call that changes something
)

// ops are the calls by name, and whether they change something.
var ops = map[string]bool{
	OpRead: false, OpSetMode: true, OpCreateGPUInstance: true, OpDestroyGPUInstance: true,
	OpCreateComputeInstance: true, OpDestroyComputeInstance: true, OpCreateShare: true, OpDestroyShare: true,
	OpReset: true, OpSetTimeslice: true, OpSetComputeMode: true, OpSetMemoryLimit: true,
	OpMPSEnsure: true, OpMPSSetLimits: true, OpMPSTerminate: true, OpMPSStop: true, OpMPSProbe: true,
	OpCreateFunction: true, OpDestroyFunction: true, OpBindVFIO: true, OpUnbindVFIO: true,
}

// Fault makes calls fail.
type Fault struct {
	GPU     string      // UUID; "" is any
	Op      string      // one of the Op constants
	After   int         // how many matching calls it lets pass first
	Times   int         // how many calls it hits then; at least 1
	Kind    gpudrv.Kind // the error they get
	Holders []gpudrv.Holder
	Hang    bool // instead of an error: no answer until the context ends
	Late    bool // what the call asks for happens all the same
}

func (f Fault) hits(op, uuid string) bool {
	switch {
	case f.GPU != "" && f.GPU != uuid:
		return false
	case f.Op == OpAny || f.Op == op:
		return true
	default:
		return f.Op == OpWrite && ops[op]
	}
}

// Inject adds a fault. A call is hit by the first fault that was added and
// matches. Faults do not outlive the process.
func (d *Driver) Inject(f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f.Times = max(f.Times, 1)
	d.faults = append(d.faults, f)
}

// Calls is how many driver calls were made since Open, so that a test may aim a
// fault at each in turn.
func (d *Driver) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// aim counts a call and finds the fault that hits it.
func (d *Driver) aim(op, uuid string) (Fault, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	for i := range d.faults {
		f := &d.faults[i]
		if !f.hits(op, uuid) {
			continue
		}
		if f.After > 0 {
			f.After--
			continue
		}
		hit := *f
		if f.Times--; f.Times == 0 {
			d.faults = slices.Delete(d.faults, i, i+1)
		}
		return hit, true
	}
	return Fault{}, false
}

// blow is how a fault ends a call; late says that the call has its effect first.
type blow struct {
	late bool
	end  func() error
}

// strike lets a fault hit a call; nil if none does.
func (d *Driver) strike(ctx context.Context, op, uuid string) *blow {
	d.script.called(op, uuid)
	f, ok := d.aim(op, uuid)
	if !ok {
		return nil
	}
	return &blow{late: f.Late, end: func() error {
		if f.Hang {
			<-ctx.Done()
			return gpudrv.Refuse(gpudrv.Hung, op, uuid, "no answer in time").Because(ctx.Err())
		}
		return gpudrv.Refuse(f.Kind, op, uuid, "injected").HeldBy(f.Holders...)
	}}
}

// event changes a card from outside the driver, lost ones included.
func (d *Driver) event(uuid string, f func(*card)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.st.clone()
	i := slices.IndexFunc(next.GPUs, func(c card) bool { return c.UUID == uuid })
	if i < 0 {
		return gpudrv.Refuse(gpudrv.NotFound, "event", uuid, "no gpu with this uuid")
	}
	next.GPUs[i].settleEnergy(d.now())
	f(&next.GPUs[i])
	return d.store(next)
}

// Lose makes a GPU fall off the bus until the next reboot. Watchers are told that
// it is unavailable; a driver may also lose it in silence: LoseQuietly.
func (d *Driver) Lose(uuid string) error {
	if err := d.LoseQuietly(uuid); err != nil {
		return err
	}
	d.tell(whole(gpudrv.EventUnavailable, uuid))
	return nil
}

// LoseQuietly is Lose without an event.
func (d *Driver) LoseQuietly(uuid string) error {
	return d.event(uuid, func(c *card) { c.Lost, c.Recovery = true, "reboot" })
}

// Advise sets the recovery action that the driver reports, for example
// drain_reset, and tells watchers; Reset and reboots clear it.
func (d *Driver) Advise(uuid, action string) error {
	if action == "none" {
		action = ""
	}
	if err := d.event(uuid, func(c *card) { c.Recovery = action }); err != nil {
		return err
	}
	d.tell(whole(gpudrv.EventRecovery, uuid))
	return nil
}

// HardReset resets a GPU whoever is on it, clients included.
func (d *Driver) HardReset(uuid string) error {
	return d.event(uuid, func(c *card) {
		c.Clients = nil
		c.reset()
	})
}

// Reboot is the host's reboot while this driver is open.
func (d *Driver) Reboot() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.store(d.st.reboot(d.now()))
}

// store makes a state the present one; the caller holds the lock.
func (d *Driver) store(next state) error {
	if err := d.disk.save(next); err != nil {
		return fmt.Errorf("store simulated gpus: %w", err)
	}
	d.st = next
	return nil
}

// Reboot is the reboot of a host whose agent is not running.
func Reboot(dir string) error {
	d, err := openDisk(dir)
	if err != nil {
		return err
	}
	s, ok, err := d.load()
	if err == nil && ok {
		err = d.save(s.reboot(time.Now()))
	}
	return errors.Join(err, d.close())
}

// Heal takes back every fault that was injected and has not hit.
func (d *Driver) Heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = nil
}
