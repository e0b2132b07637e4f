// Package vfio passes a whole GPU through to a virtual machine. It is simulated: no
// adapter to real hardware has the calls it needs, and there every order is refused
// as Unsupported.
package vfio

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

func (c Carver) machine(ctx context.Context, uuid string) (gpudrv.Virtualizer, error) {
	v, ok := c.drv.(gpudrv.Virtualizer)
	if !ok {
		return nil, gpudrv.Refuse(gpudrv.Unsupported, "vfio", uuid, "this driver passes no GPU through")
	}
	can, err := c.drv.Capabilities(ctx, uuid)
	if err != nil {
		return nil, fmt.Errorf("read capabilities: %w", err)
	}
	if !can.VFIO.Or(false) {
		return nil, gpudrv.Refuse(gpudrv.Unsupported, "vfio", uuid, "this host passes no GPU through")
	}
	return v, nil
}

// Plan implements carve.Carver.
func (c Carver) Plan(ctx context.Context, s carve.Slice) (carve.Plan, error) {
	_, bound, _, err := c.look(ctx, s)
	if err != nil {
		return carve.Plan{}, err
	}
	if bound {
		return carve.Plan{Present: true}, nil
	}
	return carve.Plan{Steps: []string{"bind the gpu to vfio-pci"}}, nil
}

func (c Carver) look(ctx context.Context, s carve.Slice) (v gpudrv.Virtualizer, bound bool, t carve.Target, err error) {
	v, err = c.machine(ctx, s.Slot.GPU)
	if err != nil {
		return nil, false, t, err
	}
	t, err = carve.Glance(ctx, c.drv, s.Slot.GPU)
	if err != nil {
		return nil, false, t, fmt.Errorf("gpu for %s: %w", s.ID, err)
	}
	if bound, err = v.Bound(ctx, s.Slot.GPU); err != nil {
		return nil, false, t, fmt.Errorf("gpu for %s: %w", s.ID, err)
	}
	if bound {
		return v, true, t, nil
	}
	return v, false, t, t.Admit(nil, s.Slot)
}

// Ensure implements carve.Carver.
func (c Carver) Ensure(ctx context.Context, s carve.Slice) (carve.Evidence, error) {
	v, bound, t, err := c.look(ctx, s)
	if err != nil {
		return carve.Evidence{}, err
	}
	if !bound {
		if err := v.BindVFIO(ctx, s.Slot.GPU); err != nil {
			return carve.Evidence{}, fmt.Errorf("carve %s: %w", s.ID, err)
		}
		if bound, err = v.Bound(ctx, s.Slot.GPU); err != nil {
			return carve.Evidence{}, fmt.Errorf("read %s back: %w", s.ID, err)
		}
		if !bound {
			return carve.Evidence{}, gpudrv.Refuse(gpudrv.Broken, "ensure", s.Slot.GPU, "bound the gpu, host does not show it")
		}
	}
	return evidence(t), nil
}

func evidence(t carve.Target) carve.Evidence {
	const all = 100
	return carve.Evidence{
		Slot: gpu.Slot{GPU: t.Device.UUID, Mode: gpu.WholeMode(), Size: 1}, UUID: t.Device.UUID, GPUInstance: -1,
		BootID: t.BootID, Memory: t.Device.Memory, SMs: t.Device.SMs, SMPercent: all,
		Isolation: gpu.Dedicated, Function: t.Device.PCI,
	}
}

// Remove implements carve.Carver.
func (c Carver) Remove(ctx context.Context, s carve.Slice) error {
	v, err := c.machine(ctx, s.Slot.GPU)
	if err != nil {
		return err
	}
	bound, err := v.Bound(ctx, s.Slot.GPU)
	if err != nil {
		return fmt.Errorf("remove %s: %w", s.ID, err)
	}
	if !bound {
		return nil
	}
	if err := v.UnbindVFIO(ctx, s.Slot.GPU); err != nil {
		return fmt.Errorf("remove %s: %w", s.ID, err)
	}
	bound, err = v.Bound(ctx, s.Slot.GPU)
	if err == nil && bound {
		return gpudrv.Refuse(gpudrv.Broken, "remove", s.Slot.GPU, "unbound the gpu, host still shows it bound")
	}
	return err
}

// Observe implements carve.Carver.
func (c Carver) Observe(ctx context.Context, uuid string) ([]carve.Found, error) {
	v, err := c.machine(ctx, uuid)
	if err != nil {
		return nil, err
	}
	bound, err := v.Bound(ctx, uuid)
	if err != nil {
		return nil, fmt.Errorf("observe passthrough: %w", err)
	}
	if !bound {
		return []carve.Found{}, nil
	}
	t, err := carve.Glance(ctx, c.drv, uuid)
	if err != nil {
		return nil, fmt.Errorf("observe passthrough: %w", err)
	}
	return []carve.Found{{Evidence: evidence(t)}}, nil
}
