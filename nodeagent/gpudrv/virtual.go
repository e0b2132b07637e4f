package gpudrv

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/units"
)

// Virtualizer is the part of a driver that gives GPUs to virtual machines. Only the
// simulator has it; a Driver that lacks it cannot do either.
type Virtualizer interface {
	// Functions lists the virtual functions made, ascending by unit.
	Functions(ctx context.Context, uuid string) ([]Function, error)
	// CreateFunction makes one of the equal units of a GPU in timeslice mode a
	// virtual function. Unsupported on drivers and in modes without.
	CreateFunction(ctx context.Context, uuid string, unit int) (Function, error)
	// DestroyFunction fails with InUse while a virtual machine has it.
	DestroyFunction(ctx context.Context, uuid string, unit int) error
	// Bound says whether the GPU belongs to vfio-pci.
	Bound(ctx context.Context, uuid string) (bool, error)
	// BindVFIO takes an idle whole GPU from the driver for passthrough; it succeeds
	// if it is bound.
	BindVFIO(ctx context.Context, uuid string) error
	// UnbindVFIO gives it back: InUse while a virtual machine has it.
	UnbindVFIO(ctx context.Context, uuid string) error
}

// Function is a virtual function (SR-IOV).
type Function struct {
	Unit   int
	PCI    string // address that the virtual machine is given
	Memory units.MiB
	SMs    int
}
