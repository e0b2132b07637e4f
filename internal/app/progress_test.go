package app_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/store"
)

type pgTime = time.Time

func TestACreateBecomesRunningAndADeleteFreesEverything(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x := f.buyer(t, "acme")
	f.host(t, "h1", 1, h200(), gpu.MIGMode())
	f.offer(t, "mig", "H200-141", gpu.MIGMode(), "1g.18gb", 1)
	i := f.create(t, x, "mig")

	out := f.advance(t, i)
	require.False(t, out.WaitUntil.IsZero())
	require.Equal(t, "preparing", f.status(t, i))
	f.report(t, i, "running", "")
	require.Equal(t, app.Outcome{Done: true}, f.advance(t, i))
	require.Equal(t, "running", f.status(t, i))
	require.Equal(t, "succeeded", scalar[string](t, f, `select status from operations where subject_id = $1`, i.UUID()))
	require.Equal(t, app.Outcome{Done: true}, f.advance(t, i), "a second look changes nothing")

	f.want(t, x, i, instance.WantDeleted)
	f.advance(t, i)
	require.Equal(t, "deleting", f.status(t, i))
	require.Equal(t, 1, scalar[int](t, f, `select count(*) from claims`), "capacity is freed on evidence alone")
	f.acknowledge(t, i)
	require.Equal(t, "deleted", f.status(t, i))
	require.Equal(t, app.Outcome{Done: true}, f.advance(t, i))
	for _, table := range []string{"claims", "claim_cells", "claim_slots", "host_bindings", "quota_claims"} {
		require.Zero(t, scalar[int](t, f, `select count(*) from `+table), table)
	}
	require.Zero(t, scalar[int](t, f, `select vcpu_used from hosts`))
	require.Equal(t, []string{"instance.deleted", "instance.running", "operation.succeeded"},
		scalar[[]string](t, f, `select array_agg(distinct type order by type) from events`))
}

// want writes a new intent as the API does.
func (f *fleet) want(t testing.TB, x buyer, i id.Instance, d instance.Desired) {
	t.Helper()
	require.NoError(t, f.store.InOrg(t.Context(), x.org, func(tx *store.OrgTx) error {
		v, row, err := tx.LoadView(t.Context(), i, store.Locked)
		if err != nil {
			return err
		}
		if d == instance.WantRunning {
			v.Run++
		}
		v.Desired, v.Generation, v.Attempts, v.Failure, row.Excluded = d, v.Generation+1, 0, instance.Problem{}, nil
		_, err = tx.SaveStatus(t.Context(), &row, v)
		return err
	}))
}

func TestAFailedHostIsLeftAndTheThirdFailureEndsTheRequest(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x := f.buyer(t, "acme")
	for n := range 4 {
		f.host(t, fmt.Sprint("h", n), 1, h200(), gpu.WholeMode())
	}
	f.offer(t, "whole", "H200-141", gpu.WholeMode(), "", 1)
	i := f.create(t, x, "whole")
	for range instance.MaxHosts {
		f.advance(t, i)
		f.report(t, i, "failed", "NEEDS_RESET")
	}
	f.advance(t, i)
	require.Equal(t, "stopping", f.status(t, i))
	require.Equal(t, instance.MaxHosts, scalar[int](t, f, `select count(distinct host_id) from assignments`))
	f.acknowledge(t, i)
	require.Equal(t, "failed", f.status(t, i))
	problem := scalar[string](t, f, `select problem::text from operations`)
	require.JSONEq(t, `{"code": "gpu.fault", "detail": "The GPU failed.", "suggestion": "`+instance.RemedyOf("gpu.fault")+`"}`, problem)

	f.want(t, x, i, instance.WantRunning)
	f.advance(t, i)
	require.Equal(t, "preparing", f.status(t, i), "a failed instance may be started again")
}

func TestARunThatEndsStopsTheInstance(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x := f.buyer(t, "acme")
	f.host(t, "h1", 1, h200(), gpu.WholeMode())
	f.offer(t, "whole", "H200-141", gpu.WholeMode(), "", 1)
	i := f.create(t, x, "whole")
	f.advance(t, i)
	f.report(t, i, "running", "")
	f.advance(t, i)
	f.report(t, i, "exited", "")
	f.advance(t, i)
	require.Equal(t, "stopping", f.status(t, i))
	f.acknowledge(t, i)
	require.Equal(t, app.Outcome{Done: true}, f.advance(t, i))
	require.Equal(t, "stopped", f.status(t, i))
	require.Equal(t, "run.exited", scalar[string](t, f, `select status_code from instances`))
}

func TestADeletingInstanceLeavesQuotaAfterTwoMinutes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x := f.buyer(t, "acme")
	f.host(t, "h1", 1, h200(), gpu.WholeMode())
	f.offer(t, "whole", "H200-141", gpu.WholeMode(), "", 1)
	i := f.create(t, x, "whole")
	f.advance(t, i)
	f.want(t, x, i, instance.WantDeleted)
	f.advance(t, i)
	require.Equal(t, 1, scalar[int](t, f, `select count(*) from quota_claims`))
	// The intent is dated by the database, whose clock goes on while this test works.
	f.clock.Advance(instance.QuotaHeldAfterDelete + time.Minute)
	f.advance(t, i)
	require.Zero(t, scalar[int](t, f, `select count(*) from quota_claims`))
	require.Zero(t, scalar[int](t, f, `select instances from quota_usage`))
	require.Equal(t, "deleting", f.status(t, i))
}

func TestTwoHundredRaceForTheLastSlot(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.host(t, "h1", 1, h200(), gpu.WholeMode())
	f.offer(t, "whole", "H200-141", gpu.WholeMode(), "", 1)
	x := f.buyer(t, "acme")
	var all []id.Instance
	for range 200 {
		all = append(all, f.create(t, x, "whole"))
	}
	inParallel(t, 24, all, func(i id.Instance) error {
		_, err := f.app.Advance(t.Context(), i)
		return err
	})
	require.Equal(t, 1, scalar[int](t, f, `select count(*) from instances where status = 'preparing'`))
	require.Equal(t, 199, scalar[int](t, f, `select count(*) from instances where status = 'failed' and status_code = 'capacity.none'`))
	require.Equal(t, 199, scalar[int](t, f, `select count(*) from operations where status = 'failed' and problem->>'code' = 'capacity.none'`))
	require.Equal(t, 1, scalar[int](t, f, `select count(*) from claims`))
	require.Empty(t, f.broken(t, app.AuditTolerance))
}

func TestACordonRacingCreatesSellsNothingAfterwards(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h := f.host(t, "h1", 16, h200(), gpu.MIGMode())
	f.offer(t, "mig", "H200-141", gpu.MIGMode(), "1g.18gb", 1)
	x := f.buyer(t, "acme")
	var all []id.Instance
	for range 64 {
		all = append(all, f.create(t, x, "mig"))
	}
	var started atomic.Int32
	var cordoned atomic.Int64 // claims when the cordon had committed
	inParallel(t, 16, all, func(i id.Instance) error {
		if started.Add(1) == 24 {
			_, err := f.owner.Exec(t.Context(), `update hosts set state = 'cordoned' where id = $1`, h.UUID())
			if err != nil {
				return err
			}
			cordoned.Store(int64(scalar[int](t, f, `select count(*) from claims`)))
		}
		_, err := f.app.Advance(t.Context(), i)
		return err
	})
	sold := scalar[int](t, f, `select count(*) from claims`)
	require.EqualValues(t, cordoned.Load(), sold, "claims after the cordon's commit")
	require.Equal(t, 64-sold, scalar[int](t, f, `select count(*) from instances where status = 'failed'`))
}

func TestPackingRacesNeverOverlap(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for n := range 3 {
		f.host(t, fmt.Sprint("h", n), 4, h200(), gpu.MIGMode())
	}
	f.exec(t, `update pools set tenancy = 'shared'`)
	for _, p := range []string{"1g.18gb", "2g.35gb", "3g.71gb", "1g.35gb"} {
		f.offer(t, "mig-"+p[:2]+p[3:5], "H200-141", gpu.MIGMode(), p, 1)
	}
	tenants := []buyer{f.buyer(t, "acme"), f.buyer(t, "bolt"), f.buyer(t, "corp")}
	offers := []string{"mig-1g18", "mig-2g35", "mig-3g71", "mig-1g35"}
	var all []id.Instance
	for n := range 120 {
		all = append(all, f.create(t, tenants[n%3], offers[n%4]))
	}
	inParallel(t, 16, all, func(i id.Instance) error {
		_, err := f.app.Advance(t.Context(), i)
		return err
	})
	placed := scalar[int](t, f, `select count(*) from claims`)
	require.Greater(t, placed, 30)
	require.Equal(t, placed, scalar[int](t, f, `select count(*) from assignments where state = 'claimed'`))
	require.Equal(t, scalar[int](t, f, `select sum(size_units)::int from claim_slots`), scalar[int](t, f, `select count(*) from claim_cells`))
	require.LessOrEqual(t, scalar[int](t, f, `select coalesce(max(c), 0)::int from (select sum(compute) c from claim_slots group by gpu_id) s`), 7)
	require.Empty(t, f.broken(t, app.AuditTolerance))
	t.Logf("placed %d of 120", placed)
}

func TestOrganizationsRacingForOneHostOrGPUNeverShareIt(t *testing.T) {
	t.Parallel()
	shares, err := gpu.MPSMode(4, 25)
	require.NoError(t, err)
	for _, c := range []struct {
		tenancy string
		mode    gpu.Mode
		count   int
		slots   int // that the host has
	}{
		{"one_org_per_host", gpu.WholeMode(), 2, 4},
		{"shared", shares, 1, 4},
	} {
		t.Run(c.tenancy, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.exec(t, `update pools set tenancy = $1`, c.tenancy)
			gpus := 1
			if c.mode.Kind == gpu.Whole {
				gpus = c.slots
			}
			f.host(t, "h1", gpus, h200(), c.mode)
			f.offer(t, "offer", "H200-141", c.mode, "", c.count)
			buyers := []buyer{f.buyer(t, "acme"), f.buyer(t, "bolt"), f.buyer(t, "corp")}
			var all []id.Instance
			for n := range 24 {
				all = append(all, f.create(t, buyers[n%3], "offer"))
			}
			inParallel(t, 12, all, func(i id.Instance) error {
				_, err := f.app.Advance(t.Context(), i)
				return err
			})
			require.Equal(t, 1, scalar[int](t, f, `select count(distinct org_id) from claims`))
			require.Equal(t, c.slots/c.count, scalar[int](t, f, `select count(*) from claims`), "its own are sold to it")
			require.Empty(t, f.broken(t, app.AuditTolerance))

			for n, i := range all {
				f.want(t, buyers[n%3], i, instance.WantDeleted)
				f.advance(t, i)
				f.acknowledge(t, i)
			}
			require.Zero(t, scalar[int](t, f, `select (select count(*) from host_bindings) + (select count(*) from gpu_bindings)`), "bindings end with the last claim")
		})
	}
}
