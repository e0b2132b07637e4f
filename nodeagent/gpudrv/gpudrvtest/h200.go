package gpudrvtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
)

// otherDriver are the sizes that another driver was reported to give the profiles.
var otherDriver = map[units.MiB]units.MiB{16384: 16384, 33280: 33024, 71424: 71168, 143360: 143360}

// knownH200 compares a device with what a real H200 SXM reports.
func knownH200(t *testing.T, d gpu.Device) {
	require.Equal(t, "NVIDIA H200", d.Name)
	require.Equal(t, units.MiB(143771), d.Memory)
	require.Equal(t, 132, d.SMs)
	require.Equal(t, 8, d.MemorySlices)
	require.Equal(t, 7, d.ComputeUnits)
	require.Equal(t, gpu.Engines{Copy: 8, Decode: 7, JPEG: 7, OFA: 1}, d.Engines)
	require.Equal(t, "9.0", d.Capabilities.ComputeCapability)
	require.False(t, d.Capabilities.ModeNeedsReset)
	for _, want := range []struct {
		id, compute, maximum, sms int
		name                      string
		memory                    units.MiB
		engines                   gpu.Engines
		size                      int
		starts                    []int
	}{
		{19, 1, 7, 16, "1g.18gb", 16384, gpu.Engines{Copy: 1, Decode: 1, JPEG: 1}, 1, []int{0, 1, 2, 3, 4, 5, 6}},
		{20, 1, 1, 16, "1g.18gb+me", 16384, gpu.Engines{Copy: 1, Decode: 1, JPEG: 1, OFA: 1}, 1, []int{0, 1, 2, 3, 4, 5, 6}},
		{15, 1, 4, 26, "1g.35gb", 33280, gpu.Engines{Copy: 1, Decode: 1, JPEG: 1}, 2, []int{0, 2, 4, 6}},
		{14, 2, 3, 32, "2g.35gb", 33280, gpu.Engines{Copy: 2, Decode: 2, JPEG: 2}, 2, []int{0, 2, 4}},
		{9, 3, 2, 60, "3g.71gb", 71424, gpu.Engines{Copy: 3, Decode: 3, JPEG: 3}, 4, []int{0, 4}},
		{5, 4, 1, 64, "4g.71gb", 71424, gpu.Engines{Copy: 4, Decode: 4, JPEG: 4}, 4, []int{0}},
		{0, 7, 1, 132, "7g.141gb", 143360, gpu.Engines{Copy: 8, Decode: 7, JPEG: 7, OFA: 1}, 8, []int{0}},
	} {
		p, ok := d.Profile(want.id)
		require.True(t, ok, want.name)
		require.Equal(t, want.name, p.Name)
		require.Equal(t, want.compute, p.Compute, want.name)
		require.Equal(t, want.maximum, p.MaxInstances, want.name)
		require.Equal(t, want.sms, p.SMs, want.name)
		require.Contains(t, []units.MiB{want.memory, otherDriver[want.memory]}, p.Memory, want.name)
		require.Equal(t, want.engines, p.Engines, want.name)
		require.Equal(t, want.size, p.MemoryUnits, want.name)
		var starts []int
		for _, at := range p.Placements {
			require.Equal(t, want.size, at.Size, want.name)
			starts = append(starts, at.Start)
		}
		require.Equal(t, want.starts, starts, want.name)
	}
	require.Len(t, d.Profiles, 7)
}
