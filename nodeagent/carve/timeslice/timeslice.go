// Package timeslice hands out the equal turns of a GPU in timeslice mode. Turns
// are per process and nothing limits memory; contexts are separate, so faults
// stay apart. One organization holds a GPU's turns: the claim keeps that rule.
//
// Today it works on drivers that keep share records themselves (the simulator);
// on real hardware it is refused as Unsupported.
package timeslice

import (
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/carve/internal/grid"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// New makes the technique over one driver.
func New(drv gpudrv.Driver) carve.Carver { return grid.Carver{Driver: drv} }
