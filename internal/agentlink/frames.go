package agentlink

import (
	"time"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/units"
)

// Hello opens a session.
type Hello struct {
	BootID string
	// Nonce names this process of the agent; Counter counts its streams.
	Nonce        string
	Counter      uint64
	AgentVersion string
	MachineID    string
	// Timeline is the last one the agent obeyed; 0 if none.
	Timeline int64
}

// Welcome is the answer to a Hello.
type Welcome struct {
	Session, Timeline int64
	ProofEvery        time.Duration
	FullEvery         time.Duration
}

// Refusal is why a session is not, or no longer, served.
type Refusal struct {
	Code, Detail string
	// Retry says that trying again later may succeed without anybody's help.
	Retry bool
}

// Inventory is what a host has. Failed means it could not be read; the rest is
// empty then and says nothing.
type Inventory struct {
	Failed        bool
	Failure       string
	VCPU          int
	RAM           units.MiB
	Driver        string // nvml, sim or replay
	DriverVersion string
	Simulated     bool
	GPUs          []InventoryGPU
}

// InventoryGPU is one GPU. Desired is the mode that the host's settings ask for,
// the zero Mode if they say nothing.
type InventoryGPU struct {
	Device           gpu.Device
	Ordinal          int
	Mode             gpu.Mode
	Desired          gpu.Mode
	Health           string
	PlacementsSource string
}

// Desired is all that shall be on a host, and the tombstones of what shall go.
// What is in neither list is left alone.
type Desired struct {
	Version, Timeline int64
	Orders            []Order
	Tombstones        []Tombstone
}

// Order is one run that shall be on the host.
type Order struct {
	Assignment id.Assignment
	Fence      int64
	Instance   id.Instance
	Run        int
	Slots      []gpu.Slot
	Image      string
	Command    []string
	Env        map[string]string
	VCPU       int
	RAM        units.MiB
}

// Tombstone orders that nothing of an assignment is left, or tells that it is so.
type Tombstone struct {
	Assignment id.Assignment
	Fence      int64
}

// SliceState is where a slice stands on its host.
type SliceState string

// The states of a slice.
const (
	SliceClaimed     SliceState = "claimed"     // ordered, not carved (any more)
	SlicePresent     SliceState = "present"     // carved, read back from the driver
	SliceReclaiming  SliceState = "reclaiming"  // under a tombstone
	SliceOrphan      SliceState = "orphan"      // ours, neither ordered nor under a tombstone
	SliceQuarantined SliceState = "quarantined" // not known to be ours: never touched
	SliceUnknown     SliceState = "unknown"     // could not be read
)

// Slice is the report of one slice or run.
type Slice struct {
	// Key is stable on the host: the assignment id for ours.
	Key        string
	Assignment id.Assignment // zero for what we did not make
	Fence      int64
	Run        int
	State      SliceState
	RunState   instance.RunState
	// Age is how long ago the main process started, EndedAge how long ago it
	// ended; negative if it did not.
	Age, EndedAge time.Duration
	ExitCode      int
	Slots         []SliceSlot
	Reason        instance.Problem
}

// SliceSlot is one slot of a slice with what the driver says about it.
type SliceSlot struct {
	Slot   gpu.Slot
	Device string // UUID of what the container is given; "" until carved
	Memory units.MiB
	SMs    int
}

// Observed is the full set of slices of a host, or what changed.
type Observed struct {
	Full bool
	// Failed: the host could not be read. Nothing follows from it.
	Failed  bool
	Failure string
	Slices  []Slice
	Gone    []Tombstone
	// Applied is the version of Desired that this observation has seen.
	Applied int64
	// Hash names the full set without ages. Unchanged: it is still that set.
	Hash      string
	Unchanged bool
}

// Proof says that the host lives and its runs go on.
type Proof struct {
	Uptime time.Duration
	Hash   string
}

// Event is something worth telling that changes nothing by itself.
type Event struct {
	Kind, Subject, Detail string
	Age                   time.Duration
}
