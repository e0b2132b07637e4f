// Package wire owns the JSON shapes of the public API. All but Instant is
// generated from openapi/openapi.yaml; the package holds no behaviour.
package wire

import "time"

// instantLayout is RFC 3339 with exactly six digits of a second.
const instantLayout = "2006-01-02T15:04:05.000000Z07:00"

// Instant is a point in time on the wire: UTC, microseconds. Anything finer is
// cut off, as the database does not hold it either.
type Instant struct{ time.Time }

// At makes the wire form of a time.
func At(t time.Time) Instant { return Instant{t.UTC().Truncate(time.Microsecond)} }

// MarshalJSON writes RFC 3339 in UTC with six digits.
func (i Instant) MarshalJSON() ([]byte, error) {
	return []byte(`"` + i.UTC().Format(instantLayout) + `"`), nil
}

// String is the text that MarshalJSON quotes.
func (i Instant) String() string { return i.UTC().Format(instantLayout) }
