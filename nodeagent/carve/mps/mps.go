// Package mps hands out the fixed-size shares of a GPU in mps mode. Limits hold
// per process, all shares are one fault domain, and only one organization may
// hold shares of a GPU: the claim keeps that rule, not this package.
//
// Today it works on drivers that keep share records themselves (the simulator);
// on real hardware it is refused as Unsupported.
package mps

import (
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/carve/internal/grid"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// New makes the technique over one driver.
func New(drv gpudrv.Driver) carve.Carver { return grid.Carver{Driver: drv} }
