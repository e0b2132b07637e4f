package remote

import (
	"context"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Read answers one call that changes nothing, from a driver: Unsupported for any other.
func Read(ctx context.Context, d gpudrv.Reader, op string, a Args) (any, error) {
	switch op {
	case opHost:
		return d.Host(ctx)
	case opGPUs:
		return d.GPUs(ctx)
	case opIdentity:
		return d.Identity(ctx, a.GPU)
	case opMemory:
		return d.Memory(ctx, a.GPU)
	case opMode:
		return d.Mode(ctx, a.GPU)
	case opMIGMode:
		return d.MIGMode(ctx, a.GPU)
	case opProfiles:
		return d.Profiles(ctx, a.GPU)
	case opPlacements:
		return d.Placements(ctx, a.GPU, a.Profile)
	case opGPUInstances:
		return d.GPUInstances(ctx, a.GPU)
	case opShares:
		return d.Shares(ctx, a.GPU)
	case opProcesses:
		return d.Processes(ctx, a.GPU)
	case opSettings:
		return d.Settings(ctx, a.GPU)
	case opHealth:
		return d.Health(ctx, a.GPU)
	case opTelemetry:
		return d.Telemetry(ctx, a.GPU)
	case opTopology:
		return d.Topology(ctx, a.GPU)
	}
	return observe(ctx, d, op, a)
}

func observe(ctx context.Context, d gpudrv.Observer, op string, a Args) (any, error) {
	switch op {
	case opCapabilities:
		return d.Capabilities(ctx, a.GPU)
	case opUsage:
		return d.Usage(ctx, a.GPU)
	case opFabric:
		return d.Fabric(ctx, a.GPU)
	case opMemoryLimit:
		return d.MemoryLimit(ctx, a.GPU, a.Cgroup)
	}
	return nil, gpudrv.Refuse(gpudrv.Unsupported, "call", a.GPU, "no such call")
}

// change answers one call that changes something; known is false for any other.
func change(ctx context.Context, d gpudrv.Writer, op string, a Args) (out any, known bool, err error) {
	switch op {
	case opSetMode:
		return nil, true, d.SetMode(ctx, a.GPU, a.Mode)
	case opCreateGPUInstance:
		out, err = d.CreateGPUInstance(ctx, a.GPU, a.Profile, a.At)
	case opDestroyGPUInstance:
		return nil, true, d.DestroyGPUInstance(ctx, a.GPU, a.GI)
	case opCreateComputeInstance:
		out, err = d.CreateComputeInstance(ctx, a.GPU, a.GI)
	case opDestroyComputeInstance:
		return nil, true, d.DestroyComputeInstance(ctx, a.GPU, a.GI, a.CI)
	case opCreateShare:
		out, err = d.CreateShare(ctx, a.GPU, a.Unit)
	case opDestroyShare:
		return nil, true, d.DestroyShare(ctx, a.GPU, a.Unit)
	case opReset:
		return nil, true, d.Reset(ctx, a.GPU)
	case opSetTimeslice:
		return nil, true, d.SetTimeslice(ctx, a.GPU, a.Level)
	case opSetComputeMode:
		return nil, true, d.SetComputeMode(ctx, a.GPU, a.Level)
	case opSetMemoryLimit:
		return nil, true, d.SetMemoryLimit(ctx, a.GPU, a.Cgroup, a.Bytes)
	default:
		return nil, false, nil
	}
	return out, true, err
}
