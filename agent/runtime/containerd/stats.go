package containerd

import (
	"context"
	"time"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/typeurl/v2"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// unreported is the value of a counter that the kernel does not give.
const unreported = -1

// Stats implements runtime.Driver.
func (d *Driver) Stats(ctx context.Context, name string) (runtime.Stats, error) {
	task, err := d.runningTask(ctx, "stats", name)
	if err != nil {
		return runtime.Stats{}, err
	}
	metric, err := task.Metrics(ctx)
	if err != nil {
		return runtime.Stats{}, typed("stats", name, err)
	}
	counters, err := typeurl.UnmarshalAny(metric.Data)
	if err != nil {
		return runtime.Stats{}, typed("stats", name, err)
	}
	switch m := counters.(type) {
	case *v1.Metrics:
		return ofHierarchies(m), nil
	case *v2.Metrics:
		return ofUnified(m), nil
	default:
		return runtime.Stats{}, runtime.Refuse(runtime.Broken, "stats", name, "counters of unknown type %T", counters)
	}
}

func nothing() runtime.Stats {
	return runtime.Stats{
		CPU: unreported, Throttled: unreported, MemoryBytes: unreported, MemoryLimit: unreported, PIDs: unreported,
		OOMKills: unreported, ReadBytes: unreported, WrittenBytes: unreported,
	}
}

// ofHierarchies reads cgroup v1.
func ofHierarchies(m *v1.Metrics) runtime.Stats {
	s := nothing()
	if cpu := m.GetCPU(); cpu != nil {
		s.CPU = time.Duration(cpu.GetUsage().GetTotal())
		s.Throttled = time.Duration(cpu.GetThrottling().GetThrottledTime())
	}
	if memory := m.GetMemory(); memory != nil {
		s.MemoryBytes, s.MemoryLimit = int64(memory.GetUsage().GetUsage()), int64(memory.GetUsage().GetLimit())
	}
	if oom := m.GetMemoryOomControl(); oom != nil {
		s.OOMKills = int64(oom.GetOomKill())
	}
	if pids := m.GetPids(); pids != nil {
		s.PIDs = int64(pids.GetCurrent())
	}
	if blocks := m.GetBlkio(); blocks != nil {
		s.ReadBytes, s.WrittenBytes = 0, 0
		for _, entry := range blocks.GetIoServiceBytesRecursive() {
			switch entry.GetOp() {
			case "Read":
				s.ReadBytes += int64(entry.GetValue())
			case "Write":
				s.WrittenBytes += int64(entry.GetValue())
			}
		}
	}
	return s
}

// ofUnified reads cgroup v2.
func ofUnified(m *v2.Metrics) runtime.Stats {
	s := nothing()
	if cpu := m.GetCPU(); cpu != nil {
		s.CPU = time.Duration(cpu.GetUsageUsec()) * time.Microsecond
		s.Throttled = time.Duration(cpu.GetThrottledUsec()) * time.Microsecond
	}
	if memory := m.GetMemory(); memory != nil {
		s.MemoryBytes, s.MemoryLimit = int64(memory.GetUsage()), int64(memory.GetUsageLimit())
	}
	if events := m.GetMemoryEvents(); events != nil {
		s.OOMKills = int64(events.GetOomKill())
	}
	if pids := m.GetPids(); pids != nil {
		s.PIDs = int64(pids.GetCurrent())
	}
	if io := m.GetIo(); io != nil {
		s.ReadBytes, s.WrittenBytes = 0, 0
		for _, entry := range io.GetUsage() {
			s.ReadBytes += int64(entry.GetRbytes())
			s.WrittenBytes += int64(entry.GetWbytes())
		}
	}
	return s
}
