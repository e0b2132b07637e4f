// Package whole sells a GPU undivided. Nothing is made in the driver: Ensure
// proves that the GPU answers, is in whole mode and healthy; Remove proves that
// nobody is on it any more. It needs no state, so it observes nothing.
package whole

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Carver is the technique over one driver.
type Carver struct{ drv gpudrv.Driver }

var _ carve.Carver = Carver{}

// New makes the technique.
func New(drv gpudrv.Driver) Carver { return Carver{drv: drv} }

// Plan implements carve.Carver: a whole GPU is always there.
func (c Carver) Plan(ctx context.Context, s carve.Slice) (carve.Plan, error) {
	if _, err := c.look(ctx, s); err != nil {
		return carve.Plan{}, err
	}
	return carve.Plan{Present: true}, nil
}

func (c Carver) look(ctx context.Context, s carve.Slice) (carve.Target, error) {
	t, err := carve.Glance(ctx, c.drv, s.Slot.GPU)
	if err != nil {
		return carve.Target{}, fmt.Errorf("whole gpu for %s: %w", s.ID, err)
	}
	return t, t.Admit(nil, s.Slot)
}

// Ensure implements carve.Carver.
func (c Carver) Ensure(ctx context.Context, s carve.Slice) (carve.Evidence, error) {
	t, err := c.look(ctx, s)
	if err != nil {
		return carve.Evidence{}, err
	}
	const all = 100
	return carve.Evidence{
		Slot: s.Slot, UUID: t.Device.UUID, GPUInstance: -1, BootID: t.BootID,
		Memory: t.Device.Memory, SMs: t.Device.SMs, SMPercent: all, Isolation: gpu.Dedicated,
	}, nil
}

// Remove implements carve.Carver: InUse while a process is on the GPU.
func (c Carver) Remove(ctx context.Context, s carve.Slice) error {
	processes, err := c.drv.Processes(ctx, s.Slot.GPU)
	if err != nil {
		return fmt.Errorf("list processes before %s is free: %w", s.ID, err)
	}
	if len(processes) == 0 {
		return nil
	}
	holders := make([]gpudrv.Holder, 0, len(processes))
	for _, p := range processes {
		holders = append(holders, gpudrv.Holder{PID: p.PID, Name: p.Name})
	}
	return gpudrv.Refuse(gpudrv.InUse, "remove", s.Slot.GPU, "%d processes are on the gpu", len(processes)).HeldBy(holders...)
}

// Observe implements carve.Carver: a whole GPU leaves no mark on the driver.
func (c Carver) Observe(context.Context, string) ([]carve.Found, error) { return nil, nil }
