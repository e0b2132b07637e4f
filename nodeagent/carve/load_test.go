package carve_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/carve/mig"
	"github.com/tranche-cloud/tranche/nodeagent/carve/mps"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

// The goal, and what it is for: allocate → ready on 64 GPUs with a driver's latency.
const (
	loadHosts    = 4
	loadPerHost  = 16
	loadRequests = 100
	loadGoal     = 3 * time.Second
)

// lane is one GPU with its serial queue and what is allocated on it.
type lane struct {
	set   *carve.Set
	dev   gpu.Device
	turn  chan struct{}
	slots []gpu.Slot
}

// TestAHundredRequestsAtOnceAreReadyInTime gives 100 requests to 64 GPUs at the same
// instant, through the techniques and one queue a GPU, with latencies as drivers
// have. Time is virtual: it counts waiting, not this machine's speed.
func TestAHundredRequestsAtOnceAreReadyInTime(t *testing.T) {
	t.Parallel()
	var took []time.Duration
	started := time.Now()
	synctest.Test(t, func(t *testing.T) {
		lanes := openLanes(t)
		var mu sync.Mutex
		var work sync.WaitGroup
		begin := time.Now()
		for i := range loadRequests {
			l, s := allocate(t, lanes, i)
			work.Go(func() {
				l.turn <- struct{}{}
				_, err := l.set.Ensure(t.Context(), s)
				<-l.turn
				require.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(begin))
			})
		}
		work.Wait()
	})
	slices.Sort(took)
	require.Len(t, took, loadRequests)
	p := func(percent int) time.Duration { return took[len(took)*percent/100-1].Round(time.Millisecond) }
	t.Logf("%d requests on %d GPUs: p50 %s, p95 %s, slowest %s; computed in %s",
		loadRequests, loadHosts*loadPerHost, p(50), p(95), p(100), time.Since(started).Round(time.Millisecond))
	require.LessOrEqual(t, p(95), loadGoal)
}

func openLanes(t *testing.T) []*lane {
	var out []*lane
	for n := range loadHosts {
		latency := sim.DriverLatency()
		latency.Seed = uint64(n)
		h := sim.FleetHost{
			Name: fmt.Sprintf("host-%d", n), VCPU: 64, RAM: 1 << 20,
			GPUs: []sim.FleetGPU{{Model: "H200-141", Mode: gpu.MIGMode(), Count: loadPerHost}},
		}
		drv, err := sim.Open(sim.Config{Host: h, Latency: latency})
		require.NoError(t, err)
		t.Cleanup(func() { _ = drv.Close() })
		set := carve.NewSet(drv, map[gpu.Kind]carve.Carver{gpu.MIG: mps.NewInside(mig.New(drv), drv.MPS())})
		for _, g := range h.Devices() {
			dev, err := gpudrv.Device(context.Background(), drv, g.UUID)
			require.NoError(t, err)
			out = append(out, &lane{set: set, dev: dev, turn: make(chan struct{}, 1)})
		}
	}
	return out
}

// allocate takes the GPU with the fewest slices and the rule's best place there.
func allocate(t *testing.T, lanes []*lane, i int) (*lane, carve.Slice) {
	profiles := []string{"1g.18gb", "2g.35gb", "3g.71gb", "1g.35gb"}
	l := slices.MinFunc(lanes, func(a, b *lane) int { return cmp.Compare(len(a.slots), len(b.slots)) })
	fit, err := gpu.Feasible(l.dev, gpu.MIGMode(), l.slots, gpu.Want{Mode: gpu.MIGMode(), Profile: profiles[i%len(profiles)]})
	require.NoError(t, err)
	l.slots = append(l.slots, fit[0])
	return l, carve.Slice{ID: fmt.Sprintf("asg_%d", i), Slot: fit[0]}
}
