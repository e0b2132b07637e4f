package gpudrv

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
)

// Driver is everything the agent may ask of GPUs.
type Driver interface {
	Reader
	Writer
	// Close releases the driver. What exists on the GPUs stays.
	Close() error
}

// Reader is the part that changes nothing. Every error is an *Error: NotFound
// for an unknown GPU, GPULost, Hung when the context ended first, Broken.
type Reader interface {
	// Host returns facts about the driver and this boot of the host.
	Host(ctx context.Context) (Host, error)
	// GPUs lists every GPU in the driver's order, lost ones included.
	GPUs(ctx context.Context) ([]Ref, error)
	// Identity returns what does not change while the driver is loaded.
	Identity(ctx context.Context, uuid string) (Identity, error)
	// Memory returns the whole GPU's memory; Total = Free + Used.
	Memory(ctx context.Context, uuid string) (Memory, error)
	// Mode returns the sharing mode that the GPU is in now.
	Mode(ctx context.Context, uuid string) (gpu.Mode, error)
	// MIGMode returns the MIG switch; not reported where there is no MIG.
	MIGMode(ctx context.Context, uuid string) (Value[MIGMode], error)
	// Profiles lists the GPU instance profiles by the driver's enumeration, whether
	// MIG is on or not; empty where there is no MIG.
	Profiles(ctx context.Context, uuid string) ([]Profile, error)
	// Placements lists the legal places of a profile, ascending by start.
	Placements(ctx context.Context, uuid string, profile int) (Placements, error)
	// GPUInstances lists what is carved, ascending by id; empty with MIG off.
	GPUInstances(ctx context.Context, uuid string) ([]GPUInstance, error)
	// Shares lists the mps or timeslice shares handed out, ascending by unit.
	Shares(ctx context.Context, uuid string) ([]Share, error)
	// Processes lists who runs on the GPU or one of its instances.
	Processes(ctx context.Context, uuid string) ([]Process, error)
	// Settings returns the GPU's settings that do not survive a reboot, or may not.
	Settings(ctx context.Context, uuid string) (Settings, error)
	// Health returns error counters and what the driver advises.
	Health(ctx context.Context, uuid string) (Health, error)
	// Telemetry returns the instant readings of the whole GPU.
	Telemetry(ctx context.Context, uuid string) (Telemetry, error)
	// Topology returns where the GPU sits in the host.
	Topology(ctx context.Context, uuid string) (Topology, error)
	Observer
}

// Writer changes what exists. Beside the kinds of Reader: InUse, NoRoom,
// NeedsReset, Unsupported, Invalid. A caller reads back after every change; an
// error may leave the change done or not.
type Writer interface {
	// SetMode switches the sharing mode of an empty GPU: InUse while it holds
	// anything, NeedsReset where the switch only becomes pending.
	SetMode(ctx context.Context, uuid string, m gpu.Mode) error
	// CreateGPUInstance carves a profile at exactly this place.
	CreateGPUInstance(ctx context.Context, uuid string, profile int, at Placement) (GPUInstance, error)
	// DestroyGPUInstance fails with InUse while a compute instance is inside.
	DestroyGPUInstance(ctx context.Context, uuid string, gi int) error
	// CreateComputeInstance fills a GPU instance with one full-width instance.
	CreateComputeInstance(ctx context.Context, uuid string, gi int) (ComputeInstance, error)
	// DestroyComputeInstance fails with InUse while a process is on it.
	DestroyComputeInstance(ctx context.Context, uuid string, gi, ci int) error
	// CreateShare hands out one unit of the GPU's mps or timeslice grid.
	CreateShare(ctx context.Context, uuid string, unit int) (Share, error)
	// DestroyShare takes a unit back: InUse while a client is on it.
	DestroyShare(ctx context.Context, uuid string, unit int) error
	Tuner
}

// Host describes the driver and the boot of the machine.
type Host struct {
	Driver          string        `json:"driver"` // nvml, sim or replay
	DriverVersion   Value[string] `json:"driver_version"`
	LibraryVersion  Value[string] `json:"library_version"`
	CUDAVersion     Value[string] `json:"cuda_version"`
	FirmwareVersion Value[string] `json:"firmware_version"`
	BootID          string        `json:"boot_id"` // changes with every boot
	Simulated       bool          `json:"simulated"`
}

// Ref names a GPU. Index is the driver's order and changes across boots.
type Ref struct {
	UUID  string `json:"uuid"`
	PCI   string `json:"pci"` // bus id, for example 00000000:00:06.0
	Index int    `json:"index"`
}

// Identity is what a GPU is.
type Identity struct {
	Name              string        `json:"name"` // the driver's, for example NVIDIA H200
	SMs               Value[int]    `json:"sms"`
	Architecture      Value[string] `json:"architecture"`       // for example hopper
	ComputeCapability Value[string] `json:"compute_capability"` // for example 9.0
	PCIDevice         Value[string] `json:"pci_device"`         // vendor and device, 10de:2335
	Minor             Value[int]    `json:"minor"`              // N of /dev/nvidiaN
	Virtualization    Value[string] `json:"virtualization"`     // none, passthrough, vgpu
}

// Memory is the consistent triple, in bytes.
type Memory struct {
	TotalBytes int64 `json:"total_bytes"`
	FreeBytes  int64 `json:"free_bytes"`
	UsedBytes  int64 `json:"used_bytes"`
}

// Total is the size in MiB, rounded down.
func (m Memory) Total() units.MiB { return units.FromBytes(uint64(max(m.TotalBytes, 0))) }

// MIGMode is the MIG switch: they differ while a change waits for a reset.
type MIGMode struct {
	Current bool `json:"current"`
	Pending bool `json:"pending"`
}

// Profile is one GPU instance profile as the driver reports it.
type Profile struct {
	Enum         int       `json:"enum"` // the library's enumeration
	ID           int       `json:"id"`   // the driver's profile id on this model
	Name         string    `json:"name"` // without the prefix "MIG "
	Compute      int       `json:"compute"`
	MaxInstances int       `json:"max_instances"`
	Memory       units.MiB `json:"memory_mib"`
	SMs          int       `json:"sms"`
	Copy         int       `json:"copy_engines"`
	Decode       int       `json:"decoders"`
	Encode       int       `json:"encoders"`
	JPEG         int       `json:"jpeg"`
	OFA          int       `json:"ofa"`
	P2P          bool      `json:"p2p"`
}

// Placement is an interval of memory units; it converts to gpu.Placement.
type Placement struct {
	Start int `json:"start"`
	Size  int `json:"size"`
}

// Sources of placements.
const (
	SourceNVML = "nvml"
	SourceSMI  = "nvidia-smi" // read from its text, where NVML refuses
	SourceSim  = "sim"
)

// Placements is the answer for one profile, and who gave it.
type Placements struct {
	Source string      `json:"source"`
	List   []Placement `json:"list"`
}

// GPUInstance is a carved part. ID is reused after it is destroyed.
type GPUInstance struct {
	ID        int               `json:"id"`
	Profile   int               `json:"profile"`
	Placement Placement         `json:"placement"`
	Compute   []ComputeInstance `json:"compute_instances"`
}

// ComputeInstance is the MIG device a tenant gets. UUID may name another
// tenant's device after this one is gone.
type ComputeInstance struct {
	ID     int       `json:"id"`
	UUID   string    `json:"uuid"`
	Memory units.MiB `json:"memory_mib"`
	SMs    int       `json:"sms"`
}

// Share is one unit of an mps or timeslice grid that is handed out. For
// timeslice Memory is the allocated share, which nothing enforces.
type Share struct {
	Unit      int       `json:"unit"`
	Memory    units.MiB `json:"memory_mib"`
	SMs       int       `json:"sms"`
	SMPercent int       `json:"sm_percent"`
}

// Process is someone on a GPU. GPUInstance is -1 outside MIG.
type Process struct {
	PID         int          `json:"pid"`
	Name        string       `json:"name"`
	GPUInstance int          `json:"gpu_instance"`
	UsedBytes   Value[int64] `json:"used_bytes"`
	// SMPercent is the process's own use of the SMs, 0 to 100; under MPS only the
	// server's is reported.
	SMPercent Value[int64] `json:"sm_percent"`
}

// Settings are switches of a GPU.
type Settings struct {
	ComputeMode     Value[string] `json:"compute_mode"` // default, exclusive_process, prohibited
	Persistence     Value[bool]   `json:"persistence"`
	ECC             Value[bool]   `json:"ecc"`
	ECCPending      Value[bool]   `json:"ecc_pending"`
	PowerLimitMilli Value[int64]  `json:"power_limit_mw"`
	Accounting      Value[bool]   `json:"accounting"`
	// Timeslice is the length of a turn: one of the Timeslice levels.
	Timeslice Value[string] `json:"timeslice"`
}

// Health is what tells a good GPU from a bad one. Lost GPUs answer GPULost.
type Health struct {
	RecoveryAction     Value[string] `json:"recovery_action"` // none, reset, reboot, drain_p2p, drain_reset, …
	ECCUncorrected     Value[int64]  `json:"ecc_uncorrected"` // volatile, since driver load
	RemappedCorrect    Value[int64]  `json:"remapped_correctable"`
	RemappedUncorrect  Value[int64]  `json:"remapped_uncorrectable"`
	RemapPending       Value[bool]   `json:"remap_pending"`
	RemapFailed        Value[bool]   `json:"remap_failed"`
	RetiredPagePending Value[bool]   `json:"retired_page_pending"`
}

// Telemetry is an instant. With MIG on, utilisation is not reported.
type Telemetry struct {
	PowerMilliwatt   Value[int64] `json:"power_mw"`
	EnergyMillijoule Value[int64] `json:"energy_mj"` // since driver load
	TemperatureC     Value[int64] `json:"temperature_c"`
	GPUPercent       Value[int64] `json:"gpu_percent"`
	MemoryPercent    Value[int64] `json:"memory_percent"`
	SMClockMHz       Value[int64] `json:"sm_clock_mhz"`
}

// Topology is where a GPU sits.
type Topology struct {
	NUMANode     Value[int]    `json:"numa_node"`
	CPUs         Value[string] `json:"cpus"` // list format, for example 0-15
	LinkGen      Value[int]    `json:"pcie_gen"`
	LinkWidth    Value[int]    `json:"pcie_width"`
	NVLinksUp    Value[int]    `json:"nvlinks_up"`
	FabricStatus Value[string] `json:"fabric_status"` // not_supported, not_started, in_progress, completed
}
