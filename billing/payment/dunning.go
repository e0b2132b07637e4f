package payment

import (
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
)

// Action is what dunning does about an overdue invoice.
type Action string

// The actions, in the order in which a schedule may name them.
const (
	Remind       Action = "remind"
	Suspend      Action = "suspend"       // nothing new starts
	AnnounceStop Action = "announce_stop" // what runs stops with the next step
	Stop         Action = "stop"          // what runs is stopped; nothing is deleted
)

var order = map[Action]int{Remind: 1, Suspend: 2, AnnounceStop: 3, Stop: 4}

// Step is one action, so many days after the invoice was due.
type Step struct {
	Days   int
	Action Action
}

// Schedule is what an issuer does about overdue invoices, in order.
type Schedule []Step

// DefaultSchedule is that of an issuer who has none.
var DefaultSchedule = Schedule{
	{3, Remind}, {10, Remind}, {20, Remind}, {25, Suspend}, {28, AnnounceStop}, {35, Stop},
}

// minNotice is how many days lie at least between the notice of a stop and the stop.
const minNotice = 3

// Check fails with request.invalid for a schedule that is not in order, repeats a day
// or stops without notice.
func (s Schedule) Check() error {
	refuse := func(i int, why string) error {
		return fault.New(fault.Invalid, "request.invalid", "The dunning schedule cannot be followed.").
			With(fault.Field{Pointer: fmt.Sprintf("/steps/%d", i), Code: "schedule", Detail: why}).
			Suggest("List steps by day: reminders, suspend, announce_stop, stop.")
	}
	announced := -1
	for i, step := range s {
		switch {
		case order[step.Action] == 0:
			return refuse(i, fmt.Sprintf("%q is no action", step.Action))
		case step.Days < 1 || step.Days > 365:
			return refuse(i, "a step comes 1 to 365 days after the due date")
		case i > 0 && step.Days <= s[i-1].Days:
			return refuse(i, "steps come on later and later days")
		case i > 0 && order[step.Action] < order[s[i-1].Action]:
			return refuse(i, "no step is milder than the one before")
		case step.Action == Stop && (announced < 0 || step.Days-announced < minNotice):
			return refuse(i, fmt.Sprintf("a stop is announced at least %d days before", minNotice))
		}
		if step.Action == AnnounceStop {
			announced = step.Days
		}
	}
	return nil
}

// Dunning is how far the dunning of one invoice came. The zero value has not begun.
type Dunning struct {
	Done        int           // steps taken
	Paused      time.Duration // how long it rested in all, not counting now
	PausedSince time.Time     // zero: it does not rest
}

// Facts are what dunning looks at.
type Facts struct {
	DueOn    time.Time // midnight UTC of the due date
	Settled  bool      // nothing is due any more
	Disputed bool      // a dispute of the invoice or its payment is open
	At       time.Time // now
}

// Advance takes at most one step: it returns the progress after it, the action to
// take, "" for none, and when to look again, zero for never. Time while a dispute is
// open does not count, and a settled invoice is left alone for good. After a long
// outage the steps that were missed are taken one at a time and never two on a day,
// so that a reminder and a stop never come together.
func (s Schedule) Advance(d Dunning, f Facts) (next Dunning, act Action, again time.Time) {
	if f.Settled {
		return d, "", time.Time{}
	}
	if f.Disputed {
		if d.PausedSince.IsZero() {
			d.PausedSince = f.At
		}
		return d, "", f.At.Add(24 * time.Hour)
	}
	if !d.PausedSince.IsZero() {
		d.Paused += f.At.Sub(d.PausedSince)
		d.PausedSince = time.Time{}
	}
	if d.Done >= len(s) {
		return d, "", time.Time{}
	}
	if at := s.at(d, f.DueOn); f.At.Before(at) {
		return d, "", at
	}
	act = s[d.Done].Action
	lag := f.At.Sub(s.at(d, f.DueOn))
	d.Done++
	if d.Done >= len(s) {
		return d, act, time.Time{}
	}
	if day := 24 * time.Hour; lag >= day { // late: the rest keeps its distances
		d.Paused += lag.Truncate(day)
	}
	return d, act, s.at(d, f.DueOn)
}

// at is when the next step is taken.
func (s Schedule) at(d Dunning, due time.Time) time.Time {
	return due.AddDate(0, 0, s[d.Done].Days).Add(d.Paused)
}
