package gpu

import (
	"errors"
	"fmt"

	"github.com/tranche-cloud/tranche/internal/units"
)

// Slot is one exact place on one GPU. GPU is the driver's UUID. Start and Size
// are in units of the mode (package doc). Profile, Name and Compute are set in
// mig mode only. Slots are comparable.
type Slot struct {
	GPU     string
	Mode    Mode
	Profile int    // the driver's profile id, mig only
	Name    string // display name of the profile, mig only
	Start   int
	Size    int
	Compute int // compute slices taken, mig only
}

// Placement is the slot's interval of units.
func (s Slot) Placement() Placement { return Placement{Start: s.Start, Size: s.Size} }

// Units lists the claim cells that the slot takes, ascending.
func (s Slot) Units() []int {
	out := make([]int, 0, max(s.Size, 0))
	for u := s.Start; u < s.Start+s.Size; u++ {
		out = append(out, u)
	}
	return out
}

// String is for logs and errors, for example "mig 1g.18gb at 6:1".
func (s Slot) String() string {
	if s.Mode.Kind == MIG {
		return fmt.Sprintf("mig %s at %d:%d", s.Name, s.Start, s.Size)
	}
	return fmt.Sprintf("%s unit %d", s.Mode, s.Start)
}

// Resources is what the holder of a slot gets. SMPercent is 100 except for
// shares; for mps and timeslice Memory is the allocated share, which only mps
// limits (per process).
type Resources struct {
	Memory    units.MiB
	SMs       int
	SMPercent int
}

// smStep is the granularity in which MPS grants SMs: 25 percent of 132 was
// measured to be 32, so odd counts are rounded down.
const smStep = 2

// ResourcesOf returns what a slot of the device holds. It fails when the slot
// names a profile that the device does not report.
func ResourcesOf(d Device, s Slot) (Resources, error) {
	switch s.Mode.Kind {
	case Whole:
		return Resources{Memory: d.Memory, SMs: d.SMs, SMPercent: 100}, nil
	case MIG:
		p, ok := d.Profile(s.Profile)
		if !ok {
			return Resources{}, refuse(UnknownProfile, "%s has no profile with id %d", d.Model, s.Profile)
		}
		return Resources{Memory: p.Memory, SMs: p.SMs, SMPercent: 100}, nil
	case MPS:
		pct := s.Mode.Percent
		sms := d.SMs * pct / 100
		return Resources{
			Memory:    d.Memory * units.MiB(pct) / 100,
			SMs:       sms - sms%smStep,
			SMPercent: pct,
		}, nil
	case TimeSlice:
		n := max(s.Mode.Shares, 1)
		return Resources{Memory: d.Memory / units.MiB(n), SMs: d.SMs, SMPercent: 100 / n}, nil
	default:
		return Resources{}, refuse(InvalidSlot, "slot has no valid mode")
	}
}

// Reason says why a slot or a want cannot be had.
type Reason string

// The reasons.
const (
	WrongMode      Reason = "wrong_mode"      // the GPU is in another mode or grid
	UnknownProfile Reason = "unknown_profile" // this GPU's driver does not offer it
	TooSmall       Reason = "too_small"       // the profile is below the wanted minimum
	NoRoom         Reason = "no_room"         // legal on an emptier GPU
	InvalidSlot    Reason = "invalid_slot"    // never legal on this GPU
)

// Refusal is the error of Fits and Feasible.
type Refusal struct {
	Reason Reason
	Detail string // one sentence without secrets
}

// Error is the detail with its reason.
func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Detail }

// ReasonOf returns the reason of a refusal anywhere in the chain, or "".
func ReasonOf(err error) Reason {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Reason
	}
	return ""
}

func refuse(r Reason, format string, args ...any) error {
	return &Refusal{Reason: r, Detail: fmt.Sprintf(format, args...)}
}
