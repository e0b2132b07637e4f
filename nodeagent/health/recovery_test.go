package health_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/guard"
	"github.com/tranche-cloud/tranche/nodeagent/health"
)

func (r *rig) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, patience, 5*time.Millisecond, what)
}

// A reset that does not work, or that this GPU does not have, shuts the GPU until a
// reboot; ill again after that, it is for hands.
func TestAResetThatFailsShutsTheGPU(t *testing.T) {
	for name, kind := range map[string]gpudrv.Kind{"fails": gpudrv.Broken, "not offered": gpudrv.Unsupported} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.Sim.Inject(sim.Fault{GPU: uuidOf(migs), Op: sim.OpReset, Kind: kind})
			r.Sim.XID(uuidOf(migs), 95, -1, -1)
			r.is(t, migs, nodeagent.Quarantined)
			require.Contains(t, r.stock(t, migs).HealthDetail, "reboot")
			r.up(t)
			r.is(t, migs, nodeagent.Quarantined) // also for the next process
			require.NoError(t, r.Sim.Reboot())
			r.up(t)
			r.is(t, migs, nodeagent.Healthy)
			r.order(t, migs, 0)
		})
	}
}

func TestAGPUThatIsIllAgainAndAgainIsForHands(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for n := range 2 {
		r.Sim.XID(uuidOf(migs), 119, -1, -1)
		r.eventually(t, "it is reset", func() bool { return len(r.diary.of("gpu.reset", uuidOf(migs))) == n+1 })
		r.is(t, migs, nodeagent.Healthy)
	}
	r.Sim.XID(uuidOf(migs), 119, -1, -1)
	r.is(t, migs, nodeagent.Quarantined)
	require.Contains(t, r.stock(t, migs).HealthDetail, "did not cure it")
	require.NoError(t, r.Sim.Reboot())
	r.up(t)
	r.is(t, migs, nodeagent.Quarantined)
	require.NoError(t, r.monitor.Clear(uuidOf(migs)))
	r.is(t, migs, nodeagent.Healthy)
	require.Equal(t, gpudrv.NotFound, gpudrv.KindOf(r.monitor.Clear("GPU-none")))
}

// A GPU comes back only if it computes.
func TestTheSelfTestDecides(t *testing.T) {
	t.Parallel()
	tested := make(chan string, 10)
	r := newRig(t, func(c *health.Config) {
		c.SelfTest = func(_ context.Context, uuid string) error { tested <- uuid; return errors.New("computes wrongly") }
	})
	r.Sim.XID(uuidOf(whole), 46, -1, -1)
	r.is(t, whole, nodeagent.Quarantined)
	require.Equal(t, uuidOf(whole), <-tested)
	require.Equal(t, "gpu.reset", r.diary.of("gpu.reset", uuidOf(whole))[0].Kind)
	require.Contains(t, r.diary.of("gpu.reset", uuidOf(whole))[0].Detail, "computes wrongly")
}

// Ampere's GPUs are reset with those they are linked to: these take nothing new, their
// runs go on, and the reset waits for them.
func TestLinkedGPUsAreResetTogether(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a := r.order(t, turns, 0)
	r.looked(t)
	r.Sim.XID(uuidOf(shares), 95, -1, -1)
	r.is(t, shares, nodeagent.Failing)
	r.is(t, turns, nodeagent.Degraded)
	require.Equal(t, "GPU_RESET_GROUP", r.stock(t, turns).HealthCause)
	refused := r.wish(turns, 1)
	require.Equal(t, instance.RunFailed, r.slice(refused).RunState)
	r.bury(refused)
	r.looked(t)
	require.Equal(t, instance.RunRunning, r.slice(a).RunState)
	require.Empty(t, r.diary.of("gpu.reset", ""))
	r.ahead.Add(int64(6 * time.Minute))
	r.eventually(t, "operators hear that it waits", func() bool { return len(r.diary.of("gpu.held", uuidOf(shares))) == 1 })
	r.bury(a)
	r.is(t, shares, nodeagent.Healthy)
	r.is(t, turns, nodeagent.Healthy)
	require.Len(t, r.diary.of("gpu.reset", uuidOf(turns)), 1)
	r.order(t, shares, 0)
}

// A reset waits for whoever holds the GPU, and says who it is.
func TestAResetWaitsForItsHolder(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	require.NoError(t, r.Sim.Attach(uuidOf(whole), sim.Client{PID: 812, Name: "fieldiag"}))
	r.Sim.XID(uuidOf(whole), 95, -1, -1)
	r.is(t, whole, nodeagent.Failing)
	r.eventually(t, "it says who holds it", func() bool {
		return strings.Contains(r.stock(t, whole).HealthDetail, "fieldiag(812)")
	})
	r.ahead.Add(int64(6 * time.Minute))
	r.eventually(t, "operators are told", func() bool { return len(r.diary.of("gpu.held", uuidOf(whole))) == 1 })
	require.Contains(t, r.diary.of("gpu.held", uuidOf(whole))[0].Detail, "fieldiag(812)")
	require.NoError(t, r.Sim.Detach(uuidOf(whole), 812))
	r.ahead.Add(int64(time.Minute))
	r.is(t, whole, nodeagent.Healthy)
	require.Len(t, r.diary.of("gpu.reset", uuidOf(whole)), 1, "waiting is no try")
}

// An error of a link keeps new work off every GPU that is linked.
func TestALinkErrorConcernsTheGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a := r.order(t, whole, 0)
	r.looked(t)
	r.Sim.XID(uuidOf(migs), 74, -1, -1)
	r.eventually(t, "both are out of sale, or were", func() bool {
		return len(r.diary.of("gpu.unhealthy", uuidOf(whole))) > 0 && len(r.diary.of("gpu.unhealthy", uuidOf(migs))) > 0
	})
	require.Equal(t, "GPU_RESET_GROUP", r.diary.of("gpu.unhealthy", uuidOf(whole))[0].Attributes["cause"])
	r.is(t, migs, nodeagent.Healthy) // reset alone: it is of Hopper
	r.is(t, whole, nodeagent.Healthy)
	require.Equal(t, instance.RunRunning, r.slice(a).RunState)
}

// One GPU that hangs costs itself; two, and the host takes nothing new.
func TestTwoHungGPUsCordonTheHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.looked(t)
	r.driver.hang(uuidOf(whole))
	r.looked(t)
	r.ahead.Add(int64(hungAfter))
	r.is(t, whole, nodeagent.Quarantined)
	require.Empty(t, r.keeper.Inventory(t.Context()).Condition)
	r.order(t, migs, 0)
	r.driver.hang(uuidOf(migs))
	r.looked(t)
	r.ahead.Add(int64(hungAfter))
	r.eventually(t, "the host is cordoned", func() bool { return r.keeper.Inventory(t.Context()).ConditionCause == "GPUS_HUNG" })
	for range 3 {
		r.looked(t)
	}
	require.Equal(t, 1, r.driver.most, "no new look while one hangs")
	r.driver.answer()
	r.is(t, whole, nodeagent.Healthy)
	r.eventually(t, "the host is back", func() bool { return r.keeper.Inventory(t.Context()).Condition == "" })
}

// That calls of others have not come back condemns a GPU only when it lasts.
func TestAStallIsNoHang(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a := r.order(t, whole, 0)
	r.looked(t)
	r.driver.refuse(uuidOf(whole))
	r.looked(t)
	require.Equal(t, "healthy", r.stock(t, whole).Health)
	r.driver.refuse("")
	r.looked(t)
	r.ahead.Add(int64(hungAfter))
	r.driver.refuse(uuidOf(whole))
	r.looked(t)
	require.Equal(t, instance.RunRunning, r.slice(a).RunState)
	r.ahead.Add(int64(hungAfter))
	r.is(t, whole, nodeagent.Quarantined)
	r.eventually(t, "its run ends", func() bool { return r.slice(a).Reason.Code == "GPU_HUNG" })
}

// A mild error after a bad one changes nothing, and neither does a restart of the agent.
func TestABadGPUStaysBad(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.Sim.XID(uuidOf(whole), 79, -1, -1)
	r.is(t, whole, nodeagent.Failing)
	r.Sim.XID(uuidOf(whole), 13, -1, -1)
	r.Sim.XID(uuidOf(whole), 63, -1, -1)
	r.looked(t)
	require.Equal(t, "XID_79", r.stock(t, whole).HealthCause)
	r.up(t)
	require.Equal(t, "failed", r.stock(t, whole).Health, "before anything was looked at")
	require.Equal(t, "XID_79", r.keeper.Inventory(t.Context()).ConditionCause)
	r.looked(t)
	require.Equal(t, "XID_79", r.stock(t, whole).HealthCause)
	require.Len(t, r.diary.of("gpu.unhealthy", uuidOf(whole)), 1, "told once")
}

// An Xid that comes in a storm does not fill the spool.
func TestAStormIsToldAtIntervals(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a := r.order(t, whole, 0)
	for range 200 {
		r.Sim.XID(uuidOf(whole), 31, -1, -1)
	}
	r.eventually(t, "it is told", func() bool { return len(r.diary.of("gpu.xid", a.String())) == 1 })
	r.looked(t)
	r.ahead.Add(int64(time.Minute))
	r.Sim.XID(uuidOf(whole), 31, -1, -1)
	r.eventually(t, "and again, with how often", func() bool { return len(r.diary.of("gpu.xid", a.String())) == 2 })
	require.NotEmpty(t, r.diary.of("gpu.xid", a.String())[1].Attributes["repeated"])
	require.Equal(t, instance.RunRunning, r.slice(a).RunState)
}

// A program that took too much ends its run, uncredited and with the reason; neighbours
// are told and go on, and the shared server has to be proven.
func TestAnEndedClientEndsItsRun(t *testing.T) {
	t.Parallel()
	proofs := make(chan error, 2)
	proofs <- errors.New("no client is taken")
	proofs <- nil
	r := newRig(t, func(c *health.Config) {
		c.MPSProof = func(context.Context, string) error { return <-proofs }
	})
	a, b := r.order(t, shares, 0), r.order(t, shares, 1)
	r.looked(t)
	r.monitor.Ended(guard.Ended{
		GPU: uuidOf(shares), Assignment: a.String(), Reason: guard.Bypass, Detail: "computes outside the daemon", Victims: []string{b.String()},
	})
	s := r.slice(a)
	require.Equal(t, instance.RunExited, s.RunState)
	require.Equal(t, "MPS_BYPASS", s.Reason.Code)
	require.False(t, s.Credited)
	require.Equal(t, instance.RunRunning, r.slice(b).RunState)
	require.Len(t, r.diary.of("client.ended", a.String()), 1)
	require.Len(t, r.diary.of("client.ended", b.String()), 1)
	r.eventually(t, "the server was not well", func() bool {
		list := r.diary.of("gpu.unhealthy", uuidOf(shares))
		return len(list) == 1 && list[0].Attributes["cause"] == "MPS_SERVER"
	})
	r.is(t, shares, nodeagent.Healthy)
	r.monitor.Drifted(guard.Drift{GPU: uuidOf(shares), Want: "exclusive_process", Got: "default"})
	require.Equal(t, "GPU_COMPUTE_MODE", r.stock(t, shares).HealthCause)
	r.ahead.Add(int64(time.Hour))
	r.is(t, shares, nodeagent.Healthy)
}

// A removal that somebody holds up is told to operators, with who it is.
func TestAHeldSliceIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a := r.order(t, migs, 3)
	r.Sim.Inject(sim.Fault{
		GPU: uuidOf(migs), Op: sim.OpDestroyComputeInstance, Kind: gpudrv.InUse, Times: 1000,
		Holders: []gpudrv.Holder{{PID: 812, Name: "nv-hostengine"}},
	})
	done := make(chan struct{})
	go func() { defer close(done); r.bury(a) }()
	r.eventually(t, "the keeper says why", func() bool { return r.slice(a).Reason.Code == "IN_USE" })
	r.looked(t)
	r.ahead.Add(int64(6 * time.Minute))
	r.eventually(t, "operators are told", func() bool { return len(r.diary.of("slice.held", a.String())) == 1 })
	require.Contains(t, r.diary.of("slice.held", a.String())[0].Detail, "nv-hostengine(812)")
	r.Sim.Heal()
	<-done
	require.Empty(t, r.slice(a).Key, "gone")
}

// A GPU instance without its compute instance is finished, or taken away again; the GPU
// is not to blame.
func TestAHalfMadeInstanceIsNoFaultOfTheGPU(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.Sim.Inject(sim.Fault{GPU: uuidOf(migs), Op: sim.OpCreateComputeInstance, Kind: gpudrv.NoRoom})
	a := r.wish(migs, 3)
	require.Equal(t, instance.RunFailed, r.slice(a).RunState)
	require.Equal(t, "NO_ROOM", r.slice(a).Reason.Code)
	r.bury(a)
	left, err := r.Sim.GPUInstances(t.Context(), uuidOf(migs))
	require.NoError(t, err)
	require.Empty(t, left)
	r.looked(t)
	require.Equal(t, "healthy", r.stock(t, migs).Health)
	r.order(t, migs, 3)
}

func TestADamagedFileIsNamed(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{"{": "unexpected end", `{"version": 7}`: "version 7 is not known, only 1"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "health.json"), []byte(text), 0o600))
		_, err := health.New(health.Config{Dir: dir})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "health.json")
	}
}

// A registration that breaks is made anew, and what was missed meanwhile is read.
func TestEventsAreRegisteredForAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	require.NoError(t, r.driver.deafen())
	require.NoError(t, r.Sim.Advise(uuidOf(whole), "drain_p2p"))
	r.is(t, whole, nodeagent.Degraded)
	require.NoError(t, r.Sim.Advise(uuidOf(whole), "none"))
	r.is(t, whole, nodeagent.Healthy)
	r.eventually(t, "an event arrives", func() bool {
		r.Sim.XID(uuidOf(migs), 63, -1, -1)
		return len(r.diary.of("gpu.xid", uuidOf(migs))) > 0
	})
}
