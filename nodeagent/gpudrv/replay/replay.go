// Package replay is a driver that repeats the recorded answers of a real one, so
// that inventory and geometry can be tested against real reports on machines
// without a GPU. Nothing can be changed, and it says that it is simulated.
package replay

import (
	"context"
	"fmt"
	"os"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Driver repeats a recording. It is immutable and safe for concurrent use.
type Driver struct {
	gpudrv.Frozen
	host gpudrv.Host
	refs []gpudrv.Ref
	gpus map[string]gpudrv.RecordedGPU
}

var _ gpudrv.Driver = (*Driver)(nil)

// Open reads a recording file, as `tranche-agent record` writes it.
func Open(path string) (*Driver, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	rec, err := gpudrv.ParseRecording(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return New(rec), nil
}

// New repeats a recording.
func New(rec gpudrv.Recording) *Driver {
	d := &Driver{Frozen: gpudrv.Frozen{Why: "a recording cannot change"}, host: rec.Host, gpus: make(map[string]gpudrv.RecordedGPU, len(rec.GPUs))}
	d.host.Driver, d.host.Simulated = "replay", true
	for _, g := range rec.GPUs {
		d.refs = append(d.refs, g.Ref)
		d.gpus[g.Ref.UUID] = g
	}
	return d
}

// Close implements gpudrv.Driver.
func (d *Driver) Close() error { return nil }

const opRead = "read"

func (d *Driver) find(ctx context.Context, uuid string) (gpudrv.RecordedGPU, error) {
	if err := alive(ctx); err != nil {
		return gpudrv.RecordedGPU{}, err
	}
	g, ok := d.gpus[uuid]
	if !ok {
		return gpudrv.RecordedGPU{}, gpudrv.Refuse(gpudrv.NotFound, opRead, uuid, "not in the recording")
	}
	return g, nil
}

func alive(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return gpudrv.Refuse(gpudrv.Hung, opRead, "", "no answer in time").Because(err)
	}
	return nil
}

// get repeats one answer of one GPU.
func get[T any](ctx context.Context, d *Driver, uuid string, pick func(gpudrv.RecordedGPU) gpudrv.Answer[T]) (T, error) {
	g, err := d.find(ctx, uuid)
	if err != nil {
		var zero T
		return zero, err
	}
	return pick(g).Get(opRead, uuid)
}

// Host implements gpudrv.Reader.
func (d *Driver) Host(ctx context.Context) (gpudrv.Host, error) { return d.host, alive(ctx) }

// GPUs implements gpudrv.Reader.
func (d *Driver) GPUs(ctx context.Context) ([]gpudrv.Ref, error) { return d.refs, alive(ctx) }

// Identity implements gpudrv.Reader.
func (d *Driver) Identity(ctx context.Context, uuid string) (gpudrv.Identity, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[gpudrv.Identity] { return g.Identity })
}

// Memory implements gpudrv.Reader.
func (d *Driver) Memory(ctx context.Context, uuid string) (gpudrv.Memory, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[gpudrv.Memory] { return g.Memory })
}

// Mode implements gpudrv.Reader.
func (d *Driver) Mode(ctx context.Context, uuid string) (gpu.Mode, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[gpu.Mode] { return g.Mode })
}

// MIGMode implements gpudrv.Reader.
func (d *Driver) MIGMode(ctx context.Context, uuid string) (gpudrv.Value[gpudrv.MIGMode], error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[gpudrv.Value[gpudrv.MIGMode]] { return g.MIGMode })
}

// Profiles implements gpudrv.Reader.
func (d *Driver) Profiles(ctx context.Context, uuid string) ([]gpudrv.Profile, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[[]gpudrv.Profile] { return g.Profiles })
}

// Placements implements gpudrv.Reader.
func (d *Driver) Placements(ctx context.Context, uuid string, profile int) (gpudrv.Placements, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[gpudrv.Placements] {
		a, ok := g.Placements[profile]
		if !ok {
			return gpudrv.Answer[gpudrv.Placements]{Kind: gpudrv.Invalid, Detail: "no such profile in the recording"}
		}
		return a
	})
}

// GPUInstances implements gpudrv.Reader.
func (d *Driver) GPUInstances(ctx context.Context, uuid string) ([]gpudrv.GPUInstance, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[[]gpudrv.GPUInstance] { return g.GPUInstances })
}

// Shares implements gpudrv.Reader.
func (d *Driver) Shares(ctx context.Context, uuid string) ([]gpudrv.Share, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[[]gpudrv.Share] { return g.Shares })
}

// Processes implements gpudrv.Reader.
func (d *Driver) Processes(ctx context.Context, uuid string) ([]gpudrv.Process, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[[]gpudrv.Process] { return g.Processes })
}

// unasked is why a reading is missing that the recording's version did not ask for.
const unasked = "not in the recording"

// Settings implements gpudrv.Reader.
func (d *Driver) Settings(ctx context.Context, uuid string) (gpudrv.Settings, error) {
	s, err := get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[gpudrv.Settings] { return g.Settings })
	if _, ok := s.Timeslice.Get(); !ok && s.Timeslice.Reason() == "" {
		s.Timeslice = gpudrv.NotReported[string](unasked)
	}
	return s, err
}

// Health implements gpudrv.Reader.
func (d *Driver) Health(ctx context.Context, uuid string) (gpudrv.Health, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[gpudrv.Health] { return g.Health })
}

// Telemetry implements gpudrv.Reader.
func (d *Driver) Telemetry(ctx context.Context, uuid string) (gpudrv.Telemetry, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[gpudrv.Telemetry] { return g.Telemetry })
}

// Topology implements gpudrv.Reader.
func (d *Driver) Topology(ctx context.Context, uuid string) (gpudrv.Topology, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[gpudrv.Topology] { return g.Topology })
}

// later repeats an answer that older recordings lack.
func later[T any](a *gpudrv.Answer[T], otherwise T) gpudrv.Answer[T] {
	if a == nil {
		return gpudrv.Answer[T]{Value: otherwise}
	}
	return *a
}

// Capabilities implements gpudrv.Observer.
func (d *Driver) Capabilities(ctx context.Context, uuid string) (gpudrv.Capabilities, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[gpudrv.Capabilities] {
		return later(g.Capabilities, gpudrv.NoCapabilities(unasked))
	})
}

// Usage implements gpudrv.Observer.
func (d *Driver) Usage(ctx context.Context, uuid string) ([]gpudrv.SliceUsage, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[[]gpudrv.SliceUsage] {
		if g.Usage != nil {
			return *g.Usage
		}
		var none []gpudrv.SliceUsage
		for _, in := range g.GPUInstances.Value {
			none = append(none, gpudrv.NoUsage(in.ID, unasked))
		}
		if !g.MIGMode.Value.Or(gpudrv.MIGMode{}).Current {
			none = append(none, gpudrv.NoUsage(-1, unasked))
		}
		return gpudrv.Answer[[]gpudrv.SliceUsage]{Value: none}
	})
}

// Fabric implements gpudrv.Observer.
func (d *Driver) Fabric(ctx context.Context, uuid string) (gpudrv.Fabric, error) {
	return get(ctx, d, uuid, func(g gpudrv.RecordedGPU) gpudrv.Answer[gpudrv.Fabric] {
		return later(g.Fabric, gpudrv.NoFabric(unasked))
	})
}

// MemoryLimit implements gpudrv.Observer: a recording enforces nothing.
func (d *Driver) MemoryLimit(ctx context.Context, uuid, _ string) (gpudrv.Value[gpudrv.MemoryLimit], error) {
	_, err := d.find(ctx, uuid)
	return gpudrv.NotReported[gpudrv.MemoryLimit](unasked), err
}

// Watch implements gpudrv.Observer: nothing happens in a recording.
func (d *Driver) Watch(context.Context) (gpudrv.Watcher, error) {
	return nil, gpudrv.Refuse(gpudrv.Unsupported, "watch", "", "a recording has no events")
}
