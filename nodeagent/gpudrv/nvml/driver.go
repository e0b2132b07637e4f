//go:build nvml

package nvml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

const opRead = "read"

// driver is the adapter. Handles are looked up by UUID on each call: indices and
// handles change under resets.
type driver struct {
	gpudrv.Frozen
	gpudrv.Unobserved
	api    lib.Interface
	smi    string
	bootID string

	mu    sync.Mutex
	known []gpudrv.Ref // every GPU seen since Open, so that lost ones stay listed
}

var _ gpudrv.Driver = (*driver)(nil)

// Open loads the library and checks that the driver answers.
func Open(c Config) (gpudrv.Driver, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("read boot id: %w", err)
	}
	var opts []lib.LibraryOption
	if c.Library != "" {
		opts = append(opts, lib.WithLibraryPath(c.Library))
	}
	api := lib.New(opts...)
	if ret := api.Init(); ret != lib.SUCCESS {
		return nil, gpudrv.Refuse(kindOf(ret), "open", "", "load NVML: %s", errorText(ret))
	}
	return &driver{
		Frozen:     gpudrv.Frozen{Why: "this version does not change real GPUs"},
		Unobserved: gpudrv.Unobserved{Unseen: "this version does not watch real GPUs"},
		api:        api, smi: c.SMI, bootID: strings.TrimSpace(string(boot)),
	}, nil
}

// Close implements gpudrv.Driver.
func (d *driver) Close() error {
	if ret := d.api.Shutdown(); ret != lib.SUCCESS {
		return gpudrv.Refuse(kindOf(ret), "close", "", "%s", errorText(ret))
	}
	return nil
}

// has says whether the installed library knows a function: calling a missing one
// would end the process.
func (d *driver) has(symbol string) bool {
	return d.api.Extensions().LookupSymbol(symbol) == nil
}

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

// within runs a library call that cannot be interrupted, and gives up on it when
// the context ends.
func within[T any](ctx context.Context, uuid string, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, gpudrv.Refuse(gpudrv.Hung, opRead, uuid, "no time left").Because(err)
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return zero, gpudrv.Refuse(gpudrv.Hung, opRead, uuid, "no answer in time").Because(ctx.Err())
	}
}

// on runs calls on the handle of a GPU.
func on[T any](ctx context.Context, d *driver, uuid string, f func(lib.Device) (T, error)) (T, error) {
	return within(ctx, uuid, func() (T, error) {
		dev, ret := d.api.DeviceGetHandleByUUID(uuid)
		if ret == lib.SUCCESS {
			return f(dev)
		}
		var zero T
		if d.wasSeen(uuid) && ret == lib.ERROR_NOT_FOUND {
			return zero, gpudrv.Refuse(gpudrv.GPULost, opRead, uuid, "gpu was there and is gone")
		}
		if ret == lib.ERROR_INVALID_ARGUMENT {
			ret = lib.ERROR_NOT_FOUND // a UUID in a form that this driver does not use
		}
		return zero, fail(uuid, ret, "find gpu")
	})
}

func (d *driver) wasSeen(uuid string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.known {
		if r.UUID == uuid {
			return true
		}
	}
	return false
}

// list reads the GPUs in the driver's order. Positions of GPUs that no longer
// answer are filled from what was seen before.
func (d *driver) list() ([]gpudrv.Ref, error) {
	n, ret := d.api.DeviceGetCount()
	if ret != lib.SUCCESS {
		return nil, fail("", ret, "count gpus")
	}
	var out []gpudrv.Ref
	var lost error
	for i := range n {
		ref, err := d.ref(i)
		if gpudrv.KindOf(err) == gpudrv.GPULost {
			lost = errors.Join(lost, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, ref)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before := len(out)
	for _, k := range d.known {
		seen := false
		for _, r := range out {
			seen = seen || r.UUID == k.UUID
		}
		if !seen {
			out = append(out, k)
		}
	}
	if lost != nil && len(out) == before {
		return nil, fmt.Errorf("a gpu is lost and its uuid was never seen: %w", lost)
	}
	for i := range out {
		out[i].Index = i
	}
	d.known = append([]gpudrv.Ref(nil), out...)
	return out, nil
}

func (d *driver) ref(i int) (gpudrv.Ref, error) {
	dev, ret := d.api.DeviceGetHandleByIndex(i)
	if ret != lib.SUCCESS {
		return gpudrv.Ref{}, fail("", ret, fmt.Sprintf("open gpu at index %d", i))
	}
	uuid, ret := dev.GetUUID()
	if ret != lib.SUCCESS {
		return gpudrv.Ref{}, fail("", ret, fmt.Sprintf("read uuid of gpu at index %d", i))
	}
	pci, ret := dev.GetPciInfo()
	if ret != lib.SUCCESS {
		return gpudrv.Ref{}, fail(uuid, ret, "read bus id")
	}
	return gpudrv.Ref{UUID: uuid, PCI: text(pci.BusId[:]), Index: i}, nil
}

// text is a C string in a fixed array.
func text(chars []int8) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}
