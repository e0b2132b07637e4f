package nodeagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/nodeagent/durable"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// known.json in the data folder holds the GPUs that the host has shown, so that one
// that is missing after a restart is reported as lost and not left out.
const knownFile = "known.json"

// Inventory reads what the host has; a failed read is reported as one. A GPU that
// cannot be read now is in it as last seen, and failed: never a shorter inventory.
func (k *Keeper) Inventory(ctx context.Context) agentlink.Inventory {
	host, err := k.host.Driver.Host(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err == nil:
		k.facts = host
	case k.facts.Driver == "":
		return agentlink.Inventory{Failed: true, Failure: err.Error()}
	default:
		host = k.facts // as last seen, so that the host's condition is told
	}
	k.inventory = false
	if len(k.devices) == 0 {
		return agentlink.Inventory{Failed: true, Failure: cmp.Or(k.unread, "the driver lists no GPU")}
	}
	out := agentlink.Inventory{
		VCPU: k.host.VCPU, RAM: k.host.RAM, Driver: host.Driver, DriverVersion: host.DriverVersion.Or(""),
		Simulated: host.Simulated, Runtime: k.host.RuntimeName, Reach: k.host.Reach,
		Condition: k.condition.is, ConditionCause: k.condition.cause,
	}
	if k.host.Floors != nil {
		out.BelowFloor = k.host.Floors()
	}
	for _, g := range k.devices {
		state := k.modes.get(g.Ref.UUID)
		health := k.graded(g.Ref.UUID)
		want, _ := k.wanted(g.Ref.UUID)
		out.GPUs = append(out.GPUs, agentlink.InventoryGPU{
			Device: g.Device, Ordinal: g.Ref.Index, Mode: g.Mode, Desired: want,
			Health: string(health.State), HealthCause: health.Cause, HealthDetail: health.Detail,
			PlacementsSource: g.PlacementsSource, ModeState: string(state.State), ModeProblem: state.Problem,
		})
	}
	slices.SortFunc(out.GPUs, func(a, b agentlink.InventoryGPU) int {
		return cmp.Or(cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.Device.UUID, b.Device.UUID))
	})
	for i := range out.GPUs {
		out.GPUs[i].Ordinal = i // unique also when one that is gone kept another's index
	}
	return out
}

// learn takes in what was read of the GPUs and remembers new ones on disk.
func (k *Keeper) learn(sc scene) error {
	k.mu.Lock()
	changed := false
	for _, g := range sc.gpus {
		old, known := k.devices[g.Ref.UUID]
		if !known || old.Ref != g.Ref || old.Device.Name != g.Device.Name {
			changed = true
		}
		if !known || old.Mode != g.Mode {
			k.inventory = true
		}
		k.devices[g.Ref.UUID] = g
	}
	if len(k.trouble) != len(sc.trouble) {
		k.inventory = true
	}
	k.trouble = sc.trouble
	if k.inventory {
		k.signal()
	}
	list := make([]gpudrv.Found, 0, len(k.devices))
	for _, g := range k.devices {
		list = append(list, g)
	}
	k.mu.Unlock()
	if !changed {
		return nil
	}
	slices.SortFunc(list, func(a, b gpudrv.Found) int { return cmp.Compare(a.Ref.UUID, b.Ref.UUID) })
	return storeJSON(filepath.Join(k.host.Dir, knownFile), list)
}

// remember loads what earlier processes of this agent knew.
func (k *Keeper) remember() error {
	var list []gpudrv.Found
	if err := loadJSON(filepath.Join(k.host.Dir, knownFile), &list); err != nil {
		return err
	}
	for _, g := range list {
		k.devices[g.Ref.UUID] = g
	}
	var err error
	k.modes, err = openModeBook(filepath.Join(k.host.Dir, modesFile))
	return err
}

// Forget drops a GPU that an operator took out of the host.
func (k *Keeper) Forget(uuid string) error {
	k.mu.Lock()
	delete(k.devices, uuid)
	delete(k.trouble, uuid)
	delete(k.health, uuid)
	k.inventory = true
	k.signal()
	list := make([]gpudrv.Found, 0, len(k.devices))
	for _, g := range k.devices {
		list = append(list, g)
	}
	k.mu.Unlock()
	return storeJSON(filepath.Join(k.host.Dir, knownFile), list)
}

// storeJSON replaces a file as a whole: after a crash the old or the new is there.
func storeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("store %s: %w", filepath.Base(path), err)
	}
	if err := durable.Replace(path, text); err != nil {
		return fmt.Errorf("store %s: %w", filepath.Base(path), err)
	}
	return nil
}

// loadJSON reads a file that storeJSON wrote; a missing one leaves v as it is.
func loadJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
