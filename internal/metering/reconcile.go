package metering

import "time"

// Sources are what is known of one (subject, meter) in a window, all closed and inside it.
type Sources struct {
	Billed   []Interval
	Proven   []Interval // by agents
	Expected []Interval // by the log of operations: from a start to what ended it
	// Reasons why proven time may be unbilled, in the order in which they are asked.
	Reasons []Reason
}

// Reason is a name for time that is proven and rightly not billed.
type Reason struct {
	Name string
	At   []Interval
}

// Unexplained is the reason of time for which there is none.
const Unexplained = "unexplained"

// Reconciled is what the sources come to, in microseconds.
type Reconciled struct {
	Billed, Proven int64
	Over           []Interval       // billed outside of any proof: a discrepancy
	Under          int64            // proven and not billed
	UnderBy        map[string]int64 // Under by reason
	Leakage        int64            // should have run, and nothing proves that it did: never billed
}

// Reconcile compares the sources. Billed time may lie outside of the proof by tolerance
// (one proof period) at each end of it. Over-billing is named by interval, because it is
// disputed; under-billing is told by reason; what is expected and neither proven nor
// billed is leakage.
func Reconcile(s Sources, tolerance time.Duration) Reconciled {
	c := Cover(s.Billed, s.Proven, tolerance)
	out := Reconciled{Billed: c.Billed, Proven: c.Proven, Over: c.OverBilled, UnderBy: map[string]int64{}}
	rest := c.UnderBilled
	out.Under = Total(rest)
	for _, r := range s.Reasons {
		left := Subtract(rest, r.At)
		if explained := Total(rest) - Total(left); explained > 0 {
			out.UnderBy[r.Name] += explained
		}
		rest = left
	}
	if left := Total(rest); left > 0 {
		out.UnderBy[Unexplained] = left
	}
	out.Leakage = Total(Subtract(Subtract(s.Expected, s.Proven), s.Billed))
	return out
}
