package gpudrv

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/internal/gpu"
)

// Found is one GPU of the inventory: what it can be cut into and its mode.
type Found struct {
	Ref              Ref
	Device           gpu.Device
	Mode             gpu.Mode
	PlacementsSource string // nvml, nvidia-smi or sim; "" without MIG
}

// Inventory reads every GPU. It fails as a whole if one read fails: a partial
// inventory would look like vanished GPUs. A lost GPU fails it with GPULost; use
// GPUs and Device to report the others.
func Inventory(ctx context.Context, r Reader) ([]Found, error) {
	refs, err := r.GPUs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list gpus: %w", err)
	}
	out := make([]Found, 0, len(refs))
	for _, ref := range refs {
		f, err := Inspect(ctx, r, ref)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// Inspect reads one GPU of the inventory.
func Inspect(ctx context.Context, r Reader, ref Ref) (Found, error) {
	d, source, err := describe(ctx, r, ref)
	if err != nil {
		return Found{}, fmt.Errorf("inspect gpu %s: %w", ref.UUID, err)
	}
	m, err := r.Mode(ctx, ref.UUID)
	if err != nil {
		return Found{}, fmt.Errorf("read mode of gpu %s: %w", ref.UUID, err)
	}
	return Found{Ref: ref, Device: d, Mode: m, PlacementsSource: source}, nil
}

// Device reads one GPU by UUID as the geometry wants it.
func Device(ctx context.Context, r Reader, uuid string) (gpu.Device, error) {
	ref, err := find(ctx, r, uuid)
	if err != nil {
		return gpu.Device{}, err
	}
	d, _, err := describe(ctx, r, ref)
	return d, err
}

// Undivided is Device without MIG: neither profiles nor what follows from them. It is
// what the other modes need, in a tenth of the calls.
func Undivided(ctx context.Context, r Reader, uuid string) (gpu.Device, error) {
	ref, err := find(ctx, r, uuid)
	if err != nil {
		return gpu.Device{}, err
	}
	d, err := outline(ctx, r, ref)
	if err != nil || d.SMs > 0 {
		return d, err
	}
	profiles, _, err := profilesOf(ctx, r, uuid)
	d.SMs = largestSMs(profiles)
	return d, err
}

func find(ctx context.Context, r Reader, uuid string) (Ref, error) {
	refs, err := r.GPUs(ctx)
	if err != nil {
		return Ref{}, fmt.Errorf("list gpus: %w", err)
	}
	for _, ref := range refs {
		if ref.UUID == uuid {
			return ref, nil
		}
	}
	return Ref{}, Refuse(NotFound, "device", uuid, "no gpu with this uuid")
}

// mpsNamespaces is the first version of MPS with limits per namespace.
const mpsNamespaces = 3

// outline reads what a GPU is apart from its MIG profiles; SMs is 0 where the driver
// does not count them.
func outline(ctx context.Context, r Reader, ref Ref) (gpu.Device, error) {
	host, err := r.Host(ctx)
	if err != nil {
		return gpu.Device{}, err
	}
	id, err := r.Identity(ctx, ref.UUID)
	if err != nil {
		return gpu.Device{}, err
	}
	mem, err := r.Memory(ctx, ref.UUID)
	if err != nil {
		return gpu.Device{}, err
	}
	can, err := r.Capabilities(ctx, ref.UUID)
	if err != nil {
		return gpu.Device{}, err
	}
	return gpu.Device{
		UUID: ref.UUID, PCI: ref.PCI, Name: id.Name,
		Model:  gpu.ModelSlug(id.Name, mem.Total()),
		Memory: mem.Total(), SMs: id.SMs.Or(0), Simulated: host.Simulated,
		Capabilities: gpu.Capabilities{
			MPS:                 true,
			ModeNeedsReset:      id.Architecture.Or("") == "ampere",
			ComputeCapability:   id.ComputeCapability.Or(""),
			EnforcedMemoryLimit: can.MemoryLimits.Or(false),
			MPSNamespaces:       can.MPSVersion.Or(0) >= mpsNamespaces,
		},
	}, nil
}

func describe(ctx context.Context, r Reader, ref Ref) (gpu.Device, string, error) {
	d, err := outline(ctx, r, ref)
	if err != nil {
		return gpu.Device{}, "", err
	}
	profiles, source, err := profilesOf(ctx, r, ref.UUID)
	if err != nil {
		return gpu.Device{}, "", err
	}
	d.Profiles, d.Capabilities.MIG = profiles, len(profiles) > 0
	d.MemorySlices, d.ComputeUnits, d.Engines = gpu.Totals(profiles)
	if d.SMs == 0 {
		d.SMs = largestSMs(profiles)
	}
	return d, source, nil
}

// largestSMs is a lower bound where the driver does not count the GPU's SMs.
func largestSMs(profiles []gpu.Profile) int {
	n := 0
	for _, p := range profiles {
		n = max(n, p.SMs)
	}
	return n
}

func profilesOf(ctx context.Context, r Reader, uuid string) ([]gpu.Profile, string, error) {
	reported, err := r.Profiles(ctx, uuid)
	if err != nil {
		return nil, "", err
	}
	source := ""
	out := make([]gpu.Profile, 0, len(reported))
	for _, p := range reported {
		at, err := r.Placements(ctx, uuid, p.ID)
		if err != nil {
			return nil, "", fmt.Errorf("placements of profile %s: %w", p.Name, err)
		}
		source = at.Source
		out = append(out, p.geometry(at.List))
	}
	return out, source, nil
}

// geometry is the profile as package gpu wants it.
func (p Profile) geometry(at []Placement) gpu.Profile {
	out := gpu.Profile{
		ID: p.ID, Name: p.Name, Compute: p.Compute, Memory: p.Memory, SMs: p.SMs,
		MaxInstances: p.MaxInstances,
		Engines:      gpu.Engines{Copy: p.Copy, Decode: p.Decode, Encode: p.Encode, JPEG: p.JPEG, OFA: p.OFA},
	}
	for _, pl := range at {
		out.MemoryUnits = pl.Size
		out.Placements = append(out.Placements, gpu.Placement(pl))
	}
	return out
}
