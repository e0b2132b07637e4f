// Package sriov gives the equal units of a GPU in timeslice mode to virtual
// machines as virtual functions (SR-IOV). It is simulated: no adapter to real
// hardware has the calls it needs, and there every order is refused as Unsupported.
package sriov

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

// machine is the part of the driver that this technique needs.
func (c Carver) machine(ctx context.Context, uuid string) (gpudrv.Virtualizer, error) {
	v, ok := c.drv.(gpudrv.Virtualizer)
	if !ok {
		return nil, gpudrv.Refuse(gpudrv.Unsupported, "sriov", uuid, "this driver makes no virtual functions")
	}
	can, err := c.drv.Capabilities(ctx, uuid)
	if err != nil {
		return nil, fmt.Errorf("read capabilities: %w", err)
	}
	if !can.SRIOV.Or(false) {
		return nil, gpudrv.Refuse(gpudrv.Unsupported, "sriov", uuid, "this driver makes no virtual functions")
	}
	return v, nil
}

// find returns the function of the slot, if the GPU is in the slot's very mode.
func (c Carver) find(ctx context.Context, v gpudrv.Virtualizer, s gpu.Slot) (gpudrv.Function, bool, error) {
	m, err := c.drv.Mode(ctx, s.GPU)
	if err != nil {
		return gpudrv.Function{}, false, fmt.Errorf("read gpu mode: %w", err)
	}
	list, err := v.Functions(ctx, s.GPU)
	if err != nil {
		return gpudrv.Function{}, false, fmt.Errorf("list virtual functions: %w", err)
	}
	for _, f := range list {
		if m == s.Mode && f.Unit == s.Start {
			return f, true, nil
		}
	}
	return gpudrv.Function{}, false, nil
}

// Plan implements carve.Carver.
func (c Carver) Plan(ctx context.Context, s carve.Slice) (carve.Plan, error) {
	v, err := c.machine(ctx, s.Slot.GPU)
	if err != nil {
		return carve.Plan{}, err
	}
	if _, ok, err := c.find(ctx, v, s.Slot); err != nil || ok {
		return carve.Plan{Present: ok}, err
	}
	t, err := carve.Glance(ctx, c.drv, s.Slot.GPU)
	if err != nil {
		return carve.Plan{}, fmt.Errorf("plan %s: %w", s.ID, err)
	}
	if s.Slot.Mode.Kind != gpu.TimeSlice {
		return carve.Plan{}, gpudrv.Refuse(gpudrv.Unsupported, "sriov", s.Slot.GPU, "mode %s has no virtual functions", s.Slot.Mode)
	}
	if err := t.Admit(nil, s.Slot); err != nil {
		return carve.Plan{}, err
	}
	return carve.Plan{Steps: []string{"create virtual function for " + s.Slot.String()}}, nil
}

// Ensure implements carve.Carver.
func (c Carver) Ensure(ctx context.Context, s carve.Slice) (carve.Evidence, error) {
	plan, err := c.Plan(ctx, s)
	if err != nil {
		return carve.Evidence{}, err
	}
	v, err := c.machine(ctx, s.Slot.GPU)
	if err != nil {
		return carve.Evidence{}, err
	}
	if !plan.Present {
		if _, err := v.CreateFunction(ctx, s.Slot.GPU, s.Slot.Start); err != nil {
			return carve.Evidence{}, fmt.Errorf("carve %s: %w", s.ID, err)
		}
	}
	f, ok, err := c.find(ctx, v, s.Slot)
	if err != nil {
		return carve.Evidence{}, fmt.Errorf("read %s back: %w", s.ID, err)
	}
	if !ok {
		return carve.Evidence{}, gpudrv.Refuse(gpudrv.Broken, "ensure", s.Slot.GPU, "created %s, driver does not show it", s.Slot)
	}
	host, err := c.drv.Host(ctx)
	if err != nil {
		return carve.Evidence{}, fmt.Errorf("read host: %w", err)
	}
	return evidence(s.Slot, f, host.BootID), nil
}

func evidence(s gpu.Slot, f gpudrv.Function, boot string) carve.Evidence {
	const all = 100
	return carve.Evidence{
		Slot: gpu.Slot{GPU: s.GPU, Mode: s.Mode, Start: f.Unit, Size: 1}, UUID: s.GPU, GPUInstance: -1, BootID: boot,
		Memory: f.Memory, SMs: f.SMs, SMPercent: all / max(s.Mode.Shares, 1), Isolation: gpu.Limited, Function: f.PCI,
	}
}

// Remove implements carve.Carver.
func (c Carver) Remove(ctx context.Context, s carve.Slice) error {
	v, err := c.machine(ctx, s.Slot.GPU)
	if err != nil {
		return err
	}
	_, ok, err := c.find(ctx, v, s.Slot)
	if err != nil || !ok {
		return err
	}
	err = v.DestroyFunction(ctx, s.Slot.GPU, s.Slot.Start)
	if err != nil && gpudrv.KindOf(err) != gpudrv.NotFound {
		return fmt.Errorf("remove %s: %w", s.ID, err)
	}
	_, ok, err = c.find(ctx, v, s.Slot)
	if err == nil && ok {
		return gpudrv.Refuse(gpudrv.Broken, "remove", s.Slot.GPU, "destroyed %s, driver still shows it", s.Slot)
	}
	return err
}

// Observe implements carve.Carver.
func (c Carver) Observe(ctx context.Context, uuid string) ([]carve.Found, error) {
	v, err := c.machine(ctx, uuid)
	if err != nil {
		return nil, err
	}
	host, err := c.drv.Host(ctx)
	if err != nil {
		return nil, fmt.Errorf("read host: %w", err)
	}
	m, err := c.drv.Mode(ctx, uuid)
	if err != nil {
		return nil, fmt.Errorf("read gpu mode: %w", err)
	}
	list, err := v.Functions(ctx, uuid)
	if err != nil {
		return nil, fmt.Errorf("list virtual functions: %w", err)
	}
	out := make([]carve.Found, 0, len(list))
	for _, f := range list {
		out = append(out, carve.Found{Evidence: evidence(gpu.Slot{GPU: uuid, Mode: m}, f, host.BootID)})
	}
	return out, nil
}
