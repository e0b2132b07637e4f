//go:build !nvml

package nvml

import "github.com/tranche-cloud/tranche/nodeagent/gpudrv"

// Open fails: this build has no NVML.
func Open(Config) (gpudrv.Driver, error) {
	return nil, gpudrv.Refuse(gpudrv.Unsupported, "open", "",
		"built without nvml: rebuild with CGO_ENABLED=1 and -tags nvml")
}
