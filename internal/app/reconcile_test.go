package app_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// proven writes how long a run is proven, and the stop that ended it if there was one.
func (l *late) proven(t *testing.T, run int, until time.Time, stopped bool) {
	t.Helper()
	l.exec(t, `update run_proofs set last_proof_at = $1, ended_at = case when $2 then $1::timestamptz end where assignment_id = $3`, until, stopped, uuid.UUID(l.asg[run]))
}

// The day of the second run's start: 22:00 to midnight of the last of November.
var lastOfNovember = november.AddDate(0, 1, -1)

func (l *late) reconciled(t *testing.T, day time.Time) store.ReconciledInstance {
	t.Helper()
	var out []store.ReconciledInstance
	l.in(t, func(ctx context.Context, x *store.SystemTx) (err error) {
		out, err = x.ReconciledDay(ctx, l.customer.Org, day)
		return err
	})
	require.Len(t, out, 1)
	return out[0]
}

const minute = int64(60) * 1_000_000

// What is billed an hour beyond its proof is off the bill at once, opens one discrepancy,
// parks the month until its fifth day, and comes back by a person's verdict.
func TestOverBillingIsDisputed(t *testing.T) {
	l := newLate(t)
	l.setClock(t, l.from[1].Add(time.Second))
	l.begins(t, 1)
	l.setClock(t, november.AddDate(0, 1, 0).Add(3*time.Hour))
	_, err := l.SealDue(t.Context())
	require.NoError(t, err)
	l.proven(t, 1, november.AddDate(0, 1, 0).Add(-time.Hour), true) // and yet it is billed until midnight
	before := l.segments(t, l.customer, l.inst)

	_, err = l.Reconcile(t.Context(), november.AddDate(0, 1, 0))
	require.Equal(t, "state.conflict", fault.CodeOf(err), "the day is not over")
	got, err := l.Reconcile(t.Context(), lastOfNovember)
	require.NoError(t, err)
	require.Equal(t, 1, got.Instances)
	require.Equal(t, 1, got.Opened)
	require.Equal(t, 60*minute-minute/2, got.Over, "less one proof period of thirty seconds")
	row := l.reconciled(t, lastOfNovember)
	require.Equal(t, 120*minute-17, row.Billed)
	require.Equal(t, 60*minute-17, row.Proven)

	after := l.segments(t, l.customer, l.inst)
	require.Equal(t, november.AddDate(0, 1, 0).Add(-time.Hour+30*time.Second), after[0].To, "the smaller is billed")
	again, err := l.Reconcile(t.Context(), lastOfNovember)
	require.NoError(t, err)
	require.Zero(t, again.Opened, "one discrepancy")
	require.Zero(t, again.Over)

	list, err := l.Discrepancies(t.Context(), l.operator, app.DiscrepancyFilter{Status: "open"}, app.Page{Size: 10})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	d := list.Items[0]
	require.Equal(t, l.inst, d.Instance)
	parked := func() (p bool) {
		l.in(t, func(ctx context.Context, x *store.SystemTx) (err error) {
			p, err = x.Parked(ctx, l.customer.Org, "2026-11")
			return err
		})
		return p
	}
	require.True(t, parked())
	l.setClock(t, november.AddDate(0, 1, 5))
	require.False(t, parked(), "from the fifth day on the undisputed part is issued")

	for verdict, reason := range map[string]string{"maybe": "x", "billed": " "} {
		require.Equal(t, "request.invalid", fault.CodeOf(l.ResolveDiscrepancy(t.Context(), l.operator, d.ID, verdict, reason)))
	}
	require.Equal(t, "resource.not_found", fault.CodeOf(l.ResolveDiscrepancy(t.Context(), l.operator, id.New[id.Discrepancy](), "billed", "x")))
	require.NoError(t, l.ResolveDiscrepancy(t.Context(), l.operator, d.ID, "billed", "the agent's disk was lost, the counters prove it"))
	require.NoError(t, l.ResolveDiscrepancy(t.Context(), l.operator, d.ID, "billed", "again"))
	require.Equal(t, "state.conflict", fault.CodeOf(l.ResolveDiscrepancy(t.Context(), l.operator, d.ID, "proven", "other")))
	require.Equal(t, before, l.segments(t, l.customer, l.inst))
	got, err = l.Reconcile(t.Context(), lastOfNovember)
	require.NoError(t, err)
	require.Zero(t, got.Opened, "what was decided is not disputed again")
}

// Evidence that comes late ends the discrepancy by itself.
func TestLateEvidenceSettlesADiscrepancy(t *testing.T) {
	l := newLate(t)
	l.setClock(t, l.from[1].Add(time.Second))
	l.begins(t, 1)
	l.setClock(t, november.AddDate(0, 1, 0).Add(3*time.Hour))
	_, err := l.SealDue(t.Context())
	require.NoError(t, err)
	l.proven(t, 1, november.AddDate(0, 1, 0).Add(-time.Hour), false)
	got, err := l.Reconcile(t.Context(), lastOfNovember)
	require.NoError(t, err)
	require.Equal(t, 1, got.Opened)

	require.NoError(t, l.TakeEvidence(t.Context(), []app.Evidence{{
		Assignment: l.asg[1], On: []metering.Interval{metering.Between(l.from[1], november.AddDate(0, 1, 0).Add(time.Hour))},
	}}))
	got, err = l.Reconcile(t.Context(), lastOfNovember)
	require.NoError(t, err)
	require.Zero(t, got.Opened)
	require.Equal(t, got.Proven, got.Billed)
	list, err := l.Discrepancies(t.Context(), l.operator, app.DiscrepancyFilter{Org: l.customer.Org}, app.Page{Size: 10})
	require.NoError(t, err)
	require.Equal(t, "billed", list.Items[0].Verdict)
	require.Equal(t, "system", list.Items[0].ResolvedBy)
}

// Proven time that is rightly unbilled has its reason and parks nobody; time that should
// have run and nothing proves is leakage.
func TestUnderBillingHasReasons(t *testing.T) {
	l := newLate(t)
	l.setClock(t, l.from[0].Add(time.Second))
	l.begins(t, 0)
	stop := l.from[0].Add(30 * time.Minute)
	l.setClock(t, stop)
	l.exec(t, `insert into operations (org_id, id, project_id, kind, subject_id, generation, status, created_at)
		values ($1, gen_random_uuid(), $2, 'instance.stop', $3, 2, 'succeeded', $4)`,
		uuid.UUID(l.customer.Org), uuid.UUID(l.customer.project), uuid.UUID(l.inst), stop)
	require.True(t, l.stop(t, l.customer, l.inst, metering.StopRelease, metering.Facts{At: stop}))
	l.proven(t, 0, stop.Add(2*time.Minute), true)
	l.setClock(t, november.AddDate(0, 1, 0).Add(2*time.Hour))
	got, err := l.Reconcile(t.Context(), lastOfNovember)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"stopping": 2 * minute}, got.Reasons)
	require.Zero(t, got.Opened)
	require.Zero(t, got.Leakage)

	l.exec(t, `delete from operations`)
	l.exec(t, `delete from usage_checkpoints`)
	l.proven(t, 0, stop.Add(-10*time.Minute), false)
	l.exec(t, `update usage_segments set during = tstzrange(lower(during), $1)`, stop.Add(-10*time.Minute))
	got, err = l.Reconcile(t.Context(), lastOfNovember)
	require.NoError(t, err)
	require.Equal(t, int64(340)*minute, got.Leakage, "no stop, no end, no proof until midnight")
	require.NoError(t, l.ReconcileDue(t.Context()))
}

// Checkpoints prove hour by hour, once, also after an outage of their writer, and stay
// evidence: no segment is cut at an hour.
func TestCheckpointsProveHourByHour(t *testing.T) {
	l := newLate(t)
	l.setClock(t, l.from[1].Add(time.Second))
	l.begins(t, 1)
	require.NoError(t, l.Checkpoint(t.Context()))
	require.Zero(t, l.count(t, `select count(*) from usage_checkpoints`), "nothing beyond the start is proven")
	l.setClock(t, l.to[1])
	l.proven(t, 1, l.from[1].Add(150*time.Minute), false)
	for range 2 {
		require.NoError(t, l.Checkpoint(t.Context()))
	}
	require.Equal(t, 3, l.count(t, `select count(*) from usage_checkpoints`))
	require.Equal(t, int(150*minute), l.count(t, `select sum(extract(epoch from to_at - from_at) * 1000000)::bigint from usage_checkpoints`))
	l.proven(t, 1, l.from[1].Add(170*time.Minute), false)
	require.NoError(t, l.Checkpoint(t.Context()))
	require.Equal(t, 3, l.count(t, `select count(*) from usage_checkpoints`))
	require.Equal(t, int(170*minute), l.count(t, `select sum(extract(epoch from to_at - from_at) * 1000000)::bigint from usage_checkpoints`))
	require.Equal(t, 1, l.count(t, `select count(*) from usage_segments where close_reason <> 'month_seal'`))
	l.setClock(t, l.to[1].AddDate(1, 0, 0))
	require.NoError(t, l.Tidy(t.Context()))
	require.Zero(t, l.count(t, `select count(*) from usage_checkpoints`), "bounded")
}
