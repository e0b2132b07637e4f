// Package nvml is the driver port on real NVIDIA hardware: it reads, watches,
// cuts MIG instances and sets what a GPU can be set to.
//
// It does not know modes that the hardware does not know (gpudrv/kept), starts no
// MPS daemon (mpsd) and never sets clocks, persistence, ECC or power limits. With
// LeaveSettings it changes nothing at all: MIG switch, instances, compute mode,
// turns and resets are refused as Unsupported.
//
// It needs cgo and the build tag nvml, and libnvidia-ml.so.1 at run time. Without
// the tag Open says so. The library's types do not leave this package.
//
// A call into the library cannot be interrupted: when its context ends first, it
// is abandoned with its thread and the caller gets Hung. A GPU with several such
// calls is not asked again until one of them comes back.
package nvml

// Config says where the driver's parts are and what may be changed.
type Config struct {
	// Library is the path of libnvidia-ml.so.1; "" leaves it to the dynamic linker.
	Library string
	// SMI is the absolute path of nvidia-smi, asked for what NVML refuses (places,
	// reset, length of turns); "" tries the usual places.
	SMI string
	// MPSControl is the absolute path of nvidia-cuda-mps-control, for the
	// capabilities; "" tries the usual places.
	MPSControl string
	// Excluded are the UUIDs of GPUs that hang: nothing registers for their events. The
	// caller does not ask about them.
	Excluded []string
	// LeaveSettings keeps every setting as the operator of the machine left it.
	LeaveSettings bool
}
