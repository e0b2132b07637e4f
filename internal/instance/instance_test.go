package instance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
)

func TestDeriveByTable(t *testing.T) {
	t.Parallel()
	held := func(run int, state instance.AssignmentState, seen instance.RunState, unknown bool) instance.Assignment {
		return instance.Assignment{Run: run, State: state, Seen: seen, HostUnknown: unknown}
	}
	why := instance.Problem{Code: "capacity.none"}
	for _, c := range []struct {
		name    string
		desired instance.Desired
		ran     bool
		failure instance.Problem
		held    []instance.Assignment
		want    instance.Status
	}{
		{"nothing placed yet", "running", false, instance.Problem{}, nil, instance.Placing},
		{"ordered", "running", false, instance.Problem{}, []instance.Assignment{held(2, "claimed", "none", false)}, instance.Preparing},
		{"pulling", "running", false, instance.Problem{}, []instance.Assignment{held(2, "claimed", "preparing", false)}, instance.Preparing},
		{"proven", "running", true, instance.Problem{}, []instance.Assignment{held(2, "applied", "running", false)}, instance.Running},
		{"its host is silent", "running", true, instance.Problem{}, []instance.Assignment{held(2, "applied", "running", true)}, instance.Interrupted},
		{"silent before it ran", "running", false, instance.Problem{}, []instance.Assignment{held(2, "claimed", "none", true)}, instance.Preparing},
		{"ended by itself", "running", true, instance.Problem{}, []instance.Assignment{held(2, "applied", "exited", false)}, instance.Interrupted},
		{"an older run does not count", "running", true, instance.Problem{}, []instance.Assignment{held(1, "applied", "running", false)}, instance.Placing},
		{"released from under it", "running", true, instance.Problem{}, []instance.Assignment{held(2, "releasing", "none", false)}, instance.Placing},
		{"stop under way", "stopped", true, instance.Problem{}, []instance.Assignment{held(2, "releasing", "none", false)}, instance.Stopping},
		{"stopped", "stopped", true, instance.Problem{}, nil, instance.Stopped},
		{"stopped before it ran", "stopped", false, instance.Problem{}, nil, instance.Stopped},
		{"never ran", "stopped", false, why, nil, instance.Failed},
		{"failed, still held", "stopped", false, why, []instance.Assignment{held(2, "releasing", "none", false)}, instance.Stopping},
		{"failed start after a stop", "stopped", true, why, nil, instance.Stopped},
		{"delete under way", "deleted", true, instance.Problem{}, []instance.Assignment{held(2, "releasing", "none", true)}, instance.Deleting},
		{"deleted", "deleted", true, instance.Problem{}, nil, instance.Deleted},
		{"given up by an operator", "deleted", true, instance.Problem{}, []instance.Assignment{held(2, "quarantined", "none", false)}, instance.Deleted},
	} {
		got := instance.Derive(instance.View{
			Desired: c.desired, Run: 2, EverRan: c.ran, Failure: c.failure, Assignments: c.held, Generation: 1,
		})
		require.Equal(t, c.want, got, c.name)
	}
}

func TestAStatusIsExplained(t *testing.T) {
	t.Parallel()
	failure := instance.Problem{Code: "capacity.none"}
	require.Equal(t, failure, instance.Explain(instance.Failed, failure))
	require.Equal(t, "run.unproven", instance.Explain(instance.Interrupted, instance.Problem{}).Code)
	require.Equal(t, failure, instance.Explain(instance.Interrupted, failure))
	require.True(t, instance.Explain(instance.Running, instance.Problem{}).IsZero())
}

// A run that was up and is no longer shown is interrupted, not preparing.
func TestAReachedRunThatIsNotShownIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, seen := range []instance.RunState{"none", "preparing", "failed", "exited"} {
		require.Equal(t, instance.Interrupted, instance.Derive(instance.View{
			Desired: instance.WantRunning, Run: 1, EverRan: true, Generation: 3, Converged: 3,
			Assignments: []instance.Assignment{{Run: 1, State: instance.Applied, Seen: seen}},
		}), seen)
	}
}

// TestEveryViewHasAStep walks the product of everything that decides, two
// assignments included, and lets the model carry the steps out: each view comes to
// rest, with at most one run meant to be up.
func TestEveryViewHasAStep(t *testing.T) {
	t.Parallel()
	var assignments []instance.Assignment
	for _, run := range []int{1, 2} {
		for _, state := range []instance.AssignmentState{"claimed", "applied", "releasing", "quarantined"} {
			for _, seen := range []instance.RunState{"none", "preparing", "running", "exited", "failed"} {
				for _, unknown := range []bool{false, true} {
					for _, ordered := range []time.Duration{0, -10 * time.Minute} {
						assignments = append(assignments, instance.Assignment{
							Run: run, Host: id.New[id.Host](), Fence: 1, State: state, Seen: seen, HostUnknown: unknown,
							OrderedAt: start.Add(ordered), Reason: instance.Problem{Code: "x"},
						})
					}
				}
			}
		}
	}
	sets := [][]instance.Assignment{nil}
	for i, a := range assignments {
		a.ID = id.New[id.Assignment]()
		sets = append(sets, []instance.Assignment{a})
		for _, b := range assignments[i:] {
			if a.Run == b.Run && a.State != "releasing" && a.State != "quarantined" && b.State != "releasing" && b.State != "quarantined" {
				continue // a run has one live assignment, by a unique index
			}
			b.ID = id.New[id.Assignment]()
			sets = append(sets, []instance.Assignment{a, b})
		}
	}
	views := 0
	for _, set := range sets {
		for _, desired := range []instance.Desired{"running", "stopped", "deleted"} {
			for attempts := range instance.MaxHosts + 1 {
				for _, flag := range []int{0, 1, 2, 3} {
					v := instance.View{
						Desired: desired, Run: 2, Generation: 3, Converged: 2 + int64(flag&1), Attempts: attempts,
						EverRan: flag&1 == 1, QuotaHeld: flag&2 == 2, IntentAt: start.Add(-time.Hour),
						Assignments: append([]instance.Assignment(nil), set...),
					}
					m := &model{view: v, at: start, room: -1}
					_, err := m.settle()
					if err != nil || m.live() > 1 {
						require.NoError(t, err, "%+v", v)
						require.LessOrEqual(t, m.live(), 1, "%+v", v)
					}
					views++
				}
			}
		}
	}
	require.Greater(t, views, 50_000)
}

// TestAnyHistoryConverges plays tenants, agents and clocks at random, then lets the
// agents answer: the instance ends as the last intent says, or failed.
func TestAnyHistoryConverges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		m := newModel()
		m.room = rapid.SampledFrom([]int{-1, -1, 0, 1, 3}).Draw(r, "room")
		generation := m.view.Generation
		for range rapid.IntRange(1, 30).Draw(r, "moves") {
			m.disturb(r)
			_, err := m.settle()
			require.NoError(r, err)
			require.LessOrEqual(r, m.live(), 1, "two runs are meant to be up")
			require.GreaterOrEqual(r, m.view.Generation, generation, "generations only grow")
			require.LessOrEqual(r, m.view.Converged, m.view.Generation)
			require.LessOrEqual(r, m.view.Attempts, instance.MaxHosts)
			generation = m.view.Generation
			require.Contains(r, instance.Statuses, instance.Derive(m.view))
		}
		for range 10 {
			for i := len(m.view.Assignments) - 1; i >= 0; i-- {
				m.view.Assignments[i].HostUnknown = false
				if m.view.Assignments[i].Seen == instance.RunNone || m.view.Assignments[i].Seen == instance.RunPreparing {
					m.see(i, instance.RunRunning)
				}
				m.acknowledge(i)
			}
			_, err := m.settle()
			require.NoError(r, err)
		}
		last, err := m.settle()
		require.NoError(r, err)
		require.Equal(r, instance.DoNothing, last.Do)
		require.Equal(r, m.view.Generation, m.view.Converged)
		want := map[instance.Desired][]instance.Status{
			instance.WantRunning: {instance.Running},
			instance.WantStopped: {instance.Stopped, instance.Failed},
			instance.WantDeleted: {instance.Deleted},
		}[m.view.Desired]
		require.Contains(r, want, instance.Derive(m.view))
		require.False(r, instance.Derive(m.view).IsTransitioning())
	})
}

// disturb is one thing that happens to an instance from outside.
func (m *model) disturb(r *rapid.T) {
	switch rapid.SampledFrom([]string{"intent", "report", "report", "ack", "host", "time"}).Draw(r, "what") {
	case "intent":
		m.request(rapid.SampledFrom([]instance.Desired{"running", "stopped", "deleted"}).Draw(r, "desired"))
	case "time":
		m.at = m.at.Add(time.Duration(rapid.IntRange(1, 400).Draw(r, "seconds")) * time.Second)
	default:
		if len(m.view.Assignments) == 0 {
			return
		}
		i := rapid.IntRange(0, len(m.view.Assignments)-1).Draw(r, "which")
		switch rapid.SampledFrom([]string{"running", "failed", "exited", "preparing", "ack", "silent", "back"}).Draw(r, "report") {
		case "ack":
			m.acknowledge(i)
		case "silent":
			m.view.Assignments[i].HostUnknown = true
		case "back":
			m.view.Assignments[i].HostUnknown = false
		case "running":
			m.see(i, instance.RunRunning)
		case "failed":
			m.see(i, instance.RunFailed)
		case "exited":
			m.see(i, instance.RunExited)
		case "preparing":
			m.see(i, instance.RunPreparing)
		}
	}
}

func TestAnAssignmentOnlyMovesTowardsItsEnd(t *testing.T) {
	t.Parallel()
	all := []instance.AssignmentState{"claimed", "applied", "releasing", "released", "quarantined"}
	rank := map[instance.AssignmentState]int{"claimed": 0, "applied": 1, "releasing": 2, "released": 3, "quarantined": 3}
	for _, from := range all {
		reachable := false
		for _, to := range all {
			if instance.CanMove(from, to) {
				reachable = true
				require.Greater(t, rank[to], rank[from], fmt.Sprint(from, " → ", to))
			}
		}
		require.Equal(t, rank[from] < 3, reachable, from)
	}
}

func TestOnlyAskedForStatusesAreAtRest(t *testing.T) {
	t.Parallel()
	require.Len(t, instance.Statuses, 11)
	rest := []instance.Status{instance.Running, instance.Stopped, instance.Failed, instance.Deleted}
	for _, s := range instance.Statuses {
		if s.IsTransitioning() {
			require.NotContains(t, rest, s)
		} else {
			require.Contains(t, rest, s)
		}
	}
}
