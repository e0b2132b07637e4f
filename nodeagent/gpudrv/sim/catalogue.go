package sim

import (
	"maps"
	"slices"

	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// model is everything fixed about a simulated GPU. The numbers are what real
// drivers reported; where drivers differ, one variant is taken.
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
}

// entry is a profile with its places; all have one size.
type entry struct {
	gpudrv.Profile
	starts []int
	size   int
}

// Models lists the slugs of the catalogue.
func Models() []string { return slices.Sorted(maps.Keys(catalogue)) }

// The eight-unit family places its classes alike on every model.
var (
	anyOfSeven = []int{0, 1, 2, 3, 4, 5, 6}
	pairs      = []int{0, 2, 4, 6}
	twos       = []int{0, 2, 4}
	halves     = []int{0, 4}
	zero       = []int{0}
)

// row is a line of the tables below.
type row struct {
	name                    string
	memory                  units.MiB
	sms                     int
	copies, dec, jpeg, ofas int
}

// eightUnits lays the seven classes of the A100, H100 and H200 family out: 1g,
// 1g+me, 1g with double memory, 2g, 3g, 4g, 7g.
func eightUnits(rows [7]row) []entry {
	shape := [7]struct {
		enum, id, compute, maximum, size int
		starts                           []int
	}{
		{0x0, 19, 1, 7, 1, anyOfSeven},
		{0x7, 20, 1, 1, 1, anyOfSeven},
		{0x9, 15, 1, 4, 2, pairs},
		{0x1, 14, 2, 3, 2, twos},
		{0x2, 9, 3, 2, 4, halves},
		{0x3, 5, 4, 1, 4, zero},
		{0x4, 0, 7, 1, 8, zero},
	}
	out := make([]entry, 0, len(rows))
	for i, r := range rows {
		s := shape[i]
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

var catalogue = map[string]model{
	"A100-80": {
		name: "NVIDIA A100-SXM4-80GB", architecture: "ampere", capability: "8.0", pciDevice: "10de:20b2",
		totalBytes: 81920 * mib, idleBytes: 433 * mib, sms: 108, memoryUnits: 8, computeUnits: 7,
		modeNeedsReset: true, idleMilliwatt: 62_000, limitMilliwatt: 400_000,
		profiles: eightUnits([7]row{
			{"1g.10gb", 9728, 14, 1, 0, 0, 0},
			{"1g.10gb+me", 9728, 14, 1, 1, 1, 1},
			{"1g.20gb", 19968, 14, 1, 1, 0, 0},
			{"2g.20gb", 19968, 28, 2, 1, 0, 0},
			{"3g.40gb", 40192, 42, 3, 2, 0, 0},
			{"4g.40gb", 40192, 56, 4, 2, 0, 0},
			{"7g.80gb", 80640, 98, 7, 5, 1, 1},
		}),
	},
	"H100-80": {
		name: "NVIDIA H100 80GB HBM3", architecture: "hopper", capability: "9.0", pciDevice: "10de:2330",
		totalBytes: 81559 * mib, idleBytes: 505 * mib, sms: 132, memoryUnits: 8, computeUnits: 7,
		idleMilliwatt: 71_000, limitMilliwatt: 700_000,
		profiles: eightUnits([7]row{
			{"1g.10gb", 9984, 16, 1, 1, 1, 0},
			{"1g.10gb+me", 9984, 16, 1, 1, 1, 1},
			{"1g.20gb", 20096, 26, 1, 1, 1, 0},
			{"2g.20gb", 20096, 32, 2, 2, 2, 0},
			{"3g.40gb", 40448, 60, 3, 3, 3, 0},
			{"4g.40gb", 40448, 64, 4, 4, 4, 0},
			{"7g.80gb", 81152, 132, 8, 7, 7, 1},
		}),
	},
	"H200-141": {
		name: "NVIDIA H200", architecture: "hopper", capability: "9.0", pciDevice: "10de:2335",
		totalBytes: 150754820096, idleBytes: 644939776, sms: 132, memoryUnits: 8, computeUnits: 7,
		idleMilliwatt: 111_179, limitMilliwatt: 700_000,
		profiles: eightUnits([7]row{
			{"1g.18gb", 16384, 16, 1, 1, 1, 0},
			{"1g.18gb+me", 16384, 16, 1, 1, 1, 1},
			{"1g.35gb", 33280, 26, 1, 1, 1, 0},
			{"2g.35gb", 33280, 32, 2, 2, 2, 0},
			{"3g.71gb", 71424, 60, 3, 3, 3, 0},
			{"4g.71gb", 71424, 64, 4, 4, 4, 0},
			{"7g.141gb", 143360, 132, 8, 7, 7, 1},
		}),
	},
}

func (m model) entry(profile int) (entry, bool) {
	for _, e := range m.profiles {
		if e.ID == profile {
			return e, true
		}
	}
	return entry{}, false
}
