package app_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/store"
)

// boss is an operator.
var boss = app.Caller{Principal: auth.Principal{Kind: auth.Operator, Key: id.New[id.Key](), Scopes: auth.OperatorScopes()}}

// shareable is an H200 that can do MPS.
func shareable() gpu.Device {
	d := h200()
	d.Capabilities = gpu.Capabilities{MIG: true, MPS: true}
	return d
}

func mps(t testing.TB) gpu.Mode {
	t.Helper()
	m, err := gpu.MPSMode(4, 25)
	require.NoError(t, err)
	return m
}

func (f *fleet) gpuOf(t testing.TB, h id.Host) app.GPU {
	t.Helper()
	l, err := f.app.ListGPUs(t.Context(), boss, app.GPUFilter{Host: h}, app.Page{Size: 10})
	require.NoError(t, err)
	require.Len(t, l.Items, 1)
	return l.Items[0]
}

func seen(g app.GPU) app.Match { return app.Match{Generation: &g.Generation} }

func (f *fleet) setMode(t testing.TB, h id.Host, in app.NewModeChange) app.ModeChange {
	t.Helper()
	g := f.gpuOf(t, h)
	m, err := f.app.SetMode(t.Context(), boss, g.ID, seen(g), in)
	require.NoError(t, err)
	return m
}

func (f *fleet) advanceGPU(t testing.TB, h id.Host) app.Outcome {
	t.Helper()
	out, err := f.app.AdvanceGPU(t.Context(), f.gpuOf(t, h).ID)
	require.NoError(t, err)
	return out
}

func (f *fleet) change(t testing.TB, m app.ModeChange) app.ModeChange {
	t.Helper()
	got, err := f.app.GetModeChange(t.Context(), boss, m.ID, 0)
	require.NoError(t, err)
	return got
}

// tell writes what the host reports of the mode of its GPU.
func (f *fleet) tell(t testing.TB, h id.Host, mode gpu.Mode, state, problem string) {
	t.Helper()
	f.exec(t, `update gpus set mode_observed = $2, mode_state = $3, mode_problem = $4, units = $5 where host_id = $1`,
		h.UUID(), mode.String(), state, problem, shareable().Units(mode))
}

// run brings an instance up.
func (f *fleet) run(t testing.TB, x buyer, offer string) id.Instance {
	t.Helper()
	i := f.create(t, x, offer)
	f.advance(t, i)
	f.report(t, i, "running", "")
	f.advance(t, i)
	require.Equal(t, "running", f.status(t, i))
	return i
}

func TestAModeIsSetWhenTheGPUIsEmpty(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x := f.buyer(t, "acme")
	h := f.host(t, "h1", 1, shareable(), gpu.WholeMode())
	f.offer(t, "whole", "H200-141", gpu.WholeMode(), "", 1)
	f.offer(t, "quarter", "H200-141", mps(t), "4x25", 1)
	first := f.run(t, x, "whole")

	m := f.setMode(t, h, app.NewModeChange{Mode: mps(t)})
	require.Equal(t, []any{store.OperationRunning, "draining", "1 on the GPU."}, []any{m.Status, m.Step, m.Detail})
	require.True(t, f.advanceGPU(t, h).WaitUntil.After(f.clock.Now()))
	require.Equal(t, "running", f.status(t, first), "nobody is driven out")

	// Nothing new is placed there meanwhile.
	other := f.create(t, x, "whole")
	f.advance(t, other)
	require.Equal(t, "failed", f.status(t, other))

	f.want(t, x, first, instance.WantDeleted)
	f.advance(t, first)
	f.advanceGPU(t, h)
	require.Equal(t, "draining", f.change(t, m).Step, "until the host has acknowledged")
	f.acknowledge(t, first)
	require.Equal(t, 1, scalar[int](t, f, `select count(*) from outbox where kind = 'gpu' and reason = 'released'`))
	f.advanceGPU(t, h)
	require.Equal(t, "switching", f.change(t, m).Step)
	orders := f.modeOrders(t, h)
	require.Len(t, orders, 1)
	require.Equal(t, mps(t), orders[0].Mode)
	require.EqualValues(t, 1, orders[0].Epoch)

	f.tell(t, h, gpu.WholeMode(), "switching", "a process holds the device")
	f.advanceGPU(t, h)
	require.Equal(t, "a process holds the device", f.change(t, m).Detail)
	f.tell(t, h, mps(t), "verifying", "")
	f.advanceGPU(t, h)
	require.Equal(t, "verifying", f.change(t, m).Step)
	f.tell(t, h, mps(t), "settled", "")
	require.Equal(t, app.Outcome{Done: true}, f.advanceGPU(t, h))
	done := f.change(t, m)
	require.Equal(t, []any{store.OperationSucceeded, 100}, []any{done.Status, done.Percent})
	require.NotNil(t, done.FinishedAt)
	require.Empty(t, f.modeOrders(t, h))
	g := f.gpuOf(t, h)
	require.False(t, g.Cordoned)
	require.Equal(t, mps(t), g.ModeDesired)

	f.run(t, x, "quarter") // it is sold in its new mode
	require.Equal(t, []string{"gpu.mode_succeeded", "gpu.mode_switching"},
		scalar[[]string](t, f, `select array_agg(type order by type) from events where type like 'gpu.mode%'`))
}

func (f *fleet) modeOrders(t testing.TB, h id.Host) []store.ModeOrder {
	t.Helper()
	var out []store.ModeOrder
	require.NoError(t, f.store.InSystem(t.Context(), "test", func(s *store.SystemTx) (err error) {
		out, err = s.ModeOrders(t.Context(), h)
		return err
	}))
	return out
}

func TestADrainEndsRunsAtItsTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x := f.buyer(t, "acme")
	f.offer(t, "half", "H200-141", gpu.MIGMode(), "1g.18gb", 1)
	h := f.host(t, "h1", 1, shareable(), gpu.MIGMode())
	stays, moves, starts := f.run(t, x, "half"), f.run(t, x, "half"), f.create(t, x, "half")
	f.exec(t, `update instances set recovery = 'restart' where id = $1`, moves.UUID())
	f.advance(t, starts)
	require.Equal(t, "preparing", f.status(t, starts))
	f.host(t, "h2", 1, shareable(), gpu.MIGMode())

	by := f.clock.Now().Add(time.Minute)
	m := f.setMode(t, h, app.NewModeChange{Mode: gpu.WholeMode(), DrainBy: &by})
	require.Equal(t, 3, scalar[int](t, f, `select count(*) from events where type = 'instance.drain_scheduled' and org_id = $1`, x.org.UUID()))
	f.advanceGPU(t, h)
	require.Equal(t, "running", f.status(t, stays))

	f.clock.Advance(time.Minute)
	f.advanceGPU(t, h)
	require.Equal(t, "stopping", f.status(t, stays))
	require.Equal(t, "interrupted", f.status(t, moves))
	require.Equal(t, "gpu.drained", scalar[string](t, f, `select status_code from instances where id = $1`, stays.UUID()))
	require.Equal(t, []string{"gpu.drained true"}, scalar[[]string](t, f, `select array_agg(cause || ' ' || credited) from interruptions`))
	require.Equal(t, 3, scalar[int](t, f, `select count(*) from events where type = 'instance.drained'`))
	require.Equal(t, "draining", f.change(t, m).Step, "until the host has acknowledged all")

	for _, i := range []id.Instance{stays, moves, starts} {
		f.acknowledge(t, i)
		f.advance(t, i)
	}
	require.Equal(t, "stopped", f.status(t, stays))
	f.report(t, moves, "running", "")
	f.report(t, starts, "running", "")
	f.advance(t, moves)
	f.advance(t, starts)
	require.Equal(t, []string{"running", "running"}, []string{f.status(t, moves), f.status(t, starts)}, "on the other host")
	require.Zero(t, scalar[int](t, f, `select count(*) from assignments where host_id = $1 and state in ('claimed', 'applied')`, h.UUID()))
	require.Equal(t, 1, scalar[int](t, f, `select count(*) from interruptions where to_at is not null`))
	f.advanceGPU(t, h)
	require.Equal(t, "switching", f.change(t, m).Step)
}

func TestAModeChangeIsCancelledUntilTheSwitch(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x := f.buyer(t, "acme")
	h := f.host(t, "h1", 1, shareable(), gpu.WholeMode())
	f.offer(t, "whole", "H200-141", gpu.WholeMode(), "", 1)
	i := f.run(t, x, "whole")

	_, err := f.app.CancelMode(t.Context(), boss, f.gpuOf(t, h).ID, app.Match{})
	require.Equal(t, fault.Conflict, fault.KindOf(err))
	m := f.setMode(t, h, app.NewModeChange{Mode: mps(t)})
	gone, err := f.app.CancelMode(t.Context(), boss, m.GPU, seen(f.gpuOf(t, h)))
	require.NoError(t, err)
	require.Equal(t, store.OperationCancelled, gone.Status)
	require.Equal(t, app.Outcome{Done: true}, f.advanceGPU(t, h))
	require.Equal(t, gpu.WholeMode(), f.gpuOf(t, h).ModeDesired)
	f.want(t, x, i, instance.WantDeleted)
	f.advance(t, i)
	f.acknowledge(t, i)
	f.want(t, x, f.run(t, x, "whole"), instance.WantDeleted) // sold again

	f.exec(t, `delete from claims`)
	m = f.setMode(t, h, app.NewModeChange{Mode: mps(t)})
	f.advanceGPU(t, h)
	require.Equal(t, "switching", f.change(t, m).Step)
	_, err = f.app.CancelMode(t.Context(), boss, m.GPU, app.Match{})
	require.Equal(t, fault.Conflict, fault.KindOf(err))
	require.ErrorContains(t, err, "begun")
}

func TestAFailedSwitchIsToldAndTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h := f.host(t, "h1", 1, shareable(), gpu.WholeMode())
	m := f.setMode(t, h, app.NewModeChange{Mode: mps(t)})
	f.advanceGPU(t, h)
	f.tell(t, h, gpu.WholeMode(), "failed", "the daemon did not start")
	f.advanceGPU(t, h)
	require.Equal(t, store.OperationRunning, f.change(t, m).Status, "it may be a report from before the order")
	f.clock.Advance(host.ModeWithin / 2)
	require.Equal(t, app.Outcome{Done: true}, f.advanceGPU(t, h))
	failed := f.change(t, m)
	require.Equal(t, store.OperationFailed, failed.Status)
	require.Equal(t, "gpu.mode_failed", failed.Problem.Code)
	require.Equal(t, "the daemon did not start", failed.Problem.Detail)

	// The same mode again is a new order with a higher epoch.
	f.tell(t, h, gpu.WholeMode(), "settled", "")
	again := f.setMode(t, h, app.NewModeChange{Mode: mps(t)})
	f.advanceGPU(t, h)
	require.EqualValues(t, 2, f.modeOrders(t, h)[0].Epoch)
	f.clock.Advance(host.ModeWithin + time.Minute)
	f.tell(t, h, gpu.WholeMode(), "switching", "")
	f.advanceGPU(t, h)
	require.Equal(t, "gpu.mode_unproven", f.change(t, again).Problem.Code)
}

func TestAModeChangeIsRefusedBeforeAnybodyIsDrivenOut(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h := f.host(t, "h1", 1, h200(), gpu.WholeMode()) // no MPS
	g := f.gpuOf(t, h)
	past, old := f.clock.Now().Add(-time.Minute), g.Generation-1
	for name, c := range map[string]struct {
		gpu   id.GPU
		match app.Match
		in    app.NewModeChange
		want  fault.Kind
	}{
		"no such GPU":          {id.New[id.GPU](), seen(g), app.NewModeChange{Mode: gpu.MIGMode()}, fault.NotFound},
		"without If-Match":     {g.ID, app.Match{}, app.NewModeChange{Mode: gpu.MIGMode()}, fault.PreconditionRequired},
		"another generation":   {g.ID, app.Match{Generation: &old}, app.NewModeChange{Mode: gpu.MIGMode()}, fault.PreconditionFailed},
		"a mode it cannot do":  {g.ID, seen(g), app.NewModeChange{Mode: mps(t)}, fault.Invalid},
		"the mode it is in":    {g.ID, seen(g), app.NewModeChange{Mode: gpu.WholeMode()}, fault.Conflict},
		"a drain that is over": {g.ID, seen(g), app.NewModeChange{Mode: gpu.MIGMode(), DrainBy: &past}, fault.Invalid},
	} {
		_, err := f.app.SetMode(t.Context(), boss, c.gpu, c.match, c.in)
		require.Equal(t, c.want, fault.KindOf(err), name)
		if c.in.DrainBy == nil {
			_, err = f.app.ModeEffect(t.Context(), boss, c.gpu, c.match, c.in)
			require.Equal(t, c.want, fault.KindOf(err), name)
		}
	}
	require.False(t, f.gpuOf(t, h).Cordoned)
	f.setMode(t, h, app.NewModeChange{Mode: gpu.MIGMode()})
	g = f.gpuOf(t, h)
	_, err := f.app.SetMode(t.Context(), boss, g.ID, seen(g), app.NewModeChange{Mode: gpu.MIGMode()})
	require.ErrorContains(t, err, "under way")
}

// The row is the plan: with Temporal's database gone, the sweeper finds what is due.
func TestAModeChangeOutlivesItsWorkflow(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h := f.host(t, "h1", 1, shareable(), gpu.WholeMode())
	m := f.setMode(t, h, app.NewModeChange{Mode: gpu.MIGMode()})
	f.exec(t, `delete from outbox`)
	f.exec(t, `update mode_changes set next_wake_at = clock_timestamp() - interval '1 second'`)
	for range 2 { // the second time it is dated on
		_, err := f.app.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, m.GPU.String(), scalar[string](t, f, `select string_agg(key, ' ') from outbox where kind = 'gpu'`))
	}
}

// TestModeStepsThatRunTwiceAtOnceAreOne plays a change in which each step is taken by
// three workers at once and once more, as when a workflow task is lost after its
// effect, or is cut off by a worker that dies.
func TestModeStepsThatRunTwiceAtOnceAreOne(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x := f.buyer(t, "acme")
	f.offer(t, "mig", "H200-141", gpu.MIGMode(), "1g.18gb", 1)
	h := f.host(t, "h1", 1, shareable(), gpu.MIGMode())
	var on []id.Instance
	for range 3 {
		on = append(on, f.run(t, x, "mig"))
	}
	g := f.gpuOf(t, h).ID
	step := func() {
		inParallel(t, 3, []id.GPU{g, g, g}, func(g id.GPU) error {
			_, err := f.app.AdvanceGPU(t.Context(), g)
			return err
		})
		for _, after := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond} {
			// A worker that dies: its transaction is cut off somewhere.
			ctx, cancel := context.WithTimeout(t.Context(), after)
			_, _ = f.app.AdvanceGPU(ctx, g)
			cancel()
		}
		f.advanceGPU(t, h)
	}
	by := f.clock.Now().Add(time.Minute)
	m := f.setMode(t, h, app.NewModeChange{Mode: gpu.WholeMode(), DrainBy: &by})
	step()
	f.clock.Advance(time.Minute)
	step()
	for _, i := range on {
		require.Equal(t, "stopping", f.status(t, i))
		f.acknowledge(t, i)
	}
	step()
	require.EqualValues(t, 1, f.modeOrders(t, h)[0].Epoch, "one order")
	f.tell(t, h, gpu.WholeMode(), "settled", "")
	step()
	require.Equal(t, store.OperationSucceeded, f.change(t, m).Status)
	for _, kind := range []string{"gpu.mode_switching", "gpu.mode_succeeded"} {
		require.Equal(t, 1, scalar[int](t, f, `select count(*) from events where type = $1`, kind), kind)
	}
	require.Equal(t, 3, scalar[int](t, f, `select count(*) from events where type = 'instance.drained'`))
	require.Zero(t, scalar[int](t, f, `select count(*) from claims`))
	require.Empty(t, f.broken(t, app.AuditTolerance))
}

func TestADryRunSaysWhatItWouldCost(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	x := f.buyer(t, "acme")
	h := f.host(t, "h1", 1, shareable(), gpu.MIGMode())
	f.offer(t, "small", "H200-141", gpu.MIGMode(), "1g.18gb", 1)
	f.offer(t, "quarter", "H200-141", mps(t), "4x25", 1)
	f.offer(t, "other", "H100-80", gpu.MIGMode(), "1g.18gb", 1)
	book, version := id.New[id.PriceBook](), id.New[id.PriceVersion]()
	f.exec(t, `insert into price_books (id, name, currency, is_default) values ($1, 'list', 'USD', true)`, book.UUID())
	f.exec(t, `insert into price_versions (id, price_book_id, version, effective_from) values ($1, $2, 1, biz_now() - interval '1 day')`,
		version.UUID(), book.UUID())
	for offer, price := range map[string]string{"small": "0.49", "quarter": "0.9"} {
		f.exec(t, fmt.Sprintf(`insert into prices (price_version_id, sku_id, meter, amount)
			select $1, sku_id, 'gpu', %s from offers where id = $2`, price), version.UUID(), offer)
	}
	i := f.run(t, x, "small")
	f.exec(t, `update instances set locked_price = 0.4, price_book_id = $2 where id = $1`, i.UUID(), book.UUID())

	g := f.gpuOf(t, h)
	e, err := f.app.ModeEffect(t.Context(), boss, g.ID, seen(g), app.NewModeChange{Mode: mps(t)})
	require.NoError(t, err)
	require.Equal(t, gpu.MIGMode(), e.From)
	require.Len(t, e.Instances, 1)
	require.Equal(t, i, e.Instances[0].ID)
	require.Equal(t, "0.40", e.Instances[0].Price.Decimal())
	require.Len(t, e.Lost, 1)
	require.Equal(t, []any{"small", 7}, []any{e.Lost[0].Offer, e.Lost[0].Slots})
	require.Len(t, e.Gained, 1)
	require.Equal(t, []any{"quarter", 4}, []any{e.Gained[0].Offer, e.Gained[0].Slots})
	require.Len(t, e.Revenue, 1)
	require.Equal(t, []string{"0.40", "3.43", "3.60"},
		[]string{e.Revenue[0].Instances.Decimal(), e.Revenue[0].Before.Decimal(), e.Revenue[0].After.Decimal()})
	require.False(t, f.gpuOf(t, h).Cordoned, "nothing was done")
}
