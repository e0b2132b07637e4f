package meter_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/journal"
	"github.com/tranche-cloud/tranche/nodeagent/meter"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
	"github.com/tranche-cloud/tranche/nodeagent/spool"
)

// world is a host with a meter, whose clock and counters a test moves.
type world struct {
	*meter.Meter
	dir    string
	boot   string
	uptime time.Duration
	drv    meter.Driver
	runs   []nodeagent.Tenancy
	cpu    map[string]time.Duration // by assignment; missing cannot be read
	net    map[string]meter.Traffic
	pids   map[int]string
	full   bool // the spool takes nothing
	list   []agentlink.Samples
}

func (w *world) Samples(x agentlink.Samples) error {
	if w.full {
		return errors.New("disk full")
	}
	w.list = append(w.list, x)
	return nil
}

func (w *world) up(t require.TestingT) {
	var err error
	w.Meter, err = meter.New(meter.Config{
		Driver: w.drv, Tenants: func() []nodeagent.Tenancy { return w.runs }, Spool: w, Dir: w.dir, BootID: w.boot,
		Uptime: func() time.Duration { return w.uptime }, Clock: clock.Real(),
		Stats: func(_ context.Context, name string) (runtime.Stats, error) {
			used, ok := w.cpu[name]
			if !ok {
				return runtime.Stats{}, errors.New("no such group")
			}
			return runtime.Stats{CPU: used, Throttled: -1, MemoryBytes: 7, MemoryLimit: -1, PIDs: 2, OOMKills: -1, ReadBytes: -1, WrittenBytes: -1}, nil
		},
		Traffic: func(context.Context) (map[string]meter.Traffic, error) { return w.net, nil },
		SliceOf: func(pid int) (string, bool) { a, ok := w.pids[pid]; return a, ok },
	})
	require.NoError(t, err)
	w.Away(context.Background())
}

func newWorld(t require.TestingT, dir string, drv meter.Driver) *world {
	w := &world{
		dir: dir, boot: "b1", uptime: time.Hour, drv: drv,
		cpu: map[string]time.Duration{}, net: map[string]meter.Traffic{}, pids: map[int]string{},
	}
	w.up(t)
	return w
}

func (w *world) run(slots ...gpu.Slot) id.Assignment {
	a := id.New[id.Assignment]()
	x := nodeagent.Tenancy{Assignment: a, Running: true, Started: w.uptime}
	for _, s := range slots {
		x.Slots = append(x.Slots, journal.Slot{Slot: s})
	}
	w.runs = append(w.runs, x)
	w.cpu[a.String()], w.net[a.String()] = 0, meter.Traffic{}
	return a
}

// pass lets time pass and measures.
func (w *world) pass(d time.Duration) agentlink.Samples {
	w.uptime += d
	n := len(w.list)
	w.Tick(context.Background())
	if len(w.list) == n {
		return agentlink.Samples{}
	}
	return w.list[n]
}

// of returns a run's entry of a source.
func of(t *testing.T, x agentlink.Samples, a id.Assignment, source string) agentlink.SliceSample {
	t.Helper()
	var out []agentlink.SliceSample
	for _, s := range x.Slices {
		if s.Assignment == a && s.Source == source {
			out = append(out, s)
		}
	}
	require.Len(t, out, 1, "%s: %+v", source, x)
	return out[0]
}

func mode(text string) gpu.Mode {
	m, err := gpu.ParseMode(text)
	if err != nil {
		panic(err)
	}
	return m
}

var zoo = sim.FleetHost{Name: "zoo", VCPU: 64, RAM: 524288, GPUs: []sim.FleetGPU{
	{Model: "H100-80", Mode: gpu.WholeMode(), Count: 2},
	{Model: "H200-141", Mode: gpu.MIGMode(), Count: 1},
	{Model: "A100-80", Mode: mode("timeslice:2"), Count: 1},
	{Model: "A100-80", Mode: gpu.MIGMode(), Count: 1},
	{Model: "A100-80", Mode: gpu.WholeMode(), Count: 1},
}}

func slot(i, start int) gpu.Slot {
	d := zoo.Devices()[i]
	s := gpu.Slot{GPU: d.UUID, Mode: d.Mode, Start: start, Size: 1}
	if d.Mode.Kind == gpu.MIG {
		s.Profile = 19
	}
	return s
}

func openSim(t *testing.T) *sim.Driver {
	t.Helper()
	d, err := sim.Open(sim.Config{Dir: t.TempDir(), Host: zoo})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestEachKindOfSliceIsMeasuredByWhatCanTell(t *testing.T) {
	d := openSim(t)
	ctx := t.Context()
	for _, i := range []int{2, 4} {
		_, err := d.CreateGPUInstance(ctx, zoo.Devices()[i].UUID, 19, gpudrv.Placement{Start: 3, Size: 1})
		require.NoError(t, err)
	}
	_, err := d.CreateShare(ctx, zoo.Devices()[3].UUID, 0)
	require.NoError(t, err)
	w := newWorld(t, "", d)
	const mib = 1 << 20
	pid := 100
	attach := func(s gpu.Slot, a id.Assignment) {
		require.NoError(t, d.Attach(s.GPU, sim.Client{PID: pid, Slot: s, UsedBytes: 512 * mib, Duty: 50}))
		w.pids[pid] = a.String()
		pid++
	}
	pair := w.run(slot(0, 0), slot(1, 0))
	attach(slot(0, 0), pair)
	hopper, turns, ampere, old := w.run(slot(2, 3)), w.run(slot(3, 0)), w.run(slot(4, 3)), w.run(slot(5, 0))
	attach(slot(2, 3), hopper)
	attach(slot(3, 0), turns)
	attach(slot(3, 0), id.New[id.Assignment]()) // somebody else on the GPU
	attach(slot(4, 3), ampere)
	attach(slot(5, 0), old)
	used := func(i int) int64 {
		m, err := d.Memory(ctx, zoo.Devices()[i].UUID)
		require.NoError(t, err)
		return m.UsedBytes
	}
	x := w.pass(10 * time.Second)
	require.Equal(t, 10*time.Second, x.Interval)
	require.Equal(t, map[string]int64{
		meter.Busy: 250_000, meter.SM: 247_500, meter.Occupancy: 150_000, meter.DRAM: 100_000, meter.GPUMemory: used(0) + used(1),
	}, of(t, x, pair, "gpm").Readings, "two GPUs, one at work")
	require.Equal(t, map[string]int64{
		meter.Busy: 500_000, meter.SM: 495_000, meter.Occupancy: 300_000, meter.DRAM: 200_000, meter.GPUMemory: 512 * mib,
	}, of(t, x, hopper, "gpm").Readings)
	require.Equal(t, map[string]int64{meter.GPUPrograms: 1, meter.GPUMemory: 512 * mib, meter.SM: 500_000}, of(t, x, turns, "nvml").Readings)
	require.Equal(t, map[string]int64{meter.GPUMemory: 512 * mib}, of(t, x, ampere, "nvml").Readings, "not reported is absent")
	require.Equal(t, map[string]int64{meter.Busy: 500_000, meter.GPUMemory: used(5)}, of(t, x, old, "nvml").Readings)
	require.Equal(t, map[string]int64{meter.CPU: 0, meter.Memory: 7, meter.Processes: 2}, of(t, x, old, "cgroup").Readings)

	require.NoError(t, d.LoseQuietly(zoo.Devices()[2].UUID))
	gap := of(t, w.pass(10*time.Second), hopper, "gpm")
	require.Equal(t, "gpu: GPU_LOST", gap.Gap)
	require.Nil(t, gap.Readings)
}

func TestCountersAreDifferencesThatNeverFall(t *testing.T) {
	w := newWorld(t, t.TempDir(), openSim(t))
	a := w.run(slot(0, 0))
	key := a.String()
	cpu := func(x agentlink.Samples) int64 {
		s := of(t, x, a, "cgroup")
		require.Empty(t, s.Gap)
		return s.Readings[meter.CPU]
	}
	w.cpu[key], w.net[key] = 3*time.Second, meter.Traffic{In: 10, Out: 1}
	x := w.pass(10 * time.Second)
	require.EqualValues(t, 3e6, cpu(x), "it began within the interval")
	require.Equal(t, map[string]int64{meter.NetworkIn: 10, meter.NetworkOut: 1}, of(t, x, a, "network").Readings)
	w.cpu[key] = 5 * time.Second
	require.EqualValues(t, 2e6, cpu(w.pass(10*time.Second)))
	w.cpu[key] = time.Second
	require.EqualValues(t, 1e6, cpu(w.pass(10*time.Second)), "it began anew")
	delete(w.cpu, key)
	require.Equal(t, "NOT_READ", of(t, w.pass(10*time.Second), a, "cgroup").Gap)
	w.cpu[key] = 4 * time.Second
	s := of(t, w.pass(10*time.Second), a, "cgroup")
	require.NotContains(t, s.Readings, meter.CPU, "over which time nobody knows")
	require.Contains(t, s.Readings, meter.Memory)
	require.EqualValues(t, 6e6, w.Latest()[0].Totals[meter.CPU])

	// The agent is away: counters over all of it, gaps for the rest.
	w.cpu[key], w.uptime = 10*time.Second, w.uptime+time.Hour
	n := len(w.list)
	w.up(t)
	require.Len(t, w.list, n+1)
	away := w.list[n]
	require.Equal(t, time.Hour, away.Interval)
	require.Equal(t, "AGENT_AWAY", of(t, away, a, "gpm").Gap)
	require.Equal(t, map[string]int64{meter.CPU: 6e6}, of(t, away, a, "cgroup").Readings)

	// A spool that takes nothing costs nothing: the next interval covers it.
	w.full = true
	require.Empty(t, w.pass(10*time.Second).Slices)
	w.full = false
	require.Equal(t, 20*time.Second, w.pass(10*time.Second).Interval)

	w.boot, w.uptime = "b2", time.Minute
	n = len(w.list)
	w.up(t)
	require.Len(t, w.list, n, "the runs of another boot are gone")
}

// wall is a driver that never answers about one GPU.
type wall struct {
	meter.Driver
	gpu    string
	inside chan struct{}
}

func (h wall) Usage(ctx context.Context, uuid string) ([]gpudrv.SliceUsage, error) {
	if uuid == h.gpu {
		h.inside <- struct{}{}
		select {}
	}
	return h.Driver.Usage(ctx, uuid)
}

// A GPU that does not answer is asked once; the others are measured.
func TestAGPUThatHangsCostsItsOwnReadings(t *testing.T) {
	h := wall{Driver: openSim(t), gpu: zoo.Devices()[0].UUID, inside: make(chan struct{}, 10)}
	w := newWorld(t, "", h)
	a, b := w.run(slot(0, 0)), w.run(slot(1, 0))
	for range 3 {
		x := w.pass(10 * time.Second)
		require.Equal(t, "NO_ANSWER", of(t, x, a, "nvml").Gap)
		require.NotEmpty(t, of(t, x, b, "gpm").Readings)
	}
	require.Len(t, h.inside, 1)
}

// Whatever happens to agent, driver and spool: the entries of a run and source follow
// each other without a hole or an overlap, and no counter is negative or lost twice.
func TestIntervalsFollowEachOther(t *testing.T) {
	d := openSim(t)
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, filepath.Join(base), d)
		w.boot = id.New[id.Instance]().String()
		w.up(t)
		spent := map[id.Assignment]time.Duration{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			step := time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second
			switch rapid.SampledFrom([]string{"run", "end", "work", "tick", "tick", "restart", "full"}).Draw(t, "step") {
			case "run":
				w.run(slot(len(w.runs)%2, 0))
			case "end":
				if len(w.runs) > 0 {
					w.runs = w.runs[1:]
				}
			case "work":
				for _, x := range w.runs {
					w.cpu[x.Assignment.String()] += step / 2
					spent[x.Assignment] += step / 2
				}
			case "tick":
				w.pass(step)
			case "restart":
				w.uptime += step
				w.up(t)
			case "full":
				w.full = true
				w.pass(step)
				w.full = false
			}
		}
		w.pass(time.Second)
		upTo := map[id.Assignment]map[string]time.Duration{}
		at := time.Duration(0)
		first, last, count := map[id.Assignment]int{}, map[id.Assignment]int{}, map[id.Assignment]int{}
		total := map[id.Assignment]int64{}
		for i, x := range w.list {
			at += x.Interval
			seen := map[string]int{}
			for _, s := range x.Slices {
				kind := s.Source
				if kind == "gpm" || kind == "nvml" {
					kind = "gpu"
				}
				seen[s.Assignment.String()+kind]++
				require.Equal(t, s.Gap == "", s.Readings != nil)
				for name, v := range s.Readings {
					require.GreaterOrEqual(t, v, int64(0), name)
				}
				if count[s.Assignment]++; count[s.Assignment] == 1 {
					first[s.Assignment] = i
				}
				last[s.Assignment] = i
				total[s.Assignment] += s.Readings[meter.CPU]
				if upTo[s.Assignment] == nil {
					upTo[s.Assignment] = map[string]time.Duration{}
				}
				upTo[s.Assignment][kind] = at
			}
			for _, n := range seen {
				require.Equal(t, 1, n)
			}
		}
		for a, n := range count {
			require.Equal(t, 3*(last[a]-first[a]+1), n, "slices times intervals are samples and gaps")
		}
		for _, x := range w.runs {
			kinds := slices.Sorted(maps.Keys(upTo[x.Assignment]))
			require.Equal(t, []string{"cgroup", "gpu", "network"}, kinds, "every source speaks or says why not")
			require.Equal(t, spent[x.Assignment].Microseconds(), total[x.Assignment])
		}
	})
}

// Hours without a control plane fill the spool within its bound, and what is dropped
// are the oldest readings.
func TestTheSpoolHoldsHours(t *testing.T) {
	w := newWorld(t, "", openSim(t))
	s, err := spool.Open(spool.Config{
		Path: filepath.Join(t.TempDir(), "spool"), BootID: "b1", Uptime: func() time.Duration { return w.uptime }, Now: time.Now, MaxRecords: 100,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	w.run(slot(0, 0))
	for range 150 {
		require.NoError(t, s.Samples(w.pass(10*time.Second)))
	}
	list := s.Pending(0, 1000)
	require.Len(t, list, 100)
	require.EqualValues(t, 50, s.Dropped())
	require.EqualValues(t, 51, list[0].ID)
	for i, r := range list {
		require.Equal(t, list[0].ID+uint64(i), r.ID)
		require.Equal(t, 10*time.Second, r.Samples.Interval)
	}
	require.Equal(t, 100, s.Len())
}

// The longer nobody takes the records, the longer the intervals; none is left out.
func TestIntervalsStretchWhileNobodyListens(t *testing.T) {
	w := newWorld(t, "", openSim(t))
	c := clock.NewFake(time.Unix(1_800_000_000, 0))
	begin := c.Now()
	var depth atomic.Int64
	var err error
	w.run(slot(0, 0))
	w.Meter, err = meter.New(meter.Config{
		Driver: w.drv, Tenants: func() []nodeagent.Tenancy { return w.runs }, Spool: w, BootID: "b1", Clock: c,
		Uptime: func() time.Duration { return time.Hour + c.Now().Sub(begin) }, Depth: func() int { return int(depth.Load()) },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for _, tc := range []struct{ depth, ticks, records int }{{0, 60, 60}, {300, 60, 10}, {1000, 120, 2}, {0, 1, 1}} {
		c.WaitTimers(1)
		depth.Store(int64(tc.depth))
		before := len(w.list)
		for range tc.ticks {
			c.WaitTimers(1)
			c.Advance(meter.DefaultEvery)
		}
		c.WaitTimers(1)
		require.Len(t, w.list, before+tc.records, "%+v", tc)
	}
	total := time.Duration(0)
	for _, x := range w.list {
		total += x.Interval
	}
	require.Equal(t, c.Now().Sub(begin), total)
	cancel()
	require.NoError(t, <-done)
}

// A crash of the machine may leave an empty file, and no host stays away for that.
func TestADamagedMarkKeepsNoAgentFromStarting(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "meter.json"), nil, 0o600))
	_, err := meter.New(meter.Config{Dir: dir, BootID: "b"})
	require.NoError(t, err)
}
