package remote

import (
	"fmt"
	"regexp"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/callwire"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// The calls of a driver by name, as they travel.
const (
	opHost         = "host"
	opGPUs         = "gpus"
	opIdentity     = "identity"
	opMemory       = "memory"
	opMode         = "mode"
	opMIGMode      = "mig_mode"
	opProfiles     = "profiles"
	opPlacements   = "placements"
	opGPUInstances = "gpu_instances"
	opShares       = "shares"
	opProcesses    = "processes"
	opSettings     = "settings"
	opHealth       = "health"
	opTelemetry    = "telemetry"
	opTopology     = "topology"
	opCapabilities = "capabilities"
	opUsage        = "usage"
	opFabric       = "fabric"
	opMemoryLimit  = "memory_limit"

	opSetMode                = "set_mode"
	opCreateGPUInstance      = "create_gpu_instance"
	opDestroyGPUInstance     = "destroy_gpu_instance"
	opCreateComputeInstance  = "create_compute_instance"
	opDestroyComputeInstance = "destroy_compute_instance"
	opCreateShare            = "create_share"
	opDestroyShare           = "destroy_share"
	opReset                  = "reset"
	opSetTimeslice           = "set_timeslice"
	opSetComputeMode         = "set_compute_mode"
	opSetMemoryLimit         = "set_memory_limit"

	opOpen  = "open"
	opWatch = "watch"
)

// Args are the arguments of any call of a driver; each takes what it needs.
type Args struct {
	GPU     string           `json:"gpu,omitempty"` // UUID; "" for calls about the host
	Profile int              `json:"profile,omitempty"`
	At      gpudrv.Placement `json:"at,omitzero"`
	GI      int              `json:"gi,omitempty"`
	CI      int              `json:"ci,omitempty"`
	Unit    int              `json:"unit,omitempty"`
	Mode    gpu.Mode         `json:"mode,omitzero"`
	Level   string           `json:"level,omitempty"` // of turns, or a compute mode
	Cgroup  string           `json:"cgroup,omitempty"`
	Bytes   int64            `json:"bytes,omitempty"`
}

// Bounds of arguments. A UUID of the driver is 40 characters.
const (
	maxText   = 64
	maxPath   = 1024
	maxNumber = 1 << 20
)

var (
	uuidForm  = regexp.MustCompile(`^[A-Za-z0-9._:/-]{0,64}$`)
	levelForm = regexp.MustCompile(`^[a-z_]{0,32}$`)
	groupForm = regexp.MustCompile(`^[A-Za-z0-9@._:/-]*$`)
)

// ParseArgs reads arguments and refuses what no caller has reason to say; the driver
// refuses what does not exist.
func ParseArgs(body []byte) (Args, error) {
	var a Args
	if err := callwire.Strictly(body, &a); err != nil {
		return Args{}, gpudrv.Refuse(gpudrv.Invalid, "call", "", "the arguments are not those of a driver call")
	}
	return a, a.Check()
}

// Check refuses what no caller has reason to say, as Invalid.
func (a Args) Check() error {
	wrong := func(what string) error {
		return gpudrv.Refuse(gpudrv.Invalid, "call", "", "%s is not legal", what)
	}
	switch {
	case !uuidForm.MatchString(a.GPU):
		return wrong("the GPU's name")
	case !levelForm.MatchString(a.Level):
		return wrong("the level")
	case len(a.Cgroup) > maxPath || !groupForm.MatchString(a.Cgroup):
		return wrong("the control group")
	case a.Mode != (gpu.Mode{}) && !a.Mode.Valid():
		return wrong("the mode")
	case a.Bytes < 0:
		return wrong("the size")
	}
	for _, n := range []int{a.Profile, a.At.Start, a.At.Size, a.GI, a.CI, a.Unit} {
		if n < -1 || n > maxNumber {
			return wrong(fmt.Sprintf("the number %d", n))
		}
	}
	return nil
}
