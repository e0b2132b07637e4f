package gpudrv

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/gpu"
)

// Frozen is the Writer of adapters that change nothing: every call is refused as
// Unsupported with the reason.
type Frozen struct{ Why string }

var _ Writer = Frozen{}

func (f Frozen) refuse(op, uuid string) error { return Refuse(Unsupported, op, uuid, "%s", f.Why) }

// SetMode implements Writer.
func (f Frozen) SetMode(_ context.Context, uuid string, _ gpu.Mode) error {
	return f.refuse("set_mode", uuid)
}

// CreateGPUInstance implements Writer.
func (f Frozen) CreateGPUInstance(_ context.Context, uuid string, _ int, _ Placement) (GPUInstance, error) {
	return GPUInstance{}, f.refuse("create_gpu_instance", uuid)
}

// DestroyGPUInstance implements Writer.
func (f Frozen) DestroyGPUInstance(_ context.Context, uuid string, _ int) error {
	return f.refuse("destroy_gpu_instance", uuid)
}

// CreateComputeInstance implements Writer.
func (f Frozen) CreateComputeInstance(_ context.Context, uuid string, _ int) (ComputeInstance, error) {
	return ComputeInstance{}, f.refuse("create_compute_instance", uuid)
}

// DestroyComputeInstance implements Writer.
func (f Frozen) DestroyComputeInstance(_ context.Context, uuid string, _, _ int) error {
	return f.refuse("destroy_compute_instance", uuid)
}

// CreateShare implements Writer.
func (f Frozen) CreateShare(_ context.Context, uuid string, _ int) (Share, error) {
	return Share{}, f.refuse("create_share", uuid)
}

// DestroyShare implements Writer.
func (f Frozen) DestroyShare(_ context.Context, uuid string, _ int) error {
	return f.refuse("destroy_share", uuid)
}

// Reset implements Tuner.
func (f Frozen) Reset(_ context.Context, uuid string) error { return f.refuse("reset", uuid) }

// SetTimeslice implements Tuner.
func (f Frozen) SetTimeslice(_ context.Context, uuid, _ string) error {
	return f.refuse("set_timeslice", uuid)
}

// SetComputeMode implements Tuner.
func (f Frozen) SetComputeMode(_ context.Context, uuid, _ string) error {
	return f.refuse("set_compute_mode", uuid)
}

// SetMemoryLimit implements Tuner.
func (f Frozen) SetMemoryLimit(_ context.Context, uuid, _ string, _ int64) error {
	return f.refuse("set_memory_limit", uuid)
}
