package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
)

func TestModesReadAndWriteTheSameText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"whole", "mig", "mps:4x25", "mps:48x2", "mps:1x100", "timeslice:2", "timeslice:32"} {
		m, err := gpu.ParseMode(text)
		require.NoError(t, err)
		require.Equal(t, text, m.String())
		require.True(t, m.Valid())
	}
	for _, text := range []string{
		"", "Whole", "whole ", "whole:1", "mig:2", "mps", "mps:", "mps:4", "mps:4x", "mps:x25", "mps:0x25",
		"mps:5x25", "mps:04x25", "mps:+4x25", "mps:4×25", "mps:4x25x1", "mps:49x1", "mps:1x101",
		"timeslice", "timeslice:", "timeslice:0", "timeslice:33", "timeslice:-1", "timeslice:2x50", "timeslice:99999999999999999999",
	} {
		_, err := gpu.ParseMode(text)
		require.Error(t, err, "%q", text)
	}
	require.False(t, gpu.Mode{}.Valid())
}

func FuzzParseModeIsCanonical(f *testing.F) {
	for _, s := range []string{"whole", "mig", "mps:4x25", "timeslice:2", "mps:4×25", "mps:-1x2", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := gpu.ParseMode(text)
		if err != nil {
			return
		}
		if m.String() != text || !m.Valid() {
			t.Fatalf("%q was read as %q", text, m)
		}
		if m.Shares < 0 || m.Shares*m.Percent > 100 {
			t.Fatalf("%q oversells", text)
		}
	})
}

func TestIsolationFollowsTheMode(t *testing.T) {
	t.Parallel()
	mps, err := gpu.MPSMode(4, 25)
	require.NoError(t, err)
	slice, err := gpu.TimeSliceMode(2)
	require.NoError(t, err)
	require.Equal(t, gpu.Dedicated, gpu.WholeMode().Isolation())
	require.Equal(t, gpu.Partitioned, gpu.MIGMode().Isolation())
	require.Equal(t, gpu.Shared, mps.Isolation())
	require.Equal(t, gpu.Shared, slice.Isolation())
	require.True(t, mps.BindsOrganization())
	require.True(t, slice.BindsOrganization())
	require.False(t, gpu.MIGMode().BindsOrganization())
}

// TestSharesAreLimitedOnlyWhereADriverEnforcesIt: per process is not per slice.
func TestSharesAreLimitedOnlyWhereADriverEnforcesIt(t *testing.T) {
	t.Parallel()
	mps, err := gpu.MPSMode(4, 25)
	require.NoError(t, err)
	turns, err := gpu.TimeSliceMode(2)
	require.NoError(t, err)
	for _, tc := range []struct {
		can        gpu.Capabilities
		mps, turns gpu.Isolation
	}{
		{gpu.Capabilities{MPS: true}, gpu.Shared, gpu.Shared},
		{gpu.Capabilities{MPSNamespaces: true}, gpu.Limited, gpu.Shared},
		{gpu.Capabilities{EnforcedMemoryLimit: true}, gpu.Limited, gpu.Limited},
	} {
		d := gpu.Device{Capabilities: tc.can}
		require.Equal(t, tc.mps, d.Isolation(mps))
		require.Equal(t, tc.turns, d.Isolation(turns))
		require.Equal(t, gpu.Dedicated, d.Isolation(gpu.WholeMode()))
		require.Equal(t, gpu.Partitioned, d.Isolation(gpu.MIGMode()))
	}
}

func TestModelSlugs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		mem  units.MiB
		want string
	}{
		{"NVIDIA H200", 143771, "H200-141"},
		{"NVIDIA H100 80GB HBM3", 81559, "H100-80"},
		{"NVIDIA A100-SXM4-80GB", 81920, "A100-80"},
		{"NVIDIA H100 NVL", 95830, "H100-94"},
		{"NVIDIA A30", 24576, "A30-24"},
		{"NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "RTX-PRO-6000-96"},
		{"Tesla V100-SXM2-16GB", 16384, "V100-16"},
	} {
		require.Equal(t, tc.want, gpu.ModelSlug(tc.name, tc.mem))
	}
}

// share is a mode of n alike units on the H200.
func feasible(t *testing.T, mode string, held int) ([]gpu.Slot, error) {
	t.Helper()
	m, err := gpu.ParseMode(mode)
	require.NoError(t, err)
	d := h200()
	var taken []gpu.Slot
	for u := range held {
		taken = append(taken, gpu.Slot{GPU: d.UUID, Mode: m, Start: u, Size: 1})
	}
	return gpu.Feasible(d, m, taken, gpu.Want{Mode: m})
}

func TestGridsHaveAlikeUnits(t *testing.T) {
	t.Parallel()
	for mode, n := range map[string]int{"whole": 1, "mps:4x25": 4, "timeslice:2": 2} {
		for held := range n {
			got, err := feasible(t, mode, held)
			require.NoError(t, err)
			require.Len(t, got, n-held, mode)
			require.Equal(t, []int{held}, got[0].Units())
		}
		_, err := feasible(t, mode, n)
		require.Equal(t, gpu.NoRoom, gpu.ReasonOf(err), mode)
	}
}

func TestRefusalsSayWhy(t *testing.T) {
	t.Parallel()
	d, mig := h200(), gpu.MIGMode()
	want := func(w gpu.Want, mode gpu.Mode, held ...gpu.Slot) gpu.Reason {
		_, err := gpu.Feasible(d, mode, held, w)
		return gpu.ReasonOf(err)
	}
	oneG := gpu.Want{Mode: mig, Profile: "1g.18gb"}
	require.Equal(t, gpu.WrongMode, want(oneG, gpu.WholeMode()))
	require.Equal(t, gpu.WrongMode, want(gpu.Want{}, gpu.Mode{}))
	require.Equal(t, gpu.UnknownProfile, want(gpu.Want{Mode: mig, Profile: "1g.10gb"}, mig))
	require.Equal(t, gpu.TooSmall, want(gpu.Want{Mode: mig, Profile: "1g.18gb", MinMemory: 16385}, mig))
	require.Equal(t, gpu.TooSmall, want(gpu.Want{Mode: mig, Profile: "1g.18gb", MinSMs: 17}, mig))
	full, _ := d.Profile(0)
	whole := gpu.MIGSlot(d.UUID, full, full.Placements[0])
	require.Equal(t, gpu.NoRoom, want(oneG, mig, whole))
	foreign := whole
	foreign.GPU = "GPU-other"
	require.Equal(t, gpu.InvalidSlot, want(oneG, mig, foreign))

	p, _ := d.Profile(9)
	bad := gpu.MIGSlot(d.UUID, p, gpu.Placement{Start: 2, Size: 4})
	require.Equal(t, gpu.InvalidSlot, gpu.ReasonOf(gpu.Fits(d, mig, nil, bad)), "3g has no start 2")
	bad = gpu.MIGSlot(d.UUID, p, p.Placements[0])
	bad.Compute = 1
	require.Equal(t, gpu.InvalidSlot, gpu.ReasonOf(gpu.Fits(d, mig, nil, bad)), "compute is the profile's")
}

func TestResourcesAreTheDriversNotTheNames(t *testing.T) {
	t.Parallel()
	d := h200()
	res := func(s gpu.Slot) gpu.Resources {
		r, err := gpu.ResourcesOf(d, s)
		require.NoError(t, err)
		return r
	}
	p, _ := d.ProfileNamed("1g.18gb")
	require.Equal(t, gpu.Resources{Memory: 16384, SMs: 16, SMPercent: 100}, res(gpu.MIGSlot(d.UUID, p, p.Placements[0])))
	require.Equal(t, gpu.Resources{Memory: 143771, SMs: 132, SMPercent: 100}, res(gpu.Slot{Mode: gpu.WholeMode(), Size: 1}))
	m, _ := gpu.MPSMode(4, 25)
	require.Equal(t, gpu.Resources{Memory: 35942, SMs: 32, SMPercent: 25}, res(gpu.Slot{Mode: m, Size: 1}))
	m, _ = gpu.TimeSliceMode(2)
	require.Equal(t, gpu.Resources{Memory: 71885, SMs: 132, SMPercent: 50}, res(gpu.Slot{Mode: m, Size: 1}))
}

func TestRandomCreatesAndDeletesNeverOverlapOrOversell(t *testing.T) {
	t.Parallel()
	devices := []gpu.Device{h200(), a30(), rtx()}
	rapid.Check(t, func(t *rapid.T) {
		d := devices[rapid.IntRange(0, len(devices)-1).Draw(t, "device")]
		g, err := gpu.GeometryOf(d)
		require.NoError(t, err)
		var held []gpu.Slot
		state := gpu.State(0)
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				p := d.Profiles[rapid.IntRange(0, len(d.Profiles)-1).Draw(t, "profile")]
				fit, err := gpu.Feasible(d, gpu.MIGMode(), held, gpu.Want{Mode: gpu.MIGMode(), Profile: p.Name})
				if err != nil {
					require.Equal(t, gpu.NoRoom, gpu.ReasonOf(err))
					require.Empty(t, g.Choices(state, p.ID))
					return
				}
				require.Equal(t, g.Choices(state, p.ID)[0].Placement, fit[0].Placement(), "same cheapest place")
				s := fit[rapid.IntRange(0, len(fit)-1).Draw(t, "start")]
				next, ok := g.Add(state, s)
				require.True(t, ok)
				held, state = append(held, s), next
			},
			"delete": func(t *rapid.T) {
				if len(held) == 0 {
					return
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "slot")
				next, ok := g.Remove(state, held[i])
				require.True(t, ok)
				held = append(held[:i:i], held[i+1:]...)
				state = next
			},
			"": func(t *rapid.T) {
				require.NoError(t, gpu.Coexist(d, gpu.MIGMode(), held))
				units, compute := map[int]bool{}, 0
				for _, s := range held {
					compute += s.Compute
					for _, u := range s.Units() {
						require.False(t, units[u], "unit %d twice", u)
						units[u] = true
					}
				}
				require.LessOrEqual(t, compute, d.ComputeUnits)
				require.Equal(t, compute, g.Compute(state))
			},
		})
	})
}

func TestAbsurdReportsAreRefused(t *testing.T) {
	t.Parallel()
	wide := profile(1, "wide", 0, 1, 64, 1, 1, gpu.Engines{})
	for s := range 64 {
		wide.Placements = append(wide.Placements, gpu.Placement{Start: s, Size: 1})
	}
	for name, d := range map[string]gpu.Device{
		"no profiles":     {Model: "X", MemorySlices: 8, ComputeUnits: 7},
		"outside":         device("X", 1, 1, profile(1, "a", 1, 1, 1, 1, 1, gpu.Engines{}, -1)),
		"twice":           device("X", 1, 1, profile(1, "a", 1, 1, 1, 1, 1, gpu.Engines{}, 0), profile(1, "b", 1, 1, 1, 1, 1, gpu.Engines{}, 0)),
		"2^64 states":     device("X", 1, 1, wide, profile(2, "full", 64, 64, 1, 1, 1, gpu.Engines{}, 0)),
		"negative engine": device("X", 1, 1, profile(1, "a", 1, 1, 1, 1, 1, gpu.Engines{Decode: -1}, 0)),
	} {
		_, err := gpu.NewGeometry(d)
		require.ErrorIs(t, err, gpu.ErrGeometry, name)
	}
}

func BenchmarkFeasibleOnABusyGPU(b *testing.B) {
	d := h200()
	p, _ := d.Profile(19)
	held := []gpu.Slot{gpu.MIGSlot(d.UUID, p, p.Placements[6]), gpu.MIGSlot(d.UUID, p, p.Placements[5])}
	w := gpu.Want{Mode: gpu.MIGMode(), Profile: "2g.35gb"}
	for b.Loop() {
		if _, err := gpu.Feasible(d, gpu.MIGMode(), held, w); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewGeometry(b *testing.B) {
	d := h200()
	for b.Loop() {
		if _, err := gpu.NewGeometry(d); err != nil {
			b.Fatal(err)
		}
	}
}
