package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// stage is a shop with an instance placed on its host, and the host's stream.
type stage struct {
	shop
	inst     id.Instance
	asg      id.Assignment
	session  store.Session
	sequence uint64
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{shop: newShop(t, quota.Limits{Instances: 10, GPUs: 10})}
	i := s.create(t, "one")
	s.inst = i.ID
	_, err := s.Advance(t.Context(), s.inst)
	require.NoError(t, err)
	var asg, h [16]byte
	require.NoError(t, s.db.OwnerPool(t).QueryRow(t.Context(), `select id, host_id from assignments`).Scan(&asg, &h))
	s.asg = asg
	s.session = s.world.session(t, h, "boot")
	return s
}

// slice is a report of the assignment at fence 1 and run 1.
func (s *stage) slice(run instance.RunState, age, ended time.Duration) agentlink.Slice {
	return agentlink.Slice{
		Key: s.asg.String(), Assignment: s.asg, Fence: 1, Run: 1, State: agentlink.SlicePresent,
		RunState: run, Age: age, EndedAge: ended,
	}
}

func (s *stage) report(t *testing.T, o agentlink.Observed) {
	t.Helper()
	s.sequence++
	s.reportAt(t, s.sequence, o)
}

func (s *stage) reportAt(t *testing.T, sequence uint64, o agentlink.Observed) {
	t.Helper()
	require.NoError(t, s.RecordObserved(t.Context(), app.Report{
		Session: s.session, Sequence: sequence, Received: time.Now(), Observed: o,
	}))
}

func (s *stage) sees(t *testing.T, slices ...agentlink.Slice) {
	t.Helper()
	s.report(t, agentlink.Observed{Slices: slices})
}

func (s *stage) segments(t *testing.T, where string) int {
	t.Helper()
	return s.count(t, `select count(*) from usage_segments where `+where)
}

const none = -time.Microsecond

// The meter runs from the instant that the agent saw, never before the order.
func TestRunningOpensTheMeterOnce(t *testing.T) {
	s := newStage(t)
	s.sees(t, s.slice(instance.RunPreparing, none, none))
	require.Zero(t, s.segments(t, "true"))
	s.sees(t, s.slice(instance.RunRunning, time.Hour, none))
	require.Equal(t, instance.Running, s.get(t, s.inst).Status)
	require.Equal(t, 1, s.count(t, `select count(*) from usage_segments u join assignments a on a.id = u.assignment_id
		where lower(u.during) = a.ordered_biz and upper_inf(u.during)`), "an agent that lies about ages gains nothing")
	for range 3 {
		s.sees(t, s.slice(instance.RunRunning, time.Hour, none))
	}
	require.Equal(t, 1, s.segments(t, "true"))
	require.Equal(t, 1, s.count(t, `select count(*) from run_proofs`))
}

// A create that fails is charged nothing and tried on another host.
func TestFailedStartChargesNothing(t *testing.T) {
	s := newStage(t)
	failed := s.slice(instance.RunFailed, none, none)
	failed.Reason = instance.Problem{Code: "NO_ROOM", Detail: "taken"}
	s.sees(t, failed)
	require.Zero(t, s.segments(t, "true"))
	require.Equal(t, 1, s.count(t, `select count(*) from assignments where reason_code = 'NO_ROOM'`))
	_, err := s.Advance(t.Context(), s.inst)
	require.NoError(t, err)
	require.Equal(t, 1, s.count(t, `select count(*) from assignments where state = 'releasing' and fence = 2`))
	require.Equal(t, 1, s.count(t, `select count(*) from claims where holder_id = $1`, s.asg.UUID()), "not free before the proof")
}

// Usage ends when the agent saw the process end, not when it was told.
func TestEndedRunIsBilledToItsEnd(t *testing.T) {
	s := newStage(t)
	s.exec(t, `update assignments set ordered_biz = ordered_biz - interval '1 hour'`)
	s.sees(t, s.slice(instance.RunRunning, 10*time.Minute, none))
	s.sees(t, s.slice(instance.RunExited, 10*time.Minute, 4*time.Minute))
	require.Equal(t, 1, s.segments(t, `upper(during) - lower(during) between interval '355 seconds' and interval '361 seconds'
		and close_reason = 'process_exited'`))
	require.Equal(t, instance.Interrupted, s.get(t, s.inst).Status)
	s.sees(t, s.slice(instance.RunRunning, 10*time.Minute, none))
	require.Zero(t, s.segments(t, "upper_inf(during)"), "a run that ended does not come back")
}

// An end that nobody saw is billed to the last proof.
func TestUnseenEndIsBilledToTheLastProof(t *testing.T) {
	s := newStage(t)
	s.sees(t, s.slice(instance.RunRunning, 0, none))
	lost := s.slice(instance.RunExited, none, none)
	lost.Reason = instance.Problem{Code: "HOST_REBOOT"}
	s.sees(t, lost)
	require.Equal(t, 1, s.count(t, `select count(*) from usage_segments u join run_proofs p on p.assignment_id = u.assignment_id
		where upper(u.during) = greatest(p.last_proof_at, lower(u.during) + interval '1 microsecond') and u.close_reason = 'our_fault'`))
}

// Reports that are late, of another fence, of another run, or that come after the
// tenant said stop, change nothing.
func TestReportsThatChangeNothing(t *testing.T) {
	s := newStage(t)
	s.sequence = 10
	s.sees(t, s.slice(instance.RunRunning, 0, none))
	lower := s.slice(instance.RunFailed, none, none)
	lower.Fence--
	s.sees(t, lower)
	require.Equal(t, instance.Running, s.get(t, s.inst).Status, "a lower fence")
	s.reportAt(t, 9, agentlink.Observed{Slices: []agentlink.Slice{s.slice(instance.RunFailed, none, none)}})
	require.Equal(t, instance.Running, s.get(t, s.inst).Status, "an older sequence")
	_, err := s.StopInstance(t.Context(), s.acme.Caller, s.acme.project, s.inst, app.Match{})
	require.NoError(t, err)
	require.Zero(t, s.segments(t, "upper_inf(during)"))
	s.sees(t, s.slice(instance.RunRunning, 0, none))
	require.Zero(t, s.segments(t, "upper_inf(during)"), "the fence was raised")
	reclaiming := s.slice(instance.RunRunning, 0, none)
	reclaiming.Fence, reclaiming.State = 2, agentlink.SliceReclaiming
	s.sees(t, reclaiming)
	require.Zero(t, s.segments(t, "upper_inf(during)"), "nobody wants it to run")
	s.report(t, agentlink.Observed{Gone: []agentlink.Tombstone{{Assignment: s.asg, Fence: 1}}})
	require.Equal(t, instance.Stopping, s.get(t, s.inst).Status, "an acknowledgement of an older tombstone")
	s.report(t, agentlink.Observed{Gone: []agentlink.Tombstone{{Assignment: s.asg, Fence: 2}}})
	require.Equal(t, instance.Stopped, s.get(t, s.inst).Status)
	require.Zero(t, s.count(t, `select count(*) from claim_cells`))
	s.report(t, agentlink.Observed{Gone: []agentlink.Tombstone{{Assignment: s.asg, Fence: 2}}})
	require.Equal(t, instance.Stopped, s.get(t, s.inst).Status, "twice is once")
}

// What is not ours is kept on record while it is there; what a complete report no
// longer names is forgotten, unless something is held for it.
func TestStrangersAndCompleteReports(t *testing.T) {
	s := newStage(t)
	stranger := agentlink.Slice{
		Key: "slot/GPU-x/0", State: agentlink.SliceQuarantined, RunState: instance.RunNone, Age: none, EndedAge: none,
	}
	s.report(t, agentlink.Observed{Full: true, Slices: []agentlink.Slice{stranger, s.slice(instance.RunRunning, 0, none)}})
	require.Equal(t, 1, s.count(t, `select count(*) from observed_slices where state = 'quarantined' and assignment_id is null`))
	s.report(t, agentlink.Observed{Full: true})
	require.Zero(t, s.count(t, `select count(*) from observed_slices where state = 'quarantined'`))
	require.Equal(t, 1, s.count(t, `select count(*) from observed_slices where state = 'unknown' and assignment_id is not null`))
	require.NotEqual(t, instance.Running, s.get(t, s.inst).Status)
	require.Zero(t, s.segments(t, "upper_inf(during)"), "what is not shown to run is not billed on")
	require.Equal(t, 1, s.count(t, `select count(*) from assignments where state = 'applied'`), "absence ends no run")
	s.report(t, agentlink.Observed{Full: true, Failed: true, Failure: "driver hangs"})
	require.Equal(t, 1, s.count(t, `select count(*) from observed_slices`))
}

// A run that is told to be less than it was is billed to its last proof; the same
// process fills the gap, another one does not.
func TestARunThatIsNoLongerShown(t *testing.T) {
	for _, c := range []struct {
		name  string
		lived string // before this one: how long ago the first report came
		age   time.Duration
		gap   bool
	}{
		{"the same process", "1 minute", time.Hour, false},
		{"the same process, told late", "0", 0, false},
		{"another process", "1 minute", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			s.sees(t, s.slice(instance.RunRunning, 0, none))
			s.exec(t, `update run_proofs set started_at = started_at - $1::text::interval`, c.lived)
			s.sees(t, s.slice(instance.RunPreparing, none, none))
			require.Zero(t, s.segments(t, "upper_inf(during)"))
			require.Equal(t, 1, s.segments(t, "close_reason = 'silence'"))
			s.sees(t, s.slice(instance.RunRunning, c.age, none))
			require.Equal(t, instance.Running, s.get(t, s.inst).Status)
			require.Equal(t, 1, s.segments(t, "upper_inf(during)"))
			gap := s.segments(t, `upper_inf(during) and lower(during) > (select max(upper(during)) from usage_segments where not upper_inf(during))`)
			require.Equal(t, c.gap, gap == 1)
		})
	}
}

// A repeated full report proves that the runs go on without saying them again.
func TestUnchangedReportIsProof(t *testing.T) {
	s := newStage(t)
	s.sees(t, s.slice(instance.RunRunning, 0, none))
	s.exec(t, `update run_proofs set last_proof_at = started_at`)
	s.report(t, agentlink.Observed{Full: true, Unchanged: true, Hash: "h"})
	require.Equal(t, 1, s.count(t, `select count(*) from run_proofs where last_proof_at > started_at`))
}

// Only the host's newest stream may write.
func TestSupersededStreamIsRefused(t *testing.T) {
	s := newStage(t)
	old := s.session
	require.NoError(t, s.EndSession(t.Context(), old))
	s.session = s.world.session(t, old.Host, "boot")
	s.sees(t, s.slice(instance.RunRunning, 0, none))
	s.session = old
	err := s.RecordObserved(t.Context(), app.Report{
		Session: old, Sequence: 99, Received: time.Now(),
		Observed: agentlink.Observed{Slices: []agentlink.Slice{s.slice(instance.RunFailed, none, none)}},
	})
	require.Equal(t, "state.conflict", fault.CodeOf(err))
	require.Equal(t, instance.Running, s.get(t, s.inst).Status)
}
