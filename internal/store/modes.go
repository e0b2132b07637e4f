package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// ModePolicy says what a mode change does about the runs on its GPU.
type ModePolicy string

// The policies: wait until the last one has gone, or stop them at an instant.
const (
	WhenEmpty ModePolicy = "when_empty"
	DrainBy   ModePolicy = "drain_by"
)

// ModeChange is one SetMode of a GPU. Status, CancelAsked, Problem and NextWakeAt
// may be changed and are written by SaveModeChange.
type ModeChange struct {
	ID          id.Operation
	GPU         id.GPU
	UUID        string // of the GPU, as its driver names it
	Host        id.Host
	Cell        string
	From, Mode  gpu.Mode
	Policy      ModePolicy
	DrainBy     *time.Time // machine; of DrainBy
	Status      host.ModeStatus
	Epoch       int64 // of the order; 0 before the switch
	CancelAsked bool
	Problem     instance.Problem
	RequestedBy string
	CreatedAt   time.Time  // machine, as all instants here
	SwitchedAt  *time.Time // when the order was given
	FinishedAt  *time.Time
	NextWakeAt  *time.Time
	Revision    int64

	stored host.ModeStatus
}

// NewModeChange is an accepted SetMode.
type NewModeChange struct {
	ID          id.Operation
	GPU         id.GPU
	Mode        gpu.Mode
	Policy      ModePolicy
	DrainBy     *time.Time
	RequestedBy string
}

// InsertModeChange writes an accepted SetMode, takes the GPU out of placement and
// wakes its workflow (OutboxGPU, the GPU's id). It fails with resource.not_found,
// and with state.conflict when a change of the GPU is under way.
func (t *SystemTx) InsertModeChange(ctx context.Context, n NewModeChange) (ModeChange, error) {
	g, err := t.q.LockGPU(ctx, t.raw, uuid.UUID(n.GPU))
	if err != nil {
		return ModeChange{}, mapError(err)
	}
	row, err := t.q.InsertModeChange(ctx, t.raw, db.InsertModeChangeParams{
		ChangeID: uuid.UUID(n.ID), GpuID: uuid.UUID(n.GPU), CellID: g.CellID, ModeBefore: g.ModeObserved,
		Mode: n.Mode.String(), Policy: string(n.Policy), DrainBy: n.DrainBy, RequestedBy: n.RequestedBy,
	})
	if err != nil {
		return ModeChange{}, mapError(err)
	}
	wanted := n.Mode.String()
	if err := t.cordonGPU(ctx, n.GPU, true, &wanted); err != nil {
		return ModeChange{}, err
	}
	if err := t.AppendOutbox(ctx, OutboxGPU, n.GPU.String(), "set mode"); err != nil {
		return ModeChange{}, err
	}
	return modeChange(row, g.HostID, g.Uuid)
}

func (t *SystemTx) cordonGPU(ctx context.Context, g id.GPU, on bool, mode *string) error {
	return mapError(t.q.CordonGPU(ctx, t.raw, db.CordonGPUParams{GpuID: uuid.UUID(g), Cordoned: on, ModeDesired: mode}))
}

// ModeChange reads one by id. Locked takes the GPU, then the row, for the rest of
// the transaction. It fails with resource.not_found.
func (t *SystemTx) ModeChange(ctx context.Context, change id.Operation, lock Lock) (ModeChange, error) {
	r, err := t.q.ModeChange(ctx, t.raw, uuid.UUID(change))
	if err == nil && bool(lock) {
		if _, err = t.q.LockGPU(ctx, t.raw, r.ModeChange.GpuID); err == nil {
			var locked db.LockModeChangeRow
			locked, err = t.q.LockModeChange(ctx, t.raw, uuid.UUID(change))
			r = db.ModeChangeRow(locked)
		}
	}
	if err != nil {
		return ModeChange{}, mapError(err)
	}
	return modeChange(r.ModeChange, r.HostID, r.Uuid)
}

// OpenModeChange reads the change of a GPU that is under way; found is false
// without one.
func (t *SystemTx) OpenModeChange(ctx context.Context, g id.GPU, lock Lock) (m ModeChange, found bool, err error) {
	change, err := t.q.OpenModeChange(ctx, t.raw, uuid.UUID(g))
	if isNoRows(err) {
		return ModeChange{}, false, nil
	}
	if err != nil {
		return ModeChange{}, false, mapError(err)
	}
	m, err = t.ModeChange(ctx, id.Operation(change), lock)
	return m, err == nil && m.Status.IsOpen(), err
}

// ModeHolder is an assignment that holds slots of a GPU.
type ModeHolder struct {
	Org        id.Org
	Instance   id.Instance
	Assignment id.Assignment
	State      instance.AssignmentState
}

// ModeSight is what decides the next step of a mode change.
type ModeSight struct {
	Observed     gpu.Mode // zero: unreadable
	State        string   // as reported: settled, draining, switching, verifying, failed
	Problem      string   // what the host waits for, or why it failed
	Health       string
	HealthCause  string
	Present      bool
	HostState    host.State
	HostLiveness host.Liveness
	Holders      []ModeHolder
}

// ModeSight reads it. It fails with resource.not_found.
func (t *SystemTx) ModeSight(ctx context.Context, g id.GPU) (ModeSight, error) {
	r, err := t.q.ModeSight(ctx, t.raw, uuid.UUID(g))
	if err != nil {
		return ModeSight{}, mapError(err)
	}
	s := ModeSight{
		State: r.ModeState, Problem: r.ModeProblem, Health: r.Health, HealthCause: r.HealthCause, Present: r.Present,
		HostState: host.State(r.State), HostLiveness: host.Liveness(r.Liveness),
	}
	if mode, err := gpu.ParseMode(r.ModeObserved); err == nil {
		s.Observed = mode
	}
	rows, err := t.q.ModeHolders(ctx, t.raw, uuid.UUID(g))
	if err != nil {
		return ModeSight{}, mapError(err)
	}
	for _, h := range rows {
		s.Holders = append(s.Holders, ModeHolder{
			Org: id.Org(h.OrgID), Instance: id.Instance(h.InstanceID), Assignment: id.Assignment(h.AssignmentID),
			State: instance.AssignmentState(h.State),
		})
	}
	return s, nil
}

// SaveModeChange writes what changed of a locked one. A move to switching gives the
// order to the host, with a new epoch, and fails with state.conflict while anything
// is claimed on the GPU. A final status ends the cordon; a change that did not
// succeed leaves the mode that is there as the wanted one. Every change of the status
// is an operator's event.
func (t *SystemTx) SaveModeChange(ctx context.Context, m *ModeChange) error {
	moved := m.Status != m.stored
	if moved && m.Status == host.ModeSwitching {
		if err := t.giveModeOrder(ctx, m); err != nil {
			return err
		}
	}
	n, err := t.q.SaveModeChange(ctx, t.raw, db.SaveModeChangeParams{
		ChangeID: uuid.UUID(m.ID), Revision: m.Revision, Status: string(m.Status), Epoch: m.Epoch, CancelAsked: m.CancelAsked,
		ProblemCode: m.Problem.Code, ProblemDetail: m.Problem.Detail, NextWakeAt: m.NextWakeAt,
	})
	if err != nil {
		return mapError(err)
	}
	if n != 1 {
		return fault.New(fault.Conflict, "state.conflict", "Somebody else has changed the mode change.")
	}
	m.Revision++
	if !moved {
		return nil
	}
	m.stored = m.Status
	if !m.Status.IsOpen() {
		var mode *string
		if m.Status != host.ModeSucceeded {
			before := m.From.String()
			mode = &before
		}
		if err := t.cordonGPU(ctx, m.GPU, false, mode); err != nil {
			return err
		}
		if err := t.AppendHostDesired(ctx, m.Cell, m.Host); err != nil {
			return err
		}
	}
	return t.AppendEvent(ctx, Event{Cell: m.Cell, Type: "gpu.mode_" + string(m.Status), Subject: m.GPU, Data: map[string]any{
		"operation": m.ID.String(), "mode": m.Mode.String(), "code": m.Problem.Code, "detail": m.Problem.Detail,
	}})
}

func (t *SystemTx) giveModeOrder(ctx context.Context, m *ModeChange) error {
	holders, err := t.q.ModeHolders(ctx, t.raw, uuid.UUID(m.GPU))
	if err != nil {
		return mapError(err)
	}
	if len(holders) > 0 {
		return fault.New(fault.Conflict, "state.conflict", "The GPU is not empty.")
	}
	if m.Epoch, err = t.q.RaiseModeEpoch(ctx, t.raw, uuid.UUID(m.GPU)); err != nil {
		return mapError(err)
	}
	return t.AppendHostDesired(ctx, m.Cell, m.Host)
}

// DueModeChanges lists GPUs whose change asked to be looked at by now.
func (t *SystemTx) DueModeChanges(ctx context.Context, size int) ([]id.GPU, error) {
	rows, err := t.q.DueModeChanges(ctx, t.raw, int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.DueModeChangesRow) (id.GPU, error) { return id.GPU(r.GpuID), nil })
}

// WakeModeChanges wakes the changes that are under way on a host: its inventory may
// have brought what they wait for.
func (t *SystemTx) WakeModeChanges(ctx context.Context, h id.Host, reason string) error {
	rows, err := t.q.OpenModeChangesOn(ctx, t.raw, uuid.UUID(h))
	if err != nil {
		return mapError(err)
	}
	for _, g := range rows {
		if err := t.AppendOutbox(ctx, OutboxGPU, id.GPU(g).String(), reason); err != nil {
			return err
		}
	}
	return nil
}

// ModeOrder is a mode change that is due on its host.
type ModeOrder struct {
	UUID  string
	Mode  gpu.Mode
	Epoch int64
}

// ModeOrders lists those of a host: the GPUs take no new work and hold no claim.
func (t *SystemTx) ModeOrders(ctx context.Context, h id.Host) ([]ModeOrder, error) {
	rows, err := t.q.DesiredModes(ctx, t.raw, uuid.UUID(h))
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.DesiredModesRow) (ModeOrder, error) {
		mode, err := gpu.ParseMode(r.Mode)
		return ModeOrder{UUID: r.Uuid, Mode: mode, Epoch: r.Epoch}, err
	})
}

func modeChange(r db.ModeChange, h uuid.UUID, gpuUUID string) (ModeChange, error) {
	from, err := gpu.ParseMode(r.ModeBefore)
	if err != nil {
		return ModeChange{}, fault.From(err)
	}
	to, err := gpu.ParseMode(r.Mode)
	if err != nil {
		return ModeChange{}, fault.From(err)
	}
	return ModeChange{
		ID: id.Operation(r.ID), GPU: id.GPU(r.GpuID), UUID: gpuUUID, Host: id.Host(h), Cell: r.CellID, From: from, Mode: to,
		Policy: ModePolicy(r.Policy), DrainBy: r.DrainBy, Status: host.ModeStatus(r.Status), Epoch: r.Epoch,
		CancelAsked: r.CancelAsked, Problem: instance.Problem{Code: r.ProblemCode, Detail: r.ProblemDetail},
		RequestedBy: r.RequestedBy, CreatedAt: r.CreatedAt.UTC(), SwitchedAt: r.SwitchedAt, FinishedAt: r.FinishedAt,
		NextWakeAt: r.NextWakeAt, Revision: r.Revision, stored: host.ModeStatus(r.Status),
	}, nil
}
