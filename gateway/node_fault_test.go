package gateway_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/guard"
)

// scene is a fault under way: one instance runs on the GPU.
type scene struct {
	*rig
	m    *machine
	inst id.Instance
	uuid string
}

// nodeFault is one way in which a node goes wrong, with what its tenant sees, what the
// operator hears, and what is billed.
type nodeFault struct {
	offer string
	do    func(t *testing.T, s *scene)
	// status and reason are the instance's; Running with no reason if it goes on.
	status instance.Status
	reason string
	// credited: an interruption is credited; otherwise there is none.
	credited bool
	event    string // of the operator, by type and cause
	cause    string
	tenant   string // type of the event in the tenant's feed; "" is none of the GPU's
	// condition is what the host says of itself.
	condition string
	reboot    bool
	mend      func(t *testing.T, s *scene)
}

var nodeFaults = map[string]nodeFault{
	"Xid 79": {
		offer: "whole", do: func(_ *testing.T, s *scene) { s.m.Sim.XID(s.uuid, 79, -1, -1) },
		status: instance.Stopped, reason: "gpu.fault", credited: true, event: "gpu.unhealthy", cause: "XID_79",
		condition: "XID_79", reboot: true,
	},
	"lost without a word": {
		offer: "mig", do: func(t *testing.T, s *scene) { require.NoError(t, s.m.Sim.LoseQuietly(s.uuid)) },
		status: instance.Stopping, reason: "gpu.fault", credited: true, event: "gpu.unhealthy", cause: "GPU_LOST",
		condition: "GPU_LOST", reboot: true,
	},
	"Xid 95": {
		offer: "mig", do: func(_ *testing.T, s *scene) { s.m.Sim.XID(s.uuid, 95, -1, -1) },
		status: instance.Stopped, reason: "gpu.fault", credited: true, event: "gpu.unhealthy", cause: "XID_95",
	},
	"Xid 94": {
		offer: "mig", do: func(t *testing.T, s *scene) { s.m.Sim.XID(s.uuid, 94, s.instanceOn(t), 0) },
		status: instance.Stopped, reason: "gpu.fault", credited: true, event: "gpu.xid",
	},
	"Xid 48": {
		offer: "whole", do: func(_ *testing.T, s *scene) { s.m.Sim.XID(s.uuid, 48, -1, -1) },
		status: instance.Stopped, reason: "gpu.fault", credited: true, event: "gpu.unhealthy", cause: "XID_48",
	},
	"Xid 31": {
		offer: "whole", do: func(_ *testing.T, s *scene) { s.m.Sim.XID(s.uuid, 31, -1, -1) },
		status: instance.Running, event: "gpu.xid", tenant: "gpu.xid",
	},
	"an unknown Xid": {
		offer: "whole", do: func(_ *testing.T, s *scene) { s.m.Sim.XID(s.uuid, 999, -1, -1) },
		status: instance.Running, event: "gpu.alarm",
	},
	"the driver advises a reset": {
		offer: "whole", do: func(t *testing.T, s *scene) { require.NoError(t, s.m.Sim.Advise(s.uuid, "reset")) },
		status: instance.Stopped, reason: "gpu.fault", credited: true, event: "gpu.unhealthy", cause: "GPU_RECOVERY_RESET",
	},
	"a GPU hangs": {
		offer: "whole", do: func(t *testing.T, s *scene) {
			s.m.stop()
			s.m.hung.uuid, s.m.hung.until = s.uuid, make(chan struct{})
			s.m.start(t)
		},
		status: instance.Stopped, reason: "gpu.fault", credited: true, event: "gpu.unhealthy", cause: "GPU_HUNG",
		mend: func(_ *testing.T, s *scene) { close(s.m.hung.until) },
	},
	"the driver is replaced": {
		offer: "whole", do: func(t *testing.T, s *scene) { require.NoError(t, s.m.Sim.Mismatch()) },
		status: instance.Running, event: "host.condition", cause: "LIB_MISMATCH", condition: "LIB_MISMATCH", reboot: true,
	},
	"the host reboots": {
		offer: "whole", do: func(t *testing.T, s *scene) { s.reboots(t) },
		status: instance.Stopped, reason: "host.rebooted", credited: true,
	},
	"an MPS server falls": {
		offer: "mps", do: func(t *testing.T, s *scene) {
			require.NoError(t, s.m.Sim.Attach(s.uuid, sim.Client{PID: 77, Slot: gpu.Slot{GPU: s.uuid, Mode: mode("mps:4x25"), Size: 1}}))
			require.NoError(t, s.m.Sim.Fault(s.uuid, 77))
		},
		status: instance.Running, event: "gpu.unhealthy", cause: "MPS_SERVER", tenant: "gpu.xid",
	},
	"a client is ended": {
		offer: "mps", do: func(t *testing.T, s *scene) {
			s.m.watch.Health.Ended(guard.Ended{GPU: s.uuid, Assignment: s.assignment(t), Reason: guard.Bypass, Detail: "outside the daemon"})
		},
		status: instance.Stopped, reason: "gpu.client_ended", event: "client.ended", tenant: "client.ended",
	},
}

// assignment is the run of the scene.
func (s *scene) assignment(t *testing.T) string {
	t.Helper()
	var a [16]byte
	require.NoError(t, s.owner.QueryRow(t.Context(), `select id from assignments where instance_id = $1`, s.inst.UUID()).Scan(&a))
	return id.Assignment(a).String()
}

// instanceOn is the driver's number of the only GPU instance.
func (s *scene) instanceOn(t *testing.T) int {
	t.Helper()
	list, err := s.m.Sim.GPUInstances(t.Context(), s.uuid)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0].ID
}

// reboots ends the agent, reboots the machine and starts the agent again.
func (s *scene) reboots(t *testing.T) {
	t.Helper()
	s.m.stop()
	require.NoError(t, sim.Reboot(filepath.Join(s.m.dir, "sim")))
	s.m.boot += "+"
	s.m.start(t)
}

// watchedMachine is a machine with all that looks after its GPUs.
func (r *rig) watchedMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{name: "node-1", dir: filepath.Join(t.TempDir(), "node-1"), boot: "boot-1", token: r.token(t, true), url: r.url, watched: true}
	m.start(t)
	t.Cleanup(func() { m.stop() })
	r.ready(t, "node-1")
	r.sell(t)
	return m
}

// Each fault of a node, by the agent's own eyes: what the tenant sees, what operators
// hear, what is billed and credited, and that the GPU is sold again at the end.
func TestNodeFaultsFromDriverToInvoice(t *testing.T) {
	for name, f := range nodeFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := &scene{rig: r, m: r.watchedMachine(t)}
			s.inst = r.create(t, "one", f.offer)
			r.reaches(t, s.inst, instance.Running)
			eventually(t, "the request is reached", func() bool {
				return r.count(t, `select count(*) from instances where converged_generation = generation`) == 1
			})
			s.uuid = r.gpuOf(t, s.inst)
			f.do(t, s)
			f.seen(t, s)
			f.billed(t, s)
			f.mended(t, s)
		})
	}
}

// seen is what tenant and operator see.
func (f nodeFault) seen(t *testing.T, s *scene) {
	t.Helper()
	if f.event != "" {
		eventually(t, "operators hear of it", func() bool {
			return s.count(t, `select count(*) from events where type = $1 and org_id = '00000000-0000-0000-0000-000000000000' and ($2 = '' or data ->> 'cause' = $2)`, f.event, f.cause) >= 1
		})
	}
	if f.tenant != "" {
		eventually(t, "the tenant hears of it", func() bool {
			return s.count(t, `select count(*) from events where type = $1 and org_id <> '00000000-0000-0000-0000-000000000000'`, f.tenant) == 1
		})
	} else {
		require.Zero(t, s.count(t, `select count(*) from events where type like 'gpu.%' and org_id <> '00000000-0000-0000-0000-000000000000'`))
	}
	if f.condition != "" {
		eventually(t, "the host says so", func() bool { h := s.host(t, "node-1"); return h.Condition == "cordon" })
		require.Contains(t, s.host(t, "node-1").Reason, f.condition)
	}
	got := s.reaches(t, s.inst, f.status)
	if f.status != instance.Running {
		require.Equal(t, f.reason, instance.Explain(got.Status, got.Failure).Code)
	}
}

// billed is what the books say.
func (f nodeFault) billed(t *testing.T, s *scene) {
	t.Helper()
	open := s.count(t, `select count(*) from usage_segments where upper_inf(during)`)
	credited := s.count(t, `select count(*) from interruptions where credited`)
	if f.status == instance.Running {
		require.Positive(t, open, "it is billed on")
		require.Zero(t, credited)
		return
	}
	require.Zero(t, open)
	require.Equal(t, f.credited, credited == 1)
	if !f.credited {
		require.Zero(t, s.count(t, `select count(*) from interruptions`))
	}
}

// mended brings the GPU back, and sells it.
func (f nodeFault) mended(t *testing.T, s *scene) {
	t.Helper()
	if f.mend != nil {
		f.mend(t, s)
	}
	if f.reboot {
		s.reboots(t)
	}
	if f.status == instance.Running {
		_, err := s.DeleteInstance(t.Context(), s.tenant, s.project, s.inst, app.Match{})
		require.NoError(t, err)
	}
	eventually(t, "the GPU is well and free", func() bool {
		return s.count(t, `select count(*) from gpus where uuid = $1 and health = 'healthy'`, s.uuid) == 1 &&
			s.count(t, `select count(*) from claims`) == 0 && s.host(t, "node-1").Condition == ""
	})
	again := s.create(t, "two", f.offer)
	s.reaches(t, again, instance.Running)
	require.Equal(t, s.uuid, s.gpuOf(t, again))
}

// A start that fails half-way charges nothing, blames no GPU, and leaves nothing.
func TestAHalfMadeSliceChargesNothing(t *testing.T) {
	r := newRig(t)
	m := r.watchedMachine(t)
	m.Sim.Inject(sim.Fault{Op: sim.OpCreateComputeInstance, Kind: gpudrv.NoRoom, Times: 10})
	i := r.create(t, "one", "mig")
	got := r.reaches(t, i, instance.Failed)
	require.NotEmpty(t, instance.Explain(got.Status, got.Failure).Code)
	require.Zero(t, r.count(t, `select count(*) from usage_segments`))
	require.Zero(t, r.count(t, `select count(*) from interruptions`))
	m.Sim.Heal()
	eventually(t, "nothing is left", func() bool { return r.count(t, `select count(*) from claims`) == 0 })
	require.Zero(t, r.count(t, `select count(*) from gpus where health <> 'healthy'`))
	r.reaches(t, r.create(t, "two", "mig"), instance.Running)
}

// A slice that somebody holds is not free, its tenant pays no more, and operators see
// who it is.
func TestAHeldSliceIsNotSold(t *testing.T) {
	r := newRig(t)
	m := r.watchedMachine(t)
	i := r.create(t, "one", "mig")
	r.reaches(t, i, instance.Running)
	uuid := r.gpuOf(t, i)
	m.Sim.Inject(sim.Fault{
		GPU: uuid, Op: sim.OpDestroyComputeInstance, Kind: gpudrv.InUse, Times: 1000, Holders: []gpudrv.Holder{{PID: 812, Name: "nv-hostengine"}},
	})
	_, err := r.DeleteInstance(t.Context(), r.tenant, r.project, i, app.Match{})
	require.NoError(t, err)
	eventually(t, "the holder is named", func() bool {
		for _, x := range m.keeper.Tenancies() {
			if x.Problem.Code == "IN_USE" {
				require.Contains(t, x.Problem.Detail, "nv-hostengine(812)")
				return true
			}
		}
		return false
	})
	require.Zero(t, r.count(t, `select count(*) from usage_segments where upper_inf(during)`))
	require.Equal(t, 1, r.count(t, `select count(*) from claims`), "what is held is not sold")
	m.Sim.Heal()
	eventually(t, "it is free", func() bool { return r.count(t, `select count(*) from claims`) == 0 })
}
