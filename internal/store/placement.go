package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/placement"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
	"github.com/tranche-cloud/tranche/internal/units"
)

// Shape is what an instance's SKU asks of its pool. Seed, Excluded and Org of the
// request are filled from the row.
type Shape struct {
	Request placement.Request
	Tenancy placement.Tenancy
	Ports   []Port // to publish
}

// LoadShape returns the placement request of an instance.
func (t *SystemTx) LoadShape(ctx context.Context, r InstanceRow, attempt int) (Shape, error) {
	row, err := t.q.InstanceShape(ctx, t.raw, r.sku, r.Pool)
	if err != nil {
		return Shape{}, mapError(err)
	}
	mode, err := gpu.ParseMode(row.GpuMode)
	if err != nil {
		return Shape{}, fmt.Errorf("read the mode of the SKU of %s: %w", r.ID, err)
	}
	want := gpu.Want{Mode: mode, Profile: row.Profile, MinMemory: units.MiB(row.MemoryMib)}
	if row.SmCount != nil {
		want.MinSMs = int(*row.SmCount)
	}
	var seed uint64
	for _, b := range r.ID[8:] {
		seed = seed<<8 | uint64(b)
	}
	return Shape{
		Tenancy: placement.Tenancy(row.Tenancy), Ports: r.Ports,
		Request: placement.Request{
			Org: r.Org, Model: row.GpuModel, Want: want, Count: int(row.GpuCount),
			VCPU: int(row.Vcpu), RAM: units.MiB(row.RamMib), Excluded: r.Excluded, Seed: seed + uint64(attempt),
		},
	}, nil
}

// Snapshot reads what a planner may choose from: the hosts of the instance's pool
// with their present GPUs of the model.
func (t *SystemTx) Snapshot(ctx context.Context, r InstanceRow, s Shape) (placement.Snapshot, error) {
	return t.snapshot(ctx, r.Cell, r.Pool, s)
}

// snapshot reads a pool; an empty model means the GPUs of all models.
func (t *SystemTx) snapshot(ctx context.Context, cell, pool string, s Shape) (placement.Snapshot, error) {
	out := placement.Snapshot{Tenancy: s.Tenancy}
	hosts, err := t.q.PlacementHosts(ctx, t.raw, db.PlacementHostsParams{
		CellID: cell, PoolID: pool, OrgID: uuid.UUID(s.Request.Org), Ports: len(s.Ports) > 0,
	})
	if err != nil {
		return out, mapError(err)
	}
	gpus, err := t.q.PlacementGPUs(ctx, t.raw, db.PlacementGPUsParams{CellID: cell, PoolID: pool, Model: s.Request.Model})
	if err != nil {
		return out, mapError(err)
	}
	byHost, err := t.describe(ctx, gpus)
	if err != nil {
		return out, err
	}
	for _, h := range hosts {
		out.Hosts = append(out.Hosts, placement.Host{
			ID: id.Host(h.ID), Liveness: host.Liveness(h.Liveness),
			State:        takesWork(h.State, h.Condition, h.HoldsOthers || int(h.PortsFree) < len(s.Ports)),
			Organization: orgOrNone(h.BoundOrgID),
			VCPU:         int(h.Vcpu), VCPUUsed: int(h.VcpuUsed),
			RAM: units.MiB(h.RamMib), RAMUsed: units.MiB(h.RamMibUsed),
			GPUs: byHost[h.ID],
		})
	}
	return out, nil
}

// takesWork is the state that a planner sees: a host that asked to be left alone, or
// that may not take this request for another reason, is as good as cordoned. A host
// below a floor keeps to the organization that it holds.
func takesWork(state, condition string, barred bool) host.State {
	if host.State(state) == host.Ready && (condition != "" || barred) {
		return host.Cordoned
	}
	return host.State(state)
}

// LockHost locks a host and its GPUs of the model, in this order, and returns what
// the planner sees of it now: nobody can claim, cordon or switch there until the
// transaction ends. Snapshot is empty when the host is gone from the pool.
func (t *SystemTx) LockHost(ctx context.Context, r InstanceRow, s Shape, h id.Host) (placement.Snapshot, error) {
	out := placement.Snapshot{Tenancy: s.Tenancy}
	gpus, err := t.q.LockPlacement(ctx, t.raw, s.Request.Model, uuid.UUID(h))
	if err != nil || len(gpus) == 0 || gpus[0].PoolID != r.Pool {
		return out, mapError(err)
	}
	// What is held is read after the locks: only now does nobody change it.
	held, err := t.q.HostHoldings(ctx, t.raw, s.Request.Model, uuid.UUID(h))
	if err != nil {
		return out, mapError(err)
	}
	row, others := gpus[0], false
	if row.BelowFloor {
		if others, err = t.q.HoldsOthers(ctx, t.raw, uuid.UUID(h), uuid.UUID(s.Request.Org)); err != nil {
			return out, mapError(err)
		}
	}
	locked := placement.Host{
		ID: h, State: takesWork(row.State, row.Condition, others), Liveness: host.Liveness(row.Liveness),
		VCPU: int(row.Vcpu), VCPUUsed: int(row.VcpuUsed), RAM: units.MiB(row.RamMib), RAMUsed: units.MiB(row.RamMibUsed),
	}
	slots := map[uuid.UUID][]db.PlacementSlotsRow{}
	bound := map[uuid.UUID]*uuid.UUID{}
	for _, x := range held {
		locked.Organization = orgOrNone(x.HostOrgID)
		if x.GpuID == nil {
			continue
		}
		bound[*x.GpuID] = x.GpuOrgID
		if x.StartUnit != nil {
			slots[*x.GpuID] = append(slots[*x.GpuID], db.PlacementSlotsRow{
				GpuID: *x.GpuID, GpuMode: *x.GpuMode, ProfileID: *x.ProfileID, Profile: *x.Profile,
				StartUnit: *x.StartUnit, SizeUnits: *x.SizeUnits, Compute: *x.Compute,
			})
		}
	}
	for _, g := range gpus {
		described, err := describeGPU(db.PlacementGPUsRow{
			ID: g.ID, HostID: g.HostID, Uuid: g.Uuid, Pci: g.Pci, Model: g.Model, Name: g.Name, MemoryMib: g.MemoryMib,
			SmCount: g.SmCount, InventoryHash: g.InventoryHash, ModeObserved: g.ModeObserved, ModeState: g.ModeState,
			Health: g.Health, Present: g.Present, Simulated: g.Simulated, BoundOrgID: bound[g.ID],
		}, slots[g.ID])
		if err != nil {
			return out, err
		}
		locked.GPUs = append(locked.GPUs, described)
	}
	out.Hosts = []placement.Host{locked}
	return out, nil
}

// describe joins GPU rows with their inventories and held slots, by host.
func (t *SystemTx) describe(ctx context.Context, rows []db.PlacementGPUsRow) (map[uuid.UUID][]placement.GPU, error) {
	if err := t.learnInventories(ctx, rows); err != nil {
		return nil, err
	}
	ids := make([]uuid.UUID, len(rows))
	for i, g := range rows {
		ids[i] = g.ID
	}
	slots, err := t.q.PlacementSlots(ctx, t.raw, ids)
	if err != nil {
		return nil, mapError(err)
	}
	held := map[uuid.UUID][]db.PlacementSlotsRow{}
	for _, s := range slots {
		held[s.GpuID] = append(held[s.GpuID], s)
	}
	out := map[uuid.UUID][]placement.GPU{}
	for _, row := range rows {
		g, err := describeGPU(row, held[row.ID])
		if err != nil {
			return nil, err
		}
		out[row.HostID] = append(out[row.HostID], g)
	}
	return out, nil
}

// learnInventories reads the profile reports that this process has not seen yet.
func (t *SystemTx) learnInventories(ctx context.Context, rows []db.PlacementGPUsRow) error {
	var missing [][]byte
	asked := map[string]bool{}
	for _, g := range rows {
		if _, ok := inventories.Load(string(g.InventoryHash)); !ok && !asked[string(g.InventoryHash)] {
			asked[string(g.InventoryHash)] = true
			missing = append(missing, g.InventoryHash)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	bodies, err := t.q.GPUInventories(ctx, t.raw, missing)
	if err != nil {
		return mapError(err)
	}
	for _, b := range bodies {
		if _, err := decodeInventory(b.Hash, b.Body); err != nil {
			return err
		}
	}
	return nil
}

func describeGPU(row db.PlacementGPUsRow, slots []db.PlacementSlotsRow) (placement.GPU, error) {
	d, err := decodeInventory(row.InventoryHash, nil)
	if err != nil {
		return placement.GPU{}, err
	}
	d.UUID, d.PCI, d.Model, d.Name = row.Uuid, row.Pci, row.Model, row.Name
	d.Memory, d.SMs, d.Simulated = units.MiB(row.MemoryMib), int(row.SmCount), row.Simulated
	g := placement.GPU{
		ID: id.GPU(row.ID), Device: d, Settled: row.ModeState == "settled",
		Healthy: row.Present && row.Health == "healthy", Organization: orgOrNone(row.BoundOrgID),
	}
	if mode, err := gpu.ParseMode(row.ModeObserved); err == nil {
		g.Mode = mode
	}
	for _, s := range slots {
		mode, err := gpu.ParseMode(s.GpuMode)
		if err != nil {
			return placement.GPU{}, fmt.Errorf("read a held slot of GPU %s: %w", row.Uuid, err)
		}
		g.Held = append(g.Held, slotOf(row.Uuid, mode, s))
	}
	return g, nil
}

func slotOf(gpuUUID string, mode gpu.Mode, s db.PlacementSlotsRow) gpu.Slot {
	out := gpu.Slot{GPU: gpuUUID, Mode: mode, Start: int(s.StartUnit), Size: int(s.SizeUnits)}
	if mode.Kind == gpu.MIG {
		out.Profile, out.Name, out.Compute = int(s.ProfileID), s.Profile, int(s.Compute)
	}
	return out
}

func orgOrNone(org *uuid.UUID) id.Org {
	if org == nil {
		return id.Org{}
	}
	return id.Org(*org)
}
