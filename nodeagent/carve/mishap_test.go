package carve_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

// mishaps are what may befall one driver call, and how long it lasts: until the
// agent is started again, or for that call.
var mishaps = map[string][]sim.Fault{
	"error":                     {{Kind: gpudrv.Broken, Times: 1}},
	"held by a monitor":         {{Kind: gpudrv.InUse, Times: 1}},
	"late success":              {{Kind: gpudrv.Broken, Times: 1, Late: true}},
	"no answer":                 {{Hang: true, Times: 1}},
	"no answer, done later":     {{Hang: true, Times: 1, Late: true}},
	"crash before the call":     {{Kind: gpudrv.Broken, Times: forever}},
	"crash after the call":      {{Kind: gpudrv.Broken, Times: 1, Late: true}, {Kind: gpudrv.Broken, Times: forever}},
	"driver gone from there on": {{Kind: gpudrv.GPULost, Times: forever}},
}

// forever is more calls than an order makes.
const forever = 1000

// technique is one that the test below harms.
type technique struct{ name, mode, profile string }

var techniques = []technique{
	{"mig", "mig", "3g.71gb"}, {"mps", "mps:4x25", ""}, {"timeslice", "timeslice:4", ""}, {"whole", "whole", ""},
	{"mps in mig", "mig", "3g.71gb"},
}

func (q technique) slice(t *testing.T, b bench) carve.Slice {
	s := b.slice(t, q.profile, 0)
	if q.name == "mps in mig" {
		half, err := gpu.MPSMode(2, 50)
		require.NoError(t, err)
		s.Split = half
	}
	return s
}

// TestAMishapAtAnyDriverCallHeals does one order with one mishap at each driver
// call in turn, and then gives the order again as a fresh agent would: it must end
// as if nothing had happened, with nothing beside it.
func TestAMishapAtAnyDriverCallHeals(t *testing.T) {
	t.Parallel()
	for _, q := range techniques {
		for name, f := range mishaps {
			t.Run(q.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ensureCalls := harm(t, q, f, -1, false)
					for at := range ensureCalls {
						harm(t, q, f, at, false)
					}
					for at := range harm(t, q, f, -1, true) {
						harm(t, q, f, at, true)
					}
				})
			})
		}
	}
}

// harm makes a slice, or removes one, with a mishap at the numbered call; it returns
// how many calls the order takes without one.
func harm(t *testing.T, q technique, faults []sim.Fault, at int, remove bool) int {
	ctx, b := t.Context(), setup(t, "H200-141", q.mode)
	s := q.slice(t, b)
	if remove {
		_, err := b.set.Ensure(ctx, s)
		require.NoError(t, err)
	}
	before := b.drv.Calls()
	for _, f := range faults {
		f.After = at
		if at >= 0 {
			b.drv.Inject(f)
		}
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	order(limited, b, s, remove)
	cancel()
	calls := b.drv.Calls() - before
	b.drv.Heal()

	require.NoError(t, order(ctx, b, s, remove), "call %d", at)
	require.NoError(t, order(ctx, b, s, remove), "call %d, again", at)
	found, err := b.set.Observe(ctx, b.uuid)
	require.NoError(t, err)
	want := 1
	if remove || q.mode == "whole" {
		want = 0
	}
	require.Len(t, found, want, "call %d", at)
	for _, x := range found {
		require.False(t, x.Incomplete)
	}
	served := 0
	if !remove && (q.mode == "mps:4x25" || s.Split.Kind == gpu.MPS) {
		served = 1
	}
	require.Len(t, daemons(t, b), served, "call %d", at)
	return calls
}

func order(ctx context.Context, b bench, s carve.Slice, remove bool) error {
	if remove {
		return b.set.Remove(ctx, s)
	}
	_, err := b.set.Ensure(ctx, s)
	return err
}

// TestRepartitionLeavesNeighboursUnbroken carves and removes slices at random
// beside one that runs: its device, instance and evidence never change, and its
// process stays.
func TestRepartitionLeavesNeighboursUnbroken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := setup(t, rapid.SampledFrom([]string{"H200-141", "A100-40", "A30-24", "RTX-PRO-6000-96"}).Draw(rt, "model"), "mig")
		ctx := t.Context()
		any := func() carve.Slice {
			p := rapid.SampledFrom(b.dev.Profiles).Draw(rt, "profile")
			return carve.Slice{ID: "asg_x", Slot: gpu.MIGSlot(b.uuid, p, rapid.SampledFrom(p.Placements).Draw(rt, "place"))}
		}
		runs := any()
		felt, err := b.set.Ensure(ctx, runs)
		require.NoError(rt, err)
		require.NoError(rt, b.drv.Attach(b.uuid, sim.Client{PID: 1, Name: "python3", Slot: runs.Slot}))
		for range rapid.IntRange(1, 15).Draw(rt, "orders") {
			s := any()
			if rapid.Bool().Draw(rt, "remove") {
				err := b.set.Remove(ctx, s)
				if s.Slot == runs.Slot {
					require.Equal(rt, gpudrv.InUse, gpudrv.KindOf(err))
				} else {
					require.NoError(rt, err)
				}
			} else if _, err := b.set.Ensure(ctx, s); err != nil {
				require.Equal(rt, gpudrv.NoRoom, gpudrv.KindOf(err))
			}
			found, err := b.set.Observe(ctx, b.uuid)
			require.NoError(rt, err)
			require.Contains(rt, found, carve.Found{Evidence: felt})
			processes, err := b.drv.Processes(ctx, b.uuid)
			require.NoError(rt, err)
			require.Len(rt, processes, 1)
			require.Equal(rt, felt.GPUInstance, processes[0].GPUInstance)
		}
	})
}
