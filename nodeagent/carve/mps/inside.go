package mps

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
)

// Inside is the MIG technique for slices that their holder shares among processes
// of its own (carve.Slice.Split): a daemon per MIG device, with limits that are
// parts of the device. Slices without a split are the MIG technique's alone.
type Inside struct {
	carve.Carver // the MIG technique
	daemons      mpsd.Control
}

// NewInside puts MPS on top of the MIG technique.
func NewInside(mig carve.Carver, daemons mpsd.Control) Inside {
	return Inside{Carver: mig, daemons: daemons}
}

func split(s carve.Slice) (bool, error) {
	switch {
	case s.Split == gpu.Mode{}:
		return false, nil
	case s.Split.Kind != gpu.MPS || !s.Split.Valid():
		return false, gpudrv.Refuse(gpudrv.Invalid, "split", s.Slot.GPU, "a MIG slice can be split by mps alone, not %q", s.Split)
	default:
		return true, nil
	}
}

// Plan implements carve.Carver.
func (c Inside) Plan(ctx context.Context, s carve.Slice) (carve.Plan, error) {
	wanted, err := split(s)
	if err != nil {
		return carve.Plan{}, err
	}
	p, err := c.Carver.Plan(ctx, s)
	if err != nil || !wanted {
		return p, err
	}
	served := false
	if p.Present {
		if served, err = c.served(ctx, s); err != nil {
			return carve.Plan{}, err
		}
	}
	if !served {
		p.Present = false
		p.Steps = append(p.Steps, "start an MPS daemon in it and set its limits")
	}
	return p, nil
}

func (c Inside) served(ctx context.Context, s carve.Slice) (bool, error) {
	e, ok, err := c.find(ctx, s)
	if err != nil || !ok {
		return false, err
	}
	now, err := c.daemons.Limits(ctx, e.UUID)
	if gpudrv.KindOf(err) == gpudrv.NotFound {
		return false, nil
	}
	return err == nil && now == limitsIn(e, s.Split), err
}

// limitsIn is a part of a MIG device.
func limitsIn(e carve.Evidence, m gpu.Mode) mpsd.Limits {
	return mpsd.Limits{Percent: m.Percent, Memory: e.Memory * units.MiB(m.Percent) / 100}
}

func (c Inside) find(ctx context.Context, s carve.Slice) (carve.Evidence, bool, error) {
	found, err := c.Observe(ctx, s.Slot.GPU)
	if err != nil {
		return carve.Evidence{}, false, err
	}
	for _, f := range found {
		if f.Evidence.Slot.Profile == s.Slot.Profile && f.Evidence.Slot.Placement() == s.Slot.Placement() {
			return f.Evidence, true, nil
		}
	}
	return carve.Evidence{}, false, nil
}

// Ensure implements carve.Carver. A slice whose daemon does not start stays, for the
// caller to try again or remove.
func (c Inside) Ensure(ctx context.Context, s carve.Slice) (carve.Evidence, error) {
	wanted, err := split(s)
	if err != nil {
		return carve.Evidence{}, err
	}
	e, err := c.Carver.Ensure(ctx, s)
	if err != nil || !wanted {
		return e, err
	}
	want := limitsIn(e, s.Split)
	now, err := c.daemons.Limits(ctx, e.UUID)
	if err != nil && gpudrv.KindOf(err) != gpudrv.NotFound {
		return carve.Evidence{}, fmt.Errorf("split %s: %w", s.ID, err)
	}
	d, err := serve(ctx, c.daemons, e.UUID, want, err == nil && now == want)
	if err != nil {
		return carve.Evidence{}, fmt.Errorf("split %s: %w", s.ID, err)
	}
	e.PipeDir = d.PipeDir
	return e, nil
}

// Remove implements carve.Carver. A daemon in the slice is stopped first, whether or
// not the caller knows of the split.
func (c Inside) Remove(ctx context.Context, s carve.Slice) error {
	e, ok, err := c.find(ctx, s)
	if err != nil {
		return fmt.Errorf("remove %s: %w", s.ID, err)
	}
	if ok && e.UUID != "" {
		if err := c.daemons.Stop(ctx, e.UUID); err != nil {
			return fmt.Errorf("stop the MPS daemon in %s: %w", s.ID, err)
		}
	}
	return c.Carver.Remove(ctx, s)
}
