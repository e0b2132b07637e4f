package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/instance"
)

func (s *stage) advance(t *testing.T) {
	t.Helper()
	_, err := s.Advance(t.Context(), s.inst)
	require.NoError(t, err)
}

// runs brings the instance up and lets its request be reached.
func (s *stage) runs(t *testing.T, recovery string) {
	t.Helper()
	s.exec(t, `update instances set recovery = $1`, recovery)
	s.exec(t, `update assignments set ordered_biz = ordered_biz - interval '1 hour'`)
	s.sees(t, s.slice(instance.RunRunning, 10*time.Minute, none))
	s.advance(t)
	require.Equal(t, instance.Running, s.get(t, s.inst).Status)
}

// breaks is the agent's report that the platform ended the run.
func (s *stage) breaks(code string, credited bool, ago time.Duration) agentlink.Slice {
	out := s.slice(instance.RunFailed, 10*time.Minute, ago)
	out.Reason, out.Credited = instance.Problem{Code: code, Detail: "it did"}, credited
	return out
}

// What a tenant's request causes fails it at once, on no other host, for nothing.
func TestTenantCausedStartFailureEndsTheOperation(t *testing.T) {
	for code, public := range map[string]string{
		"IMAGE_NOT_FOUND": "image.not_found", "COMMAND_MISSING": "command.missing", "LIMIT_INVALID": "limit.invalid",
	} {
		t.Run(code, func(t *testing.T) {
			s := newStage(t)
			failed := s.slice(instance.RunFailed, none, none)
			failed.Reason = instance.Problem{Code: code, Detail: "ghcr.io/x:y"}
			s.sees(t, failed)
			s.advance(t)
			i := s.get(t, s.inst)
			op := s.operation(t, i.Operation.ID)
			require.Equal(t, "failed", op.Status)
			require.Equal(t, public, op.Problem.Code)
			require.Contains(t, op.Problem.Detail, "ghcr.io/x:y")
			require.NotEmpty(t, op.Problem.Suggestion)
			require.Equal(t, public, i.Failure.Code)
			require.Equal(t, 1, s.count(t, `select count(*) from assignments`))
			require.Zero(t, s.segments(t, "true"))
			require.Zero(t, s.count(t, `select count(*) from interruptions`))
			s.report(t, agentlink.Observed{Gone: []agentlink.Tombstone{{Assignment: s.asg, Fence: 2}}})
			require.Equal(t, instance.Failed, s.get(t, s.inst).Status)
		})
	}
}

// A fault of the platform ends the usage when it happened, is written down, and
// leads on to another run.
func TestPlatformFaultRecovers(t *testing.T) {
	s := newStage(t)
	s.runs(t, "restart")
	s.sees(t, s.breaks("XID_79", true, 4*time.Minute))
	require.Equal(t, 1, s.segments(t, `upper(during) - lower(during) between interval '355 seconds' and interval '361 seconds'
		and close_reason = 'our_fault' and fault_party = 'operator'`))
	require.Equal(t, 1, s.count(t, `select count(*) from interruptions where to_at is null and credited and cause = 'gpu.fault'
		and gpu_id is not null and run = 1 and from_at = (select upper(during) from usage_segments)`))
	i := s.get(t, s.inst)
	require.Equal(t, instance.Interrupted, i.Status)
	require.Equal(t, "gpu.fault", i.Failure.Code)
	require.Equal(t, 1, s.count(t, `select count(*) from events where type = 'instance.interrupted' and data ->> 'code' = 'gpu.fault'`))

	s.advance(t)
	require.Equal(t, instance.Interrupted, s.get(t, s.inst).Status)
	require.Equal(t, 1, s.count(t, `select count(*) from assignments where state = 'releasing' and run = 1`))
	require.Equal(t, 1, s.count(t, `select count(*) from assignments where state = 'claimed' and run = 2`))
	s.sees(t, s.breaks("XID_79", true, 4*time.Minute))
	require.Equal(t, 1, s.count(t, `select count(*) from interruptions`), "told again")

	var second [16]byte
	require.NoError(t, s.db.OwnerPool(t).QueryRow(t.Context(), `select id from assignments where run = 2`).Scan(&second))
	s.asg = second
	up := s.slice(instance.RunRunning, 0, none)
	up.Run = 2
	s.sees(t, up)
	s.advance(t)
	i = s.get(t, s.inst)
	require.Equal(t, instance.Running, i.Status)
	require.True(t, i.Failure.IsZero())
	require.Equal(t, 1, s.count(t, `select count(*) from interruptions where to_at > from_at
		and to_at = (select lower(during) from usage_segments where run = 2)`))
	require.Equal(t, 2, s.segments(t, "true"))
	require.Equal(t, 1, s.segments(t, "upper_inf(during) and run = 2"))
	require.Equal(t, 1, s.count(t, `select count(*) from operations`), "nobody asked for it")
}

// Without room the instance waits, however long; its tenant may end that.
func TestRecoveryWithoutRoomWaitsForItsTenant(t *testing.T) {
	s := newStage(t)
	s.runs(t, "restart")
	s.exec(t, `update gpus set health = 'failed'`)
	s.sees(t, s.breaks("GPU_LOST", true, 0))
	out, err := s.Advance(t.Context(), s.inst)
	require.NoError(t, err)
	require.False(t, out.Done)
	require.Equal(t, instance.Interrupted, s.get(t, s.inst).Status)
	require.Equal(t, 1, s.count(t, `select count(*) from instances where recovering and next_wake_at is not null`))
	i, err := s.StopInstance(t.Context(), s.acme.Caller, s.acme.project, s.inst, appMatchAny)
	require.NoError(t, err)
	require.Equal(t, instance.Stopping, i.Status)
	require.Equal(t, 1, s.count(t, `select count(*) from interruptions where to_at is not null`), "closed by its tenant's stop")
	require.Equal(t, 1, s.count(t, `select count(*) from instances where not recovering`))
}

// recovery: stop ends the instance with the cause; a tenant's own end is no
// interruption.
func TestEndsThatDoNotRecover(t *testing.T) {
	s := newStage(t)
	s.runs(t, "stop")
	s.sees(t, s.breaks("HOST_REBOOT", true, none))
	s.advance(t)
	s.report(t, agentlink.Observed{Gone: []agentlink.Tombstone{{Assignment: s.asg, Fence: 2}}})
	i := s.get(t, s.inst)
	require.Equal(t, instance.Stopped, i.Status)
	require.Equal(t, "host.rebooted", i.Failure.Code)
	require.Equal(t, 1, s.count(t, `select count(*) from interruptions where to_at is not null and credited`))

	s = newStage(t)
	s.runs(t, "restart")
	ended := s.breaks("CLIENT_MEMORY", false, time.Minute)
	s.sees(t, ended)
	s.advance(t)
	require.Equal(t, "gpu.client_ended", s.get(t, s.inst).Failure.Code)
	require.Zero(t, s.count(t, `select count(*) from interruptions`))
	require.Equal(t, 1, s.segments(t, "fault_party = 'tenant'"))
}

// A pull shows in the operation and outlasts the time to prepare.
func TestPullProgressIsShownAndNoFailure(t *testing.T) {
	s := newStage(t)
	pulling := s.slice(instance.RunPreparing, none, none)
	pulling.Progress = "pulling 40 %"
	s.sees(t, pulling)
	s.exec(t, `update assignments set ordered_at = ordered_at - interval '10 minutes'`)
	s.advance(t)
	i := s.get(t, s.inst)
	require.Equal(t, instance.Preparing, i.Status)
	require.Equal(t, "pulling 40 %", s.operation(t, i.Operation.ID).Step)
	s.exec(t, `update assignments set ordered_at = ordered_at - interval '6 minutes'`)
	s.advance(t)
	require.Equal(t, "image.unavailable", s.operation(t, i.Operation.ID).Problem.Code)
	require.Equal(t, 1, s.count(t, `select count(*) from assignments`))
}
