// Package units owns the units that sizes are counted in. The only one so far is
// the mebibyte, because drivers report memory in it and prices are per size.
//
// It does not own money (internal/money) or time.
package units

import "strconv"

// MiB is a memory size in mebibytes (1,048,576 bytes). Negative sizes are never
// valid; arithmetic on sizes that fit a machine cannot overflow.
type MiB int64

// GiB is 1,024 MiB.
const GiB MiB = 1024

const bytesPerMiB = 1 << 20

// FromBytes returns whole mebibytes, rounded down: nobody is promised a part of
// one.
func FromBytes(n uint64) MiB { return MiB(n / bytesPerMiB) }

// Bytes returns the size in bytes.
func (m MiB) Bytes() int64 { return int64(m) * bytesPerMiB }

// CeilGiB returns the size in whole gibibytes, rounded up.
func (m MiB) CeilGiB() int64 { return int64((m + GiB - 1) / GiB) }

// String is for people, for example "16384 MiB".
func (m MiB) String() string { return strconv.FormatInt(int64(m), 10) + " MiB" }
