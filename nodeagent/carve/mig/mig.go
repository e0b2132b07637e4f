// Package mig carves MIG slices at explicit placements: a GPU instance and one
// compute instance that fills it. A slice is recognised by GPU, profile and
// start, never by GPU instance id or MIG UUID, which are reused.
//
// A GPU instance without its compute instance is never left behind by a failed
// Ensure; one left by a crash is finished by Ensure or removed by Remove.
package mig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// undoTimeout is how long taking back a half-made slice may take.
const undoTimeout = 30 * time.Second

// Carver is the technique over one driver.
type Carver struct{ drv gpudrv.Driver }

var _ carve.Carver = Carver{}

// New makes the technique.
func New(drv gpudrv.Driver) Carver { return Carver{drv: drv} }

// scene is the GPU and what is on it.
type scene struct {
	carve.Target
	instances []gpudrv.GPUInstance
}

func (c Carver) scene(ctx context.Context, uuid string) (scene, error) {
	t, err := carve.Look(ctx, c.drv, uuid)
	if err != nil {
		return scene{}, err
	}
	list, err := c.drv.GPUInstances(ctx, uuid)
	if err != nil {
		return scene{}, fmt.Errorf("list gpu instances: %w", err)
	}
	return scene{Target: t, instances: list}, nil
}

// find returns the instance at the slot's profile and place.
func find(list []gpudrv.GPUInstance, s gpu.Slot) (gpudrv.GPUInstance, bool) {
	for _, in := range list {
		if in.Profile == s.Profile && gpu.Placement(in.Placement) == s.Placement() {
			return in, true
		}
	}
	return gpudrv.GPUInstance{}, false
}

// slot is the place of an instance. Of a profile that the driver no longer
// lists only id and place are known.
func (sc scene) slot(in gpudrv.GPUInstance) gpu.Slot {
	p, ok := sc.Device.Profile(in.Profile)
	if !ok {
		p = gpu.Profile{ID: in.Profile}
	}
	return gpu.MIGSlot(sc.Device.UUID, p, gpu.Placement(in.Placement))
}

func (sc scene) held() []gpu.Slot {
	out := make([]gpu.Slot, 0, len(sc.instances))
	for _, in := range sc.instances {
		out = append(out, sc.slot(in))
	}
	return out
}

// Plan implements carve.Carver.
func (c Carver) Plan(ctx context.Context, s carve.Slice) (carve.Plan, error) {
	sc, err := c.scene(ctx, s.Slot.GPU)
	if err != nil {
		return carve.Plan{}, fmt.Errorf("plan %s: %w", s.ID, err)
	}
	steps := []string{"create gpu instance " + s.Slot.String(), "create its compute instance"}
	in, ok := find(sc.instances, s.Slot)
	switch {
	case !ok:
		return carve.Plan{Steps: steps}, sc.Admit(sc.held(), s.Slot)
	case len(in.Compute) == 0:
		return carve.Plan{Steps: steps[1:]}, nil
	default:
		return carve.Plan{Present: true}, sc.sole(in)
	}
}

// sole refuses a GPU instance that somebody else split.
func (sc scene) sole(in gpudrv.GPUInstance) error {
	if len(in.Compute) > 1 {
		return gpudrv.Refuse(gpudrv.NoRoom, "ensure", sc.Device.UUID,
			"gpu instance %d holds %d compute instances", in.ID, len(in.Compute))
	}
	return nil
}

// Ensure implements carve.Carver.
func (c Carver) Ensure(ctx context.Context, s carve.Slice) (carve.Evidence, error) {
	sc, err := c.scene(ctx, s.Slot.GPU)
	if err != nil {
		return carve.Evidence{}, fmt.Errorf("carve %s: %w", s.ID, err)
	}
	in, ok := find(sc.instances, s.Slot)
	if ok && len(in.Compute) > 0 {
		return sc.evidence(in), sc.sole(in)
	}
	if !ok {
		if err := sc.Admit(sc.held(), s.Slot); err != nil {
			return carve.Evidence{}, err
		}
		in, err = c.drv.CreateGPUInstance(ctx, s.Slot.GPU, s.Slot.Profile, gpudrv.Placement(s.Slot.Placement()))
		if err != nil {
			return carve.Evidence{}, fmt.Errorf("carve %s: %w", s.ID, err)
		}
	}
	if _, err := c.drv.CreateComputeInstance(ctx, s.Slot.GPU, in.ID); err != nil {
		err = fmt.Errorf("fill %s: %w", s.ID, err)
		return carve.Evidence{}, errors.Join(err, c.undo(ctx, s))
	}
	return c.readBack(ctx, sc, s)
}

// undo takes a half-made slice back even if the caller's time is up.
func (c Carver) undo(ctx context.Context, s carve.Slice) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return c.Remove(ctx, s)
}

// readBack lists the instances again; the GPU itself was just looked at.
func (c Carver) readBack(ctx context.Context, sc scene, s carve.Slice) (carve.Evidence, error) {
	list, err := c.drv.GPUInstances(ctx, s.Slot.GPU)
	if err != nil {
		return carve.Evidence{}, fmt.Errorf("read %s back: %w", s.ID, err)
	}
	in, ok := find(list, s.Slot)
	if !ok || len(in.Compute) != 1 {
		return carve.Evidence{}, gpudrv.Refuse(gpudrv.Broken, "ensure", s.Slot.GPU,
			"created %s, driver shows it with %d compute instances", s.Slot, len(in.Compute))
	}
	return sc.evidence(in), nil
}

func (sc scene) evidence(in gpudrv.GPUInstance) carve.Evidence {
	const all = 100
	e := carve.Evidence{Slot: sc.slot(in), GPUInstance: in.ID, BootID: sc.BootID, SMPercent: all, Isolation: gpu.Partitioned}
	if len(in.Compute) > 0 {
		e.UUID, e.Memory, e.SMs = in.Compute[0].UUID, in.Compute[0].Memory, in.Compute[0].SMs
	}
	return e
}

// Remove implements carve.Carver.
func (c Carver) Remove(ctx context.Context, s carve.Slice) error {
	list, err := c.drv.GPUInstances(ctx, s.Slot.GPU)
	if err != nil {
		return fmt.Errorf("remove %s: %w", s.ID, err)
	}
	in, ok := find(list, s.Slot)
	if !ok {
		return nil
	}
	for _, ci := range in.Compute {
		err := c.drv.DestroyComputeInstance(ctx, s.Slot.GPU, in.ID, ci.ID)
		if err != nil && gpudrv.KindOf(err) != gpudrv.NotFound {
			return fmt.Errorf("empty %s: %w", s.ID, err)
		}
	}
	err = c.drv.DestroyGPUInstance(ctx, s.Slot.GPU, in.ID)
	if err != nil && gpudrv.KindOf(err) != gpudrv.NotFound {
		return fmt.Errorf("remove %s: %w", s.ID, err)
	}
	list, err = c.drv.GPUInstances(ctx, s.Slot.GPU)
	if err != nil {
		return fmt.Errorf("read removal of %s back: %w", s.ID, err)
	}
	if _, ok := find(list, s.Slot); ok {
		return gpudrv.Refuse(gpudrv.Broken, "remove", s.Slot.GPU, "destroyed %s, driver still shows it", s.Slot)
	}
	return nil
}

// Observe implements carve.Carver: every GPU instance, foreign ones included.
func (c Carver) Observe(ctx context.Context, uuid string) ([]carve.Found, error) {
	sc, err := c.scene(ctx, uuid)
	if err != nil {
		return nil, fmt.Errorf("observe mig slices: %w", err)
	}
	out := make([]carve.Found, 0, len(sc.instances))
	for _, in := range sc.instances {
		out = append(out, carve.Found{Evidence: sc.evidence(in), Incomplete: len(in.Compute) == 0})
	}
	return out, nil
}
