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
}

// Found is something that exists on a GPU. Incomplete is a GPU instance without
// its compute instance, left by a crash: Ensure finishes it, Remove removes it.
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

// Set is the techniques of a host.
type Set struct {
	drv gpudrv.Driver
	by  map[gpu.Kind]Carver
}

// NewSet combines techniques over one driver.
func NewSet(drv gpudrv.Driver, by map[gpu.Kind]Carver) *Set { return &Set{drv: drv, by: by} }

func (s *Set) pick(m gpu.Mode, op, uuid string) (Carver, error) {
	c, ok := s.by[m.Kind]
	if !ok {
		return nil, gpudrv.Refuse(gpudrv.Unsupported, op, uuid, "no technique for mode %q", m)
	}
	return c, nil
}

// Plan is Carver.Plan of the slot's technique.
func (s *Set) Plan(ctx context.Context, sl Slice) (Plan, error) {
	c, err := s.pick(sl.Slot.Mode, "plan", sl.Slot.GPU)
	if err != nil {
		return Plan{}, err
	}
	return c.Plan(ctx, sl)
}

// Ensure is Carver.Ensure of the slot's technique.
func (s *Set) Ensure(ctx context.Context, sl Slice) (Evidence, error) {
	c, err := s.pick(sl.Slot.Mode, "ensure", sl.Slot.GPU)
	if err != nil {
		return Evidence{}, err
	}
	return c.Ensure(ctx, sl)
}

// Remove is Carver.Remove of the slot's technique.
func (s *Set) Remove(ctx context.Context, sl Slice) error {
	c, err := s.pick(sl.Slot.Mode, "remove", sl.Slot.GPU)
	if err != nil {
		return err
	}
	return c.Remove(ctx, sl)
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

// EnsureMode puts an empty GPU into a mode and reads it back; it does nothing if
// the GPU is in it. InUse while the GPU holds anything, NeedsReset where the
// switch waits for a reset.
func (s *Set) EnsureMode(ctx context.Context, uuid string, m gpu.Mode) error {
	now, err := s.drv.Mode(ctx, uuid)
	if err != nil {
		return fmt.Errorf("read gpu mode: %w", err)
	}
	if now == m {
		return nil
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
	return nil
}
