package replay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/replay"
)

// TestTheRecordedH200IsWhatTheCatalogueSays compares a recording of one NVIDIA H200
// SXM (driver 580.159.04, MIG off; made by `tranche-agent record`) with the figures
// that nvidia-smi printed on that machine.
func TestTheRecordedH200IsWhatTheCatalogueSays(t *testing.T) {
	t.Parallel()
	r, err := replay.Open("testdata/h200-141.json")
	require.NoError(t, err)
	found, err := gpudrv.Inventory(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, found, 1)
	d := found[0].Device
	require.Equal(t, "nvml", string(found[0].PlacementsSource), "the driver enumerates placements with MIG off")
	require.Equal(t, "H200-141", d.Model)
	require.Equal(t, units.MiB(143771), d.Memory)
	require.Equal(t, 132, d.SMs)
	require.True(t, d.Simulated, "a replayed GPU must not be sold as a real one")

	type row struct {
		compute, size, mib, sms, max int
		starts                       []int
	}
	want := map[string]row{
		"1g.18gb":    {1, 1, 16384, 16, 7, []int{0, 1, 2, 3, 4, 5, 6}},
		"1g.18gb+me": {1, 1, 16384, 16, 1, []int{0, 1, 2, 3, 4, 5, 6}},
		"1g.35gb":    {1, 2, 33280, 26, 4, []int{0, 2, 4, 6}},
		"2g.35gb":    {2, 2, 33280, 32, 3, []int{0, 2, 4}},
		"3g.71gb":    {3, 4, 71424, 60, 2, []int{0, 4}},
		"4g.71gb":    {4, 4, 71424, 64, 1, []int{0}},
		"7g.141gb":   {7, 8, 143360, 132, 1, []int{0}},
	}
	require.Len(t, d.Profiles, len(want))
	for _, p := range d.Profiles {
		got := row{p.Compute, p.MemoryUnits, int(p.Memory), p.SMs, p.MaxInstances, nil}
		for _, at := range p.Placements {
			require.Equal(t, p.MemoryUnits, at.Size)
			got.starts = append(got.starts, at.Start)
		}
		require.Equal(t, want[p.Name], got, p.Name)
	}

	all, err := gpu.Feasible(d, gpu.MIGMode(), nil, gpu.Want{Mode: gpu.MIGMode(), Profile: "3g.71gb"})
	require.NoError(t, err)
	require.Len(t, all, 2)
}
