package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

const (
	// reconcileBatch is how many organizations are listed, and how many results or
	// checkpoints are written, at a time.
	reconcileBatch = 500
	// reconcileLag is how long after a day its proofs may still be under way, business time.
	reconcileLag = time.Hour
	// evidenceKept is how long checkpoints stay: longer than evidence may be late, and two
	// invoices.
	evidenceKept = 2 * metering.OldestEvidence
	// observationGap is the longest time between two looks at the GPUs that counts as seen,
	// machine time.
	observationGap = 10 * time.Minute
)

// Reconciliation is what a day came to, over all instances that were billed or proven.
type Reconciliation struct {
	Day                                  time.Time
	Instances                            int
	Billed, Proven, Over, Under, Leakage int64            // microseconds
	Reasons                              map[string]int64 // of Under
	Opened                               int              // discrepancies that this run opened
}

// Checkpoint writes down what is proven of every run, hour by hour, and what GPUs could
// have been sold. Running it twice, or after hours without it, comes to the same proofs.
func (a *App) Checkpoint(ctx context.Context) error {
	var now time.Time
	var scale int
	err := a.Store.InSystem(ctx, "observe GPUs", func(t *store.SystemTx) (err error) {
		if now, err = t.BusinessNow(ctx); err != nil {
			return err
		}
		if scale, err = t.BusinessScale(ctx); err != nil {
			return err
		}
		return t.ObserveGPUs(ctx, observationGap*time.Duration(scale))
	})
	if err != nil {
		return err
	}
	after, since := id.Assignment{}, now.Add(-metering.OldestEvidence)
	for {
		err := a.Store.InSystem(ctx, "write checkpoints", func(t *store.SystemTx) (err error) {
			after, err = t.Checkpoint(ctx, after, since, reconcileBatch)
			return err
		})
		if err != nil || after.IsZero() {
			return err
		}
	}
}

// pruneMetering deletes evidence that nothing can need any more.
func (a *App) pruneMetering(ctx context.Context) error {
	for {
		var n int64
		err := a.Store.InSystem(ctx, "prune checkpoints", func(t *store.SystemTx) error {
			now, err := t.BusinessNow(ctx)
			if err != nil {
				return err
			}
			n, err = t.PruneMetering(ctx, now.Add(-evidenceKept), pruneBatch)
			return err
		})
		if err != nil || n < pruneBatch {
			return err
		}
	}
}

// ReconcileDue reconciles every day that is over and has no result, up to thirty of them,
// and again those whose usage may still change: the last two.
func (a *App) ReconcileDue(ctx context.Context) error {
	var now, last time.Time
	err := a.Store.InSystem(ctx, "look for days to reconcile", func(t *store.SystemTx) (err error) {
		if now, err = t.BusinessNow(ctx); err != nil {
			return err
		}
		last, err = t.LastReconciledDay(ctx)
		return err
	})
	if err != nil {
		return err
	}
	newest := now.Add(-reconcileLag).Truncate(24 * time.Hour).Add(-24 * time.Hour)
	day := last.Add(-24 * time.Hour)
	if oldest := newest.AddDate(0, 0, -30); day.Before(oldest) {
		day = oldest
	}
	for ; !day.After(newest); day = day.Add(24 * time.Hour) {
		if _, err := a.Reconcile(ctx, day); err != nil {
			return err
		}
	}
	return nil
}

// Reconcile compares, for a day (UTC) that is over, what was billed with what agents
// proved and what the log of operations says. Time that is billed beyond its proof is
// taken off the bill and opens a discrepancy, once. It is idempotent, and fails with
// state.conflict for a day that is not over.
func (a *App) Reconcile(ctx context.Context, day time.Time) (Reconciliation, error) {
	from := day.UTC().Truncate(24 * time.Hour)
	out := Reconciliation{Day: from, Reasons: map[string]int64{}}
	window := metering.Between(from, from.Add(24*time.Hour))
	tolerance, err := a.proofPeriod(ctx, window)
	if err != nil {
		return out, err
	}
	if err := a.Checkpoint(ctx); err != nil {
		return out, err
	}
	if err := a.settleDiscrepancies(ctx, window); err != nil {
		return out, err
	}
	var after id.Org
	for {
		var orgs []id.Org
		err := a.Store.InSystem(ctx, "list organizations", func(t *store.SystemTx) (err error) {
			orgs, err = t.BillingOrganizations(ctx, after, reconcileBatch)
			return err
		})
		if err != nil || len(orgs) == 0 {
			return out, err
		}
		for _, org := range orgs {
			if err := a.reconcileOrg(ctx, org, window, tolerance, &out); err != nil {
				return out, err
			}
		}
		after = orgs[len(orgs)-1]
	}
}

// proofPeriod is by how much billed time may lie outside of its proof, business time; it
// refuses a window that is not over.
func (a *App) proofPeriod(ctx context.Context, window metering.Interval) (tolerance time.Duration, err error) {
	err = a.Store.InSystem(ctx, "read the clock", func(t *store.SystemTx) error {
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		if now.Before(window.To) {
			return fault.New(fault.Conflict, "state.conflict", "The day is not over.").Suggest("Reconcile it after its end.")
		}
		scale, err := t.BusinessScale(ctx)
		tolerance = AuditTolerance * time.Duration(scale)
		return err
	})
	return tolerance, err
}

func (a *App) reconcileOrg(ctx context.Context, org id.Org, window metering.Interval, tolerance time.Duration, sum *Reconciliation) error {
	var days []store.InstanceDay
	err := a.Store.InSystem(ctx, "read a day", func(t *store.SystemTx) (err error) {
		days, err = t.DayOf(ctx, org, window)
		return err
	})
	if err != nil {
		return err
	}
	var batch []store.ReconciledInstance
	for i, d := range days {
		r := metering.Reconcile(sourcesOf(d, window), tolerance)
		opened, err := a.dispute(ctx, org, d, r.Over)
		if err != nil {
			return err
		}
		x := store.ReconciledInstance{
			Org: org, Instance: d.Instance, Billed: r.Billed, Proven: r.Proven, Over: metering.Total(r.Over), Under: r.Under,
			Leakage: r.Leakage, Reasons: r.UnderBy,
		}
		sum.add(x, opened)
		if batch = append(batch, x); len(batch) < reconcileBatch && i+1 < len(days) {
			continue
		}
		if err := a.Store.InSystem(ctx, "save a reconciliation", func(t *store.SystemTx) error {
			return t.SaveReconciliations(ctx, org, window.From, batch)
		}); err != nil {
			return err
		}
		batch = nil
	}
	return nil
}

func (r *Reconciliation) add(x store.ReconciledInstance, opened int) {
	r.Instances++
	r.Billed, r.Proven, r.Over, r.Under, r.Leakage = r.Billed+x.Billed, r.Proven+x.Proven, r.Over+x.Over, r.Under+x.Under, r.Leakage+x.Leakage
	for name, us := range x.Reasons {
		r.Reasons[name] += us
	}
	r.Opened += opened
}

// sourcesOf orders what is known of a day. Proven time after an accepted stop is the time
// that stopping took; what was disputed, free or taken back for a fault has its cause; a
// hole in one run is between two of its processes.
func sourcesOf(d store.InstanceDay, window metering.Interval) metering.Sources {
	s := metering.Sources{Billed: d.Billed, Proven: d.Proven}
	var stopping, restarted []metering.Interval
	for _, r := range d.Runs {
		s.Expected = append(s.Expected, r.Expected)
		stopping = append(stopping, metering.Interval{From: r.StoppedAt, To: window.To}.Intersect(window))
	}
	for n := 1; n < len(d.Billed); n++ {
		if before, next := d.Billed[n-1], d.Billed[n]; d.RunOf[n] == d.RunOf[n-1] && before.To.Before(next.From) {
			restarted = append(restarted, metering.Interval{From: before.To, To: next.From})
		}
	}
	s.Reasons = append(s.Reasons, metering.Reason{Name: "retained", At: d.Retained}, metering.Reason{Name: "stopping", At: stopping})
	for _, cause := range []string{store.CauseDiscrepancy, "free", string(metering.OurFault), string(metering.Silence)} {
		s.Reasons = append(s.Reasons, metering.Reason{Name: cause, At: d.Excluded[cause]})
	}
	s.Reasons = append(s.Reasons, metering.Reason{Name: "restarted", At: restarted})
	return s
}

// dispute opens a discrepancy for each interval of over-billing, by run.
func (a *App) dispute(ctx context.Context, org id.Org, d store.InstanceDay, over []metering.Interval) (opened int, err error) {
	for _, o := range over {
		for n, billed := range d.Billed {
			part := o.Intersect(billed)
			if part.Empty() {
				continue
			}
			isNew := false
			err := a.Store.InSystem(ctx, "open a discrepancy", func(t *store.SystemTx) (err error) {
				isNew, err = t.OpenDiscrepancy(ctx, store.Discrepancy{
					Org: org, ID: id.New[id.Discrepancy](), Instance: d.Instance, Name: d.Name, Meter: metering.GPU, Run: d.RunOf[n],
					Period: metering.PeriodOf(part.From), During: part,
				})
				return err
			})
			if err != nil {
				return opened, err
			}
			if isNew {
				opened++
				a.Log.Warn("billed beyond the proof", "org_id", org.String(), "instance_id", d.Instance.String(),
					"from", part.From, "to", part.To)
			}
		}
	}
	return opened, nil
}
