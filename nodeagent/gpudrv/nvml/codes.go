//go:build nvml

package nvml

import (
	"fmt"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// errorText names a return code without asking the library, which may not be
// loaded.
func errorText(ret lib.Return) string {
	if text, ok := codes[ret]; ok {
		return text
	}
	return fmt.Sprintf("NVML code %d", int(ret))
}

var codes = map[lib.Return]string{
	lib.ERROR_UNINITIALIZED:             "UNINITIALIZED",
	lib.ERROR_INVALID_ARGUMENT:          "INVALID_ARGUMENT",
	lib.ERROR_NOT_SUPPORTED:             "NOT_SUPPORTED",
	lib.ERROR_NO_PERMISSION:             "NO_PERMISSION",
	lib.ERROR_NOT_FOUND:                 "NOT_FOUND",
	lib.ERROR_INSUFFICIENT_SIZE:         "INSUFFICIENT_SIZE",
	lib.ERROR_DRIVER_NOT_LOADED:         "DRIVER_NOT_LOADED",
	lib.ERROR_TIMEOUT:                   "TIMEOUT",
	lib.ERROR_LIBRARY_NOT_FOUND:         "LIBRARY_NOT_FOUND",
	lib.ERROR_FUNCTION_NOT_FOUND:        "FUNCTION_NOT_FOUND",
	lib.ERROR_GPU_IS_LOST:               "GPU_IS_LOST",
	lib.ERROR_RESET_REQUIRED:            "RESET_REQUIRED",
	lib.ERROR_OPERATING_SYSTEM:          "OPERATING_SYSTEM",
	lib.ERROR_LIB_RM_VERSION_MISMATCH:   "LIB_RM_VERSION_MISMATCH",
	lib.ERROR_IN_USE:                    "IN_USE",
	lib.ERROR_NO_DATA:                   "NO_DATA",
	lib.ERROR_INSUFFICIENT_RESOURCES:    "INSUFFICIENT_RESOURCES",
	lib.ERROR_ARGUMENT_VERSION_MISMATCH: "ARGUMENT_VERSION_MISMATCH",
	lib.ERROR_DEPRECATED:                "DEPRECATED",
	lib.ERROR_NOT_READY:                 "NOT_READY",
	lib.ERROR_UNKNOWN:                   "UNKNOWN",
}

// kindOf maps a return code to the port's kinds.
func kindOf(ret lib.Return) gpudrv.Kind {
	switch ret {
	case lib.ERROR_NOT_SUPPORTED, lib.ERROR_FUNCTION_NOT_FOUND, lib.ERROR_LIBRARY_NOT_FOUND,
		lib.ERROR_DRIVER_NOT_LOADED, lib.ERROR_ARGUMENT_VERSION_MISMATCH, lib.ERROR_DEPRECATED:
		return gpudrv.Unsupported
	case lib.ERROR_NOT_FOUND:
		return gpudrv.NotFound
	case lib.ERROR_INVALID_ARGUMENT:
		return gpudrv.Invalid
	case lib.ERROR_GPU_IS_LOST:
		return gpudrv.GPULost
	case lib.ERROR_RESET_REQUIRED:
		return gpudrv.NeedsReset
	case lib.ERROR_IN_USE:
		return gpudrv.InUse
	case lib.ERROR_INSUFFICIENT_RESOURCES:
		return gpudrv.NoRoom
	case lib.ERROR_TIMEOUT:
		return gpudrv.Hung
	case lib.ERROR_LIB_RM_VERSION_MISMATCH:
		return gpudrv.Mismatch
	default:
		return gpudrv.Broken
	}
}

func fail(uuid string, ret lib.Return, what string) error {
	return gpudrv.Refuse(kindOf(ret), opRead, uuid, "%s: %s", what, errorText(ret))
}

// value turns a reading with its code into a tri-state value.
func value[T any](v T, ret lib.Return) gpudrv.Value[T] {
	switch ret {
	case lib.SUCCESS:
		return gpudrv.Reported(v)
	case lib.ERROR_NOT_SUPPORTED, lib.ERROR_FUNCTION_NOT_FOUND, lib.ERROR_NOT_FOUND, lib.ERROR_NO_DATA:
		return gpudrv.NotReported[T](errorText(ret))
	default:
		return gpudrv.Failed[T](errorText(ret))
	}
}

// convert is value with a conversion of the reading.
func convert[A, B any](a A, ret lib.Return, f func(A) B) gpudrv.Value[B] {
	if ret != lib.SUCCESS {
		var zero B
		return value(zero, ret)
	}
	return gpudrv.Reported(f(a))
}
