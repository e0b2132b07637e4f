// Package runtime owns the port through which an agent runs containers, and the
// typed errors of it. The sub-package fake implements it without executing anything;
// the drivers that do are in the agent's own module (agent/runtime/...).
//
// It does not carve slices, does not decide what runs and knows no network: a caller
// attaches one through Spec.Attach. Instants are the host's uptime within a boot.
// Names of containers are the agent's (assignment ids).
package runtime

import (
	"context"
	"io"
	"time"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
)

// Spec is a container that shall run. Nothing in it may be written to disk but what
// its comments allow: Secrets and Login live in memory.
type Spec struct {
	Name     string // assignment id
	Run      int
	Instance string // instance id, the default host name
	Org      string // organization id: who shares a network
	Hostname string // "" is Instance
	Image    string // reference as the tenant wrote it
	Login    *Login // for the image's registry; nil is anonymous
	Command  []string
	Env      map[string]string // plain; wins over the image's own
	Slots    []gpu.Slot        // what it is given
	Devices  []string          // UUIDs, one a slot
	Memory   []units.MiB       // of the GPU, as read back, one a slot
	VCPU     int               // hard CPU limit, in cores
	RAM      units.MiB         // memory limit, swap included
	Shm      units.MiB         // size of /dev/shm; 0 is half of RAM
	PIDs     int               // 0 is DefaultPIDs
	Ports    []Port
	Keys     []string          // authorized_keys lines
	Secrets  map[string]string // environment that only the guest hears
	Extra    Extra             // filled by the agent around the driver
}

// DefaultPIDs is the limit of processes and threads of a container.
const DefaultPIDs = 4096

// Login is a user of a registry.
type Login struct{ Registry, Username, Password string }

// Port publishes a port of the container on the host.
type Port struct {
	Container, Host int
	Protocol        string // tcp or udp
}

// Extra is what the agent adds to a tenant's wish before a driver sees it.
type Extra struct {
	// CDI names devices of the Container Device Interface, one a slot, for example
	// tranche.dev/slice=asg_…-0; the driver applies their edits.
	CDI []string
	// Mounts are bind mounts of the host's files and folders.
	Mounts []Mount
	// Init is put in front of the command and runs as process 1; empty runs the
	// command as it is.
	Init []string
	// CPUs and MemoryNodes are cpuset lists ("0-15"); "" is any.
	CPUs, MemoryNodes string
	// IDBase is the first host uid and gid of the container's user namespace, which
	// is 65536 ids wide; 0 lets the driver choose.
	IDBase uint32
	// Log is the file that gets stdout and stderr; "" is none. It outlives the agent.
	Log string
	// Learn is called once the image is known, before Attach. With Init the main
	// process starts as root inside, and it is Init that becomes the image's user.
	Learn func(Image) `json:"-"`
	// Attach is called when the namespaces exist and no process of the tenant runs
	// yet, with the pid of their holder. An error fails the start.
	Attach func(ctx context.Context, pid int) error `json:"-"`
	// Progress hears what takes long, for people: "pulling 40 %".
	Progress func(text string) `json:"-"`
}

// Image is what an image says that others than the driver need to know.
type Image struct {
	Digest  string // sha256:…
	User    string // user[:group] as the image names it; "" is root
	Workdir string // "" is /
}

// Mount is one bind mount.
type Mount struct {
	Source, Target string
	Writable       bool // read-only otherwise; always nosuid, nodev
}

// State is where a container stands.
type State string

// The states.
const (
	Created State = "created" // made, its process never ran
	Running State = "running"
	Exited  State = "exited"
)

// Container is a container as the runtime sees it. Slots are those it was made
// with, also if nobody else remembers them.
type Container struct {
	Name     string
	Run      int
	Instance string
	State    State
	Slots    []gpu.Slot
	BootID   string        // of the boot in which it ran
	Started  time.Duration // uptime when its process started; 0 if it did not
	Ended    time.Duration // uptime when it ended; 0 if it did not, or nobody saw it
	ExitCode int           // 128 + n for signal n
	OOM      bool          // the kernel ended a process of it for want of memory
	PID      int           // of the main process on the host; 0 unless running
	Cgroup   string        // path below the cgroup mount, "" if there is none
	Digest   string        // of the image that it runs, sha256:…
}

// Stats are counters since the container started, by the kernel. A negative value is
// not reported.
type Stats struct {
	CPU          time.Duration
	Throttled    time.Duration
	MemoryBytes  int64
	MemoryLimit  int64
	PIDs         int64
	OOMKills     int64
	ReadBytes    int64
	WrittenBytes int64
}

// Exec is a program to run inside a container that runs already.
type Exec struct {
	Args   []string
	Env    map[string]string
	Stdin  io.Reader // nil is none
	Stdout io.Writer // nil discards
	Stderr io.Writer
}

// Driver runs containers. It is safe for concurrent use with different names. Its
// errors are *Error.
type Driver interface {
	// Start makes a container and starts its process. If a container of that name
	// runs already with the same run, it is returned as it is. An error leaves the
	// container created, or not there.
	Start(ctx context.Context, s Spec) (Container, error)
	// Stop ends the process (SIGTERM, then SIGKILL after a grace of at most ten
	// seconds) and removes every trace of the container. It succeeds if there is none.
	Stop(ctx context.Context, name string) error
	// List returns every container, of this boot or an older one. An error means
	// that nothing is known, not that nothing is there.
	List(ctx context.Context) ([]Container, error)
	// Stats reads the counters of a running container; NotFound otherwise.
	Stats(ctx context.Context, name string) (Stats, error)
	// Exec runs a program in a running container and returns its exit code.
	Exec(ctx context.Context, name string, e Exec) (int, error)
}
