package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// place is a GPU by the position that the fleet file gives it.
type place struct {
	host  string
	index int32
}

// nodeFault is what befalls one GPU, or its host, and what has to follow.
type nodeFault struct {
	steps []string // of the fault file, without host and time
	// ends: the run ends and the time is credited; otherwise it goes on unharmed.
	ends bool
	// cause is the GPU's own, and event the operator's for it; "" for none.
	cause, event string
	// tells: the tenant hears of it although the run goes on.
	tells bool
}

// The faults of three hosts. The first needs a reboot to come back; the second heals by
// itself, but for the GPU that hangs; the third has the wrong driver.
var nodeFaults = map[place]nodeFault{
	{"lost-1", 0}:     {steps: []string{"do: lose, gpu: 0"}, ends: true, cause: "GPU_LOST", event: "gpu.unhealthy"},
	{"lost-1", 1}:     {steps: []string{"do: lose_quietly, gpu: 1"}, ends: true, cause: "GPU_LOST", event: "gpu.unhealthy"},
	{"lost-1", 2}:     {steps: []string{"do: xid, gpu: 2, code: 79", "do: lose_quietly, gpu: 2"}, ends: true, cause: "XID_79", event: "gpu.unhealthy"},
	{"lost-1", 3}:     {},
	{"ill-1", 0}:      {steps: []string{"do: xid, gpu: 0, code: 95"}, ends: true, cause: "XID_95", event: "gpu.unhealthy"},
	{"ill-1", 1}:      {steps: []string{"do: xid, gpu: 1, code: 94"}, ends: true, event: "gpu.xid"},
	{"ill-1", 2}:      {steps: []string{"do: xid, gpu: 2, code: 31"}, event: "gpu.xid", tells: true},
	{"ill-1", 3}:      {steps: []string{"do: recovery_action, gpu: 3, action: reset"}, ends: true, cause: "GPU_RECOVERY_RESET", event: "gpu.unhealthy"},
	{"ill-1", 4}:      {steps: []string{"do: hang, gpu: 4, op: read, times: 100000"}, ends: true, cause: "GPU_HUNG", event: "gpu.unhealthy"},
	{"ill-1", 5}:      {},
	{"mismatch-1", 0}: {steps: []string{"do: mismatch"}},
}

// faultRig is a region whose hosts read a fault file whenever their agents start.
type faultRig struct {
	*region
	file string
	c    *client.Client
	b    market.Buyer
}

// TestNodeFaults lets everything that a GPU can suffer happen to one under a tenant's
// program: what the tenant sees, what the operator hears, what is billed, and that the
// GPU is sold again afterwards.
func TestNodeFaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "faults.yaml")
	require.NoError(t, os.WriteFile(file, []byte("faults: []\n"), 0o600))
	whole := func(n int) []market.GPUs { return []market.GPUs{{Model: "H100-80", Mode: "whole", Count: n}} }
	fleet := market.Fleet{{Name: "lost-1", GPUs: whole(4)}, {Name: "ill-1", GPUs: whole(6)}, {Name: "mismatch-1", GPUs: whole(1)}}
	r := &faultRig{region: openAs(t, fleet, stack.Config{AgentArgs: []string{"--faults", file}}), file: file}
	ctx := within(t, 2*time.Minute)
	r.b, r.c = r.buyer(t, ctx, "Unlucky")

	tenants := r.fill(t, ctx)
	began := time.Now()
	steps := ""
	for at, f := range nodeFaults {
		for _, step := range f.steps {
			steps += fmt.Sprintf("  - {host: %s, at: 1s, %s}\n", at.host, step)
		}
	}
	r.script(t, ctx, "faults:\n"+steps, "lost-1", "ill-1", "mismatch-1")
	for at, f := range nodeFaults {
		r.struck(t, ctx, at, f, tenants[at])
	}
	t.Logf("all faults were judged after %s", time.Since(began).Round(time.Second))
	r.hostConditions(t, ctx)

	// What hung answers again, and who lost a GPU or its driver reboots.
	r.script(t, ctx, "faults: []\n", "ill-1")
	r.script(t, ctx, "faults:\n  - {do: reboot, on: read}\n", "lost-1", "mismatch-1")
	r.rebooted(t, ctx, tenants[place{"lost-1", 3}])
	r.rebooted(t, ctx, tenants[place{"mismatch-1", 0}])
	require.NoError(t, os.WriteFile(file, []byte("faults: []\n"), 0o600))
	r.sellable(t, ctx)
	for at, f := range nodeFaults {
		if f.event == "gpu.unhealthy" {
			uuid, err := tenants[at].Gpus[0].Uuid.Get()
			require.NoError(t, err)
			require.True(t, r.told(t, ctx, r.gpus(t, ctx)[uuid].Id, "gpu.healthy", ""), "%v: the way back is told", at)
		}
	}
	for _, i := range tenants {
		remove(t, ctx, r.c, r.b, i.Id)
	}
	t.Logf("all GPUs were back after %s", time.Since(began).Round(time.Second))

	// Every GPU is sold once more.
	for _, i := range r.fill(t, ctx) {
		remove(t, ctx, r.c, r.b, i.Id)
	}
	r.clean(t, ctx)
}

// script gives the agents of some hosts a fault file, by a restart.
func (r *faultRig) script(t *testing.T, ctx context.Context, text string, hosts ...string) {
	t.Helper()
	require.NoError(t, os.WriteFile(r.file, []byte(text), 0o600))
	for _, h := range hosts {
		p, err := r.Process(stack.AgentName(h))
		require.NoError(t, err)
		starts := p.Starts()
		require.NoError(t, r.Kill(stack.AgentName(h)))
		require.Eventually(t, func() bool { return p.Starts() > starts }, settle, glance, h)
		require.NoError(t, p.WaitReady(ctx))
	}
}

// gpus are the operator's view of all GPUs, by id of the driver.
func (r *faultRig) gpus(t *testing.T, ctx context.Context) map[string]client.GPU {
	t.Helper()
	out := map[string]client.GPU{}
	for g, err := range r.Admin().GPUs(ctx) {
		require.NoError(t, err)
		out[g.Uuid] = g
	}
	return out
}

// fill puts an instance on every GPU and returns them by place.
func (r *faultRig) fill(t *testing.T, ctx context.Context) map[place]client.Instance {
	t.Helper()
	up, err := parallel(len(nodeFaults), func(i int) (client.Instance, error) {
		created, err := r.c.CreateInstance(ctx, r.b.Project, wanted(market.Whole, fmt.Sprintf("unlucky-%d", i)))
		if err != nil {
			return created, err
		}
		return r.c.WaitInstance(ctx, r.b.Project, created.Id, wire.WaitStatusRunning)
	})
	require.NoError(t, err)
	names := map[string]string{}
	for h, err := range r.Admin().Hosts(ctx) {
		require.NoError(t, err)
		names[h.Id] = h.Name
	}
	gpus, out := r.gpus(t, ctx), map[place]client.Instance{}
	for _, i := range up {
		uuid, err := i.Gpus[0].Uuid.Get()
		require.NoError(t, err)
		out[place{names[gpus[uuid].Host], gpus[uuid].Index}] = i
	}
	require.Len(t, out, len(nodeFaults))
	return out
}

// struck waits for all that follows from a fault.
func (r *faultRig) struck(t *testing.T, ctx context.Context, at place, f nodeFault, was client.Instance) {
	uuid, err := was.Gpus[0].Uuid.Get()
	require.NoError(t, err)
	gpu := r.gpus(t, ctx)[uuid]
	if f.event != "" {
		require.Eventually(t, func() bool { return r.told(t, ctx, gpu.Id, f.event, f.cause) }, time.Minute, 4*glance, "%v: %s", at, f.event)
	}
	var seen client.Instance
	require.Eventually(t, func() bool {
		seen, err = r.c.GetInstance(ctx, r.b.Project, was.Id)
		return err == nil && (seen.Status != wire.InstanceStatusRunning) == f.ends && len(seen.Interruptions) > 0 == f.ends
	}, time.Minute, 4*glance, "%v", at)
	if !f.ends {
		require.Equal(t, was.Billed, seen.Billed, "%v: billed as ever", at)
		if f.tells {
			require.Eventually(t, func() bool {
				return value[int](t, ctx, r.region, `select count(*) from events e join instances i on i.id = e.subject_id
					and i.org_id = e.org_id where i.id = $1 and e.type = 'gpu.xid'`, uuidOf(t, was.Id)) > 0
			}, settle, glance, "%v: the tenant hears of it", at)
		}
		return
	}
	reason, err := seen.StatusReason.Get()
	require.NoError(t, err, "%v", at)
	require.Equal(t, "gpu.fault", reason.Code, "%v", at)
	require.Len(t, seen.Billed, 1, "%v", at)
	end, err := seen.Billed[0].To.Get()
	require.NoError(t, err, "%v: billing has ended", at)
	require.Len(t, seen.Interruptions, 1, "%v", at)
	require.True(t, seen.Interruptions[0].Credited, "%v", at)
	require.Equal(t, end, seen.Interruptions[0].From, "%v: billed up to the fault", at)
}

// told reports whether the operator was told of a GPU, with a cause if one is asked for.
func (r *faultRig) told(t *testing.T, ctx context.Context, subject, kind, cause string) bool {
	t.Helper()
	for e, err := range r.Admin().Events(ctx, client.EventFilter{Type: kind, Subject: subject}) {
		require.NoError(t, err)
		if cause == "" || e.Data["cause"] == cause {
			return true
		}
	}
	return false
}

// hostConditions are the two hosts that ask not to get more.
func (r *faultRig) hostConditions(t *testing.T, ctx context.Context) {
	t.Helper()
	for name, cause := range map[string]string{"lost-1": "", "mismatch-1": "LIB_MISMATCH"} {
		h := hostNamed(t, ctx, r.Admin(), name)
		require.Eventually(t, func() bool { return r.told(t, ctx, h.Id, "host.condition", cause) }, time.Minute, 4*glance, name)
	}
}

// rebooted waits until the run of a host that rebooted is over, credited.
func (r *faultRig) rebooted(t *testing.T, ctx context.Context, was client.Instance) {
	t.Helper()
	var seen client.Instance
	require.Eventually(t, func() bool {
		var err error
		seen, err = r.c.GetInstance(ctx, r.b.Project, was.Id)
		return err == nil && seen.Status == wire.InstanceStatusStopped && !seen.Transitioning
	}, time.Minute, 4*glance)
	reason, err := seen.StatusReason.Get()
	require.NoError(t, err)
	require.Equal(t, "host.rebooted", reason.Code)
	require.Len(t, seen.Interruptions, 1)
	require.True(t, seen.Interruptions[0].Credited)
	require.Len(t, seen.Billed, 1)
	require.False(t, seen.Billed[0].To.IsNull())
}

// sellable waits until every GPU is healthy and no host refuses work.
func (r *faultRig) sellable(t *testing.T, ctx context.Context) {
	t.Helper()
	require.NoError(t, r.WaitHosts(ctx, r.fleet, wire.HostStateReady))
	ill := ""
	defer func() {
		if ill != "" {
			t.Log("not well:", ill)
		}
	}()
	require.Eventually(t, func() bool {
		ill = ""
		for _, g := range r.gpus(t, ctx) {
			if g.Health != wire.GpuHealthHealthy {
				ill += fmt.Sprintf("%s of %s is %s; ", g.Id, g.Host, g.Health)
			}
		}
		for h, err := range r.Admin().Hosts(ctx) {
			require.NoError(t, err)
			if h.Condition != wire.HostConditionGood {
				ill += fmt.Sprintf("%s is %s; ", h.Name, h.Condition)
			}
		}
		return ill == ""
	}, time.Minute, 4*glance)
}
