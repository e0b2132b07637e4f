package nodeagent

import (
	"context"
	"log/slog"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/journal"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Journal is where a Keeper writes before it acts. journal.File is the real one;
// tests stop at a chosen entry.
type Journal interface {
	Append(journal.Entry) error
	Close() error
}

// Carver makes and removes slices and switches modes; carve.Set is one, and its
// stand-in on the far side of a process boundary another.
type Carver interface {
	Ensure(ctx context.Context, s carve.Slice) (carve.Evidence, error)
	Remove(ctx context.Context, s carve.Slice) error
	Observe(ctx context.Context, uuid string) ([]carve.Found, error)
	EnsureMode(ctx context.Context, uuid string, m gpu.Mode) error
	// Quiet cuts processes of a slice off before they are signalled, where their
	// neighbours would suffer otherwise.
	Quiet(ctx context.Context, s carve.Slice, pids []int) error
}

// Access is who may reach a run by SSH.
type Access struct {
	Assignment id.Assignment
	Instance   id.Instance
	Keys       []string // authorized_keys lines
}

// Door lets tenants in: the SSH gateway. Open replaces everything it knew before;
// it is told again whenever something changes, and at start.
type Door interface {
	Open(ctx context.Context, authorities []string, list []Access) error
}

// Scrubber cleans the memory of a slice that nobody uses any more, and proves it,
// before the slice is taken away and may be sold again.
type Scrubber interface {
	// Scrub returns what was done and seen, for the record. An error keeps the slice
	// out of sale.
	Scrub(ctx context.Context, s carve.Slice) (evidence string, err error)
}

// Host is the machine and the tools that a Keeper works with.
type Host struct {
	Dir     string // the agent's data folder
	Driver  gpudrv.Reader
	Carve   Carver
	Runtime runtime.Driver
	// RuntimeName is the driver's: containerd, runc or fake.
	RuntimeName string
	// Modes are the settings of the host: the wanted mode of each GPU by UUID, until
	// an order says otherwise. A GPU that is not named keeps its mode.
	Modes map[string]gpu.Mode
	VCPU  int
	RAM   units.MiB
	Reach agentlink.Reach
	// Secrets asks the control plane for what a run needs and the host must not
	// keep; nil answers nothing.
	Secrets func(context.Context, agentlink.SecretsRequest) (agentlink.Secrets, error)
	// Door is told who may enter; nil where there is no SSH gateway.
	Door Door
	// PIDs lists the processes of a container, for those that must be cut off from a
	// GPU before they are signalled; nil where no container has processes.
	PIDs func(name string) ([]int, error)
	// Scrub cleans slices before they are taken away; nil trusts the driver.
	Scrub Scrubber
	// SelfTest proves that a GPU works after a mode change or a reset; nil accepts
	// what the driver shows.
	SelfTest func(ctx context.Context, uuid string) error
	// Floors lists what the host does not meet; nil is nothing.
	Floors func() []string
	// BootID names this boot; Uptime is monotonic within it.
	BootID string
	Uptime func() time.Duration
	Clock  clock.Clock
	Log    *slog.Logger
	// Journal wraps the opened journal; nil uses it as it is.
	Journal func(Journal) Journal
}
