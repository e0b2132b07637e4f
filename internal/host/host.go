// Package host owns the life of a GPU host as data: its administrative state with
// the transition table, its liveness as a function of silence, and the one next
// thing to do for it (Next).
//
// It performs nothing and reads no clock. Silence is machine time since the last
// proof of life; the caller subtracts gaps in which nobody was writing proofs down.
package host

import "time"

// State is the administrative state of a host.
type State string

// The states of a host.
const (
	Pending     State = "pending"     // joined, waits for an operator
	Approved    State = "approved"    // certificate issued, has not connected
	Validating  State = "validating"  // connected, waits for a complete inventory
	Ready       State = "ready"       // sold from
	Cordoned    State = "cordoned"    // keeps its instances, gets no new ones
	Draining    State = "draining"    // instances leave by policy
	Maintenance State = "maintenance" // empty, in an operator's hands
	Lost        State = "lost"        // fenced for good
	Retired     State = "retired"
)

// moves is the transition table.
var moves = map[State][]State{
	Pending:     {Approved, Retired},
	Approved:    {Validating, Retired},
	Validating:  {Ready, Cordoned, Retired},
	Ready:       {Cordoned, Lost},
	Cordoned:    {Ready, Draining, Lost, Retired},
	Draining:    {Maintenance, Cordoned, Lost},
	Maintenance: {Validating, Ready, Lost, Retired},
	Lost:        {Validating, Retired},
}

// CanMove reports whether a host may go from one state to another.
func CanMove(from, to State) bool {
	for _, s := range moves[from] {
		if s == to {
			return true
		}
	}
	return false
}

// Liveness is what silence says about a host. It never destroys anything.
type Liveness string

// The degrees of liveness.
const (
	Unproven Liveness = "unproven" // never connected
	Live     Liveness = "live"
	Suspect  Liveness = "suspect" // gets no new instances
	Unknown  Liveness = "unknown" // its instances show interrupted, keep run and slots
)

// Silence thresholds (10-domain §2), machine time.
const (
	SuspectAfter = 30 * time.Second
	UnknownAfter = 90 * time.Second
)

// LivenessAfter grades a silence.
func LivenessAfter(silence time.Duration) Liveness {
	switch {
	case silence > UnknownAfter:
		return Unknown
	case silence > SuspectAfter:
		return Suspect
	}
	return Live
}

// View is what decides the next step of a host.
type View struct {
	State             State
	Liveness          Liveness
	Connected         bool // a session exists
	InventoryComplete bool // a successful full inventory arrived since validation began
	Generation        int64
	Converged         int64
}

// Do names what a Step asks internal/app for.
type Do string

// The verbs of a step.
const (
	DoValidate Do = "validate" // approved → validating
	DoAdmit    Do = "admit"    // validating → ready
	DoFinish   Do = "finish"   // the accepted generation is reached
	DoWait     Do = "wait"     // nothing before a report
	DoNothing  Do = "nothing"
)

// Step is the one next thing to do for a host.
type Step struct{ Do Do }

// Next returns the one next thing to do. It is total.
func Next(v View) Step {
	switch {
	case v.State == Approved && v.Connected:
		return Step{DoValidate}
	case v.State == Validating && v.InventoryComplete:
		return Step{DoAdmit}
	case v.State == Pending, v.State == Approved, v.State == Validating:
		return Step{DoWait}
	case v.Converged != v.Generation:
		return Step{DoFinish}
	}
	return Step{DoNothing}
}
