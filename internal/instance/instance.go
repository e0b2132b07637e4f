// Package instance owns the life of a virtual GPU instance as data: what a tenant
// wants (Desired), what is held and observed for it (View), the public status that
// follows from both (Derive), and the one next thing to do (Next).
//
// It performs nothing: internal/app carries a Step out, a workflow is only the loop
// around it. It does not choose hosts (internal/placement) nor count money. Instants
// are arguments; View.At is the machine clock, never the business clock.
package instance

import (
	"time"

	"github.com/tranche-cloud/tranche/internal/id"
)

// Desired is a tenant's accepted intent.
type Desired string

// The three intents; from each, deleted can be reached, from deleted none.
const (
	WantRunning Desired = "running"
	WantStopped Desired = "stopped"
	WantDeleted Desired = "deleted"
)

// Status is the public state of an instance, the same word in API, database, CLI
// and Terraform.
type Status string

// The eleven statuses.
const (
	Queued      Status = "queued"
	Placing     Status = "placing"
	Preparing   Status = "preparing"
	Running     Status = "running"
	Stopping    Status = "stopping"
	Stopped     Status = "stopped"
	Resizing    Status = "resizing"
	Interrupted Status = "interrupted"
	Failed      Status = "failed"
	Deleting    Status = "deleting"
	Deleted     Status = "deleted"
)

// Statuses lists all eleven.
var Statuses = []Status{
	Queued, Placing, Preparing, Running, Stopping, Stopped, Resizing, Interrupted, Failed, Deleting, Deleted,
}

// transitioning lists the statuses that nobody asked to stay in.
var transitioning = map[Status]bool{
	Queued: true, Placing: true, Preparing: true, Stopping: true, Resizing: true, Interrupted: true, Deleting: true,
}

// IsTransitioning reports whether the status will change without a new request.
func (s Status) IsTransitioning() bool { return transitioning[s] }

// MaxHosts is how many hosts one request tries before it fails (30-workflows §2).
const MaxHosts = 3

// PrepareWithin bounds the time from an order to the proof that the run is up.
const PrepareWithin = 5 * time.Minute

// PullWithin bounds the pull of an image: while an agent reports progress, a run may
// take this long to prepare, and is nobody's failure meanwhile.
const PullWithin = 15 * time.Minute

// QuotaHeldAfterDelete bounds how long a deleting instance counts in quota (I13).
const QuotaHeldAfterDelete = 2 * time.Minute

// AssignmentState is where one run on one host stands.
type AssignmentState string

// The states of an assignment; released is the only one that holds no capacity.
const (
	Claimed     AssignmentState = "claimed"
	Applied     AssignmentState = "applied"
	Releasing   AssignmentState = "releasing"
	Released    AssignmentState = "released"
	Quarantined AssignmentState = "quarantined"
)

// assignmentMoves is the transition table of an assignment.
var assignmentMoves = map[AssignmentState][]AssignmentState{
	Claimed:   {Applied, Releasing},
	Applied:   {Releasing},
	Releasing: {Released, Quarantined},
}

// CanMove reports whether an assignment may go from one state to another.
func CanMove(from, to AssignmentState) bool {
	for _, s := range assignmentMoves[from] {
		if s == to {
			return true
		}
	}
	return false
}

// RunState is what the agent saw of the main process of a run.
type RunState string

// The run states an agent reports; RunNone means it has not reported any.
const (
	RunNone      RunState = "none"
	RunPreparing RunState = "preparing"
	RunRunning   RunState = "running"
	RunExited    RunState = "exited"
	RunFailed    RunState = "failed"
)

// Problem is why a request did not end as asked: a stable code and a sentence.
type Problem struct{ Code, Detail string }

// IsZero reports that there is none.
func (p Problem) IsZero() bool { return p == Problem{} }

// Assignment is one run on one host as the rows and the agent's report have it.
type Assignment struct {
	ID          id.Assignment
	Run         int
	Host        id.Host
	Fence       int64
	State       AssignmentState
	OrderedAt   time.Time // machine clock
	Seen        RunState  // as reported for exactly this fence and run; RunNone otherwise
	Reason      Problem   // the agent's typed refusal or the run's end
	HostUnknown bool      // the host has been silent for longer than host.UnknownAfter
	Credited    bool      // the agent blames the platform for the end of the run
	Progress    string    // what takes long while the run is prepared; "" for nothing
	ProgressAt  time.Time // machine clock, of the last report of progress; zero if there was none
}

// Faulted reports whether the platform ended or refused the run, not the tenant.
func (a Assignment) Faulted() bool {
	return a.Credited || BlameOf(a.Reason.Code) == Platform
}

// Recovery is what follows when the platform ended a run.
type Recovery string

// The recoveries. RestartUnfenced differs from Restart only for hosts that are lost.
const (
	Restart         Recovery = "restart"
	RestartUnfenced Recovery = "restart_unfenced"
	StayStopped     Recovery = "stop"
)

// isLive reports whether the assignment is meant to carry a run.
func (a Assignment) isLive() bool { return a.State == Claimed || a.State == Applied }

// View is everything that decides what an instance is and what comes next.
type View struct {
	Desired     Desired
	Run         int // the run that intent asks for
	Generation  int64
	Converged   int64
	Attempts    int // hosts tried for this request
	EverRan     bool
	Recovery    Recovery
	Recovering  bool    // a reached run was ended by the platform; another one is on its way
	Failure     Problem // why the current request failed; zero while it has not
	IntentAt    time.Time
	QuotaHeld   bool
	Assignments []Assignment // those not released
}

// Derive returns the public status that follows from intent and observation.
func Derive(v View) Status {
	switch v.Desired {
	case WantDeleted:
		if v.holds() {
			return Deleting
		}
		return Deleted
	case WantStopped:
		return deriveStopped(v)
	case WantRunning:
	}
	a, ok := v.current()
	switch {
	case ok && a.Seen == RunRunning && a.HostUnknown:
		return Interrupted
	case ok && a.Seen == RunRunning:
		return Running
	case v.Recovering:
		return Interrupted
	case ok && (a.Seen == RunExited || v.Converged == v.Generation):
		return Interrupted // it was up and is not shown to be any more
	case ok:
		return Preparing
	}
	return Placing
}

// interruption is what a tenant is told of a run that its host no longer shows.
var interruption = Problem{"run.unproven", "Its host does not show that the run goes on; it is not billed meanwhile."}

// Explain returns why an instance has its status: the failure of its request, what
// interrupts it, or nothing.
func Explain(s Status, failure Problem) Problem {
	if failure.IsZero() && s == Interrupted {
		return interruption
	}
	return failure
}

func deriveStopped(v View) Status {
	switch {
	case v.holds():
		return Stopping
	case !v.Failure.IsZero() && !v.EverRan:
		return Failed
	}
	return Stopped
}

// holds reports whether a host may still carry something of this instance. A
// quarantined assignment was given up by an audited operator: its slots stay unsold,
// the instance is free of it.
func (v View) holds() bool {
	for _, a := range v.Assignments {
		if a.State != Released && a.State != Quarantined {
			return true
		}
	}
	return false
}

// current returns the live assignment of the wanted run.
func (v View) current() (Assignment, bool) {
	for _, a := range v.Assignments {
		if a.isLive() && a.Run == v.Run {
			return a, true
		}
	}
	return Assignment{}, false
}
