//go:build nvml

package nvml

import (
	"context"
	"fmt"
	"slices"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

const (
	opSetMode        = "set_mode"
	opCreateGI       = "create_gpu_instance"
	opDestroyGI      = "destroy_gpu_instance"
	opCreateCI       = "create_compute_instance"
	opDestroyCI      = "destroy_compute_instance"
	opSetComputeMode = "set_compute_mode"
)

// refuse makes the error of a change from the library's code.
func refuse(op, uuid string, ret lib.Return, what string, args ...any) *gpudrv.Error {
	return gpudrv.Refuse(kindOf(ret), op, uuid, "%s: %s", fmt.Sprintf(what, args...), errorText(ret))
}

// frozen refuses a change that the operator of the machine does not want.
func (d *driver) frozen(op, uuid string) error {
	if !d.config.LeaveSettings {
		return nil
	}
	return gpudrv.Refuse(gpudrv.Unsupported, op, uuid,
		"the agent runs with --leave-settings, so the machine's settings stay as they are")
}

// held lists who is on a GPU, or on one of its instances if gi ≥ 0, as holders.
func held(dev lib.Device, uuid string, gi int) []gpudrv.Holder {
	list, err := processes(dev, uuid)
	if err != nil {
		return nil // the refusal itself matters more than who caused it
	}
	var out []gpudrv.Holder
	for _, p := range list {
		if gi < 0 || p.GPUInstance == gi {
			out = append(out, gpudrv.Holder{PID: p.PID, Name: p.Name})
		}
	}
	return out
}

// SetMode implements gpudrv.Writer for what the hardware knows: whole and mig.
func (d *driver) SetMode(ctx context.Context, uuid string, m gpu.Mode) error {
	if !m.Valid() {
		return gpudrv.Refuse(gpudrv.Invalid, opSetMode, uuid, "no such mode")
	}
	if m.Kind != gpu.MIG && m.Kind != gpu.Whole {
		return gpudrv.Refuse(gpudrv.Unsupported, opSetMode, uuid, "the hardware has no mode %s", m)
	}
	now, err := d.MIGMode(ctx, uuid)
	if err != nil {
		return err
	}
	want := m.Kind == gpu.MIG
	mig, known := now.Get()
	if !known && !now.HasFailed() && !want {
		return nil // no MIG at all: always whole
	}
	if known && mig.Current == want && mig.Pending == want {
		return nil
	}
	if !known {
		return gpudrv.Refuse(gpudrv.Unsupported, opSetMode, uuid, "MIG mode: %s", now.Reason())
	}
	if err := d.frozen(opSetMode, uuid); err != nil {
		return err
	}
	instances, err := d.GPUInstances(ctx, uuid)
	if err != nil {
		return err
	}
	if len(instances) > 0 {
		return gpudrv.Refuse(gpudrv.InUse, opSetMode, uuid, "gpu holds %d instances", len(instances))
	}
	return d.calls.Alone(ctx, opSetMode, uuid, func() error { return d.switchMIG(uuid, want) })
}

// switchMIG turns MIG on or off. The library answers twice: whether it took the
// wish, and whether the switch is active; then current and pending are read back.
func (d *driver) switchMIG(uuid string, want bool) error {
	dev, err := d.handle(uuid)
	if err != nil {
		return err
	}
	if who := held(dev, uuid, -1); len(who) > 0 {
		return gpudrv.Refuse(gpudrv.InUse, opSetMode, uuid, "gpu holds %d processes", len(who)).HeldBy(who...)
	}
	mode := lib.DEVICE_MIG_DISABLE
	if want {
		mode = lib.DEVICE_MIG_ENABLE
	}
	activation, ret := dev.SetMigMode(mode)
	if ret != lib.SUCCESS {
		return refuse(opSetMode, uuid, ret, "switch MIG").HeldBy(held(dev, uuid, -1)...)
	}
	switch activation {
	case lib.SUCCESS, lib.ERROR_RESET_REQUIRED:
	case lib.ERROR_IN_USE:
		return refuse(opSetMode, uuid, activation, "activate MIG switch").HeldBy(held(dev, uuid, -1)...)
	default:
		return refuse(opSetMode, uuid, activation, "activate MIG switch")
	}
	// The switch may have unbound the GPU: handles from before are not used again.
	dev, err = d.handle(uuid)
	if err != nil {
		return err
	}
	now, ok := migMode(dev).Get()
	switch {
	case ok && now.Current == want:
		return nil
	case ok && now.Pending == want:
		return gpudrv.Refuse(gpudrv.NeedsReset, opSetMode, uuid, "MIG switch is pending until the gpu is reset")
	default:
		return gpudrv.Refuse(gpudrv.Broken, opSetMode, uuid, "MIG was switched, driver shows %+v", now)
	}
}

// CreateGPUInstance implements gpudrv.Writer.
func (d *driver) CreateGPUInstance(ctx context.Context, uuid string, profile int, at gpudrv.Placement) (gpudrv.GPUInstance, error) {
	if err := d.frozen(opCreateGI, uuid); err != nil {
		return gpudrv.GPUInstance{}, err
	}
	mode, err := d.MIGMode(ctx, uuid)
	if err != nil {
		return gpudrv.GPUInstance{}, err
	}
	if !mode.Or(gpudrv.MIGMode{}).Current {
		return gpudrv.GPUInstance{}, gpudrv.Refuse(gpudrv.Unsupported, opCreateGI, uuid, "MIG is off")
	}
	legal, err := d.Placements(ctx, uuid, profile)
	if err != nil {
		return gpudrv.GPUInstance{}, err
	}
	if !slices.Contains(legal.List, at) {
		return gpudrv.GPUInstance{}, gpudrv.Refuse(gpudrv.Invalid, opCreateGI, uuid,
			"profile %d has no place at %d:%d", profile, at.Start, at.Size)
	}
	return on(ctx, d, uuid, func(dev lib.Device) (gpudrv.GPUInstance, error) {
		gi, ret := dev.CreateGpuInstanceWithPlacement(
			&lib.GpuInstanceProfileInfo{Id: uint32(profile)},
			&lib.GpuInstancePlacement{Start: uint32(at.Start), Size: uint32(at.Size)})
		if ret != lib.SUCCESS {
			return gpudrv.GPUInstance{}, refuse(opCreateGI, uuid, ret, "profile %d at %d:%d", profile, at.Start, at.Size)
		}
		out, err := describe(gi, uuid)
		if err != nil {
			return gpudrv.GPUInstance{}, err
		}
		if out.Profile != profile || out.Placement != at {
			return out, gpudrv.Refuse(gpudrv.Broken, opCreateGI, uuid, "asked for profile %d at %d:%d, driver made profile %d at %d:%d",
				profile, at.Start, at.Size, out.Profile, out.Placement.Start, out.Placement.Size)
		}
		return out, nil
	})
}

// instance finds a GPU instance.
func instance(op, uuid string, dev lib.Device, gi int) (lib.GpuInstance, gpudrv.GPUInstance, error) {
	if gi < 0 {
		return nil, gpudrv.GPUInstance{}, gpudrv.Refuse(gpudrv.NotFound, op, uuid, "no gpu instance %d", gi)
	}
	in, ret := dev.GetGpuInstanceById(gi)
	if ret == lib.ERROR_NOT_FOUND || ret == lib.ERROR_INVALID_ARGUMENT || ret == lib.ERROR_NOT_SUPPORTED {
		return nil, gpudrv.GPUInstance{}, gpudrv.Refuse(gpudrv.NotFound, op, uuid, "no gpu instance %d: %s", gi, errorText(ret))
	}
	if ret != lib.SUCCESS {
		return nil, gpudrv.GPUInstance{}, refuse(op, uuid, ret, "find gpu instance %d", gi)
	}
	is, err := describe(in, uuid)
	return in, is, err
}

// DestroyGPUInstance implements gpudrv.Writer.
func (d *driver) DestroyGPUInstance(ctx context.Context, uuid string, gi int) error {
	if err := d.frozen(opDestroyGI, uuid); err != nil {
		return err
	}
	return do(ctx, d, uuid, func(dev lib.Device) error {
		in, is, err := instance(opDestroyGI, uuid, dev, gi)
		if err != nil {
			return err
		}
		if len(is.Compute) > 0 {
			return gpudrv.Refuse(gpudrv.InUse, opDestroyGI, uuid, "gpu instance %d holds %d compute instances",
				gi, len(is.Compute)).HeldBy(held(dev, uuid, gi)...)
		}
		if ret := in.Destroy(); ret != lib.SUCCESS {
			return refuse(opDestroyGI, uuid, ret, "gpu instance %d", gi).HeldBy(held(dev, uuid, gi)...)
		}
		return nil
	})
}

// CreateComputeInstance implements gpudrv.Writer: the widest profile of the
// instance, so that all its SMs are in it.
func (d *driver) CreateComputeInstance(ctx context.Context, uuid string, gi int) (gpudrv.ComputeInstance, error) {
	if err := d.frozen(opCreateCI, uuid); err != nil {
		return gpudrv.ComputeInstance{}, err
	}
	return on(ctx, d, uuid, func(dev lib.Device) (gpudrv.ComputeInstance, error) {
		in, is, err := instance(opCreateCI, uuid, dev, gi)
		if err != nil {
			return gpudrv.ComputeInstance{}, err
		}
		if len(is.Compute) > 0 {
			return gpudrv.ComputeInstance{}, gpudrv.Refuse(gpudrv.NoRoom, opCreateCI, uuid, "gpu instance %d has its compute instance", gi)
		}
		var widest lib.ComputeInstanceProfileInfo
		for enum := range int(lib.COMPUTE_INSTANCE_PROFILE_COUNT) {
			p, ret := in.GetComputeInstanceProfileInfo(enum, lib.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
			if ret == lib.SUCCESS && p.SliceCount > widest.SliceCount {
				widest = p
			}
		}
		if widest.SliceCount == 0 {
			return gpudrv.ComputeInstance{}, gpudrv.Refuse(gpudrv.Broken, opCreateCI, uuid, "gpu instance %d has no compute profile", gi)
		}
		ci, ret := in.CreateComputeInstance(&widest)
		if ret != lib.SUCCESS {
			return gpudrv.ComputeInstance{}, refuse(opCreateCI, uuid, ret, "in gpu instance %d", gi)
		}
		return describeCompute(ci, uuid)
	})
}

// DestroyComputeInstance implements gpudrv.Writer.
func (d *driver) DestroyComputeInstance(ctx context.Context, uuid string, gi, ci int) error {
	if err := d.frozen(opDestroyCI, uuid); err != nil {
		return err
	}
	return do(ctx, d, uuid, func(dev lib.Device) error {
		in, is, err := instance(opDestroyCI, uuid, dev, gi)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(is.Compute, func(c gpudrv.ComputeInstance) bool { return c.ID == ci }) {
			return gpudrv.Refuse(gpudrv.NotFound, opDestroyCI, uuid, "no compute instance %d in gpu instance %d", ci, gi)
		}
		c, ret := in.GetComputeInstanceById(ci)
		if ret == lib.SUCCESS {
			ret = c.Destroy()
		}
		if ret != lib.SUCCESS {
			return refuse(opDestroyCI, uuid, ret, "compute instance %d/%d", gi, ci).HeldBy(held(dev, uuid, gi)...)
		}
		return nil
	})
}

// CreateShare implements gpudrv.Writer: the hardware has no shares.
func (d *driver) CreateShare(ctx context.Context, uuid string, _ int) (gpudrv.Share, error) {
	return on(ctx, d, uuid, func(lib.Device) (gpudrv.Share, error) {
		return gpudrv.Share{}, gpudrv.Refuse(gpudrv.Unsupported, "create_share", uuid, "the hardware has no shares")
	})
}

// DestroyShare implements gpudrv.Writer: the hardware has no shares.
func (d *driver) DestroyShare(ctx context.Context, uuid string, unit int) error {
	return do(ctx, d, uuid, func(lib.Device) error {
		return gpudrv.Refuse(gpudrv.NotFound, "destroy_share", uuid, "unit %d is not handed out", unit)
	})
}
