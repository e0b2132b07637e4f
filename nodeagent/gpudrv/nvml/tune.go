//go:build nvml

package nvml

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/internal/smi"
)

// runSMI runs the pinned nvidia-smi with fixed arguments on one GPU.
func (d *driver) runSMI(ctx context.Context, op, uuid, pci string, args ...string) (string, error) {
	path, err := d.smiPath()
	if err != nil {
		return "", gpudrv.Refuse(gpudrv.Unsupported, op, uuid, "no nvidia-smi").Because(err)
	}
	out, err := exec.CommandContext(ctx, path, append(args, "-i", pci)...).CombinedOutput()
	said := strings.Join(strings.Fields(strings.ToValidUTF8(string(out), "?")), " ")
	switch low := strings.ToLower(said); {
	case ctx.Err() != nil:
		return "", gpudrv.Refuse(gpudrv.Hung, op, uuid, "nvidia-smi does not end").Because(ctx.Err())
	case err == nil:
		return string(out), nil
	case strings.Contains(low, "in use by") || strings.Contains(low, "is currently being used"):
		return "", gpudrv.Refuse(gpudrv.InUse, op, uuid, "nvidia-smi says %q", said)
	case strings.Contains(low, "not supported"):
		return "", gpudrv.Refuse(gpudrv.Unsupported, op, uuid, "nvidia-smi says %q", said)
	default:
		return "", gpudrv.Refuse(gpudrv.Broken, op, uuid, "nvidia-smi says %q", said).Because(err)
	}
}

func (d *driver) pci(ctx context.Context, uuid string) (string, error) {
	return on(ctx, d, uuid, func(dev lib.Device) (string, error) {
		pci, ret := dev.GetPciInfo()
		if ret != lib.SUCCESS {
			return "", fail(uuid, ret, "read bus id")
		}
		return text(pci.BusId[:]), nil
	})
}

// Reset implements gpudrv.Tuner. The library is closed meanwhile: the agent's own
// session would be a client of the GPU.
func (d *driver) Reset(ctx context.Context, uuid string) error {
	const op = "reset"
	pci, err := d.pci(ctx, uuid)
	if err != nil {
		return err
	}
	if err := d.frozen(op, uuid); err != nil {
		return err
	}
	list, err := d.Processes(ctx, uuid)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		who := make([]gpudrv.Holder, 0, len(list))
		for _, p := range list {
			who = append(who, gpudrv.Holder{PID: p.PID, Name: p.Name})
		}
		return gpudrv.Refuse(gpudrv.InUse, op, uuid, "%d clients are on the gpu", len(list)).HeldBy(who...)
	}
	err = d.calls.Alone(ctx, op, uuid, func() error {
		d.gpm.free()
		if ret := d.api.Shutdown(); ret != lib.SUCCESS {
			return refuse(op, uuid, ret, "close NVML")
		}
		_, failed := d.runSMI(ctx, op, uuid, pci, "--gpu-reset")
		if ret := d.api.Init(); ret != lib.SUCCESS {
			return errors.Join(failed, refuse(op, uuid, ret, "open NVML again"))
		}
		return failed
	})
	if err != nil {
		return err
	}
	health, err := d.Health(ctx, uuid)
	if err != nil {
		return err
	}
	if action := health.RecoveryAction.Or("none"); action != "none" {
		return gpudrv.Refuse(gpudrv.Broken, op, uuid, "the driver still wants %s", action)
	}
	return nil
}

// timesliceLevels are nvidia-smi's numbers of the levels.
var timesliceLevels = []string{
	gpudrv.TimesliceDefault, gpudrv.TimesliceShort, gpudrv.TimesliceMedium, gpudrv.TimesliceLong,
}

// SetTimeslice implements gpudrv.Tuner: NVML has no such call, nvidia-smi does.
func (d *driver) SetTimeslice(ctx context.Context, uuid, level string) error {
	const op = "set_timeslice"
	pci, err := d.pci(ctx, uuid)
	if err != nil {
		return err
	}
	number := slices.Index(timesliceLevels, level)
	if number < 0 {
		return gpudrv.Refuse(gpudrv.Invalid, op, uuid, "no length %q: it is one of %s", level, strings.Join(timesliceLevels, ", "))
	}
	if err := d.frozen(op, uuid); err != nil {
		return err
	}
	if _, err := d.runSMI(ctx, op, uuid, pci, "compute-policy", "--set-timeslice="+strconv.Itoa(number)); err != nil {
		return err
	}
	table, err := d.runSMI(ctx, op, uuid, pci, "compute-policy", "--list")
	if err != nil {
		return err
	}
	if now := smi.ParseTimeslice(table); now != level {
		return gpudrv.Refuse(gpudrv.Broken, op, uuid, "asked for %s, nvidia-smi shows %q", level, now)
	}
	return nil
}

// SetComputeMode implements gpudrv.Tuner.
func (d *driver) SetComputeMode(ctx context.Context, uuid, mode string) error {
	return do(ctx, d, uuid, func(dev lib.Device) error {
		for code, name := range computeModes {
			if name != mode || code == lib.COMPUTEMODE_EXCLUSIVE_THREAD {
				continue
			}
			now, ret := dev.GetComputeMode()
			if ret == lib.SUCCESS && now == code {
				return nil
			}
			if err := d.frozen(opSetComputeMode, uuid); err != nil {
				return err
			}
			if ret := dev.SetComputeMode(code); ret != lib.SUCCESS {
				return refuse(opSetComputeMode, uuid, ret, "compute mode %s", mode).HeldBy(held(dev, uuid, -1)...)
			}
			if now, ret = dev.GetComputeMode(); ret != lib.SUCCESS || now != code {
				return gpudrv.Refuse(gpudrv.Broken, opSetComputeMode, uuid, "asked for %s, driver shows code %d (%s)",
					mode, now, errorText(ret))
			}
			return nil
		}
		return gpudrv.Refuse(gpudrv.Invalid, opSetComputeMode, uuid, "no compute mode %q", mode)
	})
}

const (
	symbolGetLimits = "nvmlDeviceGetMemoryLimits_v1"
	noMemoryLimits  = "library too old: memory limits came with driver 615"
)

// SetMemoryLimit implements gpudrv.Tuner. A cgroup's cap is a tenant's and no
// setting of the machine, so LeaveSettings does not forbid it.
func (d *driver) SetMemoryLimit(ctx context.Context, uuid, cgroup string, bytes int64) error {
	const op = "set_memory_limit"
	return do(ctx, d, uuid, func(dev lib.Device) error {
		if !d.has(symbolGetLimits) {
			return gpudrv.Refuse(gpudrv.Unsupported, op, uuid, "%s", noMemoryLimits)
		}
		if cgroup == "" || bytes < 0 {
			return gpudrv.Refuse(gpudrv.Invalid, op, uuid, "limit of %d bytes for cgroup %q", bytes, cgroup)
		}
		if ret := dev.SetMemoryLimits_v1(cgroup, 0, uint64(bytes)); ret != lib.SUCCESS {
			return refuse(op, uuid, ret, "limit cgroup %s", cgroup)
		}
		return nil
	})
}

// MemoryLimit implements gpudrv.Observer.
func (d *driver) MemoryLimit(ctx context.Context, uuid, cgroup string) (gpudrv.Value[gpudrv.MemoryLimit], error) {
	return on(ctx, d, uuid, func(dev lib.Device) (gpudrv.Value[gpudrv.MemoryLimit], error) {
		if !d.has(symbolGetLimits) {
			return gpudrv.NotReported[gpudrv.MemoryLimit](noMemoryLimits), nil
		}
		l, ret := dev.GetMemoryLimits_v1(cgroup)
		return convert(l, ret, func(l lib.MemoryLimits_v1) gpudrv.MemoryLimit {
			return gpudrv.MemoryLimit{HardBytes: int64(l.HardLimit), UsedBytes: gpudrv.Reported(int64(l.CurrentUsed))}
		}), nil
	})
}
