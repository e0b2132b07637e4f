package placement_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/placement"
	"github.com/tranche-cloud/tranche/internal/units"
)

// eightReport is shared, as GPUs of one inventory share it.
var eightReport = eight()

// eight is a GPU of 8 memory units and 7 compute slices.
func eight() gpu.Device {
	d := gpu.Device{Model: "H200-141", Memory: 143771, SMs: 132}
	add := func(pid int, name string, compute, size, maximum int, starts ...int) {
		p := gpu.Profile{
			ID: pid, Name: name, Compute: compute, MemoryUnits: size, Memory: units.MiB(size) * 16384,
			SMs: compute * 16, MaxInstances: maximum, Engines: gpu.Engines{Copy: compute},
		}
		for _, s := range starts {
			p.Placements = append(p.Placements, gpu.Placement{Start: s, Size: size})
		}
		d.Profiles = append(d.Profiles, p)
	}
	add(19, "1g", 1, 1, 7, 0, 1, 2, 3, 4, 5, 6)
	add(14, "2g", 2, 2, 3, 0, 2, 4)
	add(9, "3g", 3, 4, 2, 0, 4)
	add(0, "7g", 7, 8, 1, 0)
	d.MemorySlices, d.ComputeUnits, d.Engines = gpu.Totals(d.Profiles)
	return d
}

var serial atomic.Uint64

// fresh is an id that sorts in the order of calls.
func fresh[I ~[16]byte]() I {
	n := serial.Add(1)
	var b [16]byte
	for i := range 8 {
		b[15-i] = byte(n >> (8 * i))
	}
	return I(b)
}

func machine(mode gpu.Mode, gpus int) placement.Host {
	h := placement.Host{ID: fresh[id.Host](), State: host.Ready, Liveness: host.Live, VCPU: 256, RAM: 1 << 20}
	for range gpus {
		d := eightReport
		g := placement.GPU{ID: fresh[id.GPU](), Mode: mode, Settled: true, Healthy: true}
		d.UUID = fmt.Sprintf("GPU-%x", g.ID[8:])
		g.Device = d
		h.GPUs = append(h.GPUs, g)
	}
	return h
}

func mps(t testing.TB) gpu.Mode {
	t.Helper()
	m, err := gpu.MPSMode(4, 25)
	require.NoError(t, err)
	return m
}

func ask(org id.Org, mode gpu.Mode, profile string, count int) placement.Request {
	return placement.Request{Org: org, Model: "H200-141", Want: gpu.Want{Mode: mode, Profile: profile}, Count: count, VCPU: 4, RAM: 4096}
}

// take books a decision into the snapshot, as a claim does.
func take(s *placement.Snapshot, r placement.Request, d placement.Decision) {
	for i := range s.Hosts {
		h := &s.Hosts[i]
		if h.ID != d.Host {
			continue
		}
		h.VCPUUsed += r.VCPU
		h.RAMUsed += r.RAM
		if s.Tenancy != placement.SharedHosts {
			h.Organization = r.Org
		}
		for j := range h.GPUs {
			for _, slot := range d.Slots {
				if slot.GPU == h.GPUs[j].ID {
					h.GPUs[j].Held = append(h.GPUs[j].Held, slot.Slot)
					if h.GPUs[j].Mode.BindsOrganization() {
						h.GPUs[j].Organization = r.Org
					}
				}
			}
		}
	}
}

// TestNoSequenceOfPlansOversells books random requests of three organizations one
// after another: what is held always fits together, stays within its host and its
// bindings, and a refusal is true: nothing fits anywhere.
func TestNoSequenceOfPlansOversells(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := placement.Snapshot{Tenancy: rapid.SampledFrom([]placement.Tenancy{placement.OneOrgPerHost, placement.SharedHosts}).Draw(r, "tenancy")}
		for range rapid.IntRange(1, 4).Draw(r, "hosts") {
			mode := rapid.SampledFrom([]gpu.Mode{gpu.MIGMode(), gpu.WholeMode(), mps(t)}).Draw(r, "mode")
			h := machine(mode, rapid.IntRange(1, 4).Draw(r, "gpus"))
			h.VCPU = rapid.SampledFrom([]int{8, 256}).Draw(r, "vcpu")
			s.Hosts = append(s.Hosts, h)
		}
		orgs := []id.Org{fresh[id.Org](), fresh[id.Org](), fresh[id.Org]()}
		for range rapid.IntRange(1, 40).Draw(r, "requests") {
			mode := rapid.SampledFrom([]gpu.Mode{gpu.MIGMode(), gpu.MIGMode(), gpu.WholeMode(), mps(t)}).Draw(r, "want")
			q := ask(rapid.SampledFrom(orgs).Draw(r, "org"), mode, "", 1)
			q.Seed = rapid.Uint64().Draw(r, "seed")
			switch mode.Kind {
			case gpu.MIG:
				q.Want.Profile = rapid.SampledFrom([]string{"1g", "2g", "3g", "7g"}).Draw(r, "profile")
			case gpu.Whole:
				q.Count = rapid.IntRange(1, 4).Draw(r, "count")
			default:
			}
			d, why := placement.Plan(s, q)
			again, _ := placement.Plan(s, q)
			require.Equal(r, d, again, "the same seed decides the same")
			if !d.Placed() {
				require.Zero(r, placement.Room(s, q), "refused although there is room: %s", why)
				continue
			}
			require.Len(r, d.Slots, max(q.Count, 1))
			check(r, s, q, d)
			take(&s, q, d)
			for _, h := range s.Hosts {
				require.LessOrEqual(r, h.VCPUUsed, h.VCPU)
				for _, g := range h.GPUs {
					require.NoError(r, gpu.Coexist(g.Device, g.Mode, g.Held))
				}
			}
		}
	})
}

// check holds a decision against the rules of hosts and bindings.
func check(t require.TestingT, s placement.Snapshot, q placement.Request, d placement.Decision) {
	seen := map[id.GPU]bool{}
	for _, h := range s.Hosts {
		if h.ID != d.Host {
			continue
		}
		require.True(t, s.Tenancy == placement.SharedHosts || h.Organization.IsZero() || h.Organization == q.Org)
		for _, g := range h.GPUs {
			for _, slot := range d.Slots {
				if slot.GPU == g.ID {
					require.False(t, seen[g.ID], "one slot a GPU")
					seen[g.ID] = true
					require.True(t, !g.Mode.BindsOrganization() || g.Organization.IsZero() || g.Organization == q.Org)
				}
			}
		}
	}
	require.Len(t, seen, len(d.Slots))
}

func TestTheLeastHarmfulSlotIsChosen(t *testing.T) {
	t.Parallel()
	org := fresh[id.Org]()
	s := placement.Snapshot{Tenancy: placement.SharedHosts, Hosts: []placement.Host{machine(gpu.MIGMode(), 1), machine(gpu.MIGMode(), 1)}}
	first, _ := placement.Plan(s, ask(org, gpu.MIGMode(), "1g", 1))
	take(&s, ask(org, gpu.MIGMode(), "1g", 1), first)
	require.Equal(t, 6, first.Slots[0].Slot.Start, "the unit that blocks least of the larger profiles")
	for range 2 {
		next, _ := placement.Plan(s, ask(org, gpu.MIGMode(), "1g", 1))
		require.Equal(t, first.Host, next.Host, "an opened GPU is filled before another is opened")
		take(&s, ask(org, gpu.MIGMode(), "1g", 1), next)
	}
	big, _ := placement.Plan(s, ask(org, gpu.MIGMode(), "7g", 1))
	require.NotEqual(t, first.Host, big.Host)
	require.True(t, big.Placed())
}

func TestBoundHostsAndGPUsAreFilledFirst(t *testing.T) {
	t.Parallel()
	a, b := fresh[id.Org](), fresh[id.Org]()
	s := placement.Snapshot{Tenancy: placement.OneOrgPerHost, Hosts: []placement.Host{machine(mps(t), 2), machine(mps(t), 2), machine(mps(t), 2)}}
	places := map[id.Org]map[id.Host]bool{a: {}, b: {}}
	for range 8 {
		for _, org := range []id.Org{a, b} {
			q := ask(org, mps(t), "", 1)
			d, _ := placement.Plan(s, q)
			require.True(t, d.Placed())
			places[org][d.Host] = true
			take(&s, q, d)
		}
	}
	require.Len(t, places[a], 1)
	require.Len(t, places[b], 1)
}

func TestWholeGPUsOfOneRunShareAHostAndSpareTheEmptyOnes(t *testing.T) {
	t.Parallel()
	org := fresh[id.Org]()
	small, large := machine(gpu.WholeMode(), 2), machine(gpu.WholeMode(), 8)
	s := placement.Snapshot{Tenancy: placement.SharedHosts, Hosts: []placement.Host{large, small}}
	d, _ := placement.Plan(s, ask(org, gpu.WholeMode(), "", 2))
	require.Equal(t, small.ID, d.Host)
	d, _ = placement.Plan(s, ask(org, gpu.WholeMode(), "", 4))
	require.Equal(t, large.ID, d.Host)
	require.Len(t, d.Slots, 4)
	d, why := placement.Plan(s, ask(org, gpu.WholeMode(), "", 9))
	require.False(t, d.Placed())
	require.Equal(t, "too_few 10", why.String())
}

func TestEachFilterIsExplained(t *testing.T) {
	t.Parallel()
	org, other := fresh[id.Org](), fresh[id.Org]()
	for _, c := range []struct {
		filter placement.Filter
		spoil  func(*placement.Host, *placement.Request)
	}{
		{placement.GivenUp, func(h *placement.Host, q *placement.Request) { q.Excluded = []id.Host{h.ID} }},
		{placement.HostNotReady, func(h *placement.Host, _ *placement.Request) { h.State = host.Cordoned }},
		{placement.HostNotReady, func(h *placement.Host, _ *placement.Request) { h.Liveness = host.Suspect }},
		{placement.HostBound, func(h *placement.Host, _ *placement.Request) { h.Organization = other }},
		{placement.HostFull, func(h *placement.Host, _ *placement.Request) { h.VCPUUsed = h.VCPU }},
		{placement.HostFull, func(h *placement.Host, _ *placement.Request) { h.RAMUsed = h.RAM }},
		{placement.OtherModel, func(_ *placement.Host, q *placement.Request) { q.Model = "A30-24" }},
		{placement.Unhealthy, func(h *placement.Host, _ *placement.Request) { h.GPUs[0].Healthy = false }},
		{placement.OtherMode, func(h *placement.Host, _ *placement.Request) { h.GPUs[0].Settled = false }},
		{placement.OtherMode, func(h *placement.Host, _ *placement.Request) { h.GPUs[0].Mode = gpu.MIGMode() }},
		{placement.GPUBound, func(h *placement.Host, _ *placement.Request) { h.GPUs[0].Organization = other }},
		{placement.WrongShape, func(_ *placement.Host, q *placement.Request) { q.Want.MinMemory = 1 << 40 }},
		{placement.TooFew, func(_ *placement.Host, q *placement.Request) { q.Count = 2 }},
		{placement.Full, func(h *placement.Host, _ *placement.Request) {
			for u := range 4 {
				h.GPUs[0].Held = append(h.GPUs[0].Held, gpu.Slot{GPU: h.GPUs[0].Device.UUID, Mode: h.GPUs[0].Mode, Start: u, Size: 1})
			}
		}},
	} {
		h, q := machine(mps(t), 1), ask(org, mps(t), "", 1)
		c.spoil(&h, &q)
		d, why := placement.Plan(placement.Snapshot{Tenancy: placement.OneOrgPerHost, Hosts: []placement.Host{h}}, q)
		require.False(t, d.Placed(), c.filter)
		require.Equal(t, []placement.Count{{Filter: c.filter, GPUs: 1}}, why.Counts)
		require.NotContains(t, why.Public(), "bound")
		require.NotContains(t, why.Public(), "organization")
	}
	d, why := placement.Plan(placement.Snapshot{}, ask(org, mps(t), "", 1))
	require.False(t, d.Placed())
	require.Equal(t, "no GPUs", why.String())
}

func TestWhatIsFreeInsteadIsNamed(t *testing.T) {
	t.Parallel()
	org := fresh[id.Org]()
	h := machine(gpu.MIGMode(), 1)
	s := placement.Snapshot{Tenancy: placement.SharedHosts, Hosts: []placement.Host{h}}
	q := ask(org, gpu.MIGMode(), "3g", 1)
	d, _ := placement.Plan(s, q)
	take(&s, q, d)
	_, why := placement.Plan(s, ask(org, gpu.MIGMode(), "7g", 1))
	require.Equal(t, []string{"1g", "2g", "3g"}, why.Instead)
	require.Equal(t, "No GPU can take this instance now: 1 full.", why.Public())
	require.Contains(t, why.Suggestion(), "1g, 2g, 3g")
}

func TestEqualCandidatesSpreadBySeed(t *testing.T) {
	t.Parallel()
	var s placement.Snapshot
	for range 8 {
		s.Hosts = append(s.Hosts, machine(gpu.WholeMode(), 1))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	chosen := map[id.Host]int{}
	for range 800 {
		q := ask(id.Org{1}, gpu.WholeMode(), "", 1)
		q.Seed = rng.Uint64()
		d, _ := placement.Plan(s, q)
		chosen[d.Host]++
	}
	require.Len(t, chosen, 8)
	for _, n := range chosen {
		require.InDelta(t, 100, n, 60)
	}
}

func BenchmarkPlan(b *testing.B) {
	s := placement.Snapshot{Tenancy: placement.SharedHosts}
	for range 40 {
		s.Hosts = append(s.Hosts, machine(gpu.MIGMode(), 8))
	}
	q := ask(id.Org{1}, gpu.MIGMode(), "1g", 1)
	for b.Loop() {
		if d, _ := placement.Plan(s, q); !d.Placed() {
			b.Fatal("no room")
		}
	}
}
