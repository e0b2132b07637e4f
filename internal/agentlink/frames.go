package agentlink

import (
	"log/slog"
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
	Runtime       string // containerd, runc or fake
	Reach         Reach
	// BelowFloor lists minimum versions and settings that the host does not meet.
	BelowFloor []string
	// Condition concerns the whole host: ConditionGood, ConditionCordon, ConditionFailed.
	Condition      Condition
	ConditionCause string
}

// Condition is what a host says about itself as a whole.
type Condition string

// The conditions. A cordoned host keeps its runs and takes no new work.
const (
	ConditionGood   Condition = ""
	ConditionCordon Condition = "cordon"
	ConditionFailed Condition = "failed"
)

// Reach is where tenants reach a host.
type Reach struct {
	Address    string // host name or IP address; "" if they cannot
	SSHPort    int    // 0 without SSH gateway
	SSHHostKey string // one line of the authorized_keys form
	// FirstPort and LastPort bound the range for published ports; 0 for none.
	FirstPort, LastPort int
}

// InventoryGPU is one GPU. Desired is the mode that the host's settings ask for,
// the zero Mode if they say nothing.
type InventoryGPU struct {
	Device           gpu.Device
	Ordinal          int
	Mode             gpu.Mode
	Desired          gpu.Mode
	Health           string // healthy, degraded, failed, resetting, quarantined
	HealthCause      string // a code such as XID_79; "" on a healthy GPU
	HealthDetail     string
	PlacementsSource string
	// ModeState is where a mode change stands: settled, draining, switching,
	// verifying or failed; ModeProblem says what it waits for, or why it failed.
	ModeState, ModeProblem string
}

// Desired is all that shall be on a host, and the tombstones of what shall go.
// What is in neither list is left alone.
type Desired struct {
	Version, Timeline int64
	Orders            []Order
	Tombstones        []Tombstone
	// SSHAuthorities are the public keys, as authorized_keys lines, of the
	// authorities whose user certificates the host's SSH gateway accepts.
	SSHAuthorities []string
	// Modes are the mode changes that are due.
	Modes []ModeOrder
}

// ModeOrder asks an empty GPU into a mode. The same epoch is the same order.
type ModeOrder struct {
	GPU   string // UUID
	Mode  gpu.Mode
	Epoch int64
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
	Org        id.Org
	Name       string // host name inside the instance
	Ports      []Port
	// SSHKeys are authorized_keys lines. They may change without a new fence.
	SSHKeys []string
	Shm     units.MiB // size of /dev/shm; 0 is half of RAM
	// HasSecrets says to ask for Secrets before the start.
	HasSecrets bool
}

// Port publishes a port of the container on the host.
type Port struct {
	Container, Host int
	Protocol        string // tcp or udp
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
	// Progress is what takes long while a run is prepared, for people.
	Progress string
	// Credited says that the platform ended the run, not the tenant.
	Credited bool
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

// Event is a fact worth keeping. Events and samples are spooled on the host until
// they are acknowledged; an id is taken in once.
type Event struct {
	ID         uint64 // rising on the host, across restarts; shared with Samples
	Kind       string // gpu.xid, gpu.unhealthy, session.opened, client.ended, …
	Subject    string // an assignment id or a GPU's UUID; "" for the host
	Detail     string
	Age        time.Duration
	Attributes map[string]string
}

// Samples are readings of slices over one interval.
type Samples struct {
	ID       uint64
	Age      time.Duration // of the interval's end
	Interval time.Duration
	Slices   []SliceSample
}

// SliceSample is one slice's readings from one source, or a gap.
type SliceSample struct {
	Assignment id.Assignment
	Source     string // gpm, nvml, cgroup, network
	Gap        string // why nothing was measured; "" if something was
	// Readings by name. A missing one is not reported; it is never zero. Counters
	// are differences over the interval.
	Readings map[string]int64
}

// SecretsRequest asks for what a run needs and a host must not keep.
type SecretsRequest struct {
	Assignment id.Assignment
	Fence      int64
}

// Secrets answers a SecretsRequest. They are kept in memory and nowhere else.
type Secrets struct {
	Assignment id.Assignment
	Fence      int64
	Env        map[string]string
	Login      *Login
	Refused    string // why there are none to be had; "" otherwise
}

// Login is a user of an image registry.
type Login struct{ Registry, Username, Password string }

// LogValue keeps secrets out of logs.
func (Secrets) LogValue() slog.Value { return slog.StringValue("[secrets]") }

// LogValue keeps secrets out of logs.
func (Login) LogValue() slog.Value { return slog.StringValue("[login]") }
