package sim

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// The calls for virtual machines that faults may hit.
const (
	OpCreateFunction  = "create_function"
	OpDestroyFunction = "destroy_function"
	OpBindVFIO        = "bind_vfio"
	OpUnbindVFIO      = "unbind_vfio"
)

var _ gpudrv.Virtualizer = (*Driver)(nil)

// function is the driver's view of a virtual function.
func (c card) function(unit int) gpudrv.Function {
	const first = 4 // as far as the physical functions go
	sh := c.share(unit)
	return gpudrv.Function{Unit: unit, PCI: strings.TrimSuffix(c.PCI, "0") + strconv.Itoa(first+unit), Memory: sh.Memory, SMs: sh.SMs}
}

// Functions implements gpudrv.Virtualizer.
func (d *Driver) Functions(ctx context.Context, uuid string) ([]gpudrv.Function, error) {
	out := []gpudrv.Function{}
	err := d.read(ctx, OpRead, uuid, func(c card) {
		for _, u := range c.Functions {
			out = append(out, c.function(u))
		}
	})
	return out, err
}

// CreateFunction implements gpudrv.Virtualizer.
func (d *Driver) CreateFunction(ctx context.Context, uuid string, unit int) (gpudrv.Function, error) {
	const op = OpCreateFunction
	var out gpudrv.Function
	err := d.change(ctx, op, uuid, d.creation(), func(c *card) error {
		switch {
		case !d.can.SRIOV:
			return gpudrv.Refuse(gpudrv.Unsupported, op, uuid, "driver %s has no virtual functions", d.version())
		case c.Mode.Kind != gpu.TimeSlice || len(c.Shares) > 0:
			return gpudrv.Refuse(gpudrv.Unsupported, op, uuid, "mode %s with %d shares has no virtual functions", c.Mode, len(c.Shares))
		case unit < 0 || unit >= c.Mode.Shares:
			return gpudrv.Refuse(gpudrv.Invalid, op, uuid, "mode %s has no unit %d", c.Mode, unit)
		case slices.Contains(c.Functions, unit):
			return gpudrv.Refuse(gpudrv.NoRoom, op, uuid, "function %d exists", unit)
		}
		c.Functions = append(c.Functions, unit)
		slices.Sort(c.Functions)
		out = c.function(unit)
		return nil
	})
	return out, err
}

// DestroyFunction implements gpudrv.Virtualizer.
func (d *Driver) DestroyFunction(ctx context.Context, uuid string, unit int) error {
	const op = OpDestroyFunction
	return d.change(ctx, op, uuid, d.destruction(), func(c *card) error {
		i := slices.Index(c.Functions, unit)
		if i < 0 {
			return gpudrv.Refuse(gpudrv.NotFound, op, uuid, "no function %d", unit)
		}
		if busy, who := c.holders(func(cl client) bool { return cl.Unit == unit }); busy {
			return gpudrv.Refuse(gpudrv.InUse, op, uuid, "function %d is in use", unit).HeldBy(who...)
		}
		c.Functions = slices.Delete(c.Functions, i, i+1)
		return nil
	})
}

// Bound implements gpudrv.Virtualizer.
func (d *Driver) Bound(ctx context.Context, uuid string) (bound bool, err error) {
	err = d.read(ctx, OpRead, uuid, func(c card) { bound = c.VFIO })
	return bound, err
}

// BindVFIO implements gpudrv.Virtualizer.
func (d *Driver) BindVFIO(ctx context.Context, uuid string) error {
	const op = OpBindVFIO
	return d.change(ctx, op, uuid, d.latency.SetMode, func(c *card) error {
		busy, who := c.occupied()
		switch {
		case !d.can.VFIO:
			return gpudrv.Refuse(gpudrv.Unsupported, op, uuid, "host has no IOMMU for passthrough")
		case c.Mode.Kind != gpu.Whole:
			return gpudrv.Refuse(gpudrv.Unsupported, op, uuid, "mode %s cannot be passed through", c.Mode)
		case busy && !c.VFIO:
			return gpudrv.Refuse(gpudrv.InUse, op, uuid, "clients are on the gpu").HeldBy(who...)
		}
		c.VFIO = true
		return nil
	})
}

// UnbindVFIO implements gpudrv.Virtualizer.
func (d *Driver) UnbindVFIO(ctx context.Context, uuid string) error {
	const op = OpUnbindVFIO
	return d.change(ctx, op, uuid, d.latency.SetMode, func(c *card) error {
		if busy, who := c.holders(anyClient); busy {
			return gpudrv.Refuse(gpudrv.InUse, op, uuid, "a virtual machine has the gpu").HeldBy(who...)
		}
		c.VFIO = false
		return nil
	})
}
