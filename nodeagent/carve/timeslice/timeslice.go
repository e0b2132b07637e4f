// Package timeslice hands out the equal turns of a GPU in timeslice mode. Turns
// are per process, and nothing limits memory unless the driver caps the memory of
// cgroups (carve.LimitMemory); contexts are separate, so faults stay apart. One
// organization holds a GPU's turns (package carve checks it). What is recorded
// about a share is what is sold: its part of memory and time.
package timeslice

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/carve/internal/grid"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Carver is the technique over one driver.
type Carver struct {
	grid.Carver
	level string
}

var (
	_ carve.Carver = Carver{}
	_ carve.Moder  = Carver{}
)

// New makes the technique over one driver. level is the length of a turn on GPUs in
// this mode (gpudrv's Timeslice levels); "" leaves it as it is.
func New(drv gpudrv.Driver, level string) Carver {
	return Carver{Carver: grid.Carver{Driver: drv}, level: level}
}

// Ensure implements carve.Carver.
func (c Carver) Ensure(ctx context.Context, s carve.Slice) (carve.Evidence, error) {
	sc, err := c.Look(ctx, s.Slot.GPU)
	if err != nil {
		return carve.Evidence{}, fmt.Errorf("carve %s: %w", s.ID, err)
	}
	if _, err := sc.Plan(s.Slot); err != nil {
		return carve.Evidence{}, err
	}
	if err := c.turns(ctx, s.Slot.GPU, c.level); err != nil {
		return carve.Evidence{}, fmt.Errorf("carve %s: %w", s.ID, err)
	}
	return c.EnsureIn(ctx, sc, s)
}

// Enter implements carve.Moder.
func (c Carver) Enter(ctx context.Context, uuid string, _ gpu.Mode) error {
	return c.turns(ctx, uuid, c.level)
}

// Leave implements carve.Moder.
func (c Carver) Leave(ctx context.Context, uuid string) error {
	if c.level == "" {
		return nil
	}
	return c.turns(ctx, uuid, gpudrv.TimesliceDefault)
}

// turns sets the length of a turn unless it is set. It is read back where the
// driver reports it.
func (c Carver) turns(ctx context.Context, uuid, level string) error {
	if level == "" {
		return nil
	}
	now, err := c.Driver.Settings(ctx, uuid)
	if err != nil {
		return fmt.Errorf("read time-slice length: %w", err)
	}
	if now.Timeslice.Or("") == level {
		return nil
	}
	if err := c.Driver.SetTimeslice(ctx, uuid, level); err != nil {
		return fmt.Errorf("set time-slice length %s: %w", level, err)
	}
	now, err = c.Driver.Settings(ctx, uuid)
	if err != nil {
		return fmt.Errorf("read time-slice length back: %w", err)
	}
	if got, ok := now.Timeslice.Get(); ok && got != level {
		return gpudrv.Refuse(gpudrv.Broken, "set_timeslice", uuid, "asked for %s, driver shows %s", level, got)
	}
	return nil
}
