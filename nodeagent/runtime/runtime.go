// Package runtime owns the port through which an agent runs containers. The
// sub-package fake implements it without executing anything.
//
// It does not carve slices and does not decide what runs. Instants are the host's
// uptime within a boot. Names of containers are the agent's (assignment ids).
package runtime

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
)

// Spec is a container that shall run.
type Spec struct {
	Name    string
	Run     int
	Image   string
	Command []string
	Slots   []gpu.Slot // what it is given
	Devices []string   // UUIDs, one a slot
	VCPU    int
	RAM     units.MiB
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
	State    State
	Slots    []gpu.Slot
	BootID   string        // of the boot in which it ran
	Started  time.Duration // uptime when its process started; 0 if it did not
	Ended    time.Duration // uptime when it ended; 0 if it did not, or nobody saw it
	ExitCode int
}

// Driver runs containers. It is safe for concurrent use with different names.
type Driver interface {
	// Start makes a container and starts its process. If a container of that name
	// runs already with the same run, it is returned as it is. An error leaves the
	// container created, or not there.
	Start(ctx context.Context, s Spec) (Container, error)
	// Stop ends the process and removes every trace of the container. It succeeds
	// if there is none.
	Stop(ctx context.Context, name string) error
	// List returns every container, of this boot or an older one. An error means
	// that nothing is known, not that nothing is there.
	List(ctx context.Context) ([]Container, error)
}
