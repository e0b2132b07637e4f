package metering

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// MonthEnd returns the first instant of the calendar month (UTC) after t's.
func MonthEnd(t time.Time) time.Time {
	y, m, _ := t.UTC().Date()
	return time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
}

// Months cuts an interval at the month boundaries inside it: no segment crosses one.
// Of an open interval the last part is open; it is cut at the boundaries before the
// given instant. The parts are ordered, none is empty, and together they are the
// interval exactly.
func Months(i Interval, before time.Time) []Interval {
	var parts []Interval
	for !i.Empty() {
		edge := MonthEnd(i.From)
		if i.Open() && !edge.Before(before) || !i.Open() && !edge.Before(i.To) {
			return append(parts, i)
		}
		parts = append(parts, Interval{From: i.From, To: edge})
		i.From = edge
	}
	return parts
}

// StartID names a start: what is billed of one run of one subject, over all months.
// It is made of just these, so that evidence in any order gives one name.
func StartID(subject Subject, run int) [16]byte {
	h := sha256.New()
	h.Write([]byte("start " + subject.Kind))
	h.Write(subject.ID[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(max(run, 0))))
	var out [16]byte
	copy(out[:], h.Sum(nil))
	out[6], out[8] = out[6]&0x0f|0x80, out[8]&0x3f|0x80 // a UUID of version 8
	return out
}

// Without returns the parts of an interval that lie in none of taken; both may be open.
func Without(i Interval, taken []Interval) []Interval {
	ends := make([]Interval, 0, len(taken))
	for _, t := range taken {
		if t.Open() {
			t.To = endless
		}
		ends = append(ends, t)
	}
	open := i.Open()
	if open {
		i.To = endless
	}
	out := Subtract([]Interval{i}, ends)
	if n := len(out); open && n > 0 && out[n-1].To.Equal(endless) {
		out[n-1].To = time.Time{}
	}
	return out
}

// endless is later than any instant of a segment.
var endless = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)
