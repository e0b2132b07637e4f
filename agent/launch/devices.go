package launch

import (
	"context"
	"slices"

	"github.com/tranche-cloud/tranche/agent/injection"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// inject writes the device file of one slot from what the driver says now, and
// returns the name by which the container asks for it.
func (l *Launcher) inject(ctx context.Context, s runtime.Spec, n int) (string, error) {
	slice, err := l.facts(ctx, s, n)
	if err != nil {
		return "", err
	}
	name, err := l.cfg.Devices.Write(slice)
	if err != nil {
		return "", runtime.Refuse(runtime.Broken, "inject", s.Name, "its slice cannot be given to a container").Because(err)
	}
	return name, nil
}

func (l *Launcher) facts(ctx context.Context, s runtime.Spec, n int) (injection.Slice, error) {
	slot := s.Slots[n]
	out := injection.Slice{
		Assignment: s.Name, Slot: n, Driver: l.cfg.Kind, Technique: slot.Mode.Kind, UUID: slot.GPU,
	}
	var err error
	if out.Minor, err = l.minor(ctx, slot.GPU); err != nil {
		return out, err
	}
	switch slot.Mode.Kind {
	case gpu.MIG:
		err = l.mig(ctx, slot, &out)
	case gpu.MPS:
		err = l.mps(ctx, slot, &out)
	}
	return out, err
}

// minor is N of /dev/nvidiaN. A simulated GPU has no node of the driver's; its place
// in the list names its mock.
func (l *Launcher) minor(ctx context.Context, uuid string) (int, error) {
	id, err := l.cfg.GPUs.Identity(ctx, uuid)
	if err != nil {
		return 0, err
	}
	if m, ok := id.Minor.Get(); ok {
		return m, nil
	}
	refs, err := l.cfg.GPUs.GPUs(ctx)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(refs, func(r gpudrv.Ref) bool { return r.UUID == uuid })
	if i < 0 || l.cfg.Kind != injection.Simulated {
		return 0, gpudrv.Refuse(gpudrv.Unsupported, "inject", uuid, "the driver does not report the minor number of its node")
	}
	return refs[i].Index, nil
}

// limitMemory has the driver cap what a container may allocate on GPUs that it shares,
// where the driver can; where it cannot, the slice is of class shared and says so.
func (l *Launcher) limitMemory(ctx context.Context, s runtime.Spec, group string) error {
	for i, slot := range s.Slots {
		if i >= len(s.Memory) || slot.Mode.Kind != gpu.MPS && slot.Mode.Kind != gpu.TimeSlice {
			continue
		}
		if _, err := carve.LimitMemory(ctx, l.cfg.GPUs, slot.GPU, group, s.Memory[i]); err != nil {
			return err
		}
	}
	return nil
}

// mig finds the instance that was carved at the slot.
func (l *Launcher) mig(ctx context.Context, slot gpu.Slot, out *injection.Slice) error {
	list, err := l.cfg.GPUs.GPUInstances(ctx, slot.GPU)
	if err != nil {
		return err
	}
	for _, gi := range list {
		if gi.Placement.Start == slot.Start && gi.Placement.Size == slot.Size && len(gi.Compute) > 0 {
			out.GI, out.CI, out.UUID = gi.ID, gi.Compute[0].ID, gi.Compute[0].UUID
			return nil
		}
	}
	return gpudrv.Refuse(gpudrv.NotFound, "inject", slot.GPU, "no MIG device at %s", slot)
}

// mps finds the daemon of the GPU and what it grants a slice.
func (l *Launcher) mps(ctx context.Context, slot gpu.Slot, out *injection.Slice) error {
	if l.cfg.MPS == nil {
		return gpudrv.Refuse(gpudrv.Unsupported, "inject", slot.GPU, "this host has no MPS control program")
	}
	daemon, err := l.cfg.MPS.Ensure(ctx, slot.GPU)
	if err != nil {
		return err
	}
	limits, err := l.cfg.MPS.Limits(ctx, slot.GPU)
	if err != nil {
		return err
	}
	out.MPS = &injection.MPS{PipeDir: daemon.PipeDir, Percent: limits.Percent, Memory: limits.Memory}
	return nil
}
