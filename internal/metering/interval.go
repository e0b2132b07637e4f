package metering

import (
	"slices"
	"time"
)

// Interval is the half-open time [From, To) in UTC microseconds. A zero To means
// it has not ended.
type Interval struct{ From, To time.Time }

// Between returns [from, to) in UTC, both cut to whole microseconds; a zero to
// stays zero.
func Between(from, to time.Time) Interval {
	return Interval{From: Instant(from), To: Instant(to)}
}

// Instant returns t in UTC, cut to whole microseconds, without a monotonic
// reading; the zero time stays zero. Every input passes here at the edge.
func Instant(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}

// Open reports whether the interval has not ended.
func (i Interval) Open() bool { return i.To.IsZero() }

// Empty reports whether the interval has ended and holds no instant.
func (i Interval) Empty() bool { return !i.Open() && !i.From.Before(i.To) }

// Micros returns the length in microseconds: 0 if it is empty or open.
func (i Interval) Micros() int64 {
	if i.Open() || i.Empty() {
		return 0
	}
	return i.To.UnixMicro() - i.From.UnixMicro()
}

// Until returns the interval closed at the given instant at the latest; it is
// empty if it starts later.
func (i Interval) Until(at time.Time) Interval {
	if i.Open() || at.Before(i.To) {
		i.To = at
	}
	if i.To.Before(i.From) {
		i.To = i.From
	}
	return i
}

// Overlaps reports whether two intervals share an instant.
func (i Interval) Overlaps(j Interval) bool {
	if i.Empty() || j.Empty() {
		return false
	}
	return (j.Open() || i.From.Before(j.To)) && (i.Open() || j.From.Before(i.To))
}

// Intersect returns what two intervals share; empty if nothing.
func (i Interval) Intersect(j Interval) Interval {
	from := i.From
	if j.From.After(from) {
		from = j.From
	}
	to := i.To
	if i.Open() || !j.Open() && j.To.Before(to) {
		to = j.To
	}
	if !to.IsZero() && to.Before(from) {
		to = from
	}
	return Interval{From: from, To: to}
}

// Union returns closed intervals merged and ordered: disjoint, not touching, none
// empty. Open ones are left out, close them with Until first.
func Union(intervals []Interval) []Interval {
	sorted := make([]Interval, 0, len(intervals))
	for _, i := range intervals {
		if i.Micros() > 0 {
			sorted = append(sorted, i)
		}
	}
	slices.SortFunc(sorted, func(a, b Interval) int { return a.From.Compare(b.From) })
	var out []Interval
	for _, i := range sorted {
		last := len(out) - 1
		if last < 0 || i.From.After(out[last].To) {
			out = append(out, i)
			continue
		}
		if i.To.After(out[last].To) {
			out[last].To = i.To
		}
	}
	return out
}

// Subtract returns the parts of closed intervals that lie in none of taken.
func Subtract(intervals, taken []Interval) []Interval {
	var out []Interval
	taken = Union(taken)
	for _, i := range Union(intervals) {
		for _, t := range taken {
			if !i.Overlaps(t) {
				continue
			}
			if i.From.Before(t.From) {
				out = append(out, Interval{From: i.From, To: t.From})
			}
			i.From = t.To
			if i.Empty() {
				break
			}
		}
		if !i.Empty() {
			out = append(out, i)
		}
	}
	return out
}

// Total returns the microseconds of disjoint closed intervals.
func Total(intervals []Interval) int64 {
	var sum int64
	for _, i := range intervals {
		sum += i.Micros()
	}
	return sum
}
