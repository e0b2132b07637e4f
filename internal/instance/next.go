package instance

import "time"

// Do names what a Step asks internal/app for.
type Do string

// The verbs of a step.
const (
	DoPlace        Do = "place"         // claim slots on a host and order the run there
	DoRelease      Do = "release"       // order the tombstone of Step.Assignment
	DoRetryHost    Do = "retry_host"    // release it, exclude its host for this request, count an attempt
	DoFail         Do = "fail"          // end the request with Step.Problem; intent becomes stopped
	DoStop         Do = "stop"          // the run ended for good: intent becomes stopped
	DoRecover      Do = "recover"       // the platform ended the run: raise it, to be placed again
	DoReleaseQuota Do = "release_quota" // a deleting instance no longer counts in quota
	DoFinish       Do = "finish"        // the accepted generation is reached
	DoWait         Do = "wait"          // nothing to do before a report or Step.Until
	DoNothing      Do = "nothing"       // converged
)

// Step is the one next thing to do for an instance.
type Step struct {
	Do         Do
	Assignment Assignment
	Problem    Problem
	Until      time.Time // of DoWait: look again then even if nothing was reported
}

// unproven is why a run that never came up is given up.
var unproven = Problem{"service.unavailable", "The host did not start the instance in time."}

// tooSlow is why a pull that takes too long ends the request.
var tooSlow = Problem{"image.unavailable", "The image was not pulled within 15 minutes."}

// Next returns the one next thing to do at the machine instant at. It is total: each
// view has a step, and carrying it out changes the view or waits.
func Next(v View, at time.Time) Step {
	for _, a := range v.Assignments {
		if a.isLive() && (v.Desired != WantRunning || a.Run != v.Run) {
			return Step{Do: DoRelease, Assignment: a}
		}
	}
	if v.Desired != WantRunning {
		return nextAtRest(v, at)
	}
	a, ok := v.current()
	if !ok {
		return nextPlace(v)
	}
	return nextOnHost(v, a, at)
}

// nextAtRest waits for the acknowledged tombstones, then finishes.
func nextAtRest(v View, at time.Time) Step {
	if v.holds() {
		if quotaEnds := v.IntentAt.Add(QuotaHeldAfterDelete); v.Desired == WantDeleted && v.QuotaHeld {
			if !at.Before(quotaEnds) {
				return Step{Do: DoReleaseQuota}
			}
			return Step{Do: DoWait, Until: quotaEnds}
		}
		return Step{Do: DoWait, Until: at.Add(PrepareWithin)}
	}
	if v.Converged != v.Generation {
		return Step{Do: DoFinish}
	}
	return Step{Do: DoNothing}
}

func nextPlace(v View) Step {
	if v.Attempts >= MaxHosts {
		p := v.Failure
		if p.IsZero() {
			p = unproven
		}
		return Step{Do: DoFail, Problem: p}
	}
	return Step{Do: DoPlace}
}

// nextOnHost looks at a run on its host. Once the request was reached, only an end
// that the agent reported ends the run: silence and half-told states destroy nothing.
func nextOnHost(v View, a Assignment, at time.Time) Step {
	reached := v.Converged == v.Generation && !v.Recovering
	ended := a.Seen == RunExited || a.Seen == RunFailed
	switch {
	case reached && ended && a.Faulted() && v.Recovery != StayStopped && v.Recovery != "":
		return Step{Do: DoRecover, Assignment: a, Problem: Public(a.Reason)}
	case reached && ended:
		return Step{Do: DoStop, Assignment: a, Problem: a.Reason}
	case reached && a.Seen == RunRunning && !a.HostUnknown:
		return Step{Do: DoNothing}
	case reached, a.Seen == RunRunning && a.HostUnknown:
		return Step{Do: DoWait, Until: at.Add(PrepareWithin)}
	case a.Seen == RunRunning:
		return Step{Do: DoFinish}
	case ended && !a.Credited && BlameOf(a.Reason.Code) == Tenant:
		return Step{Do: DoFail, Problem: Public(a.Reason)}
	case ended:
		return Step{Do: DoRetryHost, Assignment: a, Problem: a.Reason}
	case a.HostUnknown:
		return Step{Do: DoRetryHost, Assignment: a, Problem: unproven}
	}
	return nextPreparing(a, at)
}

// nextPreparing waits for a run to come up. A host that pulls an image, and says so,
// has not failed; it has until PullWithin, and PrepareWithin for what comes after.
func nextPreparing(a Assignment, at time.Time) Step {
	from := a.OrderedAt
	if a.ProgressAt.After(from) {
		from = a.ProgressAt
	}
	pulled := a.OrderedAt.Add(PullWithin)
	if from.After(pulled) {
		from = pulled
	}
	switch {
	case a.Progress != "" && at.Before(pulled):
		return Step{Do: DoWait, Until: pulled}
	case a.Progress != "":
		return Step{Do: DoFail, Problem: tooSlow}
	case !at.Before(from.Add(PrepareWithin)):
		return Step{Do: DoRetryHost, Assignment: a, Problem: unproven}
	}
	return Step{Do: DoWait, Until: from.Add(PrepareWithin)}
}
