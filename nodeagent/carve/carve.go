// Package carve makes and removes slices. It owns the port that every technique
// implements (sub-packages whole, mig, mps, timeslice) and picks the technique
// by the slot's mode.
//
// It never chooses a place: the control plane names GPU, profile and start, and
// carve does exactly that or refuses with a typed reason (gpudrv.Kind) and
// changes nothing else. It keeps no state: what exists is read from the driver
// every time. Calls for one GPU must not overlap; the agent queues them.
package carve

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Slice is one wanted slot. ID is the caller's (assignment and slot), for errors.
type Slice struct {
	ID   string
	Slot gpu.Slot
	// Org is who it is for; "" is not checked. A GPU whose mode binds it to one
	// organization is refused to a second one while this process knows of the first.
	Org string
	// Split shares a MIG slice among processes of its own holder through MPS: an mps
	// mode, or the zero Mode for an undivided slice. It takes no further cells.
	Split gpu.Mode
	// Technique picks one that no mode stands for (sriov, vfio); "" goes by the mode.
	Technique gpu.Kind
}

// Plan is what Ensure would do now. Present means that nothing is left to do.
type Plan struct {
	Present bool
	Steps   []string // in order, for people and dry runs
}

// Evidence is what the driver says about a slice that exists.
type Evidence struct {
	Slot        gpu.Slot
	UUID        string // what the container is given: the GPU's or the MIG device's
	GPUInstance int    // -1 outside mig
	BootID      string
	Memory      units.MiB
	SMs         int
	SMPercent   int // 100 unless a share
	// Isolation is the class that this driver gives the slice.
	Isolation gpu.Isolation
	// PipeDir is the folder of the MPS daemon that serves the slice, which its
	// container gets read-only; "" without one.
	PipeDir string
	// Function is the PCI address that a virtual machine is given, "" for containers.
	Function string
}

// Found is something that exists on a GPU. Incomplete is a GPU instance without
// its compute instance, left by a crash, or an mps share without its daemon: Ensure
// finishes it, Remove removes it.
type Found struct {
	Evidence   Evidence
	Incomplete bool
}

// Carver is one technique.
type Carver interface {
	// Plan reads the driver and says what Ensure would do; it changes nothing.
	Plan(ctx context.Context, s Slice) (Plan, error)
	// Ensure makes the slice unless it exists, and returns evidence read back from
	// the driver. It is idempotent. Errors are *gpudrv.Error: NoRoom when other
	// slots are in the way, Unsupported in a wrong mode or for an unknown profile,
	// Invalid for an illegal place, InUse, NeedsReset, GPULost, Hung, Broken.
	Ensure(ctx context.Context, s Slice) (Evidence, error)
	// Remove takes exactly this slot away and reads back that it is gone; it
	// succeeds if it was not there. InUse names the holders.
	Remove(ctx context.Context, s Slice) error
	// Observe lists what exists on a GPU in this technique's mode. A whole GPU
	// leaves no mark on the driver, so whole observes nothing.
	Observe(ctx context.Context, uuid string) ([]Found, error)
}

// Moder is what a technique does when a GPU enters or leaves its mode. Both are
// idempotent.
type Moder interface {
	// Enter sets the GPU up for the mode that it is in.
	Enter(ctx context.Context, uuid string, m gpu.Mode) error
	// Leave takes back what Enter and slices left behind, before the mode changes.
	Leave(ctx context.Context, uuid string) error
}

// Quieter is a technique whose processes must be cut off before they are
// signalled, because their neighbours would suffer.
type Quieter interface {
	// Quiet cuts processes off; it does nothing for one that is not connected.
	Quiet(ctx context.Context, uuid string, pids []int) error
}

// Prover is a technique whose slices may all suffer from one client's fault.
type Prover interface {
	// Prove shows that a fresh client works on the GPU's slices, and repairs what it
	// may; it does nothing on a GPU without slices.
	Prove(ctx context.Context, uuid string) error
}

// Techniques that no mode stands for.
const (
	SRIOV gpu.Kind = "sriov"
	VFIO  gpu.Kind = "vfio"
)

// Set is the techniques of a host.
type Set struct {
	drv  gpudrv.Driver
	by   map[gpu.Kind]Carver
	wall wall
}

// NewSet combines techniques over one driver.
func NewSet(drv gpudrv.Driver, by map[gpu.Kind]Carver) *Set {
	return &Set{drv: drv, by: by, wall: wall{orgs: map[gpu.Slot]string{}}}
}

func (s *Set) pick(m gpu.Mode, op, uuid string) (Carver, error) { return s.named(m.Kind, op, uuid) }

func (s *Set) named(k gpu.Kind, op, uuid string) (Carver, error) {
	c, ok := s.by[k]
	if !ok {
		return nil, gpudrv.Refuse(gpudrv.Unsupported, op, uuid, "no technique for mode %q", k)
	}
	return c, nil
}

// of picks the technique of a slice.
func (s *Set) of(sl Slice, op string) (Carver, error) {
	if sl.Technique != "" {
		return s.named(sl.Technique, op, sl.Slot.GPU)
	}
	return s.pick(sl.Slot.Mode, op, sl.Slot.GPU)
}

// Plan is Carver.Plan of the slot's technique.
func (s *Set) Plan(ctx context.Context, sl Slice) (Plan, error) {
	c, err := s.of(sl, "plan")
	if err != nil {
		return Plan{}, err
	}
	return c.Plan(ctx, sl)
}

// Ensure is Carver.Ensure of the slot's technique.
func (s *Set) Ensure(ctx context.Context, sl Slice) (Evidence, error) {
	c, err := s.of(sl, "ensure")
	if err != nil {
		return Evidence{}, err
	}
	fresh, err := s.wall.enter(sl)
	if err != nil {
		return Evidence{}, err
	}
	e, err := c.Ensure(ctx, sl)
	if err != nil && fresh {
		s.wall.leave(sl)
	}
	return e, err
}

// Remove is Carver.Remove of the slot's technique.
func (s *Set) Remove(ctx context.Context, sl Slice) error {
	c, err := s.of(sl, "remove")
	if err != nil {
		return err
	}
	if err := c.Remove(ctx, sl); err != nil {
		return err
	}
	s.wall.leave(sl)
	return nil
}

// Quiet cuts processes of a slot off before they are signalled, where its
// technique needs that.
func (s *Set) Quiet(ctx context.Context, sl Slice, pids []int) error {
	c, err := s.of(sl, "quiet")
	if err != nil {
		return err
	}
	if q, ok := c.(Quieter); ok {
		return q.Quiet(ctx, sl.Slot.GPU, pids)
	}
	return nil
}

// Prove shows after a fault that a GPU in its present mode serves fresh clients,
// where its technique can tell.
func (s *Set) Prove(ctx context.Context, uuid string) error {
	m, err := s.drv.Mode(ctx, uuid)
	if err != nil {
		return fmt.Errorf("prove gpu: %w", err)
	}
	if p, ok := s.by[m.Kind].(Prover); ok {
		return p.Prove(ctx, uuid)
	}
	return nil
}

// Observe lists what exists on a GPU by the mode it is in.
func (s *Set) Observe(ctx context.Context, uuid string) ([]Found, error) {
	m, err := s.drv.Mode(ctx, uuid)
	if err != nil {
		return nil, fmt.Errorf("observe gpu: %w", err)
	}
	c, err := s.pick(m, "observe", uuid)
	if err != nil {
		return nil, err
	}
	return c.Observe(ctx, uuid)
}

// EnsureMode puts an empty GPU into a mode, set up as its technique wants, and
// reads it back; a GPU that is in it is only set up. InUse while the GPU holds
// anything, NeedsReset where the switch waits for a reset.
func (s *Set) EnsureMode(ctx context.Context, uuid string, m gpu.Mode) error {
	now, err := s.drv.Mode(ctx, uuid)
	if err != nil {
		return fmt.Errorf("read gpu mode: %w", err)
	}
	if now == m {
		return s.enter(ctx, uuid, m)
	}
	if err := s.leave(ctx, uuid, now); err != nil {
		return fmt.Errorf("leave gpu mode %s: %w", now, err)
	}
	if err := s.drv.SetMode(ctx, uuid, m); err != nil {
		return fmt.Errorf("set gpu mode %s: %w", m, err)
	}
	now, err = s.drv.Mode(ctx, uuid)
	if err != nil {
		return fmt.Errorf("read gpu mode back: %w", err)
	}
	if now != m {
		return gpudrv.Refuse(gpudrv.Broken, "set_mode", uuid, "asked for mode %s, driver shows %s", m, now)
	}
	return s.enter(ctx, uuid, m)
}

func (s *Set) enter(ctx context.Context, uuid string, m gpu.Mode) error {
	if t, ok := s.by[m.Kind].(Moder); ok {
		if err := t.Enter(ctx, uuid, m); err != nil {
			return fmt.Errorf("set gpu up for mode %s: %w", m, err)
		}
	}
	return nil
}

// leave tidies up a GPU that holds no slices; with slices SetMode refuses anyhow.
func (s *Set) leave(ctx context.Context, uuid string, m gpu.Mode) error {
	t, ok := s.by[m.Kind].(Moder)
	if !ok {
		return nil
	}
	held, err := s.drv.Shares(ctx, uuid)
	if err != nil {
		return fmt.Errorf("list shares: %w", err)
	}
	if len(held) > 0 {
		return gpudrv.Refuse(gpudrv.InUse, "set_mode", uuid, "gpu holds %d shares", len(held))
	}
	return t.Leave(ctx, uuid)
}
