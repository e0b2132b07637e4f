package instance_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
)

// The table agent code → public code, with whose doing it is.
func TestReasonsByTable(t *testing.T) {
	t.Parallel()
	var known []string
	for _, c := range instance.Codes() {
		known = append(known, c.Name)
		require.NotEmpty(t, c.Remedy, c.Name)
	}
	require.True(t, slices.IsSorted(known))
	for _, c := range []struct {
		agent, public string
		blame         instance.Blame
	}{
		{"IMAGE_NOT_FOUND", "image.not_found", instance.Tenant},
		{"IMAGE_UNAUTHORIZED", "image.unauthorized", instance.Tenant},
		{"IMAGE_REFUSED", "image.refused", instance.Tenant},
		{"IMAGE_UNAVAILABLE", "image.unavailable", instance.Tenant},
		{"IMAGE_INVALID", "image.invalid", instance.Tenant},
		{"IMAGE_NEW_CODE", "image.invalid", instance.Tenant},
		{"COMMAND_MISSING", "command.missing", instance.Tenant},
		{"COMMAND_FAILED", "command.failed", instance.Tenant},
		{"LIMIT_INVALID", "limit.invalid", instance.Tenant},
		{"CLIENT_MEMORY", "gpu.client_ended", instance.Tenant},
		{"OUT_OF_MEMORY", "run.out_of_memory", instance.Tenant},
		{"PORT_IN_USE", "port.in_use", instance.HostBusy},
		{"NO_ROOM", "gpu.in_use", instance.HostBusy},
		{"XID_79", "gpu.fault", instance.AsCredited},
		{"GPU_LOST", "gpu.fault", instance.Platform},
		{"HUNG", "gpu.fault", instance.Platform},
		{"PORTS_EXHAUSTED", "host.full", instance.HostBusy},
		{"GPU_HUNG", "gpu.fault", instance.Platform},
		{"HOST_REBOOT", "host.rebooted", instance.Platform},
		{"LIB_MISMATCH", "host.driver_mismatch", instance.Platform},
		{"RUNTIME_UNAVAILABLE", "runtime.unavailable", instance.Platform},
		{"SCRUB_FAILED", "scrub.failed", instance.Platform},
	} {
		got := instance.Public(instance.Problem{Code: c.agent, Detail: "why."})
		require.Equal(t, c.public, got.Code, c.agent)
		require.True(t, strings.HasSuffix(got.Detail, "(why)"), got.Detail)
		require.Equal(t, c.blame, instance.BlameOf(c.agent), c.agent)
		require.Contains(t, known, got.Code)
	}
	odd := instance.Problem{Code: "NOBODY_KNOWS", Detail: "x"}
	require.Equal(t, odd, instance.Public(odd))
	require.Equal(t, instance.Unknown, instance.BlameOf(odd.Code))
}

// What follows the end or the refusal of a run, by whose doing it was.
func TestNextAfterAnEndByTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		code     string
		credited bool
		reached  bool
		recovery instance.Recovery
		want     instance.Do
	}{
		{"no such image", "IMAGE_NOT_FOUND", false, false, "restart", instance.DoFail},
		{"bad command", "COMMAND_FAILED", false, false, "stop", instance.DoFail},
		{"bad limit", "LIMIT_INVALID", false, false, "stop", instance.DoFail},
		{"port taken", "PORT_IN_USE", false, false, "stop", instance.DoRetryHost},
		{"GPU fault at start", "XID_79", true, false, "stop", instance.DoRetryHost},
		{"unknown at start", "NOBODY_KNOWS", false, false, "stop", instance.DoRetryHost},
		{"GPU fault, restart", "XID_79", true, true, "restart", instance.DoRecover},
		{"GPU fault, unfenced", "GPU_LOST", false, true, "restart_unfenced", instance.DoRecover},
		{"GPU fault, stop", "XID_79", true, true, "stop", instance.DoStop},
		{"credited, of no known code", "NOBODY_KNOWS", true, true, "restart", instance.DoRecover},
		{"a GPU error of its own program", "XID_31", false, true, "restart", instance.DoStop},
		{"its own end", "", false, true, "restart", instance.DoStop},
		{"went past its share", "CLIENT_MEMORY", false, true, "restart", instance.DoStop},
	} {
		v := instance.View{Desired: instance.WantRunning, Run: 1, Generation: 1, Recovery: c.recovery, Assignments: []instance.Assignment{{
			ID: id.New[id.Assignment](), Run: 1, State: instance.Applied, OrderedAt: start, Seen: instance.RunFailed,
			Reason: instance.Problem{Code: c.code}, Credited: c.credited,
		}}}
		if c.reached {
			v.Converged, v.EverRan = 1, true
		}
		require.Equal(t, c.want, instance.Next(v, start).Do, c.name)
	}
}

// A pull takes as long as its own limit says and is no failure of the host.
func TestAPullExtendsTheTimeToPrepare(t *testing.T) {
	t.Parallel()
	m := newModel()
	_, err := m.settle()
	require.NoError(t, err)
	a := &m.view.Assignments[0]
	a.Seen, a.Progress = instance.RunPreparing, "pulling 40 %"
	look := func(after time.Duration) instance.Step { return instance.Next(m.view, start.Add(after)) }

	a.ProgressAt = start.Add(time.Minute)
	require.Equal(t, instance.DoWait, look(instance.PrepareWithin+time.Minute).Do, "longer than a host may take")
	s := look(instance.PullWithin)
	require.Equal(t, instance.DoFail, s.Do, "no other host is tried")
	require.Equal(t, "image.unavailable", s.Problem.Code)

	a.Progress, a.ProgressAt = "", start.Add(14*time.Minute)
	require.Equal(t, instance.DoWait, look(18*time.Minute).Do, "pulled; the rest has its own time")
	require.Equal(t, instance.DoRetryHost, look(19*time.Minute).Do)
	a.ProgressAt = start.Add(time.Hour)
	require.Equal(t, instance.DoRetryHost, look(20*time.Minute).Do, "bounded, whatever a host says")
}

// A recovering instance stays interrupted until its new run is up, and is patient.
func TestRecoveryIsInterruptedUntilItRuns(t *testing.T) {
	t.Parallel()
	m := newModel()
	m.view.Recovery = instance.Restart
	_, err := m.settle()
	require.NoError(t, err)
	m.see(0, instance.RunRunning)
	_, err = m.settle()
	require.NoError(t, err)
	m.breakRun(0)
	m.room = 0
	_, err = m.settle()
	require.NoError(t, err)
	require.Equal(t, instance.Interrupted, instance.Derive(m.view))
	require.Equal(t, 2, m.view.Run)
	require.Equal(t, instance.Releasing, m.view.Assignments[0].State)
	require.Equal(t, instance.DoPlace, instance.Next(m.view, m.at).Do)
	m.room = 1
	_, err = m.settle()
	require.NoError(t, err)
	require.Equal(t, instance.Interrupted, instance.Derive(m.view), "ordered, not up")
	m.see(1, instance.RunRunning)
	_, err = m.settle()
	require.NoError(t, err)
	require.Equal(t, instance.Running, instance.Derive(m.view))
	require.False(t, m.view.Recovering)
	require.True(t, m.view.Failure.IsZero())
}
