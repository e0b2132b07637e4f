package sim

import (
	"maps"
	"slices"

	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// catalogue holds the models by slug. Sizes are MiB as drivers print them in
// GiB to two digits: 4.75 GiB is 4864. Read from hardware: H200-141. From public
// reports: the other figures, but those that a line calls unverified.
var catalogue = map[string]model{
	"A100-40": {
		name: "NVIDIA A100-SXM4-40GB", architecture: "ampere", capability: "8.0", pciDevice: "10de:20b0",
		totalBytes: 40960 * mib, idleBytes: 425 * mib, sms: 108, memoryUnits: 8, computeUnits: 7,
		modeNeedsReset: true, idleMilliwatt: 52_000, limitMilliwatt: 400_000,
		profiles: a100small(40192),
		variants: map[string][]entry{"full-39.50": a100small(40448)},
	},
	"A100-80": {
		name: "NVIDIA A100-SXM4-80GB", architecture: "ampere", capability: "8.0", pciDevice: "10de:20b2",
		totalBytes: 81920 * mib, idleBytes: 433 * mib, sms: 108, memoryUnits: 8, computeUnits: 7,
		modeNeedsReset: true, idleMilliwatt: 62_000, limitMilliwatt: 400_000,
		profiles: a100large(9728, "7g.80gb"),
		variants: map[string][]entry{
			"1g-9.75": a100large(9984, "7g.80gb"),
			// Before branch 525 there is no 1g with double memory.
			"r470": without(a100large(9728, "7g.79gb"), oneDouble),
		},
	},
	"A30-24": {
		name: "NVIDIA A30", architecture: "ampere", capability: "8.0", pciDevice: "10de:20b7",
		totalBytes: 24576 * mib, idleBytes: 420 * mib, sms: 56, memoryUnits: 4, computeUnits: 4,
		modeNeedsReset: true, idleMilliwatt: 30_000, limitMilliwatt: 165_000,
		profiles: a30(24000),
		variants: map[string][]entry{"full-23.50": a30(24064)},
	},
	"H100-80": {
		name: "NVIDIA H100 80GB HBM3", architecture: "hopper", capability: "9.0", pciDevice: "10de:2330",
		totalBytes: 81559 * mib, idleBytes: 505 * mib, sms: 132, memoryUnits: 8, computeUnits: 7,
		idleMilliwatt: 71_000, limitMilliwatt: 700_000,
		profiles: hopper([7]string{"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"},
			9984, 20096, 40448, 81152),
	},
	"H100-94": { // H100 NVL; its SMs and the 1g with double memory are unverified
		name: "NVIDIA H100 NVL", architecture: "hopper", capability: "9.0", pciDevice: "10de:2321",
		totalBytes: 95830 * mib, idleBytes: 510 * mib, sms: 132, memoryUnits: 8, computeUnits: 7,
		idleMilliwatt: 62_000, limitMilliwatt: 400_000,
		profiles: hopper([7]string{"1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"},
			11008, 22144, 47488, 95360),
	},
	"H200-141": {
		name: "NVIDIA H200", architecture: "hopper", capability: "9.0", pciDevice: "10de:2335",
		totalBytes: 150754820096, idleBytes: 644939776, sms: 132, memoryUnits: 8, computeUnits: 7,
		idleMilliwatt: 111_179, limitMilliwatt: 700_000,
		profiles: hopper(h200Names, 16384, 33280, 71424, 143360),
		variants: map[string][]entry{"3g-69.50": hopper(h200Names, 16384, 33024, 71168, 143360)},
	},
	// Of Blackwell, placements, 3g, 4g and full sizes, their SMs and the engines are
	// unverified: they follow Hopper's scheme.
	"B200-180": {
		name: "NVIDIA B200", architecture: "blackwell", capability: "10.0", pciDevice: "10de:2901",
		totalBytes: 183359 * mib, idleBytes: 650 * mib, sms: 148, memoryUnits: 8, computeUnits: 7,
		idleMilliwatt: 140_000, limitMilliwatt: 1_000_000,
		profiles: b200(22528),
		variants: map[string][]entry{"1g-20.50": b200(20992)},
	},
	"GB200-186": {
		name: "NVIDIA GB200", architecture: "blackwell", capability: "10.0", pciDevice: "10de:2941",
		totalBytes: 189471 * mib, idleBytes: 650 * mib, sms: 152, memoryUnits: 8, computeUnits: 7,
		idleMilliwatt: 150_000, limitMilliwatt: 1_200_000,
		profiles: gb200([7]string{"1g.23gb", "1g.23gb+me", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"}, 22528),
		// The same card under another driver has other names and a smaller 1g.
		variants: map[string][]entry{
			"1g.24gb": gb200([7]string{"1g.24gb", "1g.24gb+me", "1g.47gb", "2g.47gb", "3g.95gb", "4g.95gb", "7g.189gb"}, 20480),
		},
	},
	"RTX-PRO-6000-96": { // a third party's listing: unverified as a whole
		name: "NVIDIA RTX PRO 6000 Blackwell Server Edition", architecture: "blackwell", capability: "12.0",
		pciDevice: "10de:2bb5", totalBytes: 97887 * mib, idleBytes: 600 * mib, sms: 188,
		memoryUnits: 12, computeUnits: 4, idleMilliwatt: 35_000, limitMilliwatt: 600_000,
		profiles: twelveUnits(24192),
		variants: map[string][]entry{"1g-23.12": twelveUnits(23680)},
	},
	"L40S-45": { // has no MIG
		name: "NVIDIA L40S", architecture: "ada", capability: "8.9", pciDevice: "10de:26b9",
		totalBytes: 46068 * mib, idleBytes: 500 * mib, sms: 142,
		idleMilliwatt: 35_000, limitMilliwatt: 350_000,
	},
}

var h200Names = [7]string{"1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"}

// without drops a class that an old driver does not know.
func without(list []entry, drop class) []entry {
	return slices.DeleteFunc(slices.Clone(list), func(e entry) bool { return e.ID == shapes[drop].id })
}

func a100small(full units.MiB) []entry {
	return eightUnits(
		row{one, "1g.5gb", 4864, 14, 1, 0, 0, 0},
		row{oneMedia, "1g.5gb+me", 4864, 14, 1, 1, 1, 1},
		row{oneDouble, "1g.10gb", 9856, 14, 1, 1, 0, 0},
		row{two, "2g.10gb", 9856, 28, 2, 1, 0, 0},
		row{three, "3g.20gb", 20096, 42, 3, 2, 0, 0},
		row{four, "4g.20gb", 20096, 56, 4, 2, 0, 0},
		row{seven, "7g.40gb", full, 98, 7, 5, 1, 1},
	)
}

func a100large(small units.MiB, full string) []entry {
	return eightUnits(
		row{one, "1g.10gb", small, 14, 1, 0, 0, 0},
		row{oneMedia, "1g.10gb+me", small, 14, 1, 1, 1, 1},
		row{oneDouble, "1g.20gb", 19968, 14, 1, 1, 0, 0},
		row{two, "2g.20gb", 19968, 28, 2, 1, 0, 0},
		row{three, "3g.40gb", 40192, 42, 3, 2, 0, 0},
		row{four, "4g.40gb", 40192, 56, 4, 2, 0, 0},
		row{seven, full, 80640, 98, 7, 5, 1, 1},
	)
}

// hopper lays out the seven classes with Hopper's SMs and engines.
func hopper(names [7]string, small, double, half, full units.MiB) []entry {
	return scheme(names, [4]units.MiB{small, double, half, full}, [6]int{16, 26, 32, 60, 64, 132})
}

func b200(small units.MiB) []entry {
	names := [7]string{"1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"}
	return scheme(names, [4]units.MiB{small, 45312, 90624, 182784}, [6]int{18, 30, 36, 68, 72, 148})
}

func gb200(names [7]string, small units.MiB) []entry {
	return scheme(names, [4]units.MiB{small, 46592, 93184, 187904}, [6]int{18, 32, 38, 70, 74, 152})
}

// scheme takes the sizes of 1g, double, half and full, and the SMs of 1g, 1g with
// double memory, 2g, 3g, 4g and 7g.
func scheme(names [7]string, size [4]units.MiB, sms [6]int) []entry {
	return eightUnits(
		row{one, names[0], size[0], sms[0], 1, 1, 1, 0},
		row{oneMedia, names[1], size[0], sms[0], 1, 1, 1, 1},
		row{oneDouble, names[2], size[1], sms[1], 1, 1, 1, 0},
		row{two, names[3], size[1], sms[2], 2, 2, 2, 0},
		row{three, names[4], size[2], sms[3], 3, 3, 3, 0},
		row{four, names[5], size[2], sms[4], 4, 4, 4, 0},
		row{seven, names[6], size[3], sms[5], 8, 7, 7, 1},
	)
}

// grid is a line of a model whose classes are its own.
type grid struct {
	enum, id, compute, maximum, size, sms int
	name                                  string
	memory                                units.MiB
	dec, enc, jpeg, ofa                   int
	starts                                []int
}

func laid(rows ...grid) []entry {
	byEnum := make(map[int]entry, len(rows))
	for _, r := range rows {
		byEnum[r.enum] = entry{
			Profile: gpudrv.Profile{
				Enum: r.enum, ID: r.id, Name: r.name, Compute: r.compute, MaxInstances: r.maximum,
				Memory: r.memory, SMs: r.sms, Copy: r.compute, Decode: r.dec, Encode: r.enc, JPEG: r.jpeg, OFA: r.ofa,
			},
			starts: r.starts, size: r.size,
		}
	}
	out := make([]entry, 0, len(rows))
	for _, enum := range slices.Sorted(maps.Keys(byEnum)) {
		out = append(out, byEnum[enum])
	}
	return out
}

// a30 has the same ids as others with other meanings. Its engines are unverified.
func a30(full units.MiB) []entry {
	quarters, halves := []int{0, 1, 2, 3}, []int{0, 2}
	return laid(
		grid{0x0, 14, 1, 4, 1, 14, "1g.6gb", 5952, 0, 0, 0, 0, quarters},
		grid{0x7, 21, 1, 1, 1, 14, "1g.6gb+me", 5952, 1, 0, 1, 1, quarters},
		grid{0x1, 5, 2, 2, 2, 28, "2g.12gb", 11968, 2, 0, 0, 0, halves},
		grid{0x8, 6, 2, 1, 2, 28, "2g.12gb+me", 11968, 2, 0, 1, 1, halves},
		grid{0x3, 0, 4, 1, 4, 56, "4g.24gb", full, 4, 0, 1, 1, []int{0}},
	)
}

// twelveUnits is a grid of twelve memory units and four compute slices. One
// profile may take all media engines: beside it only those without any fit.
func twelveUnits(small units.MiB) []entry {
	quarters, halves, zero := []int{0, 3, 6, 9}, []int{0, 6}, []int{0}
	const half, full = 48512, 97152
	return laid(
		grid{0x0, 14, 1, 4, 3, 46, "1g.24gb", small, 1, 1, 1, 0, quarters},
		grid{0xA, 47, 1, 4, 3, 46, "1g.24gb+gfx", small, 1, 1, 1, 0, quarters},
		grid{0x7, 21, 1, 1, 3, 46, "1g.24gb+me", small, 1, 1, 1, 1, quarters},
		grid{0xF, 65, 1, 1, 3, 46, "1g.24gb+me.all", small, 4, 4, 4, 1, quarters},
		grid{0xD, 67, 1, 4, 3, 46, "1g.24gb-me", small, 0, 0, 0, 0, quarters},
		grid{0x1, 5, 2, 2, 6, 94, "2g.48gb", half, 2, 2, 2, 0, halves},
		grid{0xB, 35, 2, 2, 6, 94, "2g.48gb+gfx", half, 2, 2, 2, 0, halves},
		grid{0x10, 64, 2, 1, 6, 94, "2g.48gb+me.all", half, 4, 4, 4, 1, halves},
		grid{0xE, 66, 2, 2, 6, 94, "2g.48gb-me", half, 0, 0, 0, 0, halves},
		grid{0x3, 0, 4, 1, 12, 188, "4g.96gb", full, 4, 4, 4, 1, zero},
		grid{0xC, 32, 4, 1, 12, 188, "4g.96gb+gfx", full, 4, 4, 4, 1, zero},
	)
}
