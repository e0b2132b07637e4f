package e2e_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// TestAModeChangeSurvivesKills changes the mode of one GPU to and fro; each time
// another process dies right after the acceptance, and once Temporal's databases go.
// Each change is one order and ends well.
func TestAModeChangeSurvivesKills(t *testing.T) {
	r := open(t, market.Small(1))
	ctx := within(t, 110*time.Second)
	b, c := r.buyer(t, ctx, "Drained")
	created, err := c.CreateInstance(ctx, b.Project, wanted(market.MIGSmall, "in-the-way"))
	require.NoError(t, err)
	_, err = c.WaitInstance(ctx, b.Project, created.Id, wire.WaitStatusRunning)
	require.NoError(t, err)

	kill := func(name string, signal syscall.Signal) func() error {
		return func() error {
			p, err := r.Process(name)
			if err != nil {
				return err
			}
			if err := p.Signal(signal); err != nil {
				return err
			}
			return p.WaitReady(ctx)
		}
	}
	deaths := []struct {
		who string
		die func() error
	}{
		{"nobody", func() error { return nil }},
		{"worker", kill("worker", syscall.SIGKILL)},
		{"gateway", kill("gateway", syscall.SIGKILL)},
		{"agent", kill(stack.AgentName("mig-1"), syscall.SIGKILL)},
		{"api", kill("api", syscall.SIGKILL)},
		{"temporal", kill("temporal", syscall.SIGKILL)},
		{"Temporal's databases", func() error { return r.WipeTemporal(ctx) }},
		{"postgres", kill("postgres", syscall.SIGQUIT)},
	}
	modes := []string{"whole", "mig"}
	for n, d := range deaths {
		op := r.setMode(t, ctx, "H200-141", modes[n%2])
		require.NoError(t, d.die(), d.who)
		done, err := r.Admin().WaitOperation(ctx, op.Id)
		require.NoError(t, err, d.who)
		require.Equal(t, wire.OperationStatusSucceeded, done.Status, d.who)
		require.Equal(t, modes[n%2], r.gpu(t, ctx, "H200-141").Mode, d.who)
	}
	require.Equal(t, len(deaths), value[int](t, ctx, r, `select mode_epoch from gpus where model = 'H200-141'`), "one order a change")
	require.Equal(t, len(deaths), value[int](t, ctx, r, `select count(*) from events where type = 'gpu.mode_succeeded'`))

	drained, err := c.GetInstance(ctx, b.Project, created.Id)
	require.NoError(t, err)
	require.Equal(t, wire.InstanceStatusStopped, drained.Status)
	reason, err := drained.StatusReason.Get()
	require.NoError(t, err)
	require.Equal(t, "gpu.drained", reason.Code)
	require.Len(t, drained.Billed, 1)
	require.False(t, drained.Billed[0].To.IsNull(), "nothing is billed after the drain")

	// It is sold in its mode: the same instance runs on it again.
	started, err := c.StartInstance(ctx, b.Project, created.Id)
	require.NoError(t, err)
	_, err = c.WaitInstance(ctx, b.Project, started.Id, wire.WaitStatusRunning)
	require.NoError(t, err)
	_, err = c.DeleteInstance(ctx, b.Project, created.Id)
	require.NoError(t, err)
	_, err = c.WaitInstance(ctx, b.Project, created.Id, wire.WaitStatusDeleted)
	require.NoError(t, err)
	r.clean(t, ctx)
}

func (r *region) gpu(t *testing.T, ctx context.Context, model string) client.GPU {
	t.Helper()
	for g, err := range r.Admin().GPUs(ctx) {
		require.NoError(t, err)
		if g.Model == model {
			return g
		}
	}
	require.Fail(t, "no such GPU", model)
	return client.GPU{}
}

// setMode drains what is there a second later.
func (r *region) setMode(t *testing.T, ctx context.Context, model, mode string) client.AdminOperation {
	t.Helper()
	g, by := r.gpu(t, ctx, model), wire.At(time.Now().Add(time.Second))
	op, err := r.Admin().SetGPUMode(ctx, g.Id, client.GPUModeChange{Mode: mode, DrainBy: &by}, client.IfGeneration(g.Generation))
	require.NoError(t, err)
	return op
}
