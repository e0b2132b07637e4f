//go:build nvml

package nvml

import (
	"context"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/internal/blocking"
)

// within runs a library call, and gives up on it when the context ends.
func within[T any](ctx context.Context, d *driver, uuid string, f func() (T, error)) (T, error) {
	return blocking.Do(ctx, &d.calls, opRead, uuid, f)
}

// on runs calls on the handle of a GPU.
func on[T any](ctx context.Context, d *driver, uuid string, f func(lib.Device) (T, error)) (T, error) {
	return within(ctx, d, uuid, func() (T, error) {
		dev, err := d.handle(uuid)
		if err != nil {
			var zero T
			return zero, err
		}
		return f(dev)
	})
}

// do is on for calls without an answer.
func do(ctx context.Context, d *driver, uuid string, f func(lib.Device) error) error {
	_, err := on(ctx, d, uuid, func(dev lib.Device) (struct{}, error) { return struct{}{}, f(dev) })
	return err
}

// handle looks a GPU up. GPULost if it was there before.
func (d *driver) handle(uuid string) (lib.Device, error) {
	dev, ret := d.api.DeviceGetHandleByUUID(uuid)
	if ret == lib.SUCCESS {
		return dev, nil
	}
	if d.wasSeen(uuid) && ret == lib.ERROR_NOT_FOUND {
		return nil, gpudrv.Refuse(gpudrv.GPULost, opRead, uuid, "gpu was there and is gone")
	}
	if ret == lib.ERROR_INVALID_ARGUMENT {
		ret = lib.ERROR_NOT_FOUND // a UUID in a form that this driver does not use
	}
	return nil, fail(uuid, ret, "find gpu")
}
