package store

import (
	"context"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// reasonEvidence is the open reason of what late evidence added.
const reasonEvidence = "evidence"

// FillUsage takes late evidence: closed intervals of business time in which the run of
// an assignment was on. What of it is not recorded becomes segments, clipped at those
// there are, at the start of the run and at whatever ended it, cut at the ends of
// months; nothing older than metering.OldestEvidence counts, nor what lies ahead. What
// was not billed for want of proof is billed again. Evidence in any order, also given
// twice, leads to the same billed time. A run whose start nobody reported has no usage:
// the report of its start will open it.
func (t *SystemTx) FillUsage(ctx context.Context, asg id.Assignment, evidence []metering.Interval) error {
	r, err := t.q.BoundsOfRun(ctx, t.raw, uuid.UUID(asg))
	if isNoRows(err) {
		return nil
	}
	if err != nil {
		return mapError(err)
	}
	if err := t.LockMeter(ctx, r.InstanceID, metering.GPU); err != nil {
		return err
	}
	// Read again: what ends a run is written under this lock.
	if r, err = t.q.BoundsOfRun(ctx, t.raw, uuid.UUID(asg)); err != nil {
		return mapError(err)
	}
	if !r.Proven {
		return nil
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	proven := metering.FillGaps(within(evidence, r), nil, r.StartsAt, now)
	if len(proven) == 0 {
		return nil
	}
	last, err := t.lastSegment(ctx, id.Org(r.OrgID), id.Instance(r.InstanceID))
	if err != nil {
		return err
	}
	w := usageWriter{
		tx: t, org: id.Org(r.OrgID), instance: id.Instance(r.InstanceID), assignment: asg, run: int(r.Run), seq: last.Seq, reason: reasonEvidence,
	}
	for _, p := range proven {
		if err := w.fill(ctx, p, now); err != nil {
			return err
		}
	}
	return mapError(t.q.AdvanceProof(ctx, t.raw, proven[len(proven)-1].To, uuid.UUID(asg)))
}

// within clips evidence at what ended the run.
func within(evidence []metering.Interval, r db.BoundsOfRunRow) []metering.Interval {
	out := make([]metering.Interval, 0, len(evidence))
	for _, e := range evidence {
		if !e.Open() {
			out = append(out, e.Until(r.EndsAt.UTC()))
		}
	}
	return out
}

// UnbilledReadings tells which of the read assignments were running before and are not
// billed for the interval of the reading.
func (t *SystemTx) UnbilledReadings(ctx context.Context, h id.Host, during metering.Interval, list []SliceReading) ([]id.Assignment, error) {
	p := db.UnbilledReadingsParams{HostID: uuid.UUID(h), FromAt: during.From, ToAt: during.To}
	for _, s := range list {
		if s.Gap == "" {
			p.AssignmentIds = append(p.AssignmentIds, uuid.UUID(s.Assignment))
		}
	}
	if len(p.AssignmentIds) == 0 {
		return nil, nil
	}
	rows, err := t.q.UnbilledReadings(ctx, t.raw, p)
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]id.Assignment, 0, len(rows))
	for _, r := range rows {
		out = append(out, id.Assignment(r))
	}
	return out, nil
}
