package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/instance"
)

// broken lists the checks that found something, by invariant.
func (f *fleet) broken(t testing.TB, tolerance time.Duration) map[string][]string {
	t.Helper()
	findings, clean, err := f.app.Audit(t.Context(), tolerance)
	require.NoError(t, err)
	require.Len(t, findings, 13)
	out := map[string][]string{}
	for _, i := range findings {
		for _, o := range i.Offences {
			require.NotEmpty(t, o.Rows)
			out[i.ID] = append(out[i.ID], o.Check)
		}
	}
	require.Equal(t, clean, len(out) == 0)
	return out
}

func TestTheDoctorNamesEachKindOfOffence(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x, y := f.buyer(t, "acme"), f.buyer(t, "bolt")
	f.host(t, "h1", 2, h200(), gpu.MIGMode())
	f.offer(t, "mig", "H200-141", gpu.MIGMode(), "3g.71gb", 1)
	i := f.create(t, x, "mig")
	f.advance(t, i)
	f.report(t, i, "running", "")
	f.advance(t, i)
	require.Empty(t, f.broken(t, app.AuditTolerance))

	for _, c := range []struct{ invariant, check, breaks, mends string }{
		{"I1", "host sums", `update hosts set vcpu_used = vcpu_used + 1`, `update hosts set vcpu_used = vcpu_used - 1`},
		{"I1", "slots without their cells", `update claim_cells set unit = 63 where unit = (select max(unit) from claim_cells)`,
			`update claim_cells set unit = (select start_unit + size_units - 1 from claim_slots) where unit = 63`},
		{"I1", "claims without their holder", `update assignments set state = 'released'`, `update assignments set state = 'applied'`},
		{"I1", "slots that a GPU cannot hold together", `update claim_slots set compute = 9`, `update claim_slots set compute = 3`},
		{"I2", "slices nobody ordered",
			`insert into observed_slices (host_id, slice_key, state, session, sequence, since) select id, 'x', 'orphan', 1, 1, '2020-01-01' from hosts`,
			`delete from observed_slices where slice_key = 'x'`},
		{"I2", "assignments that stay claimed", `update assignments set state = 'claimed', ordered_at = '2020-01-01'`, `update assignments set state = 'applied'`},
		{"I3", "wake-ups that are not delivered", `insert into outbox (kind, key, created_at) values ('instance', 'x', '2020-01-01')`, `delete from outbox`},
		{"I3", "running without an assignment of the run", `update instances set run = 7`, `update instances set run = 1`},
		{"I3", "operations past their deadline", `update operations set status = 'running', deadline_at = '2020-01-01'`,
			`update operations set status = 'succeeded'`},
		{"I4", "billed beyond the proof", `insert into usage_segments (org_id, id, subject_kind, subject_id, project_id, meter, start_id, seq, run, units, sku_id,
			sku_snapshot, region, isolation_gpu, isolation_host, subject_name, open_reason, billing_period, during)
			select org_id, gen_random_uuid(), 'instance', id, project_id, 'gpu', gen_random_uuid(), 1, 1, 1, sku_id, '{}', 'local', '', '', '', '', '2026-01',
				tstzrange('2026-01-01', '2026-01-02') from instances`, `delete from usage_segments`},
		{"I3", "recovering instances that nobody will look at", `update instances set recovering = true, next_wake_at = null`,
			`update instances set recovering = false`},
		{"I4", "open interruptions of what is not interrupted", `insert into interruptions (org_id, id, instance_id, assignment_id, run,
			host_id, cause, credited, from_at) select org_id, gen_random_uuid(), instance_id, id, run, host_id, 'gpu.fault', true, biz_now()
			from assignments`, `delete from interruptions`},
		{"I4", "billed while the platform interrupted it", `with u as (insert into usage_segments (org_id, id, subject_kind, subject_id,
			project_id, meter, start_id, seq, run, units, sku_id, sku_snapshot, region, isolation_gpu, isolation_host, subject_name,
			open_reason, billing_period, during)
			select org_id, gen_random_uuid(), 'instance', id, project_id, 'gpu', gen_random_uuid(), 1, 1, 1, sku_id, '{}', 'local', '', '', '', '', '2026-01',
				tstzrange('2026-01-01', '2026-01-02') from instances)
			insert into interruptions (org_id, id, instance_id, assignment_id, run, host_id, cause, credited, from_at, to_at)
			select org_id, gen_random_uuid(), instance_id, id, run, host_id, 'gpu.fault', true, '2026-01-01 06:00', '2026-01-01 07:00'
			from assignments`, `delete from usage_segments; delete from interruptions`},
		{"I13", "totals that differ from the claims", `update quota_usage set gpus = gpus + 1 where instances > 0`, `update quota_usage set gpus = gpus - 1 where instances > 0`},
		{"I13", "instances outside quota", `delete from quota_claims`, `insert into quota_claims (org_id, instance_id, gpus) select org_id, id, 1 from instances`},
	} {
		f.exec(t, c.breaks)
		require.Contains(t, f.broken(t, app.AuditTolerance)[c.invariant], c.check)
		f.exec(t, c.mends)
		require.NotContains(t, f.broken(t, app.AuditTolerance)[c.invariant], c.check, "after mending")
	}

	f.exec(t, `update claims set org_id = $1 where false`, y.org.UUID())
	f.want(t, x, i, instance.WantDeleted)
	f.advance(t, i)
	require.Empty(t, f.broken(t, app.AuditTolerance), "a delete under way is no offence")
}

func TestTheDoctorIsFastEnough(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x := f.buyer(t, "acme")
	f.host(t, "h1", 1, h200(), gpu.MIGMode())
	f.offer(t, "mig", "H200-141", gpu.MIGMode(), "1g.18gb", 1)
	f.exec(t, `insert into instances (org_id, id, project_id, cell_id, pool_id, name, offer_id, sku_id, image, desired, status,
			currency, created_at, accepted_at, intent_at, converged_generation)
		select $1, gen_random_uuid(), $2, 'local-1', 'default', n::text, o.id, o.sku_id, 'img', 'stopped', 'stopped', 'USD',
			biz_now(), biz_now(), biz_now(), 1 from offers o, generate_series(1, 2000) n`, x.org.UUID(), x.project.UUID())
	f.exec(t, `insert into quota_claims (org_id, instance_id, gpus) select org_id, id, 1 from instances`)
	start := time.Now()
	require.Empty(t, f.broken(t, app.AuditTolerance))
	t.Logf("2,000 instances audited in %s", time.Since(start).Round(time.Millisecond))
}
