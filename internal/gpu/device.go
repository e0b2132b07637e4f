package gpu

import (
	"strconv"
	"strings"

	"github.com/tranche-cloud/tranche/internal/units"
)

// Placement is an interval of memory units: [Start, Start+Size).
type Placement struct{ Start, Size int }

// Engines counts the media and copy engines of a slice or a GPU.
type Engines struct{ Copy, Decode, Encode, JPEG, OFA int }

// list is the fixed order in which engines are counted as resources.
func (e Engines) list() [5]int { return [5]int{e.Copy, e.Decode, e.Encode, e.JPEG, e.OFA} }

// Profile is one MIG profile as the driver of one GPU reports it. ID is the
// driver's profile id and means something else on another model; Name is for
// display only and changes with the driver.
type Profile struct {
	ID           int
	Name         string // for example 1g.18gb, without prefix
	Compute      int    // compute slices
	MemoryUnits  int    // size of each placement, in memory units
	Memory       units.MiB
	SMs          int
	MaxInstances int
	Engines      Engines
	Placements   []Placement // every legal one, ascending by Start
}

// Capabilities are yes-or-no facts that decide which modes a GPU can offer.
type Capabilities struct {
	MIG                 bool // the driver lists MIG profiles
	ModeNeedsReset      bool // switching MIG on or off needs a GPU reset (Ampere)
	MPS                 bool
	ComputeCapability   string // for example 9.0; "" when not reported
	EnforcedMemoryLimit bool   // the driver caps memory of non-MIG clients
	MPSNamespaces       bool   // MPS limits hold per slice, not per client process
}

// Device is one GPU as its driver reports it. It carries no state of use.
type Device struct {
	UUID         string
	PCI          string // bus id, for example 00000000:00:06.0
	Model        string // slug, for example H200-141
	Name         string // the driver's name, for example NVIDIA H200
	Memory       units.MiB
	SMs          int
	MemorySlices int // memory units in all; 0 when MIG is unknown to the device
	ComputeUnits int // compute slices in all
	Engines      Engines
	Profiles     []Profile
	Capabilities Capabilities
	Simulated    bool
}

// Profile returns the profile with the driver's id.
func (d Device) Profile(id int) (Profile, bool) {
	for _, p := range d.Profiles {
		if p.ID == id {
			return p, true
		}
	}
	return Profile{}, false
}

// ProfileNamed returns the profile with the driver's display name.
func (d Device) ProfileNamed(name string) (Profile, bool) {
	for _, p := range d.Profiles {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// Units is how many units the GPU has in a mode: 0 when it cannot be in it.
func (d Device) Units(m Mode) int {
	switch m.Kind {
	case Whole:
		return 1
	case MIG:
		return d.MemorySlices
	case MPS, TimeSlice:
		return m.Shares
	default:
		return 0
	}
}

// Isolation is the class that slots of a mode have on this device: limited instead
// of shared only where its driver was seen to enforce limits per slice.
func (d Device) Isolation(m Mode) Isolation {
	switch {
	case m.Kind == MPS && (d.Capabilities.EnforcedMemoryLimit || d.Capabilities.MPSNamespaces):
		return Limited
	case m.Kind == TimeSlice && d.Capabilities.EnforcedMemoryLimit:
		return Limited
	default:
		return m.Isolation()
	}
}

// Totals derives the sizes that drivers do not report by themselves from the
// profile list: memory units, compute slices and engine stocks are those of the
// largest profile, which is the whole GPU.
func Totals(profiles []Profile) (memoryUnits, compute int, stock Engines) {
	for _, p := range profiles {
		for _, at := range p.Placements {
			memoryUnits = max(memoryUnits, at.Start+at.Size)
		}
		compute = max(compute, p.Compute)
		stock.Copy = max(stock.Copy, p.Engines.Copy)
		stock.Decode = max(stock.Decode, p.Engines.Decode)
		stock.Encode = max(stock.Encode, p.Engines.Encode)
		stock.JPEG = max(stock.JPEG, p.Engines.JPEG)
		stock.OFA = max(stock.OFA, p.Engines.OFA)
	}
	return memoryUnits, compute, stock
}

// ModelSlug names a model by chip and memory, for example H200-141 for
// "NVIDIA H200" with 143771 MiB. The number is GiB rounded up.
func ModelSlug(name string, memory units.MiB) string {
	words := strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == '-' })
	var chip []string
	for _, w := range words {
		if w == "NVIDIA" || w == "Tesla" {
			continue
		}
		chip = append(chip, w)
		if strings.ContainsAny(w, "0123456789") {
			break
		}
	}
	return strings.ToUpper(strings.Join(chip, "-")) + "-" + strconv.FormatInt(memory.CeilGiB(), 10)
}
