package app_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/store"
)

// silence says when a host was last heard of; the gateways have been writing for
// an hour.
func (f *fleet) silence(t testing.TB, h id.Host, ago time.Duration) {
	t.Helper()
	f.exec(t, `update liveness_writers set since = clock_timestamp() - interval '1 hour', last_write_at = clock_timestamp()`)
	f.exec(t, `insert into host_liveness (host_id, session, last_proof_at, last_proof_biz)
		select $1, 1, at, biz_at(at) from (select clock_timestamp() - make_interval(secs => $2) as at) s
		on conflict (host_id) do update set last_proof_at = excluded.last_proof_at, last_proof_biz = excluded.last_proof_biz`,
		h.UUID(), ago.Seconds())
}

func (f *fleet) liveness(t testing.TB) string {
	t.Helper()
	require.NoError(t, f.app.WatchLiveness(t.Context()))
	return scalar[string](t, f, `select liveness from hosts`)
}

// running is an instance that runs on the only host since some time.
func (f *fleet) running(t testing.TB) (buyer, id.Host, id.Instance) {
	t.Helper()
	x := f.buyer(t, "acme")
	h := f.host(t, "h1", 1, h200(), gpu.WholeMode())
	f.offer(t, "whole", "H200-141", gpu.WholeMode(), "", 1)
	i := f.create(t, x, "whole")
	f.advance(t, i)
	f.report(t, i, "running", "")
	f.exec(t, `update assignments set state = 'applied', applied_at = clock_timestamp()`)
	f.exec(t, `insert into run_proofs (org_id, assignment_id, instance_id, run, host_id, started_at, last_proof_at)
		select org_id, id, instance_id, run, host_id, biz_now() - interval '10 minutes', biz_now() - interval '5 minutes' from assignments`)
	f.exec(t, `insert into usage_segments (org_id, id, subject_kind, subject_id, project_id, meter, start_id, seq, run, units, sku_id,
		sku_snapshot, region, isolation_gpu, isolation_host, subject_name, open_reason, billing_period, during)
		select org_id, gen_random_uuid(), 'instance', id, project_id, 'gpu', gen_random_uuid(), 1, run, 1, sku_id, '{}', 'local', '', '', '',
			'process_started', to_char(biz_now(), 'YYYY-MM'), tstzrange(biz_now() - interval '10 minutes', null) from instances`)
	f.advance(t, i)
	require.Equal(t, "running", f.status(t, i))
	return x, h, i
}

func TestASilentHostIsSuspectThenUnknownAndItsUsageEndsAtTheLastProof(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	_, h, i := f.running(t)
	f.silence(t, h, 10*time.Second)
	require.Equal(t, "live", f.liveness(t))
	f.silence(t, h, 40*time.Second)
	require.Equal(t, "suspect", f.liveness(t))
	require.Equal(t, "running", f.status(t, i), "suspicion ends nothing")
	f.silence(t, h, 5*time.Second)
	require.Equal(t, "live", f.liveness(t), "a suspect host is live again by a proof")
	f.silence(t, h, 100*time.Second)
	require.Equal(t, "unknown", f.liveness(t))

	require.Equal(t, "interrupted", f.status(t, i))
	require.Equal(t, "applied", scalar[string](t, f, `select state from assignments`), "run and slots stay")
	require.Equal(t, 1, scalar[int](t, f, `select count(*) from claims`))
	gap := scalar[float64](t, f, `select abs(extract(epoch from upper(during) - (select last_proof_biz from host_liveness))) from usage_segments`)
	require.Less(t, gap, 0.001)
	require.Equal(t, []string{"host.suspect", "host.unknown", "instance.interrupted", "instance.running", "operation.succeeded"},
		scalar[[]string](t, f, `select array_agg(distinct type order by type) from events`))

	f.silence(t, h, time.Second)
	require.Equal(t, "unknown", f.liveness(t), "only the agent's full report leads back")
	out := f.advance(t, i)
	require.False(t, out.Done)
	require.Equal(t, "interrupted", f.status(t, i))
}

func TestSilenceCountsOnlyWhileProofsAreWritten(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	_, h, i := f.running(t)
	f.silence(t, h, 10*time.Minute)
	f.exec(t, `update liveness_writers set since = clock_timestamp() - interval '20 seconds'`)
	require.Equal(t, "live", f.liveness(t), "the gateways have only just come back")
	f.exec(t, `update liveness_writers set since = clock_timestamp() - interval '1 hour', last_write_at = clock_timestamp() - interval '1 minute'`)
	require.Equal(t, "live", f.liveness(t), "no gateway writes")
	require.Equal(t, "running", f.status(t, i))
}

func TestAHostIsAdmittedByItsFirstInventory(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h := f.host(t, "h1", 1, h200(), gpu.WholeMode())
	step := func() (string, app.Outcome) {
		out, err := f.app.AdvanceHost(t.Context(), h)
		require.NoError(t, err)
		return scalar[string](t, f, `select state from hosts`), out
	}
	f.exec(t, `update hosts set state = 'approved', inventory_at = null`)
	state, out := step()
	require.Equal(t, "approved", state)
	require.False(t, out.Done)
	f.exec(t, `insert into host_sessions (host_id, session, started_at) values ($1, 1, clock_timestamp())`, h.UUID())
	state, _ = step()
	require.Equal(t, "validating", state)
	f.exec(t, `update hosts set inventory_at = clock_timestamp() - interval '1 hour'`)
	state, _ = step()
	require.Equal(t, "validating", state, "an inventory of an older session proves nothing")
	f.exec(t, `update hosts set inventory_at = clock_timestamp()`)
	state, out = step()
	require.Equal(t, "ready", state)
	require.True(t, out.Done)
	require.Equal(t, 1, scalar[int](t, f, `select count(*) from hosts where converged_generation = generation and next_wake_at is null`))
	require.Equal(t, 1, scalar[int](t, f, `select count(*) from events where type = 'host.ready'`))
	_, out = step()
	require.True(t, out.Done)
	require.Equal(t, 1, scalar[int](t, f, `select count(*) from events where type = 'host.ready'`))
}

func TestTheSweeperWakesWhatIsDueAndNothingElse(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x := f.buyer(t, "acme")
	f.offer(t, "whole", "H200-141", gpu.WholeMode(), "", 1)
	var all []id.Instance
	for range 4 {
		all = append(all, f.create(t, x, "whole"))
	}
	set := func(i id.Instance, what string) { f.exec(t, `update instances set `+what+` where id = $1`, i.UUID()) }
	set(all[0], `next_wake_at = clock_timestamp() - interval '1 second'`)
	set(all[1], `next_wake_at = null`)
	set(all[2], `next_wake_at = null, converged_generation = generation`)
	n, err := f.app.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.ElementsMatch(t, []string{all[0].String(), all[1].String()},
		scalar[[]string](t, f, `select array_agg(key) from outbox where kind = 'instance'`))
	n, err = f.app.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "what was just woken is dated on")
}

func TestTheOutboxLosesNothingAndTakesLateRowsAlong(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	add := func(key string, late time.Duration) {
		require.NoError(t, f.store.InSystem(t.Context(), "test", func(s *store.SystemTx) error {
			if late > 0 {
				return s.AppendOutboxLater(t.Context(), store.OutboxInstance, key, "late", late)
			}
			return s.AppendOutbox(t.Context(), store.OutboxInstance, key, "now")
		}))
	}
	claim := func(lease time.Duration) []store.OutboxRow {
		rows, err := f.app.ClaimOutbox(t.Context(), 10, lease)
		require.NoError(t, err)
		return rows
	}
	add("a", time.Hour)
	add("b", time.Hour)
	require.Empty(t, claim(time.Hour), "late rows wait")
	add("a", 0)
	rows := claim(time.Nanosecond)
	require.Len(t, rows, 2, "the row that is due takes the late one of its key along")
	again := claim(time.Hour)
	require.Len(t, again, 2, "an expired lease gives the rows back")
	require.Equal(t, 2, again[0].Attempt)
	require.NoError(t, f.app.SettleOutbox(t.Context(), []int64{again[0].ID}, []int64{again[1].ID}, time.Nanosecond))
	require.Len(t, claim(time.Hour), 1, "what failed comes back, what was sent does not")
	f.exec(t, `update outbox set sent_at = clock_timestamp() - interval '2 hours' where id = $1`, again[0].ID)
	require.NoError(t, f.app.Tidy(t.Context()))
	require.Equal(t, 2, scalar[int](t, f, `select count(*) from outbox`))
}

func TestOneProcessHasADuty(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx, cancel := context.WithCancel(t.Context())
	entered := make(chan int, 2)
	release := make(chan struct{})
	done := make(chan struct{}, 2)
	for n := range 2 {
		go func() {
			f.store.Singleton(ctx, "duty", func(ctx context.Context) error {
				entered <- n
				select {
				case <-release:
					return fmt.Errorf("broken")
				case <-ctx.Done():
					return ctx.Err()
				}
			}, func(error) {})
			done <- struct{}{}
		}()
	}
	<-entered
	select {
	case <-entered:
		t.Fatal("two have the duty")
	case <-time.After(3 * time.Second):
	}
	close(release)
	<-entered
	cancel()
	<-done
	<-done
}

func TestARequestNeverAttemptsMoreThanThreeHosts(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x := f.buyer(t, "acme")
	for n := range 5 {
		f.host(t, fmt.Sprint("h", n), 1, h200(), gpu.WholeMode())
	}
	f.offer(t, "whole", "H200-141", gpu.WholeMode(), "", 1)
	i := f.create(t, x, "whole")
	for range instance.MaxHosts + 2 {
		f.advance(t, i)
		f.clock.Advance(instance.PrepareWithin + time.Minute)
	}
	require.Equal(t, instance.MaxHosts, scalar[int](t, f, `select count(*) from assignments`))
	require.Equal(t, "stopping", f.status(t, i))
	require.Equal(t, "service.unavailable", scalar[string](t, f, `select problem->>'code' from operations`))
}
