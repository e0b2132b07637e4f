package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

// lawSteps is how many creates and destroys the test below makes over all models.
const lawSteps = 1_000_000

// TestTheSimulatorRefusesExactlyWhatTheRuleRefuses: the simulator and the control
// plane have separate code for the same law. Over a million random creates and
// destroys on every model and driver variant, what package gpu proposes is never
// refused, and what the simulator refuses is what the rule refuses, for the same
// reason.
func TestTheSimulatorRefusesExactlyWhatTheRuleRefuses(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	type card struct{ model, variant string }
	var cards []card
	for _, m := range sim.Models() {
		if m == "L40S-45" {
			continue // has no MIG
		}
		for _, v := range append(sim.Variants(m), "") {
			cards = append(cards, card{m, v})
		}
	}
	for i, c := range cards {
		t.Run(strings.TrimSuffix(c.model+"/"+c.variant, "/"), func(t *testing.T) {
			t.Parallel()
			h := one(c.model, gpu.MIGMode())
			h.GPUs[0].Variant = c.variant
			newLaw(t, h, rand.New(rand.NewPCG(seed, uint64(i)))).walk(lawSteps/len(cards) + 1)
		})
	}
}

// TestTheSimulatorReachesExactlyThePublishedSets walks every set of GPU instances
// that the simulator lets come about, by creating and destroying.
func TestTheSimulatorReachesExactlyThePublishedSets(t *testing.T) {
	t.Parallel()
	plain := []int{19, 14, 9, 5, 0} // 1g, 2g, 3g, 4g, 7g
	for name, tc := range map[string]struct {
		model         string
		profiles      []int // none is all
		sets, maximal int
	}{
		"eight units, plain":  {"H200-141", plain, 298, 19},
		"eight units, all":    {"H200-141", nil, 2319, 239},
		"Ampere, plain":       {"A100-80", plain, 298, 19},
		"four units, one OFA": {"A30-24", nil, 76, 17},
		"twelve units, plain": {"RTX-PRO-6000-96", []int{14, 5, 0}, 26, 5},
		"Blackwell, plain":    {"GB200-186", plain, 298, 19},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLaw(t, one(tc.model, gpu.MIGMode()), nil)
			c := census{law: l, only: tc.profiles, seen: map[string]bool{}}
			c.visit(nil)
			require.Equal(t, tc.sets, len(c.seen), "sets")
			require.Equal(t, tc.maximal, c.maximal, "maximal sets")
		})
	}
}

// census walks the sets of one GPU.
type census struct {
	*law
	only    []int
	seen    map[string]bool
	maximal int
}

// visit sees the present set, given by its instances, and all that it leads to.
func (c *census) visit(held []string) {
	slices.Sort(held)
	key := strings.Join(held, " ")
	if c.seen[key] {
		return
	}
	c.seen[key] = true
	grew := false
	for _, p := range c.dev.Profiles {
		if c.only != nil && !slices.Contains(c.only, p.ID) {
			continue
		}
		for _, at := range p.Placements {
			gi, err := c.drv.CreateGPUInstance(c.t.Context(), c.dev.UUID, p.ID, gpudrv.Placement(at))
			if err != nil {
				continue
			}
			grew = true
			c.visit(append(slices.Clone(held), fmt.Sprintf("%d@%d", p.ID, at.Start)))
			require.NoError(c.t, c.drv.DestroyGPUInstance(c.t.Context(), c.dev.UUID, gi.ID))
		}
	}
	if !grew {
		c.maximal++
	}
}

// law is one GPU beside the rule's view of it.
type law struct {
	t     *testing.T
	drv   *sim.Driver
	dev   gpu.Device
	dice  *rand.Rand
	ids   []int
	slots []gpu.Slot // by index of ids
}

func newLaw(t *testing.T, h sim.FleetHost, dice *rand.Rand) *law {
	d := open(t, "", h)
	dev, err := gpudrv.Device(t.Context(), d, h.Devices()[0].UUID)
	require.NoError(t, err)
	return &law{t: t, drv: d, dev: dev, dice: dice}
}

// walk destroys a little less often than it creates, so that the GPU is mostly
// crowded.
func (l *law) walk(steps int) {
	const outOf, destroys, proposals = 16, 7, 1
	for range steps {
		switch n := l.dice.IntN(outOf); {
		case n < destroys && len(l.ids) > 0:
			l.destroy()
		case n < destroys+proposals:
			l.propose()
		default:
			p := l.dev.Profiles[l.dice.IntN(len(l.dev.Profiles))]
			start := l.dice.IntN(l.dev.MemorySlices+2) - 1
			l.create(gpu.MIGSlot(l.dev.UUID, p, gpu.Placement{Start: start, Size: p.MemoryUnits}))
		}
	}
}

// propose takes any of the rule's proposals: each must be accepted.
func (l *law) propose() {
	p := l.dev.Profiles[l.dice.IntN(len(l.dev.Profiles))]
	all, err := gpu.Feasible(l.dev, gpu.MIGMode(), l.slots, gpu.Want{Mode: gpu.MIGMode(), Profile: p.Name})
	if err != nil {
		if gpu.ReasonOf(err) != gpu.NoRoom {
			l.t.Fatalf("no proposal beside %v: %v", l.slots, err)
		}
		return
	}
	if !l.create(all[l.dice.IntN(len(all))]) {
		l.t.Fatalf("%s was proposed beside %v and refused", p.Name, l.slots)
	}
}

// create lets rule and simulator decide and compares them.
func (l *law) create(s gpu.Slot) bool {
	rule := gpu.ReasonOf(gpu.Fits(l.dev, gpu.MIGMode(), l.slots, s))
	gi, err := l.drv.CreateGPUInstance(l.t.Context(), s.GPU, s.Profile, gpudrv.Placement(s.Placement()))
	want := map[gpu.Reason]gpudrv.Kind{"": "", gpu.NoRoom: gpudrv.NoRoom, gpu.InvalidSlot: gpudrv.Invalid}[rule]
	if got := gpudrv.KindOf(err); got != want {
		l.t.Fatalf("%s beside %v: the rule says %q, the simulator %v", s, l.slots, rule, err)
	}
	if err != nil {
		return false
	}
	for _, id := range l.ids {
		if id == gi.ID {
			l.t.Fatalf("gpu instance id %d is given twice", id)
		}
	}
	l.ids, l.slots = append(l.ids, gi.ID), append(l.slots, s)
	return true
}

func (l *law) destroy() {
	i := l.dice.IntN(len(l.ids))
	if err := l.drv.DestroyGPUInstance(l.t.Context(), l.dev.UUID, l.ids[i]); err != nil {
		l.t.Fatalf("destroy %s: %v", l.slots[i], err)
	}
	last := len(l.ids) - 1
	l.ids[i], l.slots[i] = l.ids[last], l.slots[last]
	l.ids, l.slots = l.ids[:last], l.slots[:last]
}
