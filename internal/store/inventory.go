package store

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
)

// inventory is the stored form of what equal GPUs have in common; identity, model,
// memory and SMs are columns of the GPU's row.
type inventory struct {
	MemorySlices int                `json:"memory_slices"`
	ComputeUnits int                `json:"compute_units"`
	Engines      gpu.Engines        `json:"engines"`
	Capabilities gpu.Capabilities   `json:"capabilities"`
	Profiles     []inventoryProfile `json:"profiles"`
}

type inventoryProfile struct {
	ID           int             `json:"id"`
	Name         string          `json:"name"`
	Compute      int             `json:"compute"`
	MemoryUnits  int             `json:"memory_units"`
	MemoryMiB    units.MiB       `json:"memory_mib"`
	SMs          int             `json:"sms"`
	MaxInstances int             `json:"max_instances"`
	Engines      gpu.Engines     `json:"engines"`
	Placements   []gpu.Placement `json:"placements"`
}

// EncodeInventory returns the body of gpu_inventories for a device, and its hash,
// which is the row's key: equal GPUs share one row.
func EncodeInventory(d gpu.Device) (hash, body []byte, err error) {
	in := inventory{
		MemorySlices: d.MemorySlices, ComputeUnits: d.ComputeUnits,
		Engines: d.Engines, Capabilities: d.Capabilities, Profiles: []inventoryProfile{},
	}
	for _, p := range d.Profiles {
		in.Profiles = append(in.Profiles, inventoryProfile{
			ID: p.ID, Name: p.Name, Compute: p.Compute, MemoryUnits: p.MemoryUnits, MemoryMiB: p.Memory,
			SMs: p.SMs, MaxInstances: p.MaxInstances, Engines: p.Engines, Placements: p.Placements,
		})
	}
	body, err = json.Marshal(in)
	if err != nil {
		return nil, nil, fmt.Errorf("write the inventory of %s: %w", d.Model, err)
	}
	sum := sha256.Sum256(body)
	return sum[:], body, nil
}

// inventories keeps decoded bodies by hash: they never change, and every placement
// reads them.
var inventories sync.Map // string(hash) → gpu.Device without identity

// decodeInventory returns a device with the common parts filled.
func decodeInventory(hash, body []byte) (gpu.Device, error) {
	if d, ok := inventories.Load(string(hash)); ok {
		return d.(gpu.Device), nil
	}
	var in inventory
	if err := json.Unmarshal(body, &in); err != nil {
		return gpu.Device{}, fmt.Errorf("read the inventory %x: %w", hash, err)
	}
	d := gpu.Device{
		MemorySlices: in.MemorySlices, ComputeUnits: in.ComputeUnits,
		Engines: in.Engines, Capabilities: in.Capabilities,
	}
	for _, p := range in.Profiles {
		d.Profiles = append(d.Profiles, gpu.Profile{
			ID: p.ID, Name: p.Name, Compute: p.Compute, MemoryUnits: p.MemoryUnits, Memory: p.MemoryMiB,
			SMs: p.SMs, MaxInstances: p.MaxInstances, Engines: p.Engines, Placements: p.Placements,
		})
	}
	inventories.Store(string(hash), d)
	return d, nil
}
