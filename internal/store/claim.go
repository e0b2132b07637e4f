package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/placement"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

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
	p := db.ClaimParams{
		OrgID: uuid.UUID(r.Org), AssignmentID: uuid.UUID(a.ID), InstanceID: uuid.UUID(r.ID), Run: int32(run),
		HostID: uuid.UUID(d.Host), CellID: r.Cell, ClaimID: uuid.UUID(id.New[id.Claim]()),
		Vcpu: int32(s.Request.VCPU), RamMib: int64(s.Request.RAM),
	}
	if err := fillSlots(&p, d.Slots, on); err != nil {
		return a, err
	}
	if err := t.bind(ctx, &p, s.Tenancy); err != nil {
		return a, err
	}
	row, err := t.q.Claim(ctx, t.raw, p)
	if err != nil {
		return a, mapError(err)
	}
	if int(row.Cells) != len(p.CellUnits) {
		return a, errTaken
	}
	a.OrderedAt = row.OrderedAt.UTC()
	if err := t.leasePorts(ctx, p, s.Ports); err != nil {
		return a, err
	}
	t.tell(ChannelHost, d.Host.String())
	return a, nil
}

// leasePorts gives the claim the lowest free ports of its locked host's range. It
// fails with fault.Conflict when they do not suffice: the next plan leaves the host out.
func (t *SystemTx) leasePorts(ctx context.Context, p db.ClaimParams, ports []Port) error {
	if len(ports) == 0 {
		return nil
	}
	lease := db.LeasePortsParams{HostID: p.HostID, OrgID: p.OrgID, ClaimID: p.ClaimID, AssignmentID: p.AssignmentID}
	for _, x := range ports {
		lease.ContainerPorts = append(lease.ContainerPorts, int32(x.Port))
		lease.Protocols = append(lease.Protocols, x.Protocol)
	}
	got, err := t.q.LeasePorts(ctx, t.raw, lease)
	if err != nil {
		return mapError(err)
	}
	if len(got) < len(ports) {
		return fault.New(fault.Conflict, "state.conflict", "Other claims took the host's ports first.")
	}
	return nil
}

// bind ties the host, and GPUs whose shares are not kept apart, to the
// organization; the claim leans on the bindings by foreign keys.
func (t *SystemTx) bind(ctx context.Context, p *db.ClaimParams, tenancy placement.Tenancy) error {
	if tenancy != placement.SharedHosts {
		if err := t.q.BindHost(ctx, t.raw, p.HostID, p.OrgID); err != nil {
			return mapError(err)
		}
		p.BoundHostID = &p.HostID
	}
	if !p.Bound {
		return nil
	}
	return mapError(t.q.BindGPUs(ctx, t.raw, db.BindGPUsParams{GpuIds: p.GpuIds, Mode: p.GpuMode, OrgID: p.OrgID}))
}

// fillSlots lists the slots and their cells. All slots of a run have one shape.
func fillSlots(p *db.ClaimParams, slots []placement.Slot, on placement.Host) error {
	shape := slots[0].Slot
	p.GpuMode, p.Profile, p.ProfileID = shape.Mode.String(), shape.Name, -1
	p.SizeUnits, p.Compute, p.Bound = int32(shape.Size), int32(shape.Compute), shape.Mode.BindsOrganization()
	if shape.Mode.Kind == gpu.MIG {
		p.ProfileID = int32(shape.Profile)
	}
	for _, s := range slots {
		device, ok := deviceOf(on, s.GPU)
		if !ok {
			return errTaken.Because(errors.New("the GPU is not on the locked host"))
		}
		if s.Slot.Mode != shape.Mode || s.Slot.Profile != shape.Profile || s.Slot.Size != shape.Size {
			return fmt.Errorf("slots %s and %s of one run differ in shape", shape, s.Slot)
		}
		res, err := gpu.ResourcesOf(device, s.Slot)
		if err != nil {
			return fmt.Errorf("size slot %s: %w", s.Slot, err)
		}
		p.GpuIds, p.Starts = append(p.GpuIds, uuid.UUID(s.GPU)), append(p.Starts, int32(s.Slot.Start))
		p.Memories, p.Sms = append(p.Memories, int64(res.Memory)), append(p.Sms, int32(res.SMs))
		for _, u := range s.Slot.Units() {
			p.CellGpuIds, p.CellUnits = append(p.CellGpuIds, uuid.UUID(s.GPU)), append(p.CellUnits, int32(u))
		}
	}
	return nil
}

func deviceOf(h placement.Host, g id.GPU) (gpu.Device, bool) {
	for _, x := range h.GPUs {
		if x.ID == g {
			return x.Device, true
		}
	}
	return gpu.Device{}, false
}
