//go:build nvml

package nvml

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
)

// Capabilities implements gpudrv.Observer.
func (d *driver) Capabilities(ctx context.Context, uuid string) (gpudrv.Capabilities, error) {
	return on(ctx, d, uuid, func(dev lib.Device) (gpudrv.Capabilities, error) {
		// The agent runs MPS daemons of version 2, without SM partitions, whatever a
		// newer driver could do.
		const mpsVersion = 2
		may := gpudrv.Reported(!d.config.LeaveSettings)
		out := gpudrv.Capabilities{
			MPSVersion: gpudrv.Reported(mpsVersion), SMPartitions: gpudrv.Reported(false),
			Timeslice: may, ComputeMode: may, Reset: may,
			SRIOV: gpudrv.NotReported[bool]("not probed"), VFIO: gpudrv.NotReported[bool]("not probed"),
		}
		if _, err := mpsd.Find(d.config.MPSControl); err != nil {
			out.MPSVersion = gpudrv.NotReported[int]("no MPS control program")
		}
		if _, err := d.smiPath(); err != nil {
			out.Timeslice, out.Reset = gpudrv.NotReported[bool](err.Error()), gpudrv.NotReported[bool](err.Error())
		}
		out.MemoryLimits = gpudrv.Reported(false)
		if d.has(symbolGetLimits) {
			_, ret := dev.GetMemoryLimits_v1("/")
			out.MemoryLimits = gpudrv.Reported(ret == lib.SUCCESS)
		}
		out.GPM = gpudrv.Reported(false)
		if d.has("nvmlGpmQueryDeviceSupport") {
			support, ret := dev.GpmQueryDeviceSupport()
			out.GPM = convert(support, ret, func(s lib.GpmSupport) bool { return s.IsSupportedDevice != 0 })
		}
		return out, nil
	})
}

// sampler keeps the last sample of each GPU instance, so that a caller who comes
// regularly does not wait for a window.
type sampler struct {
	mu   sync.Mutex
	last map[sampled]sample
}

type sampled struct {
	uuid string
	gi   int
}

type sample struct {
	handle lib.GpmSample
	at     time.Time
}

const (
	// shortestWindow is what two samples must lie apart.
	shortestWindow = 120 * time.Millisecond
	// longestWindow bounds how old the first sample may be.
	longestWindow = time.Minute
)

// take removes the last sample of an instance.
func (s *sampler) take(k sampled) (sample, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, ok := s.last[k]
	delete(s.last, k)
	return out, ok
}

// keep makes a sample the last one.
func (s *sampler) keep(k sampled, v sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[sampled]sample{}
	}
	if old, ok := s.last[k]; ok {
		old.handle.Free() // a concurrent reading was faster
	}
	s.last[k] = v
}

// free gives all samples back to the library.
func (s *sampler) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.last {
		v.handle.Free()
	}
	s.last = nil
}

func (d *driver) sample(dev lib.Device, gi int) (sample, lib.Return) {
	h, ret := d.api.GpmSampleAlloc()
	if ret != lib.SUCCESS {
		return sample{}, ret
	}
	if gi < 0 {
		ret = dev.GpmSampleGet(h)
	} else {
		ret = dev.GpmMigSampleGet(gi, h)
	}
	if ret != lib.SUCCESS {
		h.Free()
		return sample{}, ret
	}
	return sample{handle: h, at: time.Now()}, lib.SUCCESS
}

// counters reads the profiling counters of a GPU instance, or of the GPU (-1),
// since the last reading or over one window.
func (d *driver) counters(dev lib.Device, k sampled) gpudrv.SliceUsage {
	first, ok := d.gpm.take(k)
	if ok && time.Since(first.at) > longestWindow {
		first.handle.Free()
		ok = false
	}
	if !ok {
		var ret lib.Return
		if first, ret = d.sample(dev, k.gi); ret != lib.SUCCESS {
			return gpudrv.NoUsage(k.gi, "profiling counters: "+errorText(ret))
		}
	}
	if rest := shortestWindow - time.Since(first.at); rest > 0 {
		time.Sleep(rest)
	}
	second, ret := d.sample(dev, k.gi)
	if ret != lib.SUCCESS {
		first.handle.Free()
		return gpudrv.NoUsage(k.gi, "profiling counters: "+errorText(ret))
	}
	out := d.between(k.gi, first, second)
	first.handle.Free()
	d.gpm.keep(k, second)
	return out
}

func (d *driver) between(gi int, first, second sample) gpudrv.SliceUsage {
	get := lib.GpmMetricsGetType{Sample1: first.handle, Sample2: second.handle}
	ids := []lib.GpmMetricId{
		lib.GPM_METRIC_GRAPHICS_UTIL, lib.GPM_METRIC_SM_UTIL, lib.GPM_METRIC_SM_OCCUPANCY, lib.GPM_METRIC_DRAM_BW_UTIL,
	}
	get.NumMetrics = uint32(len(ids))
	for i, id := range ids {
		get.Metrics[i].MetricId = uint32(id)
	}
	if ret := d.api.GpmMetricsGet(&get); ret != lib.SUCCESS {
		return gpudrv.NoUsage(gi, "profiling counters: "+errorText(ret))
	}
	at := func(i int) gpudrv.Value[int64] {
		return thousandths(get.Metrics[i].Value, lib.Return(get.Metrics[i].NvmlReturn))
	}
	return gpudrv.SliceUsage{
		GPUInstance: gi, Source: gpudrv.UsageGPM, Window: second.at.Sub(first.at),
		Busy: at(0), SM: at(1), Occupancy: at(2), DRAM: at(3), //nolint:mnd // the order of ids
	}
}

// thousandths turns a counter in percent, with a code of its own, into a reading.
func thousandths(percent float64, ret lib.Return) gpudrv.Value[int64] {
	const perPercent, most = 10, 1000
	if ret == lib.SUCCESS && (math.IsNaN(percent) || math.IsInf(percent, 0)) {
		return gpudrv.NotReported[int64]("not a number")
	}
	return convert(percent, ret, func(p float64) int64 {
		return min(max(int64(math.Round(p*perPercent)), 0), most)
	})
}

// Usage implements gpudrv.Observer.
func (d *driver) Usage(ctx context.Context, uuid string) ([]gpudrv.SliceUsage, error) {
	return on(ctx, d, uuid, func(dev lib.Device) ([]gpudrv.SliceUsage, error) {
		gpm := false
		if d.has("nvmlGpmQueryDeviceSupport") {
			support, ret := dev.GpmQueryDeviceSupport()
			gpm = ret == lib.SUCCESS && support.IsSupportedDevice != 0
		}
		if !migMode(dev).Or(gpudrv.MIGMode{}).Current {
			return []gpudrv.SliceUsage{d.wholeUsage(dev, uuid, gpm)}, nil
		}
		return d.sliceUsage(dev, uuid, gpm)
	})
}

func (d *driver) wholeUsage(dev lib.Device, uuid string, gpm bool) gpudrv.SliceUsage {
	out := gpudrv.NoUsage(-1, "no profiling counters on this gpu")
	if gpm {
		out = d.counters(dev, sampled{uuid, -1})
	}
	if _, ok := out.Busy.Get(); !ok {
		const perPercent = 10
		if use, ret := dev.GetUtilizationRates(); ret == lib.SUCCESS {
			out.Source = gpudrv.UsageNVML
			out.Busy = gpudrv.Reported(int64(use.Gpu) * perPercent)
		}
	}
	mem, ret := dev.GetMemoryInfo()
	out.UsedBytes = convert(mem, ret, func(m lib.Memory) int64 { return int64(m.Used) })
	return out
}

func (d *driver) sliceUsage(dev lib.Device, uuid string, gpm bool) ([]gpudrv.SliceUsage, error) {
	out := []gpudrv.SliceUsage{}
	list, err := instances(dev, uuid)
	if err != nil {
		return nil, err
	}
	for _, gi := range list {
		use := gpudrv.NoUsage(gi.ID, "no counters per GPU instance on this gpu")
		if gpm {
			use = d.counters(dev, sampled{uuid, gi.ID})
		}
		use.UsedBytes = gpudrv.NotReported[int64]("no compute instance")
		if len(gi.Compute) > 0 {
			use.UsedBytes = d.usedBy(gi.Compute[0].UUID)
		}
		out = append(out, use)
	}
	return out, nil
}

// usedBy is the memory in use on a MIG device: all devices of one GPU instance
// show the same.
func (d *driver) usedBy(uuid string) gpudrv.Value[int64] {
	dev, ret := d.api.DeviceGetHandleByUUID(uuid)
	if ret != lib.SUCCESS {
		return value(int64(0), ret)
	}
	mem, ret := dev.GetMemoryInfo()
	return convert(mem, ret, func(m lib.Memory) int64 { return int64(m.Used) })
}

// Fabric implements gpudrv.Observer.
func (d *driver) Fabric(ctx context.Context, uuid string) (gpudrv.Fabric, error) {
	return on(ctx, d, uuid, func(dev lib.Device) (gpudrv.Fabric, error) {
		out := gpudrv.NoFabric("library too old")
		list, ret := links(dev)
		if ret == lib.SUCCESS {
			out.Links = list
		}
		if !d.has("nvmlDeviceGetGpuFabricInfo") {
			return out, nil
		}
		info, ret := dev.GetGpuFabricInfo()
		out.State = convert(info, ret, func(f lib.GpuFabricInfo) string { return named(fabricStates)(uint32(f.State)) })
		if out.State.Or("") != "completed" {
			why := "registration is " + out.State.String()
			out.Healthy, out.Cluster, out.Clique = gpudrv.NotReported[bool](why), gpudrv.NotReported[string](why), gpudrv.NotReported[int](why)
			return out, nil
		}
		out.Healthy = gpudrv.Reported(lib.Return(info.Status) == lib.SUCCESS)
		out.Clique = gpudrv.Reported(int(info.CliqueId))
		id := info.ClusterUuid
		out.Cluster = gpudrv.Reported(fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]))
		return out, nil
	})
}

// links reads the state of every NVLink, until the driver knows no more of them.
func links(dev lib.Device) ([]gpudrv.Link, lib.Return) {
	const maxLinks = 18
	out := []gpudrv.Link{}
	for number := range maxLinks {
		state, ret := dev.GetNvLinkState(number)
		if ret == lib.ERROR_INVALID_ARGUMENT {
			break
		}
		if ret != lib.SUCCESS && len(out) == 0 {
			return nil, ret
		}
		out = append(out, gpudrv.Link{Number: number, Up: convert(state, ret, enabled)})
	}
	return out, lib.SUCCESS
}
