// Package nvml is the driver port on real NVIDIA hardware. It reads; it changes
// nothing: MIG mode, compute mode, clocks, persistence and power of a machine
// stay as its operator set them, and every Writer call is refused as Unsupported.
//
// It needs cgo and the build tag nvml, and libnvidia-ml.so.1 at run time. Without
// the tag Open says so. The library's types do not leave this package.
//
// A call into the library cannot be interrupted: when its context ends first, it
// is abandoned with its goroutine and the caller gets Hung.
package nvml

// Config says where the driver's parts are.
type Config struct {
	// Library is the path of libnvidia-ml.so.1; "" leaves it to the dynamic linker.
	Library string
	// SMI is the absolute path of nvidia-smi, asked for placements if NVML refuses
	// them; "" tries the usual places.
	SMI string
}
