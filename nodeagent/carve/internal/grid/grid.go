// Package grid hands out the equal units of an mps or timeslice grid: what the
// two techniques have in common. A slice is recognised by GPU, mode and unit.
package grid

import (
	"context"
	"fmt"
	"slices"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Carver hands out units of one driver's grids.
type Carver struct{ Driver gpudrv.Driver }

var _ carve.Carver = Carver{}

// Scene is a GPU and its units that are handed out, as read at one time.
type Scene struct {
	carve.Target
	shares []gpudrv.Share
}

// Look reads a GPU.
func (c Carver) Look(ctx context.Context, uuid string) (Scene, error) {
	t, err := carve.Glance(ctx, c.Driver, uuid)
	if err != nil {
		return Scene{}, err
	}
	list, err := c.Driver.Shares(ctx, uuid)
	if err != nil {
		return Scene{}, fmt.Errorf("list shares: %w", err)
	}
	return Scene{Target: t, shares: list}, nil
}

// find returns the share of the slot, if the GPU is in the slot's very mode.
func find(m gpu.Mode, list []gpudrv.Share, s gpu.Slot) (gpudrv.Share, bool) {
	if m != s.Mode {
		return gpudrv.Share{}, false
	}
	i := slices.IndexFunc(list, func(sh gpudrv.Share) bool { return sh.Unit == s.Start })
	if i < 0 {
		return gpudrv.Share{}, false
	}
	return list[i], true
}

func (sc Scene) evidence(sh gpudrv.Share) carve.Evidence {
	return carve.Evidence{
		Slot: gpu.Slot{GPU: sc.Device.UUID, Mode: sc.Mode, Start: sh.Unit, Size: 1},
		UUID: sc.Device.UUID, GPUInstance: -1, BootID: sc.BootID,
		Memory: sh.Memory, SMs: sh.SMs, SMPercent: sh.SMPercent,
		Isolation: sc.Device.Isolation(sc.Mode),
	}
}

// Plan says what Ensure would do, as carve.Carver.Plan does.
func (sc Scene) Plan(s gpu.Slot) (carve.Plan, error) {
	if _, ok := find(sc.Mode, sc.shares, s); ok {
		return carve.Plan{Present: true}, nil
	}
	if err := sc.Admit(nil, s); err != nil {
		return carve.Plan{}, err
	}
	return carve.Plan{Steps: []string{"hand out " + s.String()}}, nil
}

// Found lists the units that are handed out.
func (sc Scene) Found() []carve.Found {
	out := make([]carve.Found, 0, len(sc.shares))
	for _, sh := range sc.shares {
		out = append(out, carve.Found{Evidence: sc.evidence(sh)})
	}
	return out
}

// Plan implements carve.Carver.
func (c Carver) Plan(ctx context.Context, s carve.Slice) (carve.Plan, error) {
	sc, err := c.Look(ctx, s.Slot.GPU)
	if err != nil {
		return carve.Plan{}, fmt.Errorf("plan %s: %w", s.ID, err)
	}
	return sc.Plan(s.Slot)
}

// Ensure implements carve.Carver.
func (c Carver) Ensure(ctx context.Context, s carve.Slice) (carve.Evidence, error) {
	sc, err := c.Look(ctx, s.Slot.GPU)
	if err != nil {
		return carve.Evidence{}, fmt.Errorf("carve %s: %w", s.ID, err)
	}
	return c.EnsureIn(ctx, sc, s)
}

// EnsureIn is Ensure on a GPU that was just looked at.
func (c Carver) EnsureIn(ctx context.Context, sc Scene, s carve.Slice) (carve.Evidence, error) {
	plan, err := sc.Plan(s.Slot)
	if err != nil {
		return carve.Evidence{}, err
	}
	if !plan.Present {
		if _, err := c.Driver.CreateShare(ctx, s.Slot.GPU, s.Slot.Start); err != nil {
			return carve.Evidence{}, fmt.Errorf("hand %s out: %w", s.ID, err)
		}
	}
	sh, ok, err := c.there(ctx, s.Slot)
	if err != nil {
		return carve.Evidence{}, fmt.Errorf("read %s back: %w", s.ID, err)
	}
	if !ok {
		return carve.Evidence{}, gpudrv.Refuse(gpudrv.Broken, "ensure", s.Slot.GPU,
			"handed %s out, driver does not show it", s.Slot)
	}
	return sc.evidence(sh), nil
}

// Remove implements carve.Carver.
func (c Carver) Remove(ctx context.Context, s carve.Slice) error {
	_, ok, err := c.there(ctx, s.Slot)
	if err != nil || !ok {
		return err
	}
	err = c.Driver.DestroyShare(ctx, s.Slot.GPU, s.Slot.Start)
	if err != nil && gpudrv.KindOf(err) != gpudrv.NotFound {
		return fmt.Errorf("take %s back: %w", s.ID, err)
	}
	_, ok, err = c.there(ctx, s.Slot)
	if err == nil && ok {
		return gpudrv.Refuse(gpudrv.Broken, "remove", s.Slot.GPU, "took %s back, driver still shows it", s.Slot)
	}
	return err
}

// there reads mode and shares only: a GPU that wants a reset can still be freed.
func (c Carver) there(ctx context.Context, s gpu.Slot) (gpudrv.Share, bool, error) {
	m, err := c.Driver.Mode(ctx, s.GPU)
	if err != nil {
		return gpudrv.Share{}, false, fmt.Errorf("read gpu mode: %w", err)
	}
	list, err := c.Driver.Shares(ctx, s.GPU)
	if err != nil {
		return gpudrv.Share{}, false, fmt.Errorf("list shares: %w", err)
	}
	sh, ok := find(m, list, s)
	return sh, ok, nil
}

// Observe implements carve.Carver.
func (c Carver) Observe(ctx context.Context, uuid string) ([]carve.Found, error) {
	sc, err := c.Look(ctx, uuid)
	if err != nil {
		return nil, fmt.Errorf("observe shares: %w", err)
	}
	return sc.Found(), nil
}
