package app_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
)

// placed is an assignment as its agent would know it.
type placed struct {
	asg   id.Assignment
	fence int64
	run   int
	gone  bool // a tombstone is out
}

// assignments reads those of the instance that are not released.
func (s *stage) assignments(t *testing.T) []placed {
	t.Helper()
	rows, err := s.owner.Query(t.Context(), `select id, fence, run, state = 'releasing' from assignments where state <> 'released' order by id`)
	require.NoError(t, err)
	var out []placed
	for rows.Next() {
		var raw [16]byte
		var p placed
		require.NoError(t, rows.Scan(&raw, &p.fence, &p.run, &p.gone))
		p.asg = raw
		out = append(out, p)
	}
	require.NoError(t, rows.Err())
	return out
}

// Whatever order reports, faults, absence, requests and steps come in, and however
// often: one run at most, one interruption at most, no second both billed and credited,
// and the doctor finds nothing.
func TestAnyOrderOfFaultsKeepsTheBooks(t *testing.T) {
	for seed := range uint64(4) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			s := newStage(t)
			s.exec(t, `update instances set recovery = $1`, []string{"restart", "stop"}[seed%2])
			for range 60 {
				s.randomStep(t, r)
				require.LessOrEqual(t, s.count(t, `select count(*) from interruptions where to_at is null`), 1)
				require.LessOrEqual(t, s.count(t, `select count(*) from assignments where state in ('claimed', 'applied')`), 1)
				require.Zero(t, s.count(t, `select count(*) from interruptions x join usage_segments u on u.subject_id = x.instance_id
					where u.during && tstzrange(x.from_at + interval '1 microsecond', greatest(x.to_at, x.from_at + interval '1 microsecond'))`),
					"billed and credited")
			}
			require.Positive(t, s.count(t, `select count(*) from interruptions`), "the storm has faults")
			require.Positive(t, s.segments(t, "true"), "and runs")
			found, clean, err := s.Audit(t.Context(), app.AuditTolerance)
			require.NoError(t, err)
			require.True(t, clean, "%+v", found)
		})
	}
}

// randomStep does one thing that may happen, by the agent, the tenant or the worker.
func (s *stage) randomStep(t *testing.T, r *rand.Rand) {
	t.Helper()
	var live *placed
	for _, p := range s.assignments(t) {
		if !p.gone {
			live = &p
		} else if r.IntN(2) == 0 {
			s.report(t, agentlink.Observed{Gone: []agentlink.Tombstone{{Assignment: p.asg, Fence: p.fence}}})
		}
	}
	tell := func(state instance.RunState, code string, credited bool) {
		if live == nil {
			return
		}
		s.sees(t, agentlink.Slice{
			Key: live.asg.String(), Assignment: live.asg, Fence: live.fence, Run: live.run, State: agentlink.SlicePresent,
			RunState: state, Age: time.Duration(r.IntN(3)) * time.Millisecond, EndedAge: -1,
			Reason: instance.Problem{Code: code}, Credited: credited,
		})
	}
	switch r.IntN(12) {
	case 0, 1, 2:
		tell(instance.RunRunning, "", false)
	case 3:
		tell(instance.RunFailed, "XID_79", true)
	case 4:
		tell(instance.RunExited, []string{"", "MEMORY_LIMIT", "HOST_REBOOT"}[r.IntN(3)], false)
	case 5:
		tell(instance.RunPreparing, "", false)
	case 6:
		s.full(t)
		s.longAgo(t)
		s.full(t)
	case 7, 9, 10:
		_, err := s.StartInstance(t.Context(), s.acme.Caller, s.acme.project, s.inst, appMatchAny)
		_ = err // refused while it is meant to run
	case 8:
		_, err := s.StopInstance(t.Context(), s.acme.Caller, s.acme.project, s.inst, appMatchAny)
		require.NoError(t, err)
	}
	s.advance(t)
}
