package gpu_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
)

// census counts what the rule allows by trying everything.
type census struct{ sets, maximal, multisets, maximalMultisets int }

// everySlot lists all placements of all profiles.
func everySlot(d gpu.Device) []gpu.Slot {
	var out []gpu.Slot
	for _, p := range d.Profiles {
		for _, at := range p.Placements {
			out = append(out, gpu.MIGSlot(d.UUID, p, at))
		}
	}
	return out
}

// walk visits each reachable set of slots once, with what could be added to it.
func walk(d gpu.Device, visit func(held, more []gpu.Slot)) {
	all := everySlot(d)
	seen := map[string]bool{}
	var rec func(held []gpu.Slot)
	rec = func(held []gpu.Slot) {
		k := setKey(held)
		if seen[k] {
			return
		}
		seen[k] = true
		var more []gpu.Slot
		for _, s := range all {
			if gpu.Fits(d, gpu.MIGMode(), held, s) == nil {
				more = append(more, s)
			}
		}
		visit(held, more)
		for _, s := range more {
			rec(append(slices.Clone(held), s))
		}
	}
	rec(nil)
}

func setKey(held []gpu.Slot) string {
	var parts []string
	for _, s := range held {
		parts = append(parts, fmt.Sprintf("%d@%d", s.Profile, s.Start))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func multisetKey(held []gpu.Slot) string {
	var parts []string
	for _, s := range held {
		parts = append(parts, fmt.Sprint(s.Profile))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func count(d gpu.Device) census {
	var c census
	multi, maxMulti := map[string]bool{}, map[string]bool{}
	walk(d, func(held, more []gpu.Slot) {
		c.sets++
		multi[multisetKey(held)] = true
		if len(more) == 0 {
			c.maximal++
			maxMulti[multisetKey(held)] = true
		}
	})
	c.multisets, c.maximalMultisets = len(multi), len(maxMulti)
	return c
}

func TestTheRuleAllowsExactlyThePublishedCombinations(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		device gpu.Device
		want   census
	}{
		"plain profiles on 8 memory and 7 compute slices": {without(h200(), 20, 15), census{298, 19, 38, 14}},
		"with the double-memory profile":                  {without(h200(), 20), census{723, 78, 0, 0}},
		"with media extensions and double memory":         {h200(), census{2319, 239, 0, 64}},
		"A30 with media extensions by maxima alone":       {withoutEngines(a30()), census{84, 21, 0, 9}},
		"A30 whose two media extensions share one OFA":    {a30(), census{76, 17, 0, 8}},
		"twelve-unit grid, plain":                         {rtx(), census{26, 5, 0, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := count(tc.device)
			t.Logf("%+v", got)
			require.Equal(t, tc.want.sets, got.sets, "placement sets")
			require.Equal(t, tc.want.maximal, got.maximal, "maximal placements")
			if tc.want.multisets > 0 {
				require.Equal(t, tc.want.multisets, got.multisets, "multisets")
			}
			if tc.want.maximalMultisets > 0 {
				require.Equal(t, tc.want.maximalMultisets, got.maximalMultisets, "maximal multisets")
			}
		})
	}
}

func TestMostSetsWithRoomForFourSlicesCannotHoldThemTogether(t *testing.T) {
	t.Parallel()
	d := without(h200(), 20, 15)
	roomy, stuck := 0, 0
	walk(d, func(held, more []gpu.Slot) {
		memory, compute := 0, 0
		for _, s := range held {
			memory += s.Size
			compute += s.Compute
		}
		if d.MemorySlices-memory < 4 || d.ComputeUnits-compute < 4 {
			return
		}
		roomy++
		if !slices.ContainsFunc(more, func(s gpu.Slot) bool { return s.Profile == 5 }) {
			stuck++
		}
	})
	require.Equal(t, 84, roomy)
	require.Equal(t, 73, stuck)
}

func TestTheTableHasThePublishedStates(t *testing.T) {
	t.Parallel()
	g, err := gpu.NewGeometry(without(h200(), 20))
	require.NoError(t, err)
	masks := map[uint64]bool{}
	for s := range g.Len() {
		masks[g.Mask(gpu.State(s))] = true
	}
	require.Equal(t, 336, g.Len())
	require.Len(t, masks, 192)

	g, err = gpu.NewGeometry(without(h200(), 20, 15))
	require.NoError(t, err)
	require.Equal(t, 153, g.Len())
}

func TestTheTableAgreesWithTheRuleInEverySet(t *testing.T) {
	t.Parallel()
	for _, d := range []gpu.Device{h200(), a30(), rtx()} {
		g, err := gpu.GeometryOf(d)
		require.NoError(t, err)
		walk(d, func(held, more []gpu.Slot) {
			s, err := g.StateOf(held)
			require.NoError(t, err, "%v", held)
			var fromTable []gpu.Slot
			for _, p := range g.Profiles() {
				for _, c := range g.Choices(s, p.ID) {
					fromTable = append(fromTable, gpu.MIGSlot(d.UUID, p, c.Placement))
				}
			}
			require.ElementsMatch(t, more, fromTable, "%v", held)
			for _, h := range held {
				smaller, ok := g.Remove(s, h)
				require.True(t, ok)
				back, ok := g.Add(smaller, h)
				require.True(t, ok)
				require.Equal(t, s, back)
			}
		})
	}
}

func TestTheCheapestPlaceKeepsLargeProfilesPossible(t *testing.T) {
	t.Parallel()
	d := h200()
	first := func(held []gpu.Slot, profile string) gpu.Slot {
		got, err := gpu.Feasible(d, gpu.MIGMode(), held, gpu.Want{Mode: gpu.MIGMode(), Profile: profile})
		require.NoError(t, err)
		return got[0]
	}
	require.Equal(t, 6, first(nil, "1g.18gb").Start, "a small slice goes high")
	require.Equal(t, 4, first(nil, "3g.71gb").Start, "a 3g at 0 would strand a compute slice")
	require.Equal(t, 6, first(nil, "1g.35gb").Start, "the only way to use the eighth memory unit")
	one := first(nil, "1g.18gb")
	require.Equal(t, 0, first([]gpu.Slot{one}, "4g.71gb").Start)
	two := first([]gpu.Slot{one}, "1g.18gb")
	require.Equal(t, 5, two.Start, "fill the broken half first")
}

func TestCostsAreDifferencesOfLoss(t *testing.T) {
	t.Parallel()
	g, err := gpu.GeometryOf(h200())
	require.NoError(t, err)
	require.Zero(t, g.Loss(0))
	for s := range g.Len() {
		for _, p := range g.Profiles() {
			choices := g.Choices(gpu.State(s), p.ID)
			require.True(t, slices.IsSortedFunc(choices, func(a, b gpu.Choice) int { return cmp.Compare(a.Cost, b.Cost) }))
			for _, c := range choices {
				require.InDelta(t, g.Loss(c.Next)-g.Loss(gpu.State(s)), c.Cost, float64(2*len(g.Profiles())))
				require.Greater(t, g.Remaining(gpu.State(s), p.ID), g.Remaining(c.Next, p.ID)-1)
			}
			require.Equal(t, len(choices) > 0, slices.Contains(g.Placeable(gpu.State(s)), p.ID))
		}
	}
}
