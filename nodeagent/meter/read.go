package meter

import (
	"context"
	"sync"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Names of readings.
const (
	Busy        = "gpu_busy_ppm" // of the time with any work
	SM          = "sm_util_ppm"
	Occupancy   = "sm_occupancy_ppm"
	DRAM        = "dram_util_ppm"
	GPUMemory   = "gpu_memory_bytes"
	GPUPrograms = "gpu_processes"

	CPU         = "cpu_us"
	Throttled   = "cpu_throttled_us"
	Memory      = "memory_bytes"
	MemoryLimit = "memory_limit_bytes"
	Processes   = "processes"
	OOMKills    = "oom_kills"
	DiskRead    = "disk_read_bytes"
	DiskWritten = "disk_written_bytes"

	NetworkIn  = "network_in_bytes"
	NetworkOut = "network_out_bytes"
)

// Names are all readings.
func Names() []string {
	return []string{
		Busy, SM, Occupancy, DRAM, GPUMemory, GPUPrograms, CPU, Throttled, Memory, MemoryLimit, Processes, OOMKills,
		DiskRead, DiskWritten, NetworkIn, NetworkOut,
	}
}

// rising are those that are differences of counters.
var rising = map[string]bool{
	CPU: true, Throttled: true, OOMKills: true, DiskRead: true, DiskWritten: true, NetworkIn: true, NetworkOut: true,
}

// Rising says whether a reading is a difference over its interval.
func Rising(name string) bool { return rising[name] }

// raw is what the sources said.
type raw struct {
	gpus    map[string]*gpuRead // by UUID
	stats   map[string]runtime.Stats
	traffic map[string]Traffic
	noNet   bool
}

// gpuRead is what a GPU said of its slices.
type gpuRead struct {
	gap    string // why it said nothing
	usage  []gpudrv.SliceUsage
	places map[gpu.Placement]int // GPU instance ids
	procs  []gpudrv.Process
}

// read asks every source, each GPU at the same time as the others. One that did not
// answer the last time and still has not is not asked again.
func (m *Meter) read(ctx context.Context, runs []nodeagent.Tenancy, gpus bool) raw {
	out := raw{gpus: map[string]*gpuRead{}, stats: map[string]runtime.Stats{}}
	kinds := map[string]gpu.Kind{}
	for _, t := range runs {
		for _, s := range t.Slots {
			kinds[s.Slot.GPU] = s.Slot.Mode.Kind
		}
	}
	var wait sync.WaitGroup
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	if gpus {
		var mu sync.Mutex
		for uuid, kind := range kinds {
			wait.Go(func() {
				g := m.readGPU(ctx, uuid, kind)
				mu.Lock()
				defer mu.Unlock()
				out.gpus[uuid] = g
			})
		}
	}
	for _, t := range runs {
		if m.c.Stats == nil {
			break
		}
		if s, err := m.c.Stats(ctx, t.Assignment.String()); err == nil {
			out.stats[t.Assignment.String()] = s
		}
	}
	if m.c.Traffic != nil {
		var err error
		out.traffic, err = m.c.Traffic(ctx)
		out.noNet = err != nil
	}
	wait.Wait()
	return out
}

// readGPU reads one GPU, or gives it up when it does not answer in time.
func (m *Meter) readGPU(ctx context.Context, uuid string, kind gpu.Kind) *gpuRead {
	m.mu.Lock()
	slow := m.slow[uuid]
	m.slow[uuid] = true
	m.mu.Unlock()
	if slow {
		return &gpuRead{gap: GapSlow}
	}
	done := make(chan *gpuRead, 1)
	go func() {
		g := m.askGPU(ctx, uuid, kind)
		m.mu.Lock()
		delete(m.slow, uuid)
		m.mu.Unlock()
		done <- g
	}()
	select {
	case g := <-done:
		return g
	case <-ctx.Done():
		return &gpuRead{gap: GapSlow}
	}
}

func (m *Meter) askGPU(ctx context.Context, uuid string, kind gpu.Kind) *gpuRead {
	g := &gpuRead{}
	var err error
	switch kind {
	case gpu.MIG:
		var list []gpudrv.GPUInstance
		if list, err = m.c.Driver.GPUInstances(ctx, uuid); err == nil {
			g.places = map[gpu.Placement]int{}
			for _, i := range list {
				g.places[gpu.Placement(i.Placement)] = i.ID
			}
			g.usage, err = m.c.Driver.Usage(ctx, uuid)
		}
	case gpu.Whole:
		g.usage, err = m.c.Driver.Usage(ctx, uuid)
	default:
		// What the whole GPU does says nothing about one share of it.
		g.procs, err = m.c.Driver.Processes(ctx, uuid)
	}
	if err != nil {
		g.gap = gapOfDriver + string(gpudrv.KindOf(err))
	}
	return g
}

// samples are the entries of one run: one for each source.
func (m *Meter) samples(t nodeagent.Tenancy, r raw, last, next *counters, away bool) []agentlink.SliceSample {
	first := m.ofGPU(t, r, away)
	if first.Gap != "" && last != nil && last.GPU != "" {
		first.Source = last.GPU // the gap is in what it says
	}
	next.GPU = first.Source
	out := []agentlink.SliceSample{first}
	key := t.Assignment.String()
	if m.c.Stats != nil {
		s := agentlink.SliceSample{Assignment: t.Assignment, Source: Cgroup, Gap: GapUnread}
		if x, ok := r.stats[key]; ok {
			s.Gap, s.Readings = "", statsReadings(x, away)
			difference(&s, last, next)
		}
		out = append(out, s)
	}
	if m.c.Traffic != nil {
		s := agentlink.SliceSample{Assignment: t.Assignment, Source: Network, Gap: GapUnread}
		if x, ok := r.traffic[key]; ok && !r.noNet {
			s.Gap, s.Readings = "", map[string]int64{NetworkIn: x.In, NetworkOut: x.Out}
			difference(&s, last, next)
		}
		out = append(out, s)
	}
	return out
}

// statsReadings are a container's counters; a negative one is not reported. Of a time
// in which nobody looked only what rises is known.
func statsReadings(x runtime.Stats, away bool) map[string]int64 {
	out := map[string]int64{}
	for name, v := range map[string]int64{
		CPU: x.CPU.Microseconds(), Throttled: x.Throttled.Microseconds(), Memory: x.MemoryBytes, MemoryLimit: x.MemoryLimit,
		Processes: x.PIDs, OOMKills: x.OOMKills, DiskRead: x.ReadBytes, DiskWritten: x.WrittenBytes,
	} {
		if v >= 0 && (rising[name] || !away) {
			out[name] = v
		}
	}
	if x.CPU < 0 {
		delete(out, CPU)
	}
	if x.Throttled < 0 {
		delete(out, Throttled)
	}
	return out
}

// difference turns counters into what they rose by, and keeps them for the next time.
// One without an earlier value is left out; if nothing is left, that is the gap.
func difference(s *agentlink.SliceSample, last, next *counters) {
	unknown := false
	for name, v := range s.Readings {
		if !rising[name] {
			continue
		}
		next.Values[name] = v
		before, ok := int64(0), last != nil
		if ok && !last.fresh {
			before, ok = last.Values[name]
		}
		switch {
		case !ok:
			delete(s.Readings, name)
			unknown = true
		case v < before:
			s.Readings[name] = v // it began anew
		default:
			s.Readings[name] = v - before
		}
	}
	if len(s.Readings) > 0 {
		return
	}
	s.Readings, s.Gap = nil, GapSilent
	if unknown {
		s.Gap = GapFirst
	}
}

// ofGPU is the entry of a run's GPUs: sums of memory and programs, means of the rest.
// What one of several slots does not report, the run does not report.
func (m *Meter) ofGPU(t nodeagent.Tenancy, r raw, away bool) agentlink.SliceSample {
	s := agentlink.SliceSample{Assignment: t.Assignment, Source: NVML}
	if away {
		s.Gap = GapAway
		return s
	}
	sums, seen := map[string]int64{}, map[string]int{}
	for _, slot := range t.Slots {
		g := r.gpus[slot.Slot.GPU]
		if g == nil || g.gap != "" {
			s.Gap = GapUnread
			if g != nil {
				s.Gap = g.gap
			}
			return s
		}
		one, source := m.ofSlot(t, slot.Slot, g)
		if source != "" {
			s.Source = source
		}
		for name, v := range one {
			sums[name] += v
			seen[name]++
		}
	}
	s.Readings = map[string]int64{}
	for name, v := range sums {
		if seen[name] != len(t.Slots) {
			continue
		}
		if name != GPUMemory && name != GPUPrograms {
			v /= int64(len(t.Slots))
		}
		s.Readings[name] = v
	}
	if len(s.Readings) == 0 {
		s.Readings, s.Gap = nil, GapSilent
	}
	return s
}

// ofSlot is what is reported of one slot, and by which source.
func (m *Meter) ofSlot(t nodeagent.Tenancy, slot gpu.Slot, g *gpuRead) (map[string]int64, string) {
	gi := -1
	switch slot.Mode.Kind {
	case gpu.MIG:
		at, ok := g.places[gpu.Placement{Start: slot.Start, Size: slot.Size}]
		if !ok {
			return nil, ""
		}
		gi = at
	case gpu.Whole:
	default:
		return m.ofPrograms(t, g), NVML
	}
	out := map[string]int64{}
	for _, u := range g.usage {
		if u.GPUInstance != gi {
			continue
		}
		const ppm = 1000 // of a thousandth
		put(out, Busy, u.Busy, ppm)
		put(out, SM, u.SM, ppm)
		put(out, Occupancy, u.Occupancy, ppm)
		put(out, DRAM, u.DRAM, ppm)
		put(out, GPUMemory, u.UsedBytes, 1)
		return out, u.Source
	}
	return nil, ""
}

func put(out map[string]int64, name string, v gpudrv.Value[int64], times int64) {
	if x, ok := v.Get(); ok {
		out[name] = x * times
	}
}

// ofPrograms adds up the programs of a share. Without knowing whose they are, nothing is
// known.
func (m *Meter) ofPrograms(t nodeagent.Tenancy, g *gpuRead) map[string]int64 {
	if m.c.SliceOf == nil {
		return nil
	}
	out := map[string]int64{GPUPrograms: 0, GPUMemory: 0}
	busy, told := int64(0), true
	for _, p := range g.procs {
		owner, ok := m.c.SliceOf(p.PID)
		if !ok || owner != t.Assignment.String() {
			continue
		}
		out[GPUPrograms]++
		used, ok := p.UsedBytes.Get()
		if _, all := out[GPUMemory]; !ok || !all {
			delete(out, GPUMemory)
		} else {
			out[GPUMemory] += used
		}
		percent, ok := p.SMPercent.Get()
		told = told && ok
		busy += percent
	}
	if told && out[GPUPrograms] > 0 {
		const most, ppm = 100, 10_000 // of a percent
		out[SM] = min(busy, most) * ppm
	}
	return out
}
