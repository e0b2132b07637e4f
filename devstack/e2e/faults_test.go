package e2e_test

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/replay"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
	"github.com/tranche-cloud/tranche/devstack/internal/trace"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// TestReplaySurvivesKills kills one process after the other, and Postgres, while
// a trace is played: what was accepted is there once, and billed right.
func TestReplaySurvivesKills(t *testing.T) {
	const organizations, speed = 4, 20
	seed := traceSeed(t)
	r := open(t, market.Small(8))
	ctx := within(t, 110*time.Second)
	buyers, err := replay.Prepare(ctx, r.Stack, organizations)
	require.NoError(t, err)
	arrivals, _ := trace.Plan(trace.Densest(trace.Generate(seed, 70), 60), organizations)

	type end struct {
		result *replay.Result
		err    error
	}
	played := make(chan end, 1)
	go func() {
		result, err := replay.Run(ctx, r.Stack, buyers, replay.Play{
			Arrivals: arrivals, Organizations: organizations, Speed: speed, Tail: 2 * time.Second,
		})
		played <- end{result, err}
	}()

	kills := []struct {
		process string
		signal  syscall.Signal
	}{
		{"worker", syscall.SIGKILL}, {"api", syscall.SIGKILL}, {"gateway", syscall.SIGKILL},
		{stack.AgentName("whole-1"), syscall.SIGKILL},
		{"temporal", syscall.SIGKILL},
		{"postgres", syscall.SIGQUIT}, // ends without a checkpoint: recovery follows
	}
	// Spread over the time in which instances arrive.
	span := arrivals[len(arrivals)-1].At / speed
	pace := time.NewTicker(span / time.Duration(len(kills)+1))
	defer pace.Stop()
	for _, kill := range kills {
		<-pace.C
		p, err := r.Process(kill.process)
		require.NoError(t, err)
		require.NoError(t, p.Signal(kill.signal))
		require.NoError(t, p.WaitReady(ctx))
	}
	got := <-played
	require.NoError(t, got.err)
	for _, kill := range kills {
		p, err := r.Process(kill.process)
		require.NoError(t, err)
		require.GreaterOrEqual(t, p.Starts(), 2, kill.process)
	}

	accepted := map[string]bool{}
	for _, o := range got.result.Outcomes {
		if o.Instance.Id == "" {
			require.Fail(t, "a create was refused", "%s: %s", o.Task, o.Code)
		}
		require.False(t, accepted[o.Instance.Id], "two creates share %s", o.Instance.Id)
		accepted[o.Instance.Id] = true
		require.Equal(t, wire.InstanceStatusDeleted, o.Instance.Status)
		if o.Code != "" {
			require.Equal(t, "capacity.none", o.Code, o.Task)
		}
	}
	require.Equal(t, len(accepted), value[int](t, ctx, r, `select count(*) from instances`), "none lost, none doubled")
	require.Zero(t, value[int](t, ctx, r, `select count(*) from usage_segments a join usage_segments b
		on a.subject_id = b.subject_id and a.meter = b.meter and a.id < b.id and a.during && b.during`))
	require.Zero(t, value[int](t, ctx, r, `select count(*) from claims`), "all capacity came back")
	require.Greater(t, got.result.Ran(), len(arrivals)/2)

	invoices, err := got.result.Invoices(ctx, r.Stack)
	require.NoError(t, err)
	require.Len(t, invoices, organizations)
	r.clean(t, ctx)
}

// TestWipingTemporalLosesNothing drops Temporal's databases while 20 creates are
// under way: progress is made again from the rows.
func TestWipingTemporalLosesNothing(t *testing.T) {
	r := open(t, market.Small(8))
	ctx := within(t, 100*time.Second)
	b, c := r.buyer(t, ctx, "Patient")
	const creates = 20
	created, err := parallel(creates, func(i int) (client.Instance, error) {
		return c.CreateInstance(ctx, b.Project, wanted(market.MPS, fmt.Sprintf("flight-%02d", i)))
	})
	require.NoError(t, err)
	under := value[int](t, ctx, r, `select count(*) from instances where status <> 'running'`)
	require.Positive(t, under, "creates are in flight")
	require.NoError(t, r.WipeTemporal(ctx))
	for _, i := range created {
		running, err := c.WaitInstance(ctx, b.Project, i.Id, wire.WaitStatusRunning)
		require.NoError(t, err)
		operation, err := i.Operation.Get()
		require.NoError(t, err)
		_, err = c.WaitOperation(ctx, operation.Id)
		require.NoError(t, err)
		require.Len(t, running.Gpus, 1)
	}
	t.Logf("%d of %d were under way when Temporal's databases went", under, creates)
	for _, i := range created {
		_, err := c.DeleteInstance(ctx, b.Project, i.Id)
		require.NoError(t, err)
	}
	for _, i := range created {
		_, err := c.WaitInstance(ctx, b.Project, i.Id, wire.WaitStatusDeleted)
		require.NoError(t, err)
	}
	r.clean(t, ctx)
}

// traceSeed is the seed of the trace to play: TRANCHE_TEST_SEED, or always the
// same one.
func traceSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(11)
	if text := os.Getenv("TRANCHE_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("seed %d", seed)
	return seed
}
