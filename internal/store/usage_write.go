package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// CauseDiscrepancy is the cause of an exclusion while a discrepancy is open, and after
// it was resolved for the smaller value.
const CauseDiscrepancy = "discrepancy"

// OpenSegment says which run begins to be billed on the gpu meter, and from when.
type OpenSegment struct {
	Org        id.Org
	Instance   id.Instance
	Assignment id.Assignment
	Run        int
	At         time.Time // business time, from metering.StartInstant
	Restarted  bool      // the process started after the last proof of the run: nothing fills the gap
	Reason     string    // the metering.Event, process_started
	Evidence   string    // JSON object, "" for none
}

// OpenSegment opens a segment unless one is open; false means one was. The caller
// holds the instance row's lock. Everything that prices the usage is copied from
// the instance in the same statement.
//
// A run that was billed before continues its start. If its last segment was closed by
// silence of the same assignment, the time since then is proven and billed too, unless
// it is older than metering.OldestEvidence. What is recorded already is left as it is:
// time before it and between it becomes closed segments. Parts of a closed period carry
// the number of its close. It fails with resource.not_found for an unknown instance.
func (t *SystemTx) OpenSegment(ctx context.Context, in OpenSegment) (bool, error) {
	if err := t.LockMeter(ctx, uuid.UUID(in.Instance), metering.GPU); err != nil {
		return false, err
	}
	last, err := t.lastSegment(ctx, in.Org, in.Instance)
	if err != nil || last.IsOpen {
		return false, err
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return false, err
	}
	at := metering.Instant(in.At)
	goesOn := last.Seq > 0 && int(last.Run) == in.Run && unproven[last.CloseReason] && !in.Restarted &&
		orZero[id.Assignment](last.AssignmentID) == in.Assignment
	if last.Seq > 0 && int(last.Run) != in.Run {
		at = latest(at, last.ToAt) // a new run begins after the old one
	}
	w := usageWriter{
		tx: t, org: in.Org, instance: in.Instance, assignment: in.Assignment, run: in.Run, seq: last.Seq, reason: in.Reason, evidence: in.Evidence,
	}
	if goesOn {
		if at, err = w.goOn(ctx, now.Add(-metering.OldestEvidence), now); err != nil {
			return false, err
		}
	}
	if err := w.fill(ctx, metering.Interval{From: at}, latest(at, now)); err != nil {
		return false, err
	}
	return true, nil
}

// unproven are the close reasons after which the same process, seen again, was on all
// the time.
var unproven = map[string]bool{string(metering.Silence): true, closeFilled: true}

// goOn bills again what was excluded of a run that is proven to have gone on, and
// returns since when it is not recorded.
func (w *usageWriter) goOn(ctx context.Context, oldest, now time.Time) (time.Time, error) {
	since, err := w.tx.q.SilentSince(ctx, w.tx.raw, db.SilentSinceParams{
		OrgID: uuid.UUID(w.org), SubjectID: uuid.UUID(w.instance), Meter: string(metering.GPU), AssignmentID: nullable(w.assignment),
	})
	if err != nil {
		return time.Time{}, mapError(err)
	}
	return latest(since, oldest), w.lift(ctx, metering.Interval{From: oldest, To: now}, string(metering.Silence))
}

func (t *SystemTx) lastSegment(ctx context.Context, org id.Org, inst id.Instance) (db.LastSegmentRow, error) {
	last, err := t.q.LastSegment(ctx, t.raw, db.LastSegmentParams{OrgID: uuid.UUID(org), SubjectID: uuid.UUID(inst), Meter: string(metering.GPU)})
	if errors.Is(err, pgx.ErrNoRows) {
		return db.LastSegmentRow{}, nil
	}
	return last, mapError(err)
}

// usageWriter writes segments of one run of an instance, under the lock of its meter.
type usageWriter struct {
	tx         *SystemTx
	org        id.Org
	instance   id.Instance
	assignment id.Assignment
	run        int
	seq        int64 // of the last segment
	reason     string
	evidence   string
}

// fill records what of an interval is not recorded, cut at the ends of months, and
// bills again what was excluded of it for want of proof.
func (w *usageWriter) fill(ctx context.Context, proven metering.Interval, now time.Time) error {
	rows, err := w.tx.q.BilledFrom(ctx, w.tx.raw, db.BilledFromParams{
		OrgID: uuid.UUID(w.org), SubjectID: uuid.UUID(w.instance), Meter: string(metering.GPU), FromAt: proven.From,
	})
	if err != nil {
		return mapError(err)
	}
	var recorded []metering.Interval
	for _, r := range rows {
		i := metering.Between(r.FromAt, r.ToAt)
		if r.IsOpen {
			i.To = time.Time{}
		}
		recorded = append(recorded, i)
	}
	if len(recorded) > 0 {
		if err := w.lift(ctx, proven.Until(now), string(metering.Silence), CauseDiscrepancy); err != nil {
			return err
		}
	}
	gaps := metering.Without(proven, recorded)
	if len(gaps) == 0 {
		return nil
	}
	start, err := w.start(ctx)
	if err != nil {
		return err
	}
	floor, err := w.tx.q.ReadClosedUntil(ctx, w.tx.raw, uuid.UUID(w.org))
	if err != nil {
		return mapError(err)
	}
	for _, gap := range gaps {
		for _, part := range metering.Months(gap, now) {
			if err := w.insert(ctx, start, part, floor); err != nil {
				return err
			}
		}
	}
	return nil
}

// lift bills again what was excluded of the run for one of the causes.
func (w *usageWriter) lift(ctx context.Context, proven metering.Interval, causes ...string) error {
	if proven.Empty() {
		return nil
	}
	_, err := w.tx.q.LiftUsage(ctx, w.tx.raw, db.LiftUsageParams{
		OrgID: uuid.UUID(w.org), SubjectID: uuid.UUID(w.instance), Meter: string(metering.GPU), Run: int32(w.run),
		FromAt: proven.From, ToAt: proven.To, Causes: causes,
	})
	return mapError(err)
}

// start is the start that segments of the run share.
func (w *usageWriter) start(ctx context.Context) (uuid.UUID, error) {
	start, err := w.tx.q.StartOfRun(ctx, w.tx.raw, db.StartOfRunParams{
		OrgID: uuid.UUID(w.org), SubjectID: uuid.UUID(w.instance), Meter: string(metering.GPU), Run: int32(w.run),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.StartID(metering.Subject{Kind: "instance", ID: w.instance}, w.run), nil
	}
	return start, mapError(err)
}

func (w *usageWriter) insert(ctx context.Context, start uuid.UUID, during metering.Interval, floor db.ReadClosedUntilRow) error {
	w.seq++
	p := db.InsertInstanceSegmentParams{
		SegmentID: uuid.UUID(id.New[id.Segment]()), Meter: string(metering.GPU), StartID: start, Seq: w.seq, Run: int32(w.run),
		AssignmentID: nullable(w.assignment), OpenReason: w.reason, Evidence: []byte("{}"),
		BillingPeriod: metering.PeriodOf(during.From), At: during.From, OrgID: uuid.UUID(w.org), InstanceID: uuid.UUID(w.instance),
	}
	if w.evidence != "" {
		p.Evidence = []byte(w.evidence)
	}
	if !during.Open() {
		p.ToAt, p.CloseReason = &during.To, closeFilled
	}
	if during.From.Before(floor.ClosedUntil) {
		p.CloseNo = floor.CloseNo
	}
	n, err := w.tx.q.InsertInstanceSegment(ctx, w.tx.raw, p)
	if err == nil && n == 0 {
		return NotFound()
	}
	return mapError(err)
}

// closeFilled is the close reason of a segment that was recorded with its end.
const closeFilled = "evidence"

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare).UTC() }

// LockMeter makes the transaction the only writer of a subject's meter until it ends.
func (t *tx) LockMeter(ctx context.Context, subject [16]byte, meter metering.Meter) error {
	return mapError(t.q.LockMeter(ctx, t.raw, subject, string(meter)))
}

// CloseOpenSegment ends the open segment of one meter at a business instant, one
// microsecond after its start at the earliest; false means none was open, which is
// no error. What is recorded of the same run past the instant is excluded. reason is
// the metering.Event, party who caused it (tenant, operator).
func (t *tx) CloseOpenSegment(ctx context.Context, org id.Org, inst id.Instance, meter metering.Meter, at time.Time, reason, party string) (bool, error) {
	closed, err := t.q.CloseMeter(ctx, t.raw, db.CloseMeterParams{
		OrgID: uuid.UUID(org), SubjectID: uuid.UUID(inst), Meter: string(meter), At: metering.Instant(at), CloseReason: reason, FaultParty: party,
	})
	return closed, mapError(err)
}

// CloseByEvent ends what an event ends, by the table of internal/metering.
func (t *tx) CloseByEvent(ctx context.Context, org id.Org, inst id.Instance, event metering.Event, facts metering.Facts) (bool, error) {
	changes, known := metering.Changes(event, facts)
	if !known {
		return false, fault.New(fault.Internal, "internal", fmt.Sprintf("The metering event %q is unknown.", event))
	}
	closed := false
	for _, c := range changes {
		if !c.Close || c.Open {
			continue
		}
		did, err := t.CloseOpenSegment(ctx, org, inst, c.Meter, c.At, string(event), c.Party)
		if err != nil {
			return false, err
		}
		closed = closed || did
		if c.Waive {
			if err := t.waive(ctx, org, inst, c, facts.Started); err != nil {
				return false, err
			}
		}
	}
	return closed, nil
}

// waive makes a start that was closed free.
func (t *tx) waive(ctx context.Context, org id.Org, inst id.Instance, c metering.Change, started time.Time) error {
	_, err := t.q.ExcludeUsage(ctx, t.raw, db.ExcludeUsageParams{
		OrgID: uuid.UUID(org), SubjectID: uuid.UUID(inst), Meter: string(c.Meter),
		FromAt: started, ToAt: latest(c.At, started).Add(time.Microsecond), Cause: "free",
	})
	return mapError(err)
}
