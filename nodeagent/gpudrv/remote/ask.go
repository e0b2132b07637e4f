package remote

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Ask carries one call of a driver and puts its answer into out.
type Ask func(ctx context.Context, op string, a Args, out any) error

// Reads is the part of a driver that changes nothing, but for Watch, over Ask.
type Reads struct{ Ask Ask }

// one asks and returns the answer.
func one[T any](ctx context.Context, ask Ask, op string, a Args) (T, error) {
	var out T
	err := ask(ctx, op, a, &out)
	if err != nil {
		var zero T
		return zero, err
	}
	return out, nil
}

// Host implements gpudrv.Reader.
func (r Reads) Host(ctx context.Context) (gpudrv.Host, error) {
	return one[gpudrv.Host](ctx, r.Ask, opHost, Args{})
}

// GPUs implements gpudrv.Reader.
func (r Reads) GPUs(ctx context.Context) ([]gpudrv.Ref, error) {
	return one[[]gpudrv.Ref](ctx, r.Ask, opGPUs, Args{})
}

// Identity implements gpudrv.Reader.
func (r Reads) Identity(ctx context.Context, uuid string) (gpudrv.Identity, error) {
	return one[gpudrv.Identity](ctx, r.Ask, opIdentity, Args{GPU: uuid})
}

// Memory implements gpudrv.Reader.
func (r Reads) Memory(ctx context.Context, uuid string) (gpudrv.Memory, error) {
	return one[gpudrv.Memory](ctx, r.Ask, opMemory, Args{GPU: uuid})
}

// Mode implements gpudrv.Reader.
func (r Reads) Mode(ctx context.Context, uuid string) (gpu.Mode, error) {
	return one[gpu.Mode](ctx, r.Ask, opMode, Args{GPU: uuid})
}

// MIGMode implements gpudrv.Reader.
func (r Reads) MIGMode(ctx context.Context, uuid string) (gpudrv.Value[gpudrv.MIGMode], error) {
	return one[gpudrv.Value[gpudrv.MIGMode]](ctx, r.Ask, opMIGMode, Args{GPU: uuid})
}

// Profiles implements gpudrv.Reader.
func (r Reads) Profiles(ctx context.Context, uuid string) ([]gpudrv.Profile, error) {
	return one[[]gpudrv.Profile](ctx, r.Ask, opProfiles, Args{GPU: uuid})
}

// Placements implements gpudrv.Reader.
func (r Reads) Placements(ctx context.Context, uuid string, profile int) (gpudrv.Placements, error) {
	return one[gpudrv.Placements](ctx, r.Ask, opPlacements, Args{GPU: uuid, Profile: profile})
}

// GPUInstances implements gpudrv.Reader.
func (r Reads) GPUInstances(ctx context.Context, uuid string) ([]gpudrv.GPUInstance, error) {
	return one[[]gpudrv.GPUInstance](ctx, r.Ask, opGPUInstances, Args{GPU: uuid})
}

// Shares implements gpudrv.Reader.
func (r Reads) Shares(ctx context.Context, uuid string) ([]gpudrv.Share, error) {
	return one[[]gpudrv.Share](ctx, r.Ask, opShares, Args{GPU: uuid})
}

// Processes implements gpudrv.Reader.
func (r Reads) Processes(ctx context.Context, uuid string) ([]gpudrv.Process, error) {
	return one[[]gpudrv.Process](ctx, r.Ask, opProcesses, Args{GPU: uuid})
}

// Settings implements gpudrv.Reader.
func (r Reads) Settings(ctx context.Context, uuid string) (gpudrv.Settings, error) {
	return one[gpudrv.Settings](ctx, r.Ask, opSettings, Args{GPU: uuid})
}

// Health implements gpudrv.Reader.
func (r Reads) Health(ctx context.Context, uuid string) (gpudrv.Health, error) {
	return one[gpudrv.Health](ctx, r.Ask, opHealth, Args{GPU: uuid})
}

// Telemetry implements gpudrv.Reader.
func (r Reads) Telemetry(ctx context.Context, uuid string) (gpudrv.Telemetry, error) {
	return one[gpudrv.Telemetry](ctx, r.Ask, opTelemetry, Args{GPU: uuid})
}

// Topology implements gpudrv.Reader.
func (r Reads) Topology(ctx context.Context, uuid string) (gpudrv.Topology, error) {
	return one[gpudrv.Topology](ctx, r.Ask, opTopology, Args{GPU: uuid})
}

// Capabilities implements gpudrv.Observer.
func (r Reads) Capabilities(ctx context.Context, uuid string) (gpudrv.Capabilities, error) {
	return one[gpudrv.Capabilities](ctx, r.Ask, opCapabilities, Args{GPU: uuid})
}

// Usage implements gpudrv.Observer.
func (r Reads) Usage(ctx context.Context, uuid string) ([]gpudrv.SliceUsage, error) {
	return one[[]gpudrv.SliceUsage](ctx, r.Ask, opUsage, Args{GPU: uuid})
}

// Fabric implements gpudrv.Observer.
func (r Reads) Fabric(ctx context.Context, uuid string) (gpudrv.Fabric, error) {
	return one[gpudrv.Fabric](ctx, r.Ask, opFabric, Args{GPU: uuid})
}

// MemoryLimit implements gpudrv.Observer.
func (r Reads) MemoryLimit(ctx context.Context, uuid, cgroup string) (gpudrv.Value[gpudrv.MemoryLimit], error) {
	return one[gpudrv.Value[gpudrv.MemoryLimit]](ctx, r.Ask, opMemoryLimit, Args{GPU: uuid, Cgroup: cgroup})
}

// writes is the part of a driver that changes things, over Ask.
type writes struct{ ask Ask }

// SetMode implements gpudrv.Writer.
func (w writes) SetMode(ctx context.Context, uuid string, m gpu.Mode) error {
	if !m.Valid() {
		return gpudrv.Refuse(gpudrv.Invalid, opSetMode, uuid, "no such mode")
	}
	return w.ask(ctx, opSetMode, Args{GPU: uuid, Mode: m}, nil)
}

// CreateGPUInstance implements gpudrv.Writer.
func (w writes) CreateGPUInstance(
	ctx context.Context, uuid string, profile int, at gpudrv.Placement,
) (gpudrv.GPUInstance, error) {
	return one[gpudrv.GPUInstance](ctx, w.ask, opCreateGPUInstance, Args{GPU: uuid, Profile: profile, At: at})
}

// DestroyGPUInstance implements gpudrv.Writer.
func (w writes) DestroyGPUInstance(ctx context.Context, uuid string, gi int) error {
	return w.ask(ctx, opDestroyGPUInstance, Args{GPU: uuid, GI: gi}, nil)
}

// CreateComputeInstance implements gpudrv.Writer.
func (w writes) CreateComputeInstance(ctx context.Context, uuid string, gi int) (gpudrv.ComputeInstance, error) {
	return one[gpudrv.ComputeInstance](ctx, w.ask, opCreateComputeInstance, Args{GPU: uuid, GI: gi})
}

// DestroyComputeInstance implements gpudrv.Writer.
func (w writes) DestroyComputeInstance(ctx context.Context, uuid string, gi, ci int) error {
	return w.ask(ctx, opDestroyComputeInstance, Args{GPU: uuid, GI: gi, CI: ci}, nil)
}

// CreateShare implements gpudrv.Writer.
func (w writes) CreateShare(ctx context.Context, uuid string, unit int) (gpudrv.Share, error) {
	return one[gpudrv.Share](ctx, w.ask, opCreateShare, Args{GPU: uuid, Unit: unit})
}

// DestroyShare implements gpudrv.Writer.
func (w writes) DestroyShare(ctx context.Context, uuid string, unit int) error {
	return w.ask(ctx, opDestroyShare, Args{GPU: uuid, Unit: unit}, nil)
}

// Reset implements gpudrv.Tuner.
func (w writes) Reset(ctx context.Context, uuid string) error {
	return w.ask(ctx, opReset, Args{GPU: uuid}, nil)
}

// SetTimeslice implements gpudrv.Tuner.
func (w writes) SetTimeslice(ctx context.Context, uuid, level string) error {
	return w.ask(ctx, opSetTimeslice, Args{GPU: uuid, Level: level}, nil)
}

// SetComputeMode implements gpudrv.Tuner.
func (w writes) SetComputeMode(ctx context.Context, uuid, mode string) error {
	return w.ask(ctx, opSetComputeMode, Args{GPU: uuid, Level: mode}, nil)
}

// SetMemoryLimit implements gpudrv.Tuner.
func (w writes) SetMemoryLimit(ctx context.Context, uuid, cgroup string, bytes int64) error {
	return w.ask(ctx, opSetMemoryLimit, Args{GPU: uuid, Cgroup: cgroup, Bytes: bytes}, nil)
}
