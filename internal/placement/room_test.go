package placement_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/placement"
)

// smallMIG is a GPU of four memory units that can be cut into halves and quarters.
func smallMIG() gpu.Device {
	return gpu.Device{
		UUID: "GPU-1", Model: "MINI", Memory: 4096, SMs: 40, MemorySlices: 4, ComputeUnits: 4,
		Profiles: []gpu.Profile{
			{
				ID: 1, Name: "1g", Compute: 1, MemoryUnits: 1, Memory: 1024, SMs: 10, MaxInstances: 4,
				Placements: []gpu.Placement{{Start: 0, Size: 1}, {Start: 1, Size: 1}, {Start: 2, Size: 1}, {Start: 3, Size: 1}},
			},
			{
				ID: 2, Name: "2g", Compute: 2, MemoryUnits: 2, Memory: 2048, SMs: 20, MaxInstances: 2,
				Placements: []gpu.Placement{{Start: 0, Size: 2}, {Start: 2, Size: 2}},
			},
		},
	}
}

// Room says what asking again and again would find, for one GPU a request.
func TestRoomIsWhatPlanFindsOneByOne(t *testing.T) {
	turns, err := gpu.TimeSliceMode(3)
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom([]gpu.Mode{gpu.WholeMode(), gpu.MIGMode(), turns}).Draw(t, "mode")
		r := placement.Request{Org: id.New[id.Org](), Model: "MINI", Count: 1, VCPU: 2, RAM: 10, Want: gpu.Want{Mode: mode}}
		if mode.Kind == gpu.MIG {
			r.Want.Profile = rapid.SampledFrom([]string{"1g", "2g"}).Draw(t, "profile")
		}
		s := placement.Snapshot{Tenancy: rapid.SampledFrom([]placement.Tenancy{placement.OneOrgPerHost, placement.SharedHosts}).Draw(t, "tenancy")}
		for range rapid.IntRange(1, 3).Draw(t, "hosts") {
			h := placement.Host{
				ID: id.New[id.Host](), State: host.Ready, Liveness: host.Live,
				VCPU: rapid.IntRange(0, 20).Draw(t, "vcpu"), RAM: 1000,
			}
			if rapid.Bool().Draw(t, "host of another") {
				h.Organization = id.New[id.Org]()
			}
			for range rapid.IntRange(0, 3).Draw(t, "gpus") {
				h.GPUs = append(h.GPUs, placement.GPU{
					ID: id.New[id.GPU](), Device: smallMIG(), Mode: mode, Settled: true, Healthy: rapid.Bool().Draw(t, "healthy"),
				})
			}
			s.Hosts = append(s.Hosts, h)
		}
		room, found := placement.Room(s, r), 0
		if room > 0 && !placement.CouldEver(s, r) {
			t.Fatal("there is room for what could never be held")
		}
		for {
			d, _ := placement.Plan(s, r)
			if !d.Placed() {
				break
			}
			found++
			hold(s, r, d)
		}
		if room != found {
			t.Fatalf("room for %d, but %d were placed", room, found)
		}
	})
}

// hold takes a decision into the snapshot.
func hold(s placement.Snapshot, r placement.Request, d placement.Decision) {
	for i := range s.Hosts {
		h := &s.Hosts[i]
		if h.ID != d.Host {
			continue
		}
		h.VCPUUsed += r.VCPU
		h.RAMUsed += r.RAM
		for _, slot := range d.Slots {
			for g := range h.GPUs {
				if h.GPUs[g].ID == slot.GPU {
					h.GPUs[g].Held = append(h.GPUs[g].Held, slot.Slot)
				}
			}
		}
	}
}

func TestRoomForSeveralGPUsUsesEachOnceAGroup(t *testing.T) {
	turns, err := gpu.TimeSliceMode(3)
	require.NoError(t, err)
	h := placement.Host{ID: id.New[id.Host](), State: host.Ready, Liveness: host.Live, VCPU: 100, RAM: 100}
	for range 3 {
		h.GPUs = append(h.GPUs, placement.GPU{ID: id.New[id.GPU](), Device: smallMIG(), Mode: turns, Settled: true, Healthy: true})
	}
	s := placement.Snapshot{Tenancy: placement.SharedHosts, Hosts: []placement.Host{h}}
	r := placement.Request{Org: id.New[id.Org](), Model: "MINI", Count: 2, VCPU: 1, RAM: 1, Want: gpu.Want{Mode: turns}}
	require.Equal(t, 4, placement.Room(s, r), "nine turns make four pairs")
	r.Count = 3
	require.Equal(t, 3, placement.Room(s, r))
	r.Count = 4
	require.Zero(t, placement.Room(s, r))
	require.False(t, placement.CouldEver(s, r))
}

func TestCouldEverLooksAtHardwareNotAtTheDay(t *testing.T) {
	busy := placement.Host{
		ID: id.New[id.Host](), State: host.Cordoned, Liveness: host.Unknown, Organization: id.New[id.Org](),
		VCPU: 4, VCPUUsed: 4, RAM: 10, RAMUsed: 10,
		GPUs: []placement.GPU{{ID: id.New[id.GPU](), Device: smallMIG(), Mode: gpu.WholeMode(), Held: []gpu.Slot{{GPU: "GPU-1", Mode: gpu.WholeMode(), Size: 1}}}},
	}
	s := placement.Snapshot{Hosts: []placement.Host{busy}}
	r := placement.Request{Model: "MINI", Count: 1, VCPU: 4, RAM: 10, Want: gpu.Want{Mode: gpu.WholeMode()}}
	require.True(t, placement.CouldEver(s, r))
	require.Zero(t, placement.Room(s, r))
	for name, ask := range map[string]func(*placement.Request){
		"more vcpu":   func(r *placement.Request) { r.VCPU = 5 },
		"other model": func(r *placement.Request) { r.Model = "MAXI" },
		"other mode":  func(r *placement.Request) { r.Want = gpu.Want{Mode: gpu.MIGMode(), Profile: "1g"} },
		"more memory": func(r *placement.Request) { r.Want.MinMemory = 4097 },
	} {
		other := r
		ask(&other)
		require.False(t, placement.CouldEver(s, other), name)
	}
	s.Hosts[0].State = host.Lost
	require.False(t, placement.CouldEver(s, r), "a lost host comes back as another")
}

func TestSimulatedAsksThoseOfTheModeFirst(t *testing.T) {
	device := func(simulated bool) gpu.Device { d := smallMIG(); d.Simulated = simulated; return d }
	r := placement.Request{Model: "MINI", Want: gpu.Want{Mode: gpu.MIGMode(), Profile: "1g"}}
	of := func(gpus ...placement.GPU) bool {
		return placement.Simulated(placement.Snapshot{Hosts: []placement.Host{{GPUs: gpus}}}, r)
	}
	whole := placement.GPU{Device: device(true), Mode: gpu.WholeMode()}
	require.False(t, of())
	require.True(t, of(whole), "none is in the mode now")
	require.False(t, of(whole, placement.GPU{Device: device(false), Mode: gpu.MIGMode()}, whole))
	require.True(t, of(placement.GPU{Device: device(true), Mode: gpu.MIGMode()}))
	other := whole
	other.Device.Model = "MAXI"
	require.False(t, of(other))
}
