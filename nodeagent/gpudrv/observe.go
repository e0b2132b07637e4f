package gpudrv

import (
	"context"
	"time"
)

// Observer is the part of Reader that watches GPUs at work. It changes nothing.
type Observer interface {
	// Capabilities returns what this driver can do to or say about a GPU, as probed.
	Capabilities(ctx context.Context, uuid string) (Capabilities, error)
	// Usage samples what is busy: one entry per GPU instance with MIG on, ascending
	// by id, else one for the whole GPU. It may take a sampling window (at least
	// 100 ms). What a driver cannot say is not reported, never zero.
	Usage(ctx context.Context, uuid string) ([]SliceUsage, error)
	// Fabric returns the GPU's links to other GPUs.
	Fabric(ctx context.Context, uuid string) (Fabric, error)
	// MemoryLimit returns what the driver enforces for a cgroup (its path below the
	// cgroup mount) on a GPU: not reported where there is no such control, a zero
	// HardBytes where no limit is set.
	MemoryLimit(ctx context.Context, uuid, cgroup string) (Value[MemoryLimit], error)
	// Watch registers for the events of every GPU; it is registered when Watch
	// returns, so call it before serving. Events before that are lost: read Health
	// once afterwards. Unsupported where the driver has none. Close the watcher.
	Watch(ctx context.Context) (Watcher, error)
}

// Watcher gives the events of one registration in their order.
type Watcher interface {
	// Next waits for one event; it fails with Hung when ctx ends first, and with
	// Broken after Close. One caller at a time.
	Next(ctx context.Context) (Event, error)
	// Close ends the registration.
	Close() error
}

// EventKind says what an Event is about.
type EventKind string

// The kinds of events.
const (
	EventXID         EventKind = "xid"
	EventRecovery    EventKind = "recovery_action" // read Health for the action
	EventUnavailable EventKind = "gpu_unavailable"
	EventMIGConfig   EventKind = "mig_config"
	// EventMissed says that events were dropped because nobody took them: read
	// the health of every GPU.
	EventMissed EventKind = "missed"
)

// Event is one thing a driver reports by itself. GPUInstance and ComputeInstance
// are -1 when it concerns the whole GPU.
type Event struct {
	Kind            EventKind `json:"kind"`
	GPU             string    `json:"gpu"` // UUID; "" for missed
	GPUInstance     int       `json:"gpu_instance"`
	ComputeInstance int       `json:"compute_instance"`
	XID             int       `json:"xid"` // xid only
	At              time.Time `json:"at"`  // when it was received
}

// Sources of usage.
const (
	UsageGPM  = "gpm"  // profiling counters of a GPU instance or GPU, Hopper and later
	UsageNVML = "nvml" // utilisation of the whole GPU
)

// SliceUsage is how busy a GPU instance, or the whole GPU, was over Window.
// Shares are in thousandths: 0 to 1000.
type SliceUsage struct {
	GPUInstance int           `json:"gpu_instance"` // -1: the whole GPU
	Source      string        `json:"source"`       // gpm or nvml; "" when nothing is reported
	Window      time.Duration `json:"window_ns"`
	// Busy is the time in which any work ran.
	Busy Value[int64] `json:"busy"`
	// SM is the time-average of SMs with work, Occupancy of the warps on them, DRAM
	// of the memory's bandwidth: gpm only.
	SM        Value[int64] `json:"sm"`
	Occupancy Value[int64] `json:"occupancy"`
	DRAM      Value[int64] `json:"dram"`
	UsedBytes Value[int64] `json:"used_bytes"`
}

// Fabric is what ties a GPU to others.
type Fabric struct {
	State   Value[string] `json:"state"`   // not_supported, not_started, in_progress, completed
	Healthy Value[bool]   `json:"healthy"` // the registration ended without an error
	Cluster Value[string] `json:"cluster"`
	Clique  Value[int]    `json:"clique"`
	Links   []Link        `json:"links"` // NVLinks ascending by number; empty without any
}

// Link is one NVLink.
type Link struct {
	Number int         `json:"number"`
	Up     Value[bool] `json:"up"`
}

// Capabilities are facts about driver and GPU that decide what can be promised.
type Capabilities struct {
	// MPSVersion is 2 for limits per server and client process, 3 for namespaces
	// with limits of their own.
	MPSVersion Value[int] `json:"mps_version"`
	// SMPartitions: MPS can hand out SMs that no other client uses.
	SMPartitions Value[bool] `json:"sm_partitions"`
	// MemoryLimits: the driver caps the memory of a cgroup (dmem).
	MemoryLimits Value[bool] `json:"memory_limits"`
	Timeslice    Value[bool] `json:"timeslice"`    // SetTimeslice works
	ComputeMode  Value[bool] `json:"compute_mode"` // SetComputeMode works
	Reset        Value[bool] `json:"reset"`        // Reset works
	GPM          Value[bool] `json:"gpm"`
	SRIOV        Value[bool] `json:"sriov"`
	VFIO         Value[bool] `json:"vfio"`
}

// MemoryLimit is the driver's limit for a cgroup, in bytes.
type MemoryLimit struct {
	HardBytes int64        `json:"hard_bytes"` // 0: none
	UsedBytes Value[int64] `json:"used_bytes"`
}

// Tuner is the part of Writer that sets a GPU rather than cuts it. None of it
// survives a reboot.
type Tuner interface {
	// Reset resets an idle GPU: instances, shares and errors are gone, a pending
	// MIG switch takes effect. InUse names the clients; GPULost if it is gone.
	Reset(ctx context.Context, uuid string) error
	// SetTimeslice sets the length of a turn: one of the Timeslice levels.
	SetTimeslice(ctx context.Context, uuid, level string) error
	// SetComputeMode sets who may open the GPU: one of the ComputeMode constants.
	SetComputeMode(ctx context.Context, uuid, mode string) error
	// SetMemoryLimit caps the memory of a cgroup on a GPU; 0 lifts the cap.
	SetMemoryLimit(ctx context.Context, uuid, cgroup string, bytes int64) error
}

// Lengths of a turn.
const (
	TimesliceDefault = "default"
	TimesliceShort   = "short"
	TimesliceMedium  = "medium"
	TimesliceLong    = "long"
)

// Compute modes.
const (
	ComputeDefault          = "default"
	ComputeExclusiveProcess = "exclusive_process"
	ComputeProhibited       = "prohibited"
)

// Unobserved is the Observer of adapters that cannot watch: nothing is reported
// and there are no events, with the reason. It knows no GPUs, so it answers for
// any UUID.
type Unobserved struct{ Unseen string }

var _ Observer = Unobserved{}

// Capabilities implements Observer.
func (u Unobserved) Capabilities(ctx context.Context, uuid string) (Capabilities, error) {
	return NoCapabilities(u.Unseen), inTime(ctx, "capabilities", uuid)
}

// NoCapabilities reports none of them, with the reason.
func NoCapabilities(why string) Capabilities {
	no := NotReported[bool](why)
	return Capabilities{
		MPSVersion: NotReported[int](why), SMPartitions: no, MemoryLimits: no, Timeslice: no,
		ComputeMode: no, Reset: no, GPM: no, SRIOV: no, VFIO: no,
	}
}

// Usage implements Observer.
func (u Unobserved) Usage(ctx context.Context, uuid string) ([]SliceUsage, error) {
	return []SliceUsage{NoUsage(-1, u.Unseen)}, inTime(ctx, "usage", uuid)
}

// NoUsage is an entry of which nothing is reported, with the reason.
func NoUsage(gi int, why string) SliceUsage {
	no := NotReported[int64](why)
	return SliceUsage{GPUInstance: gi, Busy: no, SM: no, Occupancy: no, DRAM: no, UsedBytes: no}
}

// Fabric implements Observer.
func (u Unobserved) Fabric(ctx context.Context, uuid string) (Fabric, error) {
	return NoFabric(u.Unseen), inTime(ctx, "fabric", uuid)
}

// NoFabric reports no link, with the reason.
func NoFabric(why string) Fabric {
	return Fabric{
		State: NotReported[string](why), Healthy: NotReported[bool](why),
		Cluster: NotReported[string](why), Clique: NotReported[int](why), Links: []Link{},
	}
}

// MemoryLimit implements Observer.
func (u Unobserved) MemoryLimit(ctx context.Context, uuid, _ string) (Value[MemoryLimit], error) {
	return NotReported[MemoryLimit](u.Unseen), inTime(ctx, "memory_limit", uuid)
}

// Watch implements Observer.
func (u Unobserved) Watch(context.Context) (Watcher, error) {
	return nil, Refuse(Unsupported, "watch", "", "%s", u.Unseen)
}

func inTime(ctx context.Context, op, uuid string) error {
	if err := ctx.Err(); err != nil {
		return Refuse(Hung, op, uuid, "no answer in time").Because(err)
	}
	return nil
}
