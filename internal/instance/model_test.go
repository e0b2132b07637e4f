package instance_test

import (
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
)

// start is when every model begins; only differences count.
var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// model carries steps out as internal/app does, on a view in memory.
type model struct {
	view instance.View
	at   time.Time
	room int // how many more runs can be placed; negative: any number
}

func newModel() *model {
	return &model{at: start, room: -1, view: instance.View{
		Desired: instance.WantRunning, Run: 1, Generation: 1, IntentAt: start, QuotaHeld: true,
	}}
}

// request is a new intent of the tenant, as the API accepts it: what runs is
// released at once.
func (m *model) request(d instance.Desired) {
	v := &m.view
	if v.Desired == instance.WantDeleted {
		return
	}
	if d == instance.WantRunning {
		v.Run++
	}
	v.Recovering = false
	v.Desired, v.Generation, v.Attempts, v.Failure, v.IntentAt = d, v.Generation+1, 0, instance.Problem{}, m.at
	for i, a := range v.Assignments {
		if a.State == instance.Claimed || a.State == instance.Applied {
			m.order(i)
		}
	}
}

func (m *model) order(i int) {
	a := &m.view.Assignments[i]
	a.State, a.Fence, a.Seen = instance.Releasing, a.Fence+1, instance.RunNone
}

func (m *model) index(a instance.Assignment) int {
	for i, x := range m.view.Assignments {
		if x.ID == a.ID {
			return i
		}
	}
	panic("the step names an assignment that is not there")
}

// carryOut executes a step and reports false for one that waits or does nothing.
func (m *model) carryOut(s instance.Step) bool {
	v := &m.view
	switch s.Do {
	case instance.DoPlace:
		if m.room == 0 && v.Recovering {
			return false // tried again later, for as long as it takes
		}
		if m.room == 0 {
			m.fail(instance.Problem{Code: "capacity.none"})
			return true
		}
		m.room--
		v.Assignments = append(v.Assignments, instance.Assignment{
			ID: id.New[id.Assignment](), Run: v.Run, Host: id.New[id.Host](), Fence: 1,
			State: instance.Claimed, OrderedAt: m.at, Seen: instance.RunNone,
		})
	case instance.DoRelease:
		m.order(m.index(s.Assignment))
	case instance.DoRetryHost:
		m.order(m.index(s.Assignment))
		v.Attempts++
		v.Failure = s.Problem
	case instance.DoFail:
		m.fail(s.Problem)
	case instance.DoStop:
		v.Desired, v.Failure = instance.WantStopped, s.Problem
	case instance.DoRecover:
		v.Run++
		v.Recovering, v.Attempts, v.Failure = true, 0, s.Problem
	case instance.DoReleaseQuota:
		v.QuotaHeld = false
	case instance.DoFinish:
		v.Converged, v.Recovering = v.Generation, false
		if v.Desired == instance.WantRunning {
			v.Failure = instance.Problem{}
		}
	default:
		return false
	}
	return true
}

func (m *model) fail(p instance.Problem) {
	m.view.Desired, m.view.Failure, m.view.Converged = instance.WantStopped, p, m.view.Generation
	m.view.Recovering = false
}

// settle carries steps out until one waits or nothing is due.
func (m *model) settle() (instance.Step, error) {
	for n := 0; n < 20; n++ {
		s := instance.Next(m.view, m.at)
		if !m.carryOut(s) {
			if s.Do == instance.DoWait && !s.Until.After(m.at) {
				return s, fmt.Errorf("waits until %s, which is past at %s", s.Until, m.at)
			}
			if instance.Derive(m.view) == instance.Running {
				m.view.EverRan = true
			}
			return s, nil
		}
	}
	return instance.Step{}, fmt.Errorf("no rest after 20 steps: %+v", m.view)
}

// see is a report of the agent about one assignment, by its present fence.
func (m *model) see(i int, state instance.RunState) {
	a := &m.view.Assignments[i]
	if a.State != instance.Claimed && a.State != instance.Applied {
		return
	}
	a.Seen = state
	if state == instance.RunRunning || state == instance.RunExited {
		a.State = instance.Applied
	}
	if state == instance.RunExited || state == instance.RunFailed {
		a.Reason = instance.Problem{Code: "run.ended"}
	}
}

// breakRun is a fault of the platform that ends a run which was up.
func (m *model) breakRun(i int) {
	m.see(i, instance.RunFailed)
	if a := &m.view.Assignments[i]; a.Seen == instance.RunFailed {
		a.Reason = instance.Problem{Code: "GPU_LOST"}
	}
}

// acknowledge is the agent's answer to a tombstone.
func (m *model) acknowledge(i int) {
	if m.view.Assignments[i].State == instance.Releasing {
		m.view.Assignments = append(m.view.Assignments[:i], m.view.Assignments[i+1:]...)
	}
}

func (m *model) live() (n int) {
	for _, a := range m.view.Assignments {
		if a.State == instance.Claimed || a.State == instance.Applied {
			n++
		}
	}
	return n
}
