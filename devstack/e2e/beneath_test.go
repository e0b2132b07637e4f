package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// restartsBeneath kills the agent, and then its containerd, under a running instance:
// the program does not notice, and neither does the bill.
func restartsBeneath(t *testing.T, r *region) {
	ctx := within(t, time.Minute)
	b, c := r.buyer(t, ctx, "Steady")
	up := running(t, ctx, c, b, r.contained("steady", "sh", "-c", "echo $$ >/tmp/began; date +%s >>/tmp/began; exec sleep 1000"))
	began := r.inside(t, ctx, b.Key, up.Id, "", "cat", "/tmp/began")
	require.Zero(t, began.code, began.err)
	run := value[int](t, ctx, r, `select run from instances where id = $1`, uuidOf(t, up.Id))

	for _, victim := range []string{stack.AgentName(realHost), "containerd", stack.AgentName(realHost)} {
		p, err := r.Process(victim)
		require.NoError(t, err)
		starts := p.Starts()
		require.NoError(t, r.Kill(victim))
		// What meets the restart is late, and does not fail.
		met, err := c.CreateInstance(ctx, b.Project, r.contained("met", "sleep", "1000"))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return p.Starts() > starts }, settle, glance, victim)
		require.NoError(t, p.WaitReady(ctx))
		// The SSH gateway lives in the agent: it is back, perhaps elsewhere, with it.
		var again ended
		require.Eventually(t, func() bool {
			again = r.inside(t, ctx, b.Key, up.Id, "", "cat", "/tmp/began")
			return again.code == 0
		}, 20*time.Second, 4*glance, victim)
		require.Equal(t, began.out, again.out, "the same life of the program")
		steady(t, ctx, c, b, up)
		more, err := c.WaitInstance(ctx, b.Project, met.Id, wire.WaitStatusRunning)
		require.NoError(t, err, victim)
		remove(t, ctx, c, b, more.Id)
		// And the host takes new work.
		more = running(t, ctx, c, b, r.contained("after", "sleep", "1000"))
		remove(t, ctx, c, b, more.Id)
		require.Len(t, r.tasks(t), 1, victim)
	}
	require.Equal(t, run, value[int](t, ctx, r, `select run from instances where id = $1`, uuidOf(t, up.Id)), "the same run")
	logs := program(t, r.tranche(ctx, b.Key, "instance", "logs", up.Id))
	require.Zero(t, logs.code, logs.err)
	remove(t, ctx, c, b, up.Id)
	gone, err := c.GetInstance(ctx, b.Project, up.Id)
	require.NoError(t, err)
	require.Len(t, gone.Billed, 1, "one unbroken interval")
	require.Equal(t, up.Billed[0].From, gone.Billed[0].From)
	require.Empty(t, gone.Interruptions)
}

// steady requires that an instance runs on as it did, or is about to be seen to.
func steady(t *testing.T, ctx context.Context, c *client.Client, b market.Buyer, was client.Instance) {
	t.Helper()
	var seen client.Instance
	require.Eventually(t, func() bool {
		var err error
		seen, err = c.GetInstance(ctx, b.Project, was.Id)
		return err == nil && seen.Status == wire.InstanceStatusRunning && seen.Ready
	}, settle, glance)
	require.Equal(t, was.Billed, seen.Billed)
	require.Equal(t, was.Gpus, seen.Gpus)
	require.Empty(t, seen.Interruptions)
}
