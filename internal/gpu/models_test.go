package gpu_test

import (
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
)

// profile writes a row of a driver's report: starts all have the same size.
func profile(id int, name string, compute, size, maximum, sms int, mem units.MiB, e gpu.Engines, starts ...int) gpu.Profile {
	p := gpu.Profile{
		ID: id, Name: name, Compute: compute, MemoryUnits: size, Memory: mem,
		SMs: sms, MaxInstances: maximum, Engines: e,
	}
	for _, s := range starts {
		p.Placements = append(p.Placements, gpu.Placement{Start: s, Size: size})
	}
	return p
}

func engines(copies, dec, jpeg, ofa int) gpu.Engines {
	return gpu.Engines{Copy: copies, Decode: dec, JPEG: jpeg, OFA: ofa}
}

// device completes a device from its profiles as the drivers' adapters do.
func device(model string, mem units.MiB, sms int, profiles ...gpu.Profile) gpu.Device {
	d := gpu.Device{UUID: "GPU-test", Model: model, Memory: mem, SMs: sms, Profiles: profiles}
	d.MemorySlices, d.ComputeUnits, d.Engines = gpu.Totals(profiles)
	return d
}

// h200 is the report of a real H200 SXM.
func h200() gpu.Device {
	return device("H200-141", 143771, 132,
		profile(19, "1g.18gb", 1, 1, 7, 16, 16384, engines(1, 1, 1, 0), 0, 1, 2, 3, 4, 5, 6),
		profile(20, "1g.18gb+me", 1, 1, 1, 16, 16384, engines(1, 1, 1, 1), 0, 1, 2, 3, 4, 5, 6),
		profile(15, "1g.35gb", 1, 2, 4, 26, 33280, engines(1, 1, 1, 0), 0, 2, 4, 6),
		profile(14, "2g.35gb", 2, 2, 3, 32, 33280, engines(2, 2, 2, 0), 0, 2, 4),
		profile(9, "3g.71gb", 3, 4, 2, 60, 71424, engines(3, 3, 3, 0), 0, 4),
		profile(5, "4g.71gb", 4, 4, 1, 64, 71424, engines(4, 4, 4, 0), 0),
		profile(0, "7g.141gb", 7, 8, 1, 132, 143360, engines(8, 7, 7, 1), 0),
	)
}

// without drops profiles by id, as a policy may.
func without(d gpu.Device, ids ...int) gpu.Device {
	var keep []gpu.Profile
	for _, p := range d.Profiles {
		drop := false
		for _, id := range ids {
			drop = drop || p.ID == id
		}
		if !drop {
			keep = append(keep, p)
		}
	}
	d.Profiles = keep
	return d
}

// withoutEngines forgets the engines, so that only the maxima bind.
func withoutEngines(d gpu.Device) gpu.Device {
	for i := range d.Profiles {
		d.Profiles[i].Engines = gpu.Engines{}
	}
	d.Engines = gpu.Engines{}
	return d
}

// a30 has 4 memory and 4 compute slices and one OFA.
func a30() gpu.Device {
	return device("A30-24", 24576, 56,
		profile(14, "1g.6gb", 1, 1, 4, 14, 5951, engines(1, 0, 0, 0), 0, 1, 2, 3),
		profile(21, "1g.6gb+me", 1, 1, 1, 14, 5951, engines(1, 1, 1, 1), 0, 1, 2, 3),
		profile(5, "2g.12gb", 2, 2, 2, 28, 11968, engines(2, 2, 0, 0), 0, 2),
		profile(6, "2g.12gb+me", 2, 2, 1, 28, 11968, engines(2, 2, 1, 1), 0, 2),
		profile(0, "4g.24gb", 4, 4, 1, 56, 24000, engines(4, 4, 1, 1), 0),
	)
}

// rtx is the 12-unit grid of an RTX PRO 6000, plain profiles.
func rtx() gpu.Device {
	return device("RTX-PRO-6000-96", 97887, 188,
		profile(14, "1g.24gb", 1, 3, 4, 46, 23674, gpu.Engines{Copy: 1, Decode: 1, Encode: 1, JPEG: 1}, 0, 3, 6, 9),
		profile(5, "2g.48gb", 2, 6, 2, 94, 48000, gpu.Engines{Copy: 2, Decode: 2, Encode: 2, JPEG: 2}, 0, 6),
		profile(0, "4g.96gb", 4, 12, 1, 188, 97000, gpu.Engines{Copy: 4, Decode: 4, Encode: 4, JPEG: 4, OFA: 1}, 0),
	)
}
