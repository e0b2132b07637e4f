package sim

import (
	"context"
	"slices"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// CreateGPUInstanceAnywhere lets the simulated driver choose the place, as drivers
// do when none is given: the highest legal start. That is short-sighted: 1g, 1g,
// 2g, 3g in this order end in NoRoom on an eight-unit GPU, where 3g first works.
// It is no part of the port, because the node never chooses a place.
func (d *Driver) CreateGPUInstanceAnywhere(ctx context.Context, uuid string, profile int) (gpudrv.GPUInstance, error) {
	at, err := d.Placements(ctx, uuid, profile)
	if err != nil {
		return gpudrv.GPUInstance{}, err
	}
	var last error
	for _, p := range slices.Backward(at.List) {
		gi, err := d.CreateGPUInstance(ctx, uuid, profile, p)
		if gpudrv.KindOf(err) != gpudrv.NoRoom {
			return gi, err
		}
		last = err
	}
	return gpudrv.GPUInstance{}, last
}
