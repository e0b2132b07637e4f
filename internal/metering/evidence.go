package metering

import "time"

// OldestEvidence is how old a proof may be when it arrives and still be billed.
const OldestEvidence = 90 * 24 * time.Hour

// StartInstant is when a start is billed from: received − age, where age is how
// long ago, by the agent's monotonic clock, the process started, clipped to
// [orderSent, received]. Neither a lying nor a slow agent moves a start before the
// order or after the report. All are business time (age already scaled).
func StartInstant(received time.Time, age time.Duration, orderSent time.Time) time.Time {
	start := received.Add(-age)
	if start.Before(orderSent) {
		start = orderSent
	}
	if start.After(received) {
		start = received
	}
	return Instant(start)
}

// FillGaps returns the intervals that late evidence of one run adds to what is
// already billed: evidence without billed, never before notBefore (the run's
// start), nothing older than OldestEvidence at the instant at, and nothing later
// than at. All intervals are closed; the answer is ordered and disjoint.
func FillGaps(evidence, billed []Interval, notBefore, at time.Time) []Interval {
	if oldest := at.Add(-OldestEvidence); oldest.After(notBefore) {
		notBefore = oldest
	}
	window := Between(notBefore, at)
	if window.Empty() {
		return nil
	}
	clipped := make([]Interval, 0, len(evidence))
	for _, e := range evidence {
		clipped = append(clipped, e.Intersect(window))
	}
	return Subtract(clipped, billed)
}

// Coverage compares what was billed for one (subject, meter) with what was proven.
type Coverage struct {
	Billed, Proven int64      // microseconds
	OverBilled     []Interval // billed outside any proof: a discrepancy
	UnderBilled    []Interval // proven and not billed: reported with a reason
}

// Cover compares billed with proven time. Billed intervals that overlap each other
// count twice in Billed, because they would be charged twice. tolerance is one
// proof period: over-billing at each end up to it is not counted.
func Cover(billed, proven []Interval, tolerance time.Duration) Coverage {
	c := Coverage{Billed: Total(billed), Proven: Total(Union(proven)), UnderBilled: Subtract(proven, billed)}
	widened := make([]Interval, 0, len(proven))
	for _, p := range proven {
		widened = append(widened, Interval{From: p.From.Add(-tolerance), To: p.To.Add(tolerance)})
	}
	c.OverBilled = Subtract(billed, widened)
	return c
}
