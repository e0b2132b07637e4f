package carve_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/carve/mps"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/replay"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
)

func computeMode(t *testing.T, b bench) string {
	t.Helper()
	s, err := b.drv.Settings(t.Context(), b.uuid)
	require.NoError(t, err)
	return s.ComputeMode.String()
}

func daemons(t *testing.T, b bench) []mpsd.Daemon {
	t.Helper()
	list, err := b.drv.MPS().List(t.Context())
	require.NoError(t, err)
	return list
}

func TestOneDaemonServesAllSharesOfAGPUAndEndsWithTheLast(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t, "H200-141", "mps:4x25")
	require.NoError(t, b.set.EnsureMode(ctx, b.uuid, b.mode))
	require.Equal(t, gpudrv.ComputeExclusiveProcess, computeMode(t, b), "nobody may open the gpu past the daemon")
	require.Empty(t, daemons(t, b))

	first, err := b.set.Ensure(ctx, b.slice(t, "", 0))
	require.NoError(t, err)
	second, err := b.set.Ensure(ctx, b.slice(t, "", 3))
	require.NoError(t, err)
	list := daemons(t, b)
	require.Len(t, list, 1)
	require.Equal(t, list[0].PipeDir, first.PipeDir)
	require.Equal(t, list[0].PipeDir, second.PipeDir)
	require.Equal(t, gpu.Shared, first.Isolation, "limits of version 2 hold per process")
	set, err := b.drv.MPS().Limits(ctx, b.uuid)
	require.NoError(t, err)
	require.Equal(t, mpsd.Limits{Percent: 25, Memory: units.MiB(143771 * 25 / 100)}, set)

	require.NoError(t, b.set.Remove(ctx, b.slice(t, "", 0)))
	require.Len(t, daemons(t, b), 1)
	require.NoError(t, b.set.Remove(ctx, b.slice(t, "", 3)))
	require.Empty(t, daemons(t, b))
	require.NoError(t, b.set.EnsureMode(ctx, b.uuid, gpu.WholeMode()))
	require.Equal(t, gpudrv.ComputeDefault, computeMode(t, b))
}

func TestPolicyMayLeaveTheComputeModeAlone(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t, "H200-141", "mps:2x50")
	c := mps.New(b.drv, mps.Config{Daemons: b.drv.MPS(), LeaveComputeMode: true})
	_, err := c.Ensure(ctx, b.slice(t, "", 0))
	require.NoError(t, err)
	require.Equal(t, gpudrv.ComputeDefault, computeMode(t, b))
	s := b.slice(t, "", 0)
	require.NoError(t, b.drv.Attach(b.uuid, sim.Client{PID: 5, Slot: s.Slot, HidePipe: true, UsedBytes: 100 << 30}),
		"there a client may hide and take everything")
	clients, err := b.drv.MPS().Clients(ctx, b.uuid)
	require.NoError(t, err)
	require.Empty(t, clients, "it is in the process list and not in the daemon's")
}

func TestADriverThatMayNotSetTheComputeModeIsNamed(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t, "H200-141", "mps:2x50")
	b.drv.Inject(sim.Fault{Op: sim.OpSetComputeMode, Kind: gpudrv.Unsupported, Times: 1})
	_, err := b.set.Ensure(ctx, b.slice(t, "", 0))
	require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(err))
	require.ErrorContains(t, err, "leave_compute_mode")
	require.Empty(t, daemons(t, b))
}

func TestClientsGetWhatTheDaemonHasAndNoMore(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t, "H200-141", "mps:4x25")
	s := b.slice(t, "", 1)
	_, err := b.set.Ensure(ctx, s)
	require.NoError(t, err)
	err = b.drv.Attach(b.uuid, sim.Client{PID: 3, Slot: s.Slot, UsedBytes: 36 << 30})
	require.Equal(t, gpudrv.NoRoom, gpudrv.KindOf(err), "over the limit")
	require.NoError(t, b.drv.Attach(b.uuid, sim.Client{PID: 3, Slot: s.Slot, UsedBytes: 30 << 30}))
	require.NoError(t, b.drv.Attach(b.uuid, sim.Client{PID: 4, Slot: s.Slot, UsedBytes: 30 << 30}), "a second process gets the limit again")
	err = b.drv.Attach(b.uuid, sim.Client{PID: 5, Slot: s.Slot, HidePipe: true})
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(err), "the compute mode keeps it out")
	tenant := b.drv.MPSAsClient()
	_, err = tenant.SetLimits(ctx, b.uuid, mpsd.Limits{Percent: 100})
	require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(err))
	require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(tenant.Stop(ctx, b.uuid)))
	list, err := tenant.Clients(ctx, b.uuid)
	require.NoError(t, err)
	require.Len(t, list, 2)
}

func TestLimitsPerSliceMakeTheClassLimited(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setupHost(t, "H200-141", "mps:4x25", sim.FleetDriver{Version: "615.10", MPS: 3})
	s := b.slice(t, "", 1)
	e, err := b.set.Ensure(ctx, s)
	require.NoError(t, err)
	require.Equal(t, gpu.Limited, e.Isolation)
	require.NoError(t, b.drv.Attach(b.uuid, sim.Client{PID: 3, Slot: s.Slot, UsedBytes: 30 << 30}))
	err = b.drv.Attach(b.uuid, sim.Client{PID: 4, Slot: s.Slot, UsedBytes: 30 << 30})
	require.Equal(t, gpudrv.NoRoom, gpudrv.KindOf(err), "both together are over the limit")
}

func TestMemoryLimitsOfCgroupsMakeTurnsLimited(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for offers, class := range map[sim.FleetDriver]gpu.Isolation{
		{}: gpu.Shared, {Version: "615.10", MemoryLimits: true}: gpu.Limited,
	} {
		b := setupHost(t, "H200-141", "timeslice:2", offers)
		s := b.slice(t, "", 0)
		e, err := b.set.Ensure(ctx, s)
		require.NoError(t, err)
		require.Equal(t, class, e.Isolation)
		enforced, err := carve.LimitMemory(ctx, b.drv, b.uuid, "tranche/asg_1", e.Memory)
		require.NoError(t, err)
		require.Equal(t, class == gpu.Limited, enforced)
		greedy := sim.Client{PID: 3, Slot: s.Slot, Cgroup: "tranche/asg_1", UsedBytes: 100 << 30}
		if enforced {
			require.Equal(t, gpudrv.NoRoom, gpudrv.KindOf(b.drv.Attach(b.uuid, greedy)))
		} else {
			require.NoError(t, b.drv.Attach(b.uuid, greedy))
		}
	}
}

func TestACutOffClientMayBeKilledWithoutHarm(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t, "H200-141", "mps:4x25")
	for unit := range 3 {
		s := b.slice(t, "", unit)
		_, err := b.set.Ensure(ctx, s)
		require.NoError(t, err)
		require.NoError(t, b.drv.Attach(b.uuid, sim.Client{PID: 10 + unit, Slot: s.Slot, Duty: 90}))
	}
	clients := func() int {
		list, err := b.drv.MPS().Clients(ctx, b.uuid)
		require.NoError(t, err)
		return len(list)
	}
	require.NoError(t, b.set.Quiet(ctx, b.slice(t, "", 0), []int{10, 99}))
	require.NoError(t, b.drv.Kill(b.uuid, 10))
	require.Equal(t, 2, clients())
	require.NoError(t, b.drv.Kill(b.uuid, 11))
	require.Zero(t, clients(), "work in flight took the neighbour along")
	require.NoError(t, b.set.Quiet(ctx, b.slice(t, "", 0), []int{10}), "nobody is there")
}

// TestAfterAFaultAFreshClientMustWork: a fault ends all clients of the server, and
// nothing is handed out until a fresh one has worked.
func TestAfterAFaultAFreshClientMustWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, b := t.Context(), setup(t, "H200-141", "mps:4x25")
		w, err := b.drv.Watch(ctx)
		require.NoError(t, err)
		defer func() { require.NoError(t, w.Close()) }()
		for unit := range 2 {
			s := b.slice(t, "", unit)
			_, err := b.set.Ensure(ctx, s)
			require.NoError(t, err)
			require.NoError(t, b.drv.Attach(b.uuid, sim.Client{PID: 10 + unit, Slot: s.Slot}))
		}
		before := daemons(t, b)
		require.NoError(t, b.drv.StickyFault(b.uuid, 10))
		e, err := w.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, 31, e.XID)
		require.Equal(t, gpudrv.Broken, gpudrv.KindOf(b.drv.Probe(ctx, b.uuid)))
		<-time.After(time.Hour)
		require.Equal(t, gpudrv.Broken, gpudrv.KindOf(b.drv.Probe(ctx, b.uuid)), "time alone does not heal it")

		_, err = b.set.Ensure(ctx, b.slice(t, "", 2))
		require.NoError(t, err, "the daemon was started anew and a fresh client worked")
		require.NotEqual(t, before, daemons(t, b))
		require.NoError(t, b.drv.Probe(ctx, b.uuid))

		require.NoError(t, b.drv.Attach(b.uuid, sim.Client{PID: 20, Slot: b.slice(t, "", 0).Slot}))
		require.NoError(t, b.drv.Fault(b.uuid, 20))
		require.NoError(t, b.set.Prove(ctx, b.uuid))
		b.drv.Inject(sim.Fault{Op: sim.OpMPSProbe, Kind: gpudrv.Broken, Times: 2})
		require.Equal(t, gpudrv.Broken, gpudrv.KindOf(b.set.Prove(ctx, b.uuid)), "not healthy")
	})
}

func TestALostDaemonShowsAndIsStartedAgain(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t, "H200-141", "mps:4x25")
	s := b.slice(t, "", 0)
	_, err := b.set.Ensure(ctx, s)
	require.NoError(t, err)
	require.NoError(t, b.drv.MPS().Stop(ctx, b.uuid))
	found, err := b.set.Observe(ctx, b.uuid)
	require.NoError(t, err)
	require.True(t, found[0].Incomplete)
	plan, err := b.set.Plan(ctx, s)
	require.NoError(t, err)
	require.Equal(t, []string{"start the MPS daemon and set its limits"}, plan.Steps)
	e, err := b.set.Ensure(ctx, s)
	require.NoError(t, err)
	found, err = b.set.Observe(ctx, b.uuid)
	require.NoError(t, err)
	require.Equal(t, []carve.Found{{Evidence: e}}, found)
}

func TestASecondOrganizationIsRefused(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"mps:4x25", "timeslice:2"} {
		ctx, b := t.Context(), setup(t, "H200-141", mode)
		s, other := b.slice(t, "", 0), b.slice(t, "", 1)
		s.Org, other.Org = "org_a", "org_b"
		_, err := b.set.Ensure(ctx, s)
		require.NoError(t, err)
		_, err = b.set.Ensure(ctx, s)
		require.NoError(t, err)
		_, err = b.set.Ensure(ctx, other)
		require.Equal(t, gpudrv.NoRoom, gpudrv.KindOf(err))
		require.ErrorContains(t, err, "one organization")
		require.Equal(t, gpudrv.NoRoom, gpudrv.KindOf(carve.Bound([]carve.Slice{s}, other)))
		require.NoError(t, b.set.Remove(ctx, s))
		_, err = b.set.Ensure(ctx, other)
		require.NoError(t, err)
	}
}

func TestAMIGSliceMayBeSharedByItsHolder(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t, "H200-141", "mig")
	s, plain := b.slice(t, "3g.71gb", 4), b.slice(t, "1g.18gb", 0)
	half, err := gpu.MPSMode(2, 50)
	require.NoError(t, err)
	s.Split = half
	plan, err := b.set.Plan(ctx, s)
	require.NoError(t, err)
	require.Len(t, plan.Steps, 3)
	e, err := b.set.Ensure(ctx, s)
	require.NoError(t, err)
	require.Equal(t, gpu.Partitioned, e.Isolation)
	list := daemons(t, b)
	require.Len(t, list, 1)
	require.Equal(t, e.UUID, list[0].Device)
	require.Equal(t, e.PipeDir, list[0].PipeDir)
	limits, err := b.drv.MPS().Limits(ctx, e.UUID)
	require.NoError(t, err)
	require.Equal(t, mpsd.Limits{Percent: 50, Memory: 71424 / 2}, limits)
	plan, err = b.set.Plan(ctx, s)
	require.NoError(t, err)
	require.True(t, plan.Present)
	p, err := b.set.Ensure(ctx, plain)
	require.NoError(t, err)
	require.Empty(t, p.PipeDir)

	require.NoError(t, b.drv.Attach(b.uuid, sim.Client{PID: 3, Slot: s.Slot, UsedBytes: 30 << 30}))
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(b.set.Remove(ctx, s)))
	require.NoError(t, b.drv.Detach(b.uuid, 3))
	unsplit := s
	unsplit.Split = gpu.Mode{}
	require.NoError(t, b.set.Remove(ctx, unsplit), "a daemon is stopped whether or not the split is known")
	require.Empty(t, daemons(t, b))

	s.Split, err = gpu.TimeSliceMode(2)
	require.NoError(t, err)
	_, err = b.set.Ensure(ctx, s)
	require.Equal(t, gpudrv.Invalid, gpudrv.KindOf(err))
}

func TestARecordedGPURefusesEveryOrder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r, err := replay.Open("../gpudrv/replay/testdata/h200-141.json")
	require.NoError(t, err)
	refs, err := r.GPUs(ctx)
	require.NoError(t, err)
	m, err := gpu.MPSMode(2, 50)
	require.NoError(t, err)
	set := carve.NewSet(r, map[gpu.Kind]carve.Carver{gpu.MPS: mps.New(r, mps.Config{})})
	_, err = set.Ensure(ctx, carve.Slice{ID: "asg_1", Slot: gpu.Slot{GPU: refs[0].UUID, Mode: m, Size: 1}})
	require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(err))
	require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(set.EnsureMode(ctx, refs[0].UUID, m)))
}
