package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Lock says whether a read takes the row for the rest of the transaction.
type Lock bool

// The two ways to read a row that others write.
const (
	Unlocked Lock = false
	Locked   Lock = true // FOR NO KEY UPDATE
)

// InstanceRow is what a row of an instance carries beside its view. Status,
// Excluded, NextWakeAt, DeadlineAt, Operation and StartedAt may be changed and are
// written by SaveStatus; the rest says where the instance belongs.
type InstanceRow struct {
	ID       id.Instance
	Org      id.Org
	Project  id.Project
	Name     string
	Cell     string
	Pool     string
	Offer    string
	Recovery string
	Ports    []Port // to publish

	Status     instance.Status // as stored; SaveStatus derives the new one
	Excluded   []id.Host       // hosts that this request has given up on
	NextWakeAt *time.Time      // machine clock; nil when nothing is due
	DeadlineAt *time.Time      // machine clock
	StartedAt  *time.Time      // business clock
	Operation  id.Operation    // of the current request
	Revision   int64

	sku         uuid.UUID
	interrupted bool // an interruption is open
	loaded      []byte
}

// LoadView reads an instance with its assignments and what was reported of them.
// It fails with fault.NotFound when there is none. Locked is what every writer
// takes first (10-domain §3).
func (t *SystemTx) LoadView(ctx context.Context, inst id.Instance, lock Lock) (instance.View, InstanceRow, error) {
	v, r, err := t.loadRow(ctx, inst, lock)
	if err != nil {
		return v, r, err
	}
	return t.loadAssignments(ctx, v, r)
}

// LoadView is LoadView of SystemTx for an instance of this organization; another's
// is not there. It reads as the system, because reports of hosts are no tenant's,
// and because a statement that two roles share is planned anew at each change.
func (t *OrgTx) LoadView(ctx context.Context, inst id.Instance, lock Lock) (v instance.View, r InstanceRow, err error) {
	err = t.Escalate(ctx, "an instance with the reports of its hosts", func(s *SystemTx) error {
		v, r, err = s.loadRow(ctx, inst, lock)
		if err != nil {
			return err
		}
		if r.Org != t.org {
			return NotFound()
		}
		v, r, err = s.loadAssignments(ctx, v, r)
		return err
	})
	return v, r, err
}

func (t *tx) loadRow(ctx context.Context, inst id.Instance, lock Lock) (instance.View, InstanceRow, error) {
	var row db.LockInstanceRow
	var err error
	if lock {
		row, err = t.q.LockInstance(ctx, t.raw, uuid.UUID(inst))
	} else {
		var r db.ReadInstanceRow
		r, err = t.q.ReadInstance(ctx, t.raw, uuid.UUID(inst))
		row = db.LockInstanceRow(r)
	}
	if err != nil {
		return instance.View{}, InstanceRow{}, mapError(err)
	}
	v := instance.View{
		Desired: instance.Desired(row.Desired), Run: int(row.Run),
		Generation: row.Generation, Converged: row.ConvergedGeneration,
		Attempts: int(row.Attempts), EverRan: row.EverRan, Recovering: row.Recovering,
		Recovery: instance.Recovery(row.Recovery),
		Failure:  instance.Problem{Code: row.StatusCode, Detail: row.StatusDetail},
		IntentAt: row.IntentReal.UTC(), QuotaHeld: row.QuotaHeld,
	}
	r := InstanceRow{
		ID: inst, Org: id.Org(row.OrgID), Project: id.Project(row.ProjectID),
		Name: row.Name, Cell: row.CellID, Pool: row.PoolID, Offer: row.OfferID, Recovery: row.Recovery,
		Status: instance.Status(row.Status), NextWakeAt: row.NextWakeAt, DeadlineAt: row.DeadlineAt,
		StartedAt: row.StartedAt, Revision: row.Revision, sku: row.SkuID,
		interrupted: row.Interrupted,
	}
	if err := json.Unmarshal(row.Ports, &r.Ports); err != nil {
		return instance.View{}, InstanceRow{}, fmt.Errorf("read the ports of %s: %w", inst, err)
	}
	for _, h := range row.ExcludedHosts {
		r.Excluded = append(r.Excluded, id.Host(h))
	}
	if row.OperationID != nil {
		r.Operation = id.Operation(*row.OperationID)
	}
	r.loaded = fingerprint(r, v, r.Status)
	return v, r, nil
}

func (t *tx) loadAssignments(ctx context.Context, v instance.View, r InstanceRow) (instance.View, InstanceRow, error) {
	rows, err := t.q.HeldAssignments(ctx, t.raw, uuid.UUID(r.Org), uuid.UUID(r.ID))
	if err != nil {
		return v, r, mapError(err)
	}
	for _, a := range rows {
		v.Assignments = append(v.Assignments, instance.Assignment{
			ID: id.Assignment(a.ID), Run: int(a.Run), Host: id.Host(a.HostID), Fence: a.Fence,
			State: instance.AssignmentState(a.State), OrderedAt: a.OrderedAt.UTC(),
			Seen:        instance.RunState(a.RunState),
			Reason:      instance.Problem{Code: a.ReasonCode, Detail: a.ReasonDetail},
			HostUnknown: host.Liveness(a.Liveness) == host.Unknown,
			Credited:    a.Credited, Progress: a.Progress,
		})
		if a.ProgressAt != nil {
			v.Assignments[len(v.Assignments)-1].ProgressAt = a.ProgressAt.UTC()
		}
	}
	return v, r, nil
}

// fingerprint is everything that SaveStatus would write, to save a write of nothing.
func fingerprint(r InstanceRow, v instance.View, s instance.Status) []byte {
	text, err := json.Marshal([]any{
		v.Desired, v.Run, v.Generation, v.Converged, v.Attempts, v.EverRan, v.Recovering, v.Failure, s,
		r.Excluded, r.NextWakeAt, r.DeadlineAt, r.StartedAt, r.Operation,
	})
	if err != nil {
		return nil
	}
	return text
}

// SaveStatus derives the status of the view and writes it with the view's other
// numbers and the row's changed fields, if anything differs from what LoadView
// returned; a changed status writes its event. A raised v.Generation is a new
// intent, whose instant becomes the business clock's now; next_wake_at must then
// be set by the caller. It fails with fault.Unavailable if the row was not locked
// and somebody else wrote it.
func (t *tx) SaveStatus(ctx context.Context, r *InstanceRow, v instance.View) (instance.Status, error) {
	status := instance.Derive(v)
	v.EverRan = v.EverRan || status == instance.Running
	v.Recovering = v.Recovering && v.Desired == instance.WantRunning
	now := fingerprint(*r, v, status)
	if string(now) == string(r.loaded) {
		return status, nil
	}
	p := db.SaveInstanceParams{
		OrgID: uuid.UUID(r.Org), InstanceID: uuid.UUID(r.ID), Revision: r.Revision,
		Desired: string(v.Desired), Run: int32(v.Run), Generation: v.Generation,
		ConvergedGeneration: v.Converged, Attempts: int32(v.Attempts), Recovering: v.Recovering, ExcludedHosts: []uuid.UUID{},
		NextWakeAt: r.NextWakeAt, DeadlineAt: r.DeadlineAt, StartedAt: r.StartedAt,
		Status: string(status), StatusCode: v.Failure.Code, StatusDetail: v.Failure.Detail, EverRan: v.EverRan,
	}
	for _, h := range r.Excluded {
		p.ExcludedHosts = append(p.ExcludedHosts, uuid.UUID(h))
	}
	if !r.Operation.IsZero() {
		op := uuid.UUID(r.Operation)
		p.OperationID = &op
	}
	n, err := t.q.SaveInstance(ctx, t.raw, p)
	if err != nil {
		return status, mapError(err)
	}
	if n != 1 {
		return status, unavailable(fmt.Errorf("instance %s was written by somebody else", r.ID))
	}
	if r.interrupted && (status == instance.Running || v.Desired != instance.WantRunning) {
		if err := t.closeInterruption(ctx, *r, status); err != nil {
			return status, err
		}
		r.interrupted = false
	}
	before := r.Status
	r.Status, r.Revision, r.loaded = status, r.Revision+1, now
	if before == status || !eventful[status] {
		return status, nil
	}
	return status, t.AppendEvent(ctx, Event{
		Org: r.Org, Project: r.Project, Cell: r.Cell, Type: "instance." + string(status), Subject: r.ID,
		Data: map[string]any{"status": status, "code": v.Failure.Code, "detail": v.Failure.Detail},
	})
}

// closeInterruption ends the time that an instance lost: where the run that came up
// began, or now if nobody wants one any more.
func (t *tx) closeInterruption(ctx context.Context, r InstanceRow, s instance.Status) error {
	p := db.CloseInterruptionParams{OrgID: uuid.UUID(r.Org), InstanceID: uuid.UUID(r.ID)}
	if s == instance.Running {
		p.At = r.StartedAt
	}
	return mapError(t.q.CloseInterruption(ctx, t.raw, p))
}

// eventful lists the statuses whose beginning is an event.
var eventful = map[instance.Status]bool{
	instance.Running: true, instance.Stopped: true, instance.Interrupted: true,
	instance.Failed: true, instance.Deleted: true,
}

// ReleaseAssignment orders the tombstone of a live assignment: releasing, fence
// raised, its host told. It reports false when the assignment was not live. The
// caller holds the instance's lock and has closed the usage segment before.
func (t *tx) ReleaseAssignment(ctx context.Context, asg id.Assignment) (bool, error) {
	row, err := t.q.OrderRelease(ctx, t.raw, uuid.UUID(asg))
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, mapError(err)
	}
	return true, t.AppendHostDesired(ctx, row.CellID, id.Host(row.HostID))
}

// FreeAssignment takes an acknowledged tombstone: the releasing assignment is
// released, its claim with cells, slots and bindings goes, its run is proven until
// the order, and the instance's status follows with a wake-up of its workflow. It
// reports false, changing nothing, when the assignment is not releasing or a newer
// fence was ordered.
func (t *SystemTx) FreeAssignment(ctx context.Context, asg id.Assignment, fence int64) (bool, error) {
	inst, err := t.q.AssignmentInstance(ctx, t.raw, uuid.UUID(asg))
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, mapError(err)
	}
	v, row, err := t.loadRow(ctx, id.Instance(inst), Locked)
	if err != nil {
		return false, err
	}
	freed, err := t.q.MarkReleased(ctx, t.raw, uuid.UUID(asg), fence)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, mapError(err)
	}
	if err := t.dropClaim(ctx, asg, freed.HostID); err != nil {
		return false, err
	}
	if v, row, err = t.loadAssignments(ctx, v, row); err != nil {
		return false, err
	}
	if _, err := t.SaveStatus(ctx, &row, v); err != nil {
		return false, err
	}
	return true, t.AppendOutbox(ctx, OutboxInstance, row.ID.String(), "released")
}

// dropClaim frees capacity under the same locks, in the same order, as a claim
// takes it: a binding must not go while another claim leans on it.
func (t *SystemTx) dropClaim(ctx context.Context, asg id.Assignment, hostID uuid.UUID) error {
	if err := t.q.LockHost(ctx, t.raw, hostID); err != nil {
		return mapError(err)
	}
	gpus, err := t.q.LockClaimHolders(ctx, t.raw, uuid.UUID(asg))
	if err != nil {
		return mapError(err)
	}
	for _, g := range gpus {
		if !g.Cordoned {
			continue
		}
		// A change of its mode waits for it to be empty.
		if err := t.AppendOutbox(ctx, OutboxGPU, id.GPU(g.ID).String(), "released"); err != nil {
			return err
		}
	}
	if err := t.q.DeleteAssignmentClaim(ctx, t.raw, uuid.UUID(asg)); err != nil {
		return mapError(err)
	}
	return mapError(t.q.EndRunProof(ctx, t.raw, uuid.UUID(asg)))
}

// ReleaseQuota ends the instance's part in its organization's quota.
func (t *SystemTx) ReleaseQuota(ctx context.Context, r InstanceRow) error {
	return mapError(t.q.DropQuotaClaim(ctx, t.raw, uuid.UUID(r.Org), uuid.UUID(r.ID)))
}

// Kinds of outbox rows: whose workflow to wake. The key is the typed id's text.
const (
	OutboxInstance = "instance"
	OutboxHost     = "host"
	OutboxGPU      = "gpu"

	OutboxInvoiceRun = "invoice_run"
)

// WakeAgain is how long the sweeper leaves a row alone whose workflow is at work:
// machine time.
const WakeAgain = 30 * time.Second

// AppendOutbox asks for a wake-up of the workflow of one resource, and shortens
// the relay's wait after commit.
func (t *tx) AppendOutbox(ctx context.Context, kind, key, reason string) error {
	t.tell(ChannelOutbox, "")
	return mapError(t.q.AppendOutbox(ctx, t.raw, db.AppendOutboxParams{Kind: kind, Key: key, Reason: reason}))
}

// AppendOutboxLater is AppendOutbox for a wake-up that another one is expected to
// make needless within the delay (machine time): whichever is delivered first
// takes all of its key along.
func (t *tx) AppendOutboxLater(ctx context.Context, kind, key, reason string, delay time.Duration) error {
	return mapError(t.q.AppendOutboxLater(ctx, t.raw, db.AppendOutboxLaterParams{
		Kind: kind, Key: key, Reason: reason, DelaySeconds: delay.Seconds(),
	}))
}

// AppendHostDesired notes that what shall be on the host has changed.
func (t *tx) AppendHostDesired(ctx context.Context, cell string, h id.Host) error {
	t.tell(ChannelHost, h.String())
	return mapError(t.q.AppendHostDesired(ctx, t.raw, cell, uuid.UUID(h)))
}

// Event is one entry of an organization's feed. Project and Cell may be zero; Data
// must carry no secret. Its instant is the business clock's.
type Event struct {
	Org     id.Org
	Project id.Project
	Cell    string
	Type    string // for example instance.running
	Subject interface{ UUID() [16]byte }
	Data    map[string]any
}

// AppendEvent writes an event.
func (t *tx) AppendEvent(ctx context.Context, e Event) error {
	p := db.AppendEventParams{OrgID: uuid.UUID(e.Org), Type: e.Type, SubjectID: e.Subject.UUID(), Data: []byte("{}")}
	if !e.Project.IsZero() {
		project := uuid.UUID(e.Project)
		p.ProjectID = &project
	}
	if e.Cell != "" {
		p.CellID = &e.Cell
	}
	if e.Data != nil {
		data, err := json.Marshal(e.Data)
		if err != nil {
			return fault.From(err)
		}
		p.Data = data
	}
	return mapError(t.q.AppendEvent(ctx, t.raw, p))
}

// StepOperation says what the instance's current operation is at: percent only grows.
func (t *tx) StepOperation(ctx context.Context, r InstanceRow, step string, percent int) error {
	if r.Operation.IsZero() {
		return nil
	}
	return mapError(t.q.StepOperation(ctx, t.raw, db.StepOperationParams{
		OrgID: uuid.UUID(r.Org), OperationID: uuid.UUID(r.Operation), Step: step, Percent: int32(percent),
	}))
}

// OperationProblem is why an operation failed, as the operation's row keeps it.
type OperationProblem struct {
	Code       string `json:"code"`
	Detail     string `json:"detail"`
	Suggestion string `json:"suggestion,omitempty"`
}

// EndOperation ends the instance's current operation, once: succeeded without a
// problem, failed with one. It writes the event.
func (t *tx) EndOperation(ctx context.Context, r InstanceRow, problem *OperationProblem) error {
	if r.Operation.IsZero() {
		return nil
	}
	p := db.EndOperationParams{OrgID: uuid.UUID(r.Org), OperationID: uuid.UUID(r.Operation), Status: "succeeded"}
	if problem != nil {
		text, err := json.Marshal(problem)
		if err != nil {
			return fault.From(err)
		}
		p.Status, p.Problem = "failed", text
	}
	n, err := t.q.EndOperation(ctx, t.raw, p)
	if err != nil || n == 0 {
		return mapError(err)
	}
	return t.AppendEvent(ctx, Event{
		Org: r.Org, Project: r.Project, Cell: r.Cell, Type: "operation." + p.Status, Subject: r.Operation,
		Data: map[string]any{"instance": r.ID.String()},
	})
}
