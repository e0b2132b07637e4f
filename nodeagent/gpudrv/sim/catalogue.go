package sim

import (
	"maps"
	"slices"

	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// model is everything fixed about a simulated GPU under one driver. The numbers
// are what real drivers reported unless a table says that they are not.
type model struct {
	name         string
	architecture string
	capability   string
	pciDevice    string
	totalBytes   int64
	idleBytes    int64 // what the driver holds with no process
	sms          int
	memoryUnits  int
	computeUnits int
	// modeNeedsReset: switching MIG waits for a reset, and survives a reboot.
	modeNeedsReset bool
	idleMilliwatt  int64
	limitMilliwatt int64
	profiles       []entry
	// variants are the profiles that another driver reports for the same card, by
	// the name a fleet file uses.
	variants map[string][]entry
}

// entry is a profile with its places; all have one size.
type entry struct {
	gpudrv.Profile
	starts []int
	size   int
}

// Models lists the slugs of the catalogue.
func Models() []string { return slices.Sorted(maps.Keys(catalogue)) }

// Variants lists the driver variants of a model beside the usual one, whose name
// is "".
func Variants(model string) []string { return slices.Sorted(maps.Keys(catalogue[model].variants)) }

// kindOf is the model of a card under a driver variant.
func kindOf(slug, variant string) model {
	m := catalogue[slug]
	if p, ok := m.variants[variant]; ok {
		m.profiles = p
	}
	return m
}

func (c card) model() model { return kindOf(c.Model, c.Variant) }

// class is a kind of profile of the eight-unit family, which places its classes
// alike on every model.
type class int

const (
	one class = iota
	oneMedia
	oneDouble // one compute slice, two memory units
	two
	three
	four
	seven
)

var shapes = [...]struct {
	enum, id, compute, maximum, size int
	starts                           []int
}{
	one:       {0x0, 19, 1, 7, 1, []int{0, 1, 2, 3, 4, 5, 6}},
	oneMedia:  {0x7, 20, 1, 1, 1, []int{0, 1, 2, 3, 4, 5, 6}},
	oneDouble: {0x9, 15, 1, 4, 2, []int{0, 2, 4, 6}},
	two:       {0x1, 14, 2, 3, 2, []int{0, 2, 4}},
	three:     {0x2, 9, 3, 2, 4, []int{0, 4}},
	four:      {0x3, 5, 4, 1, 4, []int{0}},
	seven:     {0x4, 0, 7, 1, 8, []int{0}},
}

// row is a line of the tables: a class with what differs between models.
type row struct {
	class                   class
	name                    string
	memory                  units.MiB
	sms                     int
	copies, dec, jpeg, ofas int
}

// eightUnits lays out classes of the A100, H100, H200 and B200 family.
func eightUnits(rows ...row) []entry {
	out := make([]entry, 0, len(rows))
	for _, r := range rows {
		s := shapes[r.class]
		out = append(out, entry{
			Profile: gpudrv.Profile{
				Enum: s.enum, ID: s.id, Name: r.name, Compute: s.compute, MaxInstances: s.maximum,
				Memory: r.memory, SMs: r.sms, Copy: r.copies, Decode: r.dec, JPEG: r.jpeg, OFA: r.ofas,
			},
			starts: s.starts, size: s.size,
		})
	}
	slices.SortFunc(out, func(a, b entry) int { return a.Enum - b.Enum })
	return out
}

const mib = 1 << 20

func (m model) entry(profile int) (entry, bool) {
	for _, e := range m.profiles {
		if e.ID == profile {
			return e, true
		}
	}
	return entry{}, false
}

// hasGPM says whether the architecture has profiling counters.
func (m model) hasGPM() bool { return m.architecture == "hopper" || m.architecture == "blackwell" }
