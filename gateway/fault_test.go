package gateway_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/nodeagent"
)

// gpuOf is the driver's name of the GPU that an instance holds.
func (r *rig) gpuOf(t *testing.T, i id.Instance) string {
	t.Helper()
	var uuid string
	require.NoError(t, r.owner.QueryRow(t.Context(), `select g.uuid from assignments a
		join claims c on c.holder_id = a.id join claim_slots s on s.claim_id = c.id join gpus g on g.id = s.gpu_id
		where a.instance_id = $1 and a.state = 'applied'`, i.UUID()).Scan(&uuid))
	return uuid
}

// A GPU fails under a run: the tenant is told, the time is credited, the GPU takes no
// work; when its host says that it is well, the instance runs again by itself.
func TestAGPUFaultFromEndToEnd(t *testing.T) {
	r := newRig(t)
	m := r.machine(t, "node-1", r.token(t, true))
	r.ready(t, "node-1")
	r.sell(t)
	i := r.create(t, "one", "whole")
	r.reaches(t, i, instance.Running)
	r.exec(t, `update instances set recovery = 'restart'`)
	eventually(t, "the request is reached", func() bool {
		return r.count(t, `select count(*) from instances where converged_generation = generation`) == 1
	})
	uuid := r.gpuOf(t, i)
	m.keeper.SetHealth(uuid, nodeagent.GPUHealth{State: nodeagent.Failing, Cause: "XID_79", Detail: "off the bus"})
	eventually(t, "the GPU is not sold", func() bool {
		return r.count(t, `select count(*) from gpus where uuid = $1 and health = 'failed'`, uuid) == 1
	})
	ended, err := m.keeper.Interrupt(nodeagent.Interruption{GPU: uuid, Code: "XID_79", Detail: "off the bus", Credited: true})
	require.NoError(t, err)
	require.Len(t, ended, 1)
	got := r.reaches(t, i, instance.Interrupted)
	require.Equal(t, "gpu.fault", instance.Explain(got.Status, got.Failure).Code)
	eventually(t, "the old run is gone and no other placed", func() bool {
		return r.count(t, `select count(*) from claims`) == 0 && r.count(t, `select count(*) from instances where recovering`) == 1
	})
	require.Zero(t, r.count(t, `select count(*) from usage_segments where upper_inf(during)`))
	require.Equal(t, 1, r.count(t, `select count(*) from events where type = 'gpu.unhealthy' and data ->> 'cause' = 'XID_79'`))
	require.Equal(t, 1, r.count(t, `select count(*) from interruptions where credited and to_at is null`))

	m.keeper.SetHealth(uuid, nodeagent.GPUHealth{State: nodeagent.Healthy})
	r.reaches(t, i, instance.Running)
	require.Equal(t, 1, r.count(t, `select count(*) from interruptions x join usage_segments u on u.subject_id = x.instance_id and u.run = 2
		where x.to_at = lower(u.during)`))
	require.Equal(t, 1, r.count(t, `select count(*) from events where type = 'gpu.healthy'`))
	found, clean, err := r.Audit(t.Context(), app.AuditTolerance)
	require.NoError(t, err)
	require.True(t, clean, "%+v", found)
}

// A host that asks to be left alone keeps its runs and takes no others, until it
// says otherwise.
func TestAHostConditionFromEndToEnd(t *testing.T) {
	r := newRig(t)
	m := r.machine(t, "node-1", r.token(t, true))
	r.ready(t, "node-1")
	r.sell(t)
	i := r.create(t, "one", "mig")
	r.reaches(t, i, instance.Running)
	m.keeper.SetCondition(agentlink.ConditionCordon, "LIB_MISMATCH")
	eventually(t, "the reason is shown", func() bool { return r.host(t, "node-1").Condition == "cordon" })
	require.Contains(t, r.host(t, "node-1").Reason, "LIB_MISMATCH")
	r.reaches(t, r.create(t, "two", "mig"), instance.Failed)
	require.Equal(t, instance.Running, r.get(t, i).Status)
	m.keeper.SetCondition(agentlink.ConditionGood, "")
	eventually(t, "the host takes work again", func() bool { return r.host(t, "node-1").Condition == "" })
	r.reaches(t, r.create(t, "three", "mig"), instance.Running)
}
