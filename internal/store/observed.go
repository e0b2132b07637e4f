package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
	"github.com/tranche-cloud/tranche/internal/units"
)

// HostedAssignment is an assignment as the report of its host finds it.
type HostedAssignment struct {
	Org        id.Org
	Instance   id.Instance
	Run        int
	Fence      int64
	State      instance.AssignmentState
	OrderedBiz time.Time
}

// AssignmentOn reads an assignment that is on the given host; found is false for
// an unknown one and for one of another host, whatever a report says.
func (t *SystemTx) AssignmentOn(ctx context.Context, h id.Host, asg id.Assignment) (a HostedAssignment, found bool, err error) {
	r, err := t.q.AssignmentOn(ctx, t.raw, uuid.UUID(asg), uuid.UUID(h))
	if isNoRows(err) {
		return HostedAssignment{}, false, nil
	}
	return HostedAssignment{
		Org: id.Org(r.OrgID), Instance: id.Instance(r.InstanceID), Run: int(r.Run), Fence: r.Fence,
		State: instance.AssignmentState(r.State), OrderedBiz: r.OrderedBiz.UTC(),
	}, err == nil, mapError(err)
}

// ObservedSlice is one reported slice, the row of observed_slices.
type ObservedSlice struct {
	Key        string
	Assignment id.Assignment // zero: not ours
	Fence      int64
	Run        int
	State      string
	RunState   instance.RunState
	Slot       gpu.Slot // the first one
	Device     string
	Memory     units.MiB
	SMs        int
	Reason     instance.Problem
	Progress   string
	Credited   bool
}

// RecordSlice writes a reported slice unless a newer report of it is there; fresh
// says whether it was written. Reports are ordered by (session, sequence).
func (t *SystemTx) RecordSlice(ctx context.Context, s Session, sequence uint64, o ObservedSlice) (fresh bool, err error) {
	_, err = t.q.UpsertObserved(ctx, t.raw, db.UpsertObservedParams{
		HostID: uuid.UUID(s.Host), SliceKey: o.Key, AssignmentID: nullable(o.Assignment), Fence: o.Fence, Run: int32(o.Run),
		State: o.State, RunState: string(o.RunState), GpuUuid: o.Slot.GPU, GpuMode: o.Slot.Mode.String(),
		Profile: o.Slot.Name, StartUnit: int32(o.Slot.Start), SizeUnits: int32(o.Slot.Size), DeviceUuid: o.Device,
		MemoryMib: int64(o.Memory), SmCount: int32(o.SMs), ReasonCode: o.Reason.Code, ReasonDetail: o.Reason.Detail,
		Credited: o.Credited, Progress: o.Progress, Session: s.Number, Sequence: int64(sequence),
	})
	if isNoRows(err) {
		return false, nil
	}
	return err == nil, mapError(err)
}

// ForgetSlice drops the row of an assignment that a host has carried out the
// tombstone of.
func (t *SystemTx) ForgetSlice(ctx context.Context, h id.Host, asg id.Assignment) error {
	u := uuid.UUID(asg)
	return mapError(t.q.ForgetObserved(ctx, t.raw, uuid.UUID(h), &u))
}

// SettleFullReport ends a complete report: rows that it did not name are dropped
// where nothing is held for them, and become unknown otherwise. It returns the
// assignments that became unknown, or are missing in another boot than before.
func (t *SystemTx) SettleFullReport(ctx context.Context, s Session, sequence uint64, applied int64) ([]id.Assignment, error) {
	boot, err := t.q.SessionBoot(ctx, t.raw, uuid.UUID(s.Host), s.Number)
	if err != nil {
		return nil, mapError(err)
	}
	rows, err := t.q.SettleFullReport(ctx, t.raw, db.SettleFullReportParams{
		HostID: uuid.UUID(s.Host), Session: s.Number, Sequence: int64(sequence), BootID: boot,
	})
	if err != nil {
		return nil, mapError(err)
	}
	missing := make([]id.Assignment, 0, len(rows))
	for _, r := range rows {
		missing = append(missing, id.Assignment(*r))
	}
	return missing, mapError(t.q.NoteApplied(ctx, t.raw, db.NoteAppliedParams{
		HostID: uuid.UUID(s.Host), Session: s.Number, AppliedVersion: applied,
	}))
}

// Absent lists the runs that may be taken to be gone: complete reports of the
// host's present boot have not named them for thirty seconds. One call ends at most
// two, or a tenth of what the host holds; held back is how many more there are.
func (t *SystemTx) Absent(ctx context.Context, s Session) (gone []id.Assignment, heldBack int, err error) {
	boot, err := t.q.SessionBoot(ctx, t.raw, uuid.UUID(s.Host), s.Number)
	if err != nil {
		return nil, 0, mapError(err)
	}
	rows, err := t.q.AbsentAssignments(ctx, t.raw, uuid.UUID(s.Host), boot)
	if err != nil {
		return nil, 0, mapError(err)
	}
	for _, r := range rows {
		gone = append(gone, id.Assignment(r))
	}
	all, err := t.q.CountAbsent(ctx, t.raw, uuid.UUID(s.Host))
	return gone, int(all) - len(gone), mapError(err)
}

// MarkAbsent notes that the run of an assignment is not on its host any more.
func (t *SystemTx) MarkAbsent(ctx context.Context, h id.Host, asg id.Assignment, why instance.Problem) error {
	u := uuid.UUID(asg)
	return mapError(t.q.MarkAbsent(ctx, t.raw, db.MarkAbsentParams{
		HostID: uuid.UUID(h), AssignmentID: &u, ReasonCode: why.Code, ReasonDetail: why.Detail,
	}))
}

// LastProof is the business instant until which a run that has not ended is proven;
// found is false for a run that never began or has ended.
func (t *SystemTx) LastProof(ctx context.Context, asg id.Assignment) (at time.Time, found bool, err error) {
	at, err = t.q.LastProof(ctx, t.raw, uuid.UUID(asg))
	if isNoRows(err) {
		return time.Time{}, false, nil
	}
	return at.UTC(), err == nil, mapError(err)
}

// Moments are business instants of a report.
type Moments struct{ Received, Started, Ended time.Time }

// BusinessAgo turns ages into business instants, by the database's clocks alone.
// An age of 0 is now.
func (t *tx) BusinessAgo(ctx context.Context, received, started, ended time.Duration) (Moments, error) {
	r, err := t.q.BusinessAgo(ctx, t.raw, db.BusinessAgoParams{
		ReceivedAgo: received.Seconds(), StartedAgo: started.Seconds(), EndedAgo: ended.Seconds(),
	})
	return Moments{r.Received.UTC(), r.Started.UTC(), r.Ended.UTC()}, mapError(err)
}

// MarkApplied notes that the host carried an assignment out.
func (t *SystemTx) MarkApplied(ctx context.Context, asg id.Assignment) error {
	return mapError(t.q.MarkApplied(ctx, t.raw, uuid.UUID(asg)))
}

// NoteAssignmentReason keeps why the host did not carry an assignment out, or why
// its run ended.
func (t *SystemTx) NoteAssignmentReason(ctx context.Context, asg id.Assignment, p instance.Problem) error {
	return mapError(t.q.NoteAssignmentReason(ctx, t.raw, db.NoteAssignmentReasonParams{
		AssignmentID: uuid.UUID(asg), ReasonCode: p.Code, ReasonDetail: p.Detail,
	}))
}

// RunProof is what was proven of one run: business instants.
type RunProof struct {
	Org        id.Org
	Assignment id.Assignment
	Instance   id.Instance
	Run        int
	Host       id.Host
	StartedAt  time.Time
	LastProof  time.Time
	Devices    []string
}

// ProveRun notes that a run is going on. The first proof fixes its start, which is
// returned; alive is false for a run that was proven to have ended.
func (t *SystemTx) ProveRun(ctx context.Context, p RunProof) (started time.Time, alive bool, err error) {
	if p.Devices == nil {
		p.Devices = []string{}
	}
	r, err := t.q.ProveRun(ctx, t.raw, db.ProveRunParams{
		OrgID: uuid.UUID(p.Org), AssignmentID: uuid.UUID(p.Assignment), InstanceID: uuid.UUID(p.Instance),
		Run: int32(p.Run), HostID: uuid.UUID(p.Host), StartedAt: p.StartedAt, LastProofAt: p.LastProof, DeviceUuids: p.Devices,
	})
	if isNoRows(err) {
		return time.Time{}, false, nil
	}
	return r.StartedAt.UTC(), err == nil, mapError(err)
}

// EndRun notes the end of a run: at a known instant, or, if zero, at its last
// proof. It returns that instant; found is false for a run that never began or
// had ended before.
func (t *SystemTx) EndRun(ctx context.Context, asg id.Assignment, ended time.Time) (at time.Time, found bool, err error) {
	at, err = t.q.EndRun(ctx, t.raw, db.EndRunParams{AssignmentID: uuid.UUID(asg), EndKnown: !ended.IsZero(), EndedAt: ended})
	if isNoRows(err) {
		return time.Time{}, false, nil
	}
	return at.UTC(), err == nil, mapError(err)
}

// ProveHostRuns moves the proof of every running run of a host to a business instant.
func (t *SystemTx) ProveHostRuns(ctx context.Context, h id.Host, at time.Time) error {
	return mapError(t.q.ProveHostRuns(ctx, t.raw, at, uuid.UUID(h)))
}

// HostOrder is what a host shall run: a claimed or applied assignment.
type HostOrder struct {
	Assignment id.Assignment
	Fence      int64
	Instance   id.Instance
	Run        int
	Slots      []gpu.Slot
	Image      string
	Command    []string
	VCPU       int
	RAM        units.MiB
	Org        id.Org
	Name       string
	Env        []EnvVar // secrets without their values
	SSHKeys    []string
	Shm        units.MiB
	Ports      []LeasedPort
	HasSecrets bool // a sealed environment, or a login of the organization
}

// HostOrders lists them, by id.
func (t *SystemTx) HostOrders(ctx context.Context, h id.Host) ([]HostOrder, error) {
	rows, err := t.q.DesiredOrders(ctx, t.raw, uuid.UUID(h))
	if err != nil {
		return nil, mapError(err)
	}
	var ports map[id.Assignment][]LeasedPort
	if slices.ContainsFunc(rows, func(r db.DesiredOrdersRow) bool { return r.Publishes }) {
		if ports, err = t.leasedPorts(ctx, h); err != nil {
			return nil, err
		}
	}
	var out []HostOrder
	for _, r := range rows {
		mode, err := gpu.ParseMode(r.GpuMode)
		if err != nil {
			return nil, fault.From(err)
		}
		if n := len(out); n == 0 || out[n-1].Assignment != id.Assignment(r.AssignmentID) {
			var env []EnvVar
			if err := json.Unmarshal(r.Env, &env); err != nil {
				return nil, fmt.Errorf("read the environment of %s: %w", id.Instance(r.InstanceID), err)
			}
			out = append(out, HostOrder{
				Org: id.Org(r.OrgID), Name: r.Name, Env: env, SSHKeys: r.SshKeys, Shm: units.MiB(r.ShmMib),
				Ports: ports[id.Assignment(r.AssignmentID)], HasSecrets: r.HasSecrets,
				Assignment: id.Assignment(r.AssignmentID), Fence: r.Fence, Instance: id.Instance(r.InstanceID), Run: int(r.Run),
				Image: r.Image, Command: r.Command, VCPU: int(r.Vcpu), RAM: units.MiB(r.RamMib),
			})
		}
		o := &out[len(out)-1]
		o.Slots = append(o.Slots, gpu.Slot{
			GPU: r.GpuUuid, Mode: mode, Profile: int(r.ProfileID), Name: r.Profile,
			Start: int(r.StartUnit), Size: int(r.SizeUnits), Compute: int(r.Compute),
		})
	}
	return out, nil
}

// leasedPorts reads the published ports of a host's assignments.
func (t *SystemTx) leasedPorts(ctx context.Context, h id.Host) (map[id.Assignment][]LeasedPort, error) {
	rows, err := t.q.DesiredPorts(ctx, t.raw, uuid.UUID(h))
	if err != nil {
		return nil, mapError(err)
	}
	out := map[id.Assignment][]LeasedPort{}
	for _, r := range rows {
		out[id.Assignment(r.AssignmentID)] = append(out[id.Assignment(r.AssignmentID)], LeasedPort{
			Port: Port{Port: int(r.ContainerPort), Protocol: r.Protocol}, Host: int(r.Port),
		})
	}
	return out, nil
}

// HostTombstone is a releasing assignment with its fence.
type HostTombstone struct {
	Assignment id.Assignment
	Fence      int64
}

// HostTombstones lists what a host shall have nothing of any more, by id.
func (t *SystemTx) HostTombstones(ctx context.Context, h id.Host) ([]HostTombstone, error) {
	rows, err := t.q.DesiredTombstones(ctx, t.raw, uuid.UUID(h))
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.DesiredTombstonesRow) (HostTombstone, error) {
		return HostTombstone{id.Assignment(r.ID), r.Fence}, nil
	})
}

// DesiredCursor is a place in the feed of changed hosts.
type DesiredCursor struct {
	tx string
	id int64
}

// DesiredStart is the place after everything that is certainly committed.
func (t *SystemTx) DesiredStart(ctx context.Context) (DesiredCursor, error) {
	at, err := t.q.HostDesiredStart(ctx, t.raw)
	return DesiredCursor{tx: at}, mapError(err)
}

// DesiredSince lists the hosts whose desired set changed after a place, with the
// next place; a host may come twice.
func (t *SystemTx) DesiredSince(ctx context.Context, c DesiredCursor) ([]id.Host, DesiredCursor, error) {
	rows, err := t.q.HostDesiredSince(ctx, t.raw, db.HostDesiredSinceParams{AfterTx: c.tx, AfterID: c.id, Size: 1000})
	if err != nil {
		return nil, c, mapError(err)
	}
	var out []id.Host
	for _, r := range rows {
		out = append(out, id.Host(r.HostID))
		c = DesiredCursor{tx: r.Tx, id: r.ID}
	}
	return out, c, nil
}

// PruneDesired drops rows of the feed that no reader can want any more.
func (t *SystemTx) PruneDesired(ctx context.Context) error {
	return mapError(t.q.PruneHostDesired(ctx, t.raw))
}
