package gpu

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is the sharing technique of a GPU.
type Kind string

// The four techniques.
const (
	Whole     Kind = "whole"
	MIG       Kind = "mig"
	MPS       Kind = "mps"
	TimeSlice Kind = "timeslice"
)

// Isolation says what keeps neighbours on one GPU apart.
type Isolation string

// The classes. Limited needs limits that the driver enforces per slice, which only
// some do: see Device.Isolation.
const (
	Dedicated   Isolation = "dedicated"
	Partitioned Isolation = "partitioned"
	Limited     Isolation = "limited"
	Shared      Isolation = "shared"
)

const (
	// maxMPSShares is the number of clients that an MPS server accepts.
	maxMPSShares = 48
	// maxTimeShares bounds time-slicing: turns get too rare beyond it.
	maxTimeShares = 32
)

// Mode is the sharing mode of a GPU: the technique and, for mps and timeslice,
// its grid. The zero Mode is invalid; build one with ParseMode, WholeMode,
// MIGMode, MPSMode or TimeSliceMode. Modes are comparable.
type Mode struct {
	Kind    Kind
	Shares  int // mps and timeslice: equal shares of the GPU; else 0
	Percent int // mps: SM and memory percent of one share; else 0
}

// WholeMode sells the GPU undivided.
func WholeMode() Mode { return Mode{Kind: Whole} }

// MIGMode cuts the GPU into MIG instances.
func MIGMode() Mode { return Mode{Kind: MIG} }

// MPSMode makes n shares of percent each. It fails unless 1 ≤ n ≤ 48,
// 1 ≤ percent and n × percent ≤ 100.
func MPSMode(n, percent int) (Mode, error) {
	if n < 1 || n > maxMPSShares || percent < 1 || percent > 100 || n*percent > 100 {
		return Mode{}, fmt.Errorf("mps mode %dx%d: shares must be 1 to %d and fit in 100 percent", n, percent, maxMPSShares)
	}
	return Mode{Kind: MPS, Shares: n, Percent: percent}, nil
}

// TimeSliceMode makes n equal turns. It fails unless 1 ≤ n ≤ 32.
func TimeSliceMode(n int) (Mode, error) {
	if n < 1 || n > maxTimeShares {
		return Mode{}, fmt.Errorf("timeslice mode %d: shares must be 1 to %d", n, maxTimeShares)
	}
	return Mode{Kind: TimeSlice, Shares: n}, nil
}

// ParseMode reads `whole`, `mig`, `mps:NxSIZE` or `timeslice:N`. It accepts only
// the text that String writes: ASCII, no signs, spaces or leading zeros.
func ParseMode(text string) (Mode, error) {
	kind, grid, hasGrid := strings.Cut(text, ":")
	var m Mode
	var err error
	switch {
	case text == string(Whole):
		m = WholeMode()
	case text == string(MIG):
		m = MIGMode()
	case kind == string(MPS) && hasGrid:
		n, size, _ := strings.Cut(grid, "x")
		m, err = MPSMode(smallNumber(n), smallNumber(size))
	case kind == string(TimeSlice) && hasGrid:
		m, err = TimeSliceMode(smallNumber(grid))
	default:
		err = fmt.Errorf("mode must be whole, mig, mps:NxSIZE or timeslice:N")
	}
	if err != nil {
		return Mode{}, fmt.Errorf("read gpu mode %q: %w", text, err)
	}
	return m, nil
}

// smallNumber reads 1 to 999 in canonical form; anything else is 0, which every
// constructor refuses.
func smallNumber(s string) int {
	if len(s) == 0 || len(s) > 3 || s[0] == '0' {
		return 0
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// String is the ASCII text that ParseMode reads; the zero Mode is "".
func (m Mode) String() string {
	switch m.Kind {
	case MPS:
		return string(MPS) + ":" + strconv.Itoa(m.Shares) + "x" + strconv.Itoa(m.Percent)
	case TimeSlice:
		return string(TimeSlice) + ":" + strconv.Itoa(m.Shares)
	default:
		return string(m.Kind)
	}
}

// Valid says whether the mode is one that ParseMode could have returned.
func (m Mode) Valid() bool {
	p, err := ParseMode(m.String())
	return err == nil && p == m
}

// MarshalText writes String, so that a Mode may be a configuration value.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what ParseMode reads.
func (m *Mode) UnmarshalText(text []byte) error {
	p, err := ParseMode(string(text))
	if err != nil {
		return err
	}
	*m = p
	return nil
}

// Isolation is the class that slots of this mode have on every driver; some do
// better: Device.Isolation.
func (m Mode) Isolation() Isolation {
	switch m.Kind {
	case Whole:
		return Dedicated
	case MIG:
		return Partitioned
	default:
		return Shared
	}
}

// BindsOrganization says whether a GPU in this mode may be held by one
// organization only, because its slots share faults or memory.
func (m Mode) BindsOrganization() bool { return m.Kind == MPS || m.Kind == TimeSlice }
