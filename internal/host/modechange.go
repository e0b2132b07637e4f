package host

import (
	"time"

	"github.com/tranche-cloud/tranche/internal/gpu"
)

// ModeStatus is where a change of a GPU's mode stands.
type ModeStatus string

// The statuses of a change; the last three are final.
const (
	ModeDraining  ModeStatus = "draining"  // the GPU takes nothing new and is not empty, or not seen to be
	ModeSwitching ModeStatus = "switching" // ordered: the host switches, enumerates and tests
	ModeSucceeded ModeStatus = "succeeded"
	ModeFailed    ModeStatus = "failed"
	ModeCancelled ModeStatus = "cancelled"
)

// IsOpen reports whether the change is still at work.
func (s ModeStatus) IsOpen() bool { return s == ModeDraining || s == ModeSwitching }

// What a host says of a GPU's mode: it is in one, or a change did not work.
const (
	modeSettled = "settled"
	modeFailed  = "failed"
)

const (
	// modeGrace is how long after an order a report of failure may still be one of
	// before it, sent by a host that had not read the order yet.
	modeGrace = 10 * time.Second
	// ModeWithin bounds the time from the order to its end, tests included.
	ModeWithin = 30 * time.Minute
	// modeGlance is how soon a waiting change is looked at again although a report or
	// a tombstone should wake it.
	modeGlance = 30 * time.Second
)

// ModeView is what decides the next step of a change of mode. Instants are machine
// time.
type ModeView struct {
	Status     ModeStatus
	Wanted     gpu.Mode
	DrainBy    *time.Time // nil: wait until the GPU is empty by itself
	SwitchedAt time.Time  // zero before the order
	// Live counts the runs that are meant to be on the GPU, Leaving those that are
	// ordered away and not acknowledged.
	Live, Leaving int
	// What the host reported last. Observed is zero if it could not be read.
	Observed gpu.Mode
	State    string // settled, draining, switching, verifying or failed
	Problem  string // what it waits for, or why it failed
	Present  bool
}

// Verbs of a step of a change of mode, beside DoWait and DoNothing.
const (
	DoDrain   Do = "drain"   // end the runs on the GPU: its time is up
	DoSwitch  Do = "switch"  // order the mode
	DoSucceed Do = "succeed" // the GPU is in the mode, tested, and is sold again
	DoFail    Do = "fail"    // the host could not, or did not answer in time
)

// ModeStep is the one next thing to do for a change of mode.
type ModeStep struct {
	Do Do
	// Code and Detail say why it failed.
	Code, Detail string
	Until        time.Time // of DoWait: look again then even if nothing was reported
}

// NextMode returns the one next thing to do at the machine instant at. It is total:
// each view has a step, and carrying it out changes the view or waits.
func NextMode(v ModeView, at time.Time) ModeStep {
	switch v.Status {
	case ModeDraining:
		return nextDraining(v, at)
	case ModeSwitching:
		return nextSwitching(v, at)
	default:
		return ModeStep{Do: DoNothing}
	}
}

func nextDraining(v ModeView, at time.Time) ModeStep {
	wait := ModeStep{Do: DoWait, Until: at.Add(modeGlance)}
	switch {
	case v.Live > 0 && v.DrainBy != nil && !at.Before(*v.DrainBy):
		return ModeStep{Do: DoDrain}
	case v.Live > 0 && v.DrainBy != nil && v.DrainBy.Before(wait.Until):
		return ModeStep{Do: DoWait, Until: *v.DrainBy}
	case v.Live > 0, v.Leaving > 0, !v.Present:
		return wait
	}
	return ModeStep{Do: DoSwitch}
}

func nextSwitching(v ModeView, at time.Time) ModeStep {
	sure := v.SwitchedAt.Add(modeGrace)
	switch {
	case v.Present && v.Observed == v.Wanted && v.State == modeSettled:
		return ModeStep{Do: DoSucceed}
	case v.Present && v.State == modeFailed && !at.Before(sure):
		detail := v.Problem
		if detail == "" {
			detail = "The host gave no reason."
		}
		return ModeStep{Do: DoFail, Code: "gpu.mode_failed", Detail: detail}
	case !at.Before(v.SwitchedAt.Add(ModeWithin)):
		return ModeStep{Do: DoFail, Code: "gpu.mode_unproven", Detail: "The host did not show the mode in time."}
	case v.State == modeFailed && at.Before(sure):
		return ModeStep{Do: DoWait, Until: sure}
	}
	return ModeStep{Do: DoWait, Until: at.Add(modeGlance)}
}
