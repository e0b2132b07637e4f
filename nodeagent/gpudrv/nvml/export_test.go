//go:build nvml

package nvml

import (
	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Over makes the driver over a library that a test plays.
func Over(api lib.Interface, c Config) gpudrv.Driver {
	return &driver{api: api, config: c, bootID: "test"}
}
