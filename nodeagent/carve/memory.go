package carve

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// LimitMemory caps what a slice's cgroup (its path below the cgroup mount) may
// allocate on a GPU, and reads the cap back. It returns false, and changes
// nothing, where the driver has no such control: then the slice is not of class
// limited. A limit of 0 lifts the cap.
func LimitMemory(ctx context.Context, drv gpudrv.Driver, uuid, cgroup string, limit units.MiB) (bool, error) {
	can, err := drv.MemoryLimit(ctx, uuid, cgroup)
	if err != nil {
		return false, fmt.Errorf("read memory limit of %s: %w", cgroup, err)
	}
	if can.HasFailed() {
		return false, gpudrv.Refuse(gpudrv.Broken, "memory_limit", uuid, "%s", can.Reason())
	}
	if _, ok := can.Get(); !ok {
		return false, nil
	}
	want := int64(limit.Bytes())
	if err := drv.SetMemoryLimit(ctx, uuid, cgroup, want); err != nil {
		return false, fmt.Errorf("limit memory of %s: %w", cgroup, err)
	}
	now, err := drv.MemoryLimit(ctx, uuid, cgroup)
	if err != nil {
		return false, fmt.Errorf("read memory limit of %s back: %w", cgroup, err)
	}
	if got := now.Or(gpudrv.MemoryLimit{HardBytes: -1}).HardBytes; got != want {
		return false, gpudrv.Refuse(gpudrv.Broken, "set_memory_limit", uuid,
			"asked for %d bytes for %s, driver shows %d", want, cgroup, got)
	}
	return true, nil
}
