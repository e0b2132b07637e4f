package workflows_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/workflows"
	"github.com/tranche-cloud/tranche/workflows/activities"
)

// script answers the steps of any resource, in order; the last answer repeats.
type script struct {
	answers []func(now time.Time) (app.Outcome, error)
	now     func() time.Time
	calls   atomic.Int32
}

func (s *script) next() (app.Outcome, error) {
	n := int(s.calls.Add(1)) - 1
	return s.answers[min(n, len(s.answers)-1)](s.now())
}

func (s *script) Advance(context.Context, id.Instance) (app.Outcome, error) { return s.next() }
func (s *script) AdvanceHost(context.Context, id.Host) (app.Outcome, error) { return s.next() }
func (s *script) AdvanceGPU(context.Context, id.GPU) (app.Outcome, error)   { return s.next() }
func (s *script) AdvanceInvoiceRun(context.Context, id.Request) (app.Outcome, error) {
	return s.next()
}

func done(time.Time) (app.Outcome, error)  { return app.Outcome{Done: true}, nil }
func again(time.Time) (app.Outcome, error) { return app.Outcome{Again: true}, nil }
func waitFor(d time.Duration) func(time.Time) (app.Outcome, error) {
	return func(now time.Time) (app.Outcome, error) { return app.Outcome{WaitUntil: now.Add(d)}, nil }
}

func failing(kind fault.Kind) func(time.Time) (app.Outcome, error) {
	return func(time.Time) (app.Outcome, error) {
		return app.Outcome{}, fault.New(kind, "state.conflict", "Secret detail.")
	}
}

func environment(t *testing.T, answers ...func(time.Time) (app.Outcome, error)) (*testsuite.TestWorkflowEnvironment, *script) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(20 * time.Second)
	s := &script{answers: answers, now: env.Now}
	workflows.Register(env, &activities.Activities{Steps: s, Now: env.Now})
	return env, s
}

func TestARunCompletesWhenNothingIsDue(t *testing.T) {
	t.Parallel()
	env, s := environment(t, again, again, done)
	env.ExecuteWorkflow(workflows.Instance, id.New[id.Instance]().String())
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	require.EqualValues(t, 3, s.calls.Load())
}

func TestAWakeCutsTheWaitShort(t *testing.T) {
	t.Parallel()
	env, s := environment(t, waitFor(time.Minute), done)
	start := env.Now()
	env.RegisterDelayedCallback(func() { env.SignalWorkflow("wake", nil) }, 3*time.Second)
	env.ExecuteWorkflow(workflows.Instance, id.New[id.Instance]().String())
	require.NoError(t, env.GetWorkflowError())
	require.EqualValues(t, 2, s.calls.Load())
	require.Less(t, env.Now().Sub(start), 10*time.Second)
}

func TestManyWakesAreOneLook(t *testing.T) {
	t.Parallel()
	env, s := environment(t, waitFor(time.Minute), done)
	env.RegisterDelayedCallback(func() {
		for range 5 {
			env.SignalWorkflow("wake", nil)
		}
	}, time.Second)
	env.ExecuteWorkflow(workflows.Host, id.New[id.Host]().String())
	require.NoError(t, env.GetWorkflowError())
	require.LessOrEqual(t, s.calls.Load(), int32(3))
}

func TestAChangeOfModeWaitsAndEnds(t *testing.T) {
	t.Parallel()
	env, s := environment(t, waitFor(30*time.Second), again, done)
	env.RegisterDelayedCallback(func() { env.SignalWorkflow("wake", nil) }, 2*time.Second)
	env.ExecuteWorkflow(workflows.GPU, id.New[id.GPU]().String())
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	require.EqualValues(t, 3, s.calls.Load())
}

func TestAnInvoiceRunGoesOnUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	env, s := environment(t, again, waitFor(time.Second), failing(fault.Unavailable), again, done)
	env.ExecuteWorkflow(workflows.InvoiceRun, id.New[id.Request]().String())
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	require.EqualValues(t, 5, s.calls.Load())
}

func TestTheRowsTimeIsKeptWithinTheRun(t *testing.T) {
	t.Parallel()
	env, s := environment(t, waitFor(30*time.Second), waitFor(30*time.Second), done)
	env.ExecuteWorkflow(workflows.Instance, id.New[id.Instance]().String())
	require.NoError(t, env.GetWorkflowError())
	require.EqualValues(t, 3, s.calls.Load())
}

func TestALongWaitEndsTheRunAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	env, s := environment(t, waitFor(10*time.Minute))
	start := env.Now()
	env.ExecuteWorkflow(workflows.Instance, id.New[id.Instance]().String())
	require.NoError(t, env.GetWorkflowError())
	require.EqualValues(t, 1, s.calls.Load())
	require.LessOrEqual(t, env.Now().Sub(start), 3*time.Minute)
}

func TestAFailingStepIsRepeatedAfterAPause(t *testing.T) {
	t.Parallel()
	env, s := environment(t, failing(fault.Unavailable), failing(fault.Unavailable), failing(fault.Unavailable),
		failing(fault.Internal), done)
	env.ExecuteWorkflow(workflows.Instance, id.New[id.Instance]().String())
	require.NoError(t, env.GetWorkflowError())
	require.EqualValues(t, 5, s.calls.Load(), "three attempts, a pause, two more")
}

func TestWhatCannotBeCuredEndsTheRun(t *testing.T) {
	t.Parallel()
	env, s := environment(t, failing(fault.NotFound))
	env.ExecuteWorkflow(workflows.Instance, id.New[id.Instance]().String())
	require.NoError(t, env.GetWorkflowError())
	require.EqualValues(t, 1, s.calls.Load())

	env, s = environment(t, done)
	env.ExecuteWorkflow(workflows.Instance, "inst_forged")
	require.NoError(t, env.GetWorkflowError())
	require.Zero(t, s.calls.Load())
}

func TestAnEndlessRunStartsAFreshHistory(t *testing.T) {
	t.Parallel()
	env, s := environment(t, again)
	env.ExecuteWorkflow(workflows.Instance, id.New[id.Instance]().String())
	require.ErrorContains(t, env.GetWorkflowError(), "continue as new")
	require.EqualValues(t, 50, s.calls.Load())
}

func TestEveryFaultKindHasARetryRow(t *testing.T) {
	t.Parallel()
	retried := map[fault.Kind]bool{
		fault.Conflict: true, fault.PreconditionFailed: true, fault.RateLimited: true,
		fault.NoCapacity: true, fault.Unavailable: true, fault.Internal: true,
	}
	for _, k := range fault.Kinds {
		require.Equal(t, retried[k], activities.Retries(k), k)
	}
}

func TestNoDetailReachesAHistory(t *testing.T) {
	t.Parallel()
	a := activities.Activities{Now: time.Now, Steps: &script{
		answers: []func(time.Time) (app.Outcome, error){func(time.Time) (app.Outcome, error) {
			return app.Outcome{}, fault.New(fault.Unavailable, "service.unavailable", "secret").Because(errors.New("password"))
		}}, now: time.Now,
	}}
	_, err := a.AdvanceInstance(t.Context(), id.New[id.Instance]().String())
	require.ErrorContains(t, err, "service.unavailable")
	require.NotContains(t, err.Error(), "secret")
	require.NotContains(t, err.Error(), "password")
}
