package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/placement"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
	"github.com/tranche-cloud/tranche/internal/units"
)

// Shape is what an instance's SKU asks of its pool. Seed, Excluded and Org of the
// request are filled from the row.
type Shape struct {
	Request placement.Request
	Tenancy placement.Tenancy
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
		Tenancy: placement.Tenancy(row.Tenancy),
		Request: placement.Request{
			Org: r.Org, Model: row.GpuModel, Want: want, Count: int(row.GpuCount),
			VCPU: int(row.Vcpu), RAM: units.MiB(row.RamMib), Excluded: r.Excluded, Seed: seed + uint64(attempt),
		},
	}, nil
}

// Snapshot reads what a planner may choose from: the hosts of the instance's pool
// with their present GPUs of the model.
func (t *SystemTx) Snapshot(ctx context.Context, r InstanceRow, s Shape) (placement.Snapshot, error) {
	return t.snapshot(ctx, r, s, nil)
}

// LockHost locks a host and its GPUs, in this order, and returns what the planner
// sees of it now: nobody can claim, cordon or switch there until the transaction
// ends. Snapshot is empty when the host is gone from the pool.
func (t *SystemTx) LockHost(ctx context.Context, r InstanceRow, s Shape, h id.Host) (placement.Snapshot, error) {
	hostID := uuid.UUID(h)
	if err := t.q.LockHost(ctx, t.raw, hostID); err != nil {
		return placement.Snapshot{}, mapError(err)
	}
	if err := t.q.LockHostGPUs(ctx, t.raw, hostID); err != nil {
		return placement.Snapshot{}, mapError(err)
	}
	return t.snapshot(ctx, r, s, &hostID)
}

func (t *SystemTx) snapshot(ctx context.Context, r InstanceRow, s Shape, only *uuid.UUID) (placement.Snapshot, error) {
	out := placement.Snapshot{Tenancy: s.Tenancy}
	hosts, err := t.q.PlacementHosts(ctx, t.raw, db.PlacementHostsParams{CellID: r.Cell, PoolID: r.Pool, HostID: only})
	if err != nil {
		return out, mapError(err)
	}
	gpus, err := t.q.PlacementGPUs(ctx, t.raw, db.PlacementGPUsParams{
		CellID: r.Cell, PoolID: r.Pool, HostID: only, Model: textOrNull(s.Request.Model),
	})
	if err != nil {
		return out, mapError(err)
	}
	byHost, err := t.describe(ctx, gpus)
	if err != nil {
		return out, err
	}
	for _, h := range hosts {
		out.Hosts = append(out.Hosts, placement.Host{
			ID: id.Host(h.ID), State: host.State(h.State), Liveness: host.Liveness(h.Liveness),
			Organization: orgOrNone(h.BoundOrgID),
			VCPU:         int(h.Vcpu), VCPUUsed: int(h.VcpuUsed),
			RAM: units.MiB(h.RamMib), RAMUsed: units.MiB(h.RamMibUsed),
			GPUs: byHost[h.ID],
		})
	}
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

// errTaken is what a claim fails with when a unit was not free after all.
var errTaken = fault.New(fault.Conflict, "state.conflict", "Another claim took the slot first.")

// Claim holds a decision for one run: assignment, bindings, claim, cells and slots,
// and tells the host. on is the locked host as LockHost returned it. It fails with
// fault.Conflict when a unit or binding was taken; the transaction is then over.
func (t *SystemTx) Claim(ctx context.Context, r InstanceRow, run int, s Shape, d placement.Decision, on placement.Host,
) (instance.Assignment, error) {
	a := instance.Assignment{
		ID: id.New[id.Assignment](), Run: run, Host: d.Host, Fence: 1, State: instance.Claimed, Seen: instance.RunNone,
	}
	orderedAt, err := t.q.InsertAssignment(ctx, t.raw, db.InsertAssignmentParams{
		OrgID: uuid.UUID(r.Org), AssignmentID: uuid.UUID(a.ID), InstanceID: uuid.UUID(r.ID),
		Run: int32(run), HostID: uuid.UUID(d.Host), CellID: r.Cell,
	})
	if err != nil {
		return a, mapError(err)
	}
	a.OrderedAt = orderedAt.UTC()
	p := db.InsertClaimParams{
		OrgID: uuid.UUID(r.Org), ClaimID: uuid.UUID(id.New[id.Claim]()), AssignmentID: uuid.UUID(a.ID),
		CellID: r.Cell, HostID: uuid.UUID(d.Host), Vcpu: int32(s.Request.VCPU), RamMib: int64(s.Request.RAM),
	}
	if s.Tenancy != placement.SharedHosts {
		if err := t.q.BindHost(ctx, t.raw, p.HostID, p.OrgID); err != nil {
			return a, mapError(err)
		}
		p.BoundHostID = &p.HostID
	}
	if err := t.q.InsertClaim(ctx, t.raw, p); err != nil {
		return a, mapError(err)
	}
	for i, slot := range d.Slots {
		if err := t.claimSlot(ctx, p, i, slot, on); err != nil {
			return a, err
		}
	}
	return a, t.AppendHostDesired(ctx, r.Cell, d.Host)
}

func (t *SystemTx) claimSlot(ctx context.Context, p db.InsertClaimParams, ordinal int, s placement.Slot, on placement.Host) error {
	device, ok := deviceOf(on, s.GPU)
	if !ok {
		return errTaken.Because(errors.New("the GPU is not on the locked host"))
	}
	res, err := gpu.ResourcesOf(device, s.Slot)
	if err != nil {
		return fmt.Errorf("size slot %s: %w", s.Slot, err)
	}
	gpuID := uuid.UUID(s.GPU)
	var cells []int32
	for _, u := range s.Slot.Units() {
		cells = append(cells, int32(u))
	}
	n, err := t.q.InsertCells(ctx, t.raw, db.InsertCellsParams{
		GpuID: gpuID, CellUnits: cells, OrgID: p.OrgID, ClaimID: p.ClaimID,
	})
	if err != nil {
		return mapError(err)
	}
	if int(n) != len(cells) {
		return errTaken
	}
	row := db.InsertClaimSlotParams{
		OrgID: p.OrgID, ClaimID: p.ClaimID, GpuID: gpuID, Ordinal: int32(ordinal),
		GpuMode: s.Slot.Mode.String(), ProfileID: -1, Profile: s.Slot.Name,
		StartUnit: int32(s.Slot.Start), SizeUnits: int32(s.Slot.Size), Compute: int32(s.Slot.Compute),
		MemoryMib: int64(res.Memory), SmCount: int32(res.SMs),
	}
	if s.Slot.Mode.Kind == gpu.MIG {
		row.ProfileID = int32(s.Slot.Profile)
	}
	if s.Slot.Mode.BindsOrganization() {
		if err := t.q.BindGPU(ctx, t.raw, db.BindGPUParams{GpuID: gpuID, Mode: row.GpuMode, OrgID: p.OrgID}); err != nil {
			return mapError(err)
		}
		row.BoundGpuID = &gpuID
	}
	return mapError(t.q.InsertClaimSlot(ctx, t.raw, row))
}

func deviceOf(h placement.Host, g id.GPU) (gpu.Device, bool) {
	for _, x := range h.GPUs {
		if x.ID == g {
			return x.Device, true
		}
	}
	return gpu.Device{}, false
}
