package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/nodeagent"
)

// giAt3 is the driver's number of the GPU instance at unit 3.
const giAt3 = 10

// fault is one way in which a host goes wrong, from the driver to the tenant's run, the
// operator's events and the way back.
type fault struct {
	name string
	on   int // the GPU concerned
	do   func(t *testing.T, r *rig)
	// ends: the runs on the GPU end, with the code and credited or not; only3: only the
	// one at unit 3 of the MIG GPU does.
	ends     string
	only3    bool
	credited bool
	// health is what the GPU shows before the runs are buried; condition the host's.
	health    nodeagent.HealthState
	cause     string
	condition string
	event     string // that operators get of the GPU
	told      bool   // the tenants of the GPU get gpu.xid
	// reboot brings it back; otherwise it comes back by itself once it is empty.
	reboot bool
	mend   func(t *testing.T, r *rig)
}

var faults = []fault{
	{
		name: "Xid 79", on: whole, do: func(_ *testing.T, r *rig) { r.Sim.XID(uuidOf(whole), 79, -1, -1) },
		ends: "XID_79", credited: true, health: nodeagent.Failing, cause: "XID_79", condition: "XID_79", event: "gpu.xid", reboot: true,
	},
	{
		name: "lost without a word", on: migs, do: func(t *testing.T, r *rig) { require.NoError(t, r.Sim.LoseQuietly(uuidOf(migs))) },
		ends: "GPU_LOST", credited: true, health: nodeagent.Failing, cause: "GPU_LOST", condition: "GPU_LOST",
		event: "gpu.unhealthy", reboot: true,
	},
	{
		name: "Xid 95", on: migs, do: func(_ *testing.T, r *rig) { r.Sim.XID(uuidOf(migs), 95, giAt3, 0) },
		ends: "XID_95", credited: true, health: nodeagent.Failing, cause: "XID_95", event: "gpu.xid",
	},
	{
		name: "Xid 94 in one instance", on: migs, do: func(_ *testing.T, r *rig) { r.Sim.XID(uuidOf(migs), 94, giAt3, 0) },
		ends: "XID_94", only3: true, credited: true, health: nodeagent.Healthy, event: "gpu.xid",
	},
	{
		name: "Xid 48, contained", on: migs, do: func(_ *testing.T, r *rig) {
			r.Sim.XID(uuidOf(migs), 48, -1, -1)
			r.Sim.XID(uuidOf(migs), 94, giAt3, 0)
			r.ahead.Add(int64(time.Minute))
		},
		ends: "XID_94", only3: true, credited: true, health: nodeagent.Degraded, cause: "XID_48", event: "gpu.xid",
	},
	{
		name: "Xid 48, not contained", on: migs, do: func(t *testing.T, r *rig) {
			r.Sim.XID(uuidOf(migs), 48, -1, -1)
			r.is(t, migs, nodeagent.Degraded)
			r.ahead.Add(int64(3 * time.Second))
		},
		ends: "XID_48", credited: true, health: nodeagent.Failing, cause: "XID_48", event: "gpu.xid",
	},
	{
		name: "Xid 31 by a program", on: migs, do: func(_ *testing.T, r *rig) { r.Sim.XID(uuidOf(migs), 31, giAt3, 0) },
		health: nodeagent.Healthy, event: "gpu.xid", told: true,
	},
	{
		name: "an unknown Xid", on: whole, do: func(_ *testing.T, r *rig) { r.Sim.XID(uuidOf(whole), 999, -1, -1) },
		health: nodeagent.Degraded, cause: "XID_999", event: "gpu.alarm",
	},
	{
		name: "the driver advises a reset", on: whole, do: func(t *testing.T, r *rig) { require.NoError(t, r.Sim.Advise(uuidOf(whole), "reset")) },
		ends: "GPU_RECOVERY_RESET", credited: true, health: nodeagent.Failing, cause: "GPU_RECOVERY_RESET", event: "gpu.unhealthy",
	},
	{
		name: "the driver advises to drain", on: whole, do: func(t *testing.T, r *rig) { require.NoError(t, r.Sim.Advise(uuidOf(whole), "drain_reset")) },
		health: nodeagent.Degraded, cause: "GPU_RECOVERY_DRAIN_RESET", event: "gpu.unhealthy",
	},
	{
		name: "the driver advises a reboot", on: whole, do: func(t *testing.T, r *rig) { require.NoError(t, r.Sim.Advise(uuidOf(whole), "reboot")) },
		ends: "GPU_RECOVERY_REBOOT", credited: true, health: nodeagent.Failing, cause: "GPU_RECOVERY_REBOOT",
		condition: "GPU_RECOVERY_REBOOT", event: "gpu.unhealthy", reboot: true,
	},
	{
		name: "rows wait to be replaced", on: whole, do: func(t *testing.T, r *rig) { r.play(t, "- {do: remap, gpu: 0, count: 1}") },
		health: nodeagent.Degraded, cause: "GPU_REMAP_PENDING", event: "gpu.unhealthy",
	},
	{
		name: "memory errors without a word", on: whole, do: func(t *testing.T, r *rig) { r.play(t, "- {do: ecc, gpu: 0, count: 2}") },
		health: nodeagent.Degraded, cause: "GPU_ECC", event: "gpu.unhealthy",
	},
	{
		name: "the fabric breaks", on: whole, do: func(t *testing.T, r *rig) { r.play(t, "- {do: fabric_down, gpu: 0}") },
		health: nodeagent.Degraded, cause: "GPU_FABRIC", event: "gpu.unhealthy",
		mend: func(t *testing.T, r *rig) { r.play(t, "- {do: fabric_up, gpu: 0}") },
	},
	{
		name: "a link goes down", on: whole, do: func(t *testing.T, r *rig) { r.play(t, "- {do: link_down, gpu: 0, link: 4}") },
		health: nodeagent.Degraded, cause: "GPU_NVLINK", event: "gpu.unhealthy",
		mend: func(t *testing.T, r *rig) { r.play(t, "- {do: fabric_up, gpu: 0}") },
	},
	{
		name: "a GPU hangs", on: whole, do: func(t *testing.T, r *rig) {
			r.driver.hang(uuidOf(whole))
			r.looked(t)
			r.ahead.Add(int64(hungAfter))
		},
		ends: "GPU_HUNG", credited: true, health: nodeagent.Quarantined, cause: "GPU_HUNG", event: "gpu.unhealthy",
		mend: func(_ *testing.T, r *rig) { r.driver.answer() },
	},
	{
		name: "the driver is replaced under it", on: whole, do: func(t *testing.T, r *rig) { require.NoError(t, r.Sim.Mismatch()) },
		health: nodeagent.Healthy, condition: "LIB_MISMATCH", reboot: true,
	},
}

// tenants are the runs on the test host, by GPU and unit.
type tenants map[[2]int]id.Assignment

// Each fault ends exactly the runs it must, with a reason and credited or not; the rest
// of the host goes on; operators are told; nothing new is taken; and at the end the GPU
// is sold again.
func TestEachFaultFromEndToEnd(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			runs := tenants{}
			for _, x := range [][2]int{{whole, 0}, {migs, 0}, {migs, 3}, {shares, 0}, {turns, 0}} {
				runs[x] = r.order(t, x[0], x[1])
			}
			r.looked(t)
			f.do(t, r)
			f.shows(t, r, runs)
			f.tells(t, r, runs)
			f.heals(t, r, runs)
		})
	}
}

// hits says whether a fault ends the run at a place.
func (f fault) hits(at [2]int) bool {
	return f.ends != "" && at[0] == f.on && (!f.only3 || at[1] == 3)
}

func (f fault) shows(t *testing.T, r *rig, runs tenants) {
	t.Helper()
	for at, a := range runs {
		if !f.hits(at) {
			continue
		}
		require.Eventually(t, func() bool { return r.slice(a).RunState == instance.RunExited }, patience, 5*time.Millisecond, "%v", at)
		s := r.slice(a)
		require.Equal(t, f.ends, s.Reason.Code)
		require.Equal(t, f.credited, s.Credited)
		require.NotEmpty(t, s.Reason.Detail)
	}
	r.is(t, f.on, f.health)
	require.Equal(t, f.cause, r.stock(t, f.on).HealthCause)
	require.Eventually(t, func() bool { return r.keeper.Inventory(t.Context()).ConditionCause == f.condition }, patience, 5*time.Millisecond)
	r.looked(t)
	for at, a := range runs {
		if !f.hits(at) {
			require.Equal(t, instance.RunRunning, r.slice(a).RunState, "%v: %+v", at, r.slice(a))
		}
	}
	if f.health == nodeagent.Healthy {
		return
	}
	unit := 5
	if f.on == whole {
		unit = 0
	}
	refused := r.wish(f.on, unit)
	require.Equal(t, instance.RunFailed, r.slice(refused).RunState, "an ill gpu takes nothing new")
	if f.reboot {
		runs[[2]int{f.on, unit + 1}] = refused // what is gone may not let go of it before
		return
	}
	r.bury(refused)
}

func (f fault) tells(t *testing.T, r *rig, runs tenants) {
	t.Helper()
	if f.event != "" {
		require.NotEmpty(t, r.diary.of(f.event, uuidOf(f.on)))
	}
	if f.condition != "" {
		require.Equal(t, f.condition, r.diary.of("host.cordoned", "")[0].Attributes["cause"])
	} else {
		require.Empty(t, r.diary.of("host.cordoned", ""))
	}
	for at, a := range runs {
		require.Equal(t, f.told && at == [2]int{f.on, 3}, len(r.diary.of("gpu.xid", a.String())) > 0, "%v", at)
	}
}

func (f fault) heals(t *testing.T, r *rig, runs tenants) {
	t.Helper()
	if f.mend != nil {
		f.mend(t, r)
	}
	if f.reboot {
		require.NoError(t, r.Sim.Reboot())
		r.up(t)
	}
	for at, a := range runs {
		if f.reboot || at[0] == f.on {
			r.bury(a)
		}
	}
	r.is(t, f.on, nodeagent.Healthy)
	require.Eventually(t, func() bool { return r.keeper.Inventory(t.Context()).Condition == "" }, patience, 5*time.Millisecond)
	r.order(t, f.on, 0)
	if f.health != nodeagent.Healthy {
		require.Eventually(t, func() bool { return len(r.diary.of("gpu.healthy", uuidOf(f.on))) == 1 }, patience, time.Millisecond)
	}
	if f.condition != "" {
		require.Len(t, r.diary.of("host.uncordoned", ""), 1)
	}
	require.LessOrEqual(t, r.driver.most, 1, "a GPU that hangs costs one call")
}
