package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Discrepancy is time that was billed and not proven. It is not billed while it is open.
type Discrepancy struct {
	Org        id.Org
	ID         id.Discrepancy
	Instance   id.Instance
	Name       string
	Meter      metering.Meter
	Run        int
	Period     string
	During     metering.Interval
	Status     string // open, resolved
	Verdict    string // billed: the meter was right; proven: the proof was
	Reason     string
	ResolvedBy string
	OpenedAt   time.Time
	ResolvedAt *time.Time
}

// OpenDiscrepancy writes one down and takes what it names off the bill, once: the same
// time is not disputed again, whatever was decided. New tells whether it was not there.
func (t *SystemTx) OpenDiscrepancy(ctx context.Context, d Discrepancy) (isNew bool, err error) {
	if err := t.LockMeter(ctx, d.Instance, d.Meter); err != nil {
		return false, err
	}
	n, err := t.q.OpenDiscrepancy(ctx, t.raw, db.OpenDiscrepancyParams{
		OrgID: uuid.UUID(d.Org), DiscrepancyID: uuid.UUID(d.ID), SubjectID: uuid.UUID(d.Instance), SubjectName: d.Name, Meter: string(d.Meter),
		Run: int32(d.Run), BillingPeriod: d.Period, FromAt: d.During.From, ToAt: d.During.To, Evidence: []byte("{}"),
	})
	if err != nil || n == 0 {
		return false, mapError(err)
	}
	ref := uuid.UUID(d.ID)
	_, err = t.q.ExcludeUsage(ctx, t.raw, db.ExcludeUsageParams{
		OrgID: uuid.UUID(d.Org), SubjectID: uuid.UUID(d.Instance), Meter: string(d.Meter), Run: int32(d.Run),
		FromAt: d.During.From, ToAt: d.During.To, Cause: CauseDiscrepancy, Ref: &ref,
	})
	return true, mapError(err)
}

// LockDiscrepancy reads one that is to be resolved. It fails with resource.not_found.
func (t *SystemTx) LockDiscrepancy(ctx context.Context, d id.Discrepancy) (Discrepancy, error) {
	r, err := t.q.DiscrepancyForUpdate(ctx, t.raw, uuid.UUID(d))
	return Discrepancy{
		Org: id.Org(r.OrgID), ID: d, Instance: id.Instance(r.SubjectID), Meter: metering.Meter(r.Meter), Run: int(r.Run),
		During: metering.Between(r.FromAt, r.ToAt), Status: r.Status, Verdict: r.Verdict,
	}, mapError(err)
}

// ResolveDiscrepancy ends an open one; if its verdict is that the meter was right, its
// time is billed again.
func (t *SystemTx) ResolveDiscrepancy(ctx context.Context, d Discrepancy) error {
	if d.Verdict == VerdictBilled {
		if err := t.LockMeter(ctx, d.Instance, d.Meter); err != nil {
			return err
		}
		_, err := t.q.LiftUsage(ctx, t.raw, db.LiftUsageParams{
			OrgID: uuid.UUID(d.Org), SubjectID: uuid.UUID(d.Instance), Meter: string(d.Meter), Run: int32(d.Run),
			FromAt: d.During.From, ToAt: d.During.To, Causes: []string{CauseDiscrepancy},
		})
		if err != nil {
			return mapError(err)
		}
	}
	return mapError(t.q.ResolveDiscrepancy(ctx, t.raw, db.ResolveDiscrepancyParams{
		OrgID: uuid.UUID(d.Org), DiscrepancyID: uuid.UUID(d.ID), Verdict: d.Verdict, Reason: d.Reason, ResolvedBy: d.ResolvedBy,
	}))
}

// The verdicts on a discrepancy: which of the two was right.
const (
	VerdictBilled = "billed"
	VerdictProven = "proven"
)

// SettledDiscrepancies lists the open ones of a window that late evidence has proven.
func (t *SystemTx) SettledDiscrepancies(ctx context.Context, window metering.Interval) ([]Discrepancy, error) {
	rows, err := t.q.SettledDiscrepancies(ctx, t.raw, window.From, window.To)
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]Discrepancy, 0, len(rows))
	for _, r := range rows {
		out = append(out, Discrepancy{Org: id.Org(r.OrgID), ID: id.Discrepancy(r.ID)})
	}
	return out, nil
}

// Discrepancies lists them newest first: of one organization or, for zero, of all; of one
// status or, for "", of both.
func (t *SystemTx) Discrepancies(ctx context.Context, org id.Org, status string, k Keyset) ([]Discrepancy, error) {
	rows, err := t.q.ListDiscrepancies(ctx, t.raw, db.ListDiscrepanciesParams{
		OrgID: nullable(org), Status: status, Before: k.before(), Size: int32(k.Size),
	})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.ListDiscrepanciesRow) (Discrepancy, error) {
		return Discrepancy{
			Org: id.Org(r.OrgID), ID: id.Discrepancy(r.ID), Instance: id.Instance(r.SubjectID), Name: r.SubjectName, Meter: metering.Meter(r.Meter),
			Run: int(r.Run), Period: r.BillingPeriod, During: metering.Between(r.FromAt, r.ToAt), Status: r.Status, Verdict: r.Verdict,
			Reason: r.Reason, ResolvedBy: r.ResolvedBy, OpenedAt: r.OpenedAt.UTC(), ResolvedAt: r.ResolvedAt,
		}, nil
	})
}

// parkedFor is how long after its end a month with an open discrepancy waits for a person.
const parkedFor = 5 * 24 * time.Hour

// Parked reports whether the invoice of a month waits: a discrepancy of it is open, and
// the fifth day of the next month is not over. After that the undisputed part is issued:
// what is disputed is not billable in any case. It fails with request.invalid.
func (t *SystemTx) Parked(ctx context.Context, org id.Org, period string) (bool, error) {
	window, err := metering.ParsePeriod(period)
	if err != nil {
		return false, err
	}
	now, err := t.BusinessNow(ctx)
	if err != nil || !now.Before(window.To.Add(parkedFor)) {
		return false, err
	}
	n, err := t.q.OpenDiscrepanciesOf(ctx, t.raw, uuid.UUID(org), period)
	return n > 0, mapError(err)
}
