package metering

import (
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
)

// Bucket is the size of the parts a window of usage is shown in.
type Bucket string

// Bucket sizes; boundaries are those of the UTC calendar.
const (
	NoBucket Bucket = "none" // the window as one part
	Hour     Bucket = "hour"
	Day      Bucket = "day"
	Month    Bucket = "month"
)

// MaxBuckets bounds the parts of one window.
const MaxBuckets = 10_000

// Split cuts a closed window at every boundary of the bucket size: the parts are
// ordered, none is empty and together they are the window exactly. It fails with
// fault.Invalid for an unknown size, an open or empty window, or too many parts.
func Split(window Interval, size Bucket) ([]Interval, error) {
	if window.Open() || window.Empty() {
		return nil, fault.New(fault.Invalid, "request.invalid", "The window must end after it begins.").
			With(fault.Field{Pointer: "to", Code: "range", Detail: "must be later than from"})
	}
	var parts []Interval
	for from := window.From; from.Before(window.To); {
		to, err := next(from, size)
		if err != nil {
			return nil, err
		}
		if to.IsZero() || to.After(window.To) {
			to = window.To
		}
		if len(parts) == MaxBuckets {
			return nil, fault.New(fault.Invalid, "request.invalid",
				fmt.Sprintf("The window has more than %d buckets.", MaxBuckets)).
				Suggest("Ask for a shorter window or a larger bucket.").
				With(fault.Field{Pointer: "bucket", Code: "range", Detail: "too many buckets"})
		}
		parts = append(parts, Interval{From: from, To: to})
		from = to
	}
	return parts, nil
}

// next returns the first boundary after t, or zero where there is none.
func next(t time.Time, size Bucket) (time.Time, error) {
	y, m, d := t.Date()
	switch size {
	case NoBucket:
		return time.Time{}, nil
	case Hour:
		return t.Truncate(time.Hour).Add(time.Hour), nil
	case Day:
		return time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC), nil
	case Month:
		return time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC), nil
	}
	return time.Time{}, fault.New(fault.Invalid, "request.invalid",
		fmt.Sprintf("The bucket %.16q is unknown.", string(size))).
		Suggest("Use hour, day, month or none.").
		With(fault.Field{Pointer: "bucket", Code: "enum", Detail: "hour, day, month or none"})
}

const periodLayout = "2006-01"

// PeriodOf returns the calendar month (UTC) of an instant as YYYY-MM.
func PeriodOf(t time.Time) string { return t.UTC().Format(periodLayout) }

// ParsePeriod returns the half-open interval of a calendar month written YYYY-MM.
// It fails with fault.Invalid.
func ParsePeriod(text string) (Interval, error) {
	from, err := time.ParseInLocation(periodLayout, text, time.UTC)
	if err != nil || from.Format(periodLayout) != text || from.Year() < 2000 {
		return Interval{}, fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("The period %.16q is not a month.", text)).
			Suggest("Write a calendar month as YYYY-MM, for example 2026-11.").
			With(fault.Field{Pointer: "/period", Code: "format", Detail: "want YYYY-MM"})
	}
	return Interval{From: from, To: from.AddDate(0, 1, 0)}, nil
}
