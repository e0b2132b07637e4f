package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Checkpoint writes down, hour by hour, what is proven of up to size runs after the given
// one, and returns the last of them; zero when there were no more. Runs that ended before
// since are left as they are.
func (t *SystemTx) Checkpoint(ctx context.Context, after id.Assignment, since time.Time, size int) (id.Assignment, error) {
	rows, err := t.q.CheckpointRuns(ctx, t.raw, db.CheckpointRunsParams{After: uuid.UUID(after), Since: since, Size: int32(size)})
	if err != nil || len(rows) == 0 {
		return id.Assignment{}, mapError(err)
	}
	last := slices.MaxFunc(rows, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return id.Assignment(last), nil
}

// PruneMetering deletes up to size checkpoints and hours of GPUs each that are older.
func (t *SystemTx) PruneMetering(ctx context.Context, before time.Time, size int) (int64, error) {
	n, err := t.q.PruneCheckpoints(ctx, t.raw, before, int32(size))
	if err != nil {
		return 0, mapError(err)
	}
	m, err := t.q.PruneGPUHours(ctx, t.raw, before, int32(size))
	return max(n, m), mapError(err)
}

// ObserveGPUs counts the time since the last look for every GPU as what is seen now,
// unless it is longer than the gap (business time).
func (t *SystemTx) ObserveGPUs(ctx context.Context, gap time.Duration) error {
	return mapError(t.q.ObserveGPUs(ctx, t.raw, gap.Seconds()))
}

// BillingOrganizations lists up to size organizations after one, by id.
func (t *SystemTx) BillingOrganizations(ctx context.Context, after id.Org, size int) ([]id.Org, error) {
	rows, err := t.q.BillingOrganizations(ctx, t.raw, uuid.UUID(after), int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]id.Org, 0, len(rows))
	for _, r := range rows {
		out = append(out, id.Org(r))
	}
	return out, nil
}

// RunDay is what is known of one run on a day.
type RunDay struct {
	Run       int
	Expected  metering.Interval // from its start to what ended it, or should have
	StoppedAt time.Time         // accepted stop or delete; the end of the day without one
}

// InstanceDay is what the three sources say of an instance's gpu meter in a window.
type InstanceDay struct {
	Instance id.Instance
	Name     string
	Billed   []metering.Interval // closed at the window's end while open
	RunOf    []int               // of each billed interval
	Retained []metering.Interval
	Proven   []metering.Interval
	Runs     []RunDay
	Excluded map[string][]metering.Interval // by cause
}

// DayOf reads the sources of reconciliation of an organization for a window inside one
// month, by instance.
func (t *SystemTx) DayOf(ctx context.Context, org id.Org, window metering.Interval) ([]InstanceDay, error) {
	days := map[uuid.UUID]*InstanceDay{}
	of := func(u uuid.UUID) *InstanceDay {
		if days[u] == nil {
			days[u] = &InstanceDay{Instance: id.Instance(u), Excluded: map[string][]metering.Interval{}}
		}
		return days[u]
	}
	if err := t.billedOfDay(ctx, org, window, of); err != nil {
		return nil, err
	}
	if err := t.provenOfDay(ctx, org, window, of); err != nil {
		return nil, err
	}
	out := make([]InstanceDay, 0, len(days))
	for _, d := range days {
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b InstanceDay) int { return slices.Compare(a.Instance[:], b.Instance[:]) })
	return out, nil
}

func (t *SystemTx) billedOfDay(ctx context.Context, org id.Org, window metering.Interval, of func(uuid.UUID) *InstanceDay) error {
	billed, err := t.q.BilledOfDay(ctx, t.raw, db.BilledOfDayParams{
		OrgID: uuid.UUID(org), Period: metering.PeriodOf(window.From), FromAt: window.From, ToAt: window.To,
	})
	if err != nil {
		return mapError(err)
	}
	for _, r := range billed {
		d, part := of(r.SubjectID), metering.Between(r.FromAt, r.ToAt).Intersect(window)
		if r.Meter == string(metering.GPURetained) {
			d.Retained = append(d.Retained, part)
			continue
		}
		d.Name, d.Billed, d.RunOf = r.SubjectName, append(d.Billed, part), append(d.RunOf, int(r.Run))
	}
	excluded, err := t.q.ExcludedOfDay(ctx, t.raw, db.ExcludedOfDayParams{OrgID: uuid.UUID(org), FromAt: window.From, ToAt: window.To})
	for _, r := range excluded {
		d := of(r.SubjectID)
		d.Excluded[r.Cause] = append(d.Excluded[r.Cause], metering.Between(r.FromAt, r.ToAt).Intersect(window))
	}
	return mapError(err)
}

func (t *SystemTx) provenOfDay(ctx context.Context, org id.Org, window metering.Interval, of func(uuid.UUID) *InstanceDay) error {
	proven, err := t.q.ProvenOfDay(ctx, t.raw, db.ProvenOfDayParams{OrgID: uuid.UUID(org), FromAt: window.From, ToAt: window.To})
	if err != nil {
		return mapError(err)
	}
	for _, r := range proven {
		d := of(r.InstanceID)
		d.Proven = append(d.Proven, metering.Between(r.FromAt, r.ToAt).Intersect(window))
	}
	readings, err := t.q.ReadingsOfDay(ctx, t.raw, db.ReadingsOfDayParams{OrgID: uuid.UUID(org), FromAt: window.From, ToAt: window.To})
	if err != nil {
		return mapError(err)
	}
	for _, r := range readings {
		d := of(r.InstanceID)
		d.Proven = append(d.Proven, metering.Between(r.FromAt, r.ToAt).Intersect(window))
	}
	runs, err := t.q.RunsOfDay(ctx, t.raw, db.RunsOfDayParams{OrgID: uuid.UUID(org), FromAt: window.From, ToAt: window.To})
	for _, r := range runs {
		d := of(r.InstanceID)
		d.Runs = append(d.Runs, RunDay{
			Run: int(r.Run), Expected: metering.Between(r.StartedAt, r.EndsAt).Intersect(window), StoppedAt: r.StoppedAt.UTC(),
		})
	}
	return mapError(err)
}

// ReconciledInstance is the result of one instance and day, in microseconds.
type ReconciledInstance struct {
	Org      id.Org
	Instance id.Instance
	Billed, Proven,
	Over, Under, Leakage int64
	Reasons map[string]int64 // of Under
}

// SaveReconciliations writes the results of a day, in the place of older ones.
func (t *SystemTx) SaveReconciliations(ctx context.Context, org id.Org, day time.Time, list []ReconciledInstance) error {
	p := db.SaveReconciliationsParams{OrgID: uuid.UUID(org), Day: day}
	for _, r := range list {
		reasons, err := json.Marshal(r.Reasons)
		if err != nil {
			return fmt.Errorf("encoding the reasons: %w", err)
		}
		p.SubjectIds = append(p.SubjectIds, uuid.UUID(r.Instance))
		p.Billed, p.Proven = append(p.Billed, r.Billed), append(p.Proven, r.Proven)
		p.Over, p.Under, p.Leakage = append(p.Over, r.Over), append(p.Under, r.Under), append(p.Leakage, r.Leakage)
		p.Reasons = append(p.Reasons, string(reasons))
	}
	return mapError(t.q.SaveReconciliations(ctx, t.raw, p))
}

// ReconciledDay reads the results of a day, of one organization or, for zero, of all.
func (t *SystemTx) ReconciledDay(ctx context.Context, org id.Org, day time.Time) ([]ReconciledInstance, error) {
	rows, err := t.q.ReconciledDay(ctx, t.raw, day, nullable(org))
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.ReconciledDayRow) (ReconciledInstance, error) {
		out := ReconciledInstance{
			Org: id.Org(r.OrgID), Instance: id.Instance(r.SubjectID), Billed: r.BilledUs, Proven: r.ProvenUs, Over: r.OverUs, Under: r.UnderUs,
			Leakage: r.LeakageUs,
		}
		return out, json.Unmarshal(r.Reasons, &out.Reasons)
	})
}

// LastReconciledDay is the newest day with a result; long ago without any.
func (t *SystemTx) LastReconciledDay(ctx context.Context) (time.Time, error) {
	at, err := t.q.LastReconciledDay(ctx, t.raw)
	return at.UTC(), mapError(err)
}
