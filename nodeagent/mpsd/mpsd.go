// Package mpsd runs the MPS control daemons of a host: one private daemon, with
// one server, for each GPU in mps mode (or each MIG device that is shared
// through MPS). It owns the daemons' processes, their pipe and log folders, and
// the limits set in them.
//
// It does not decide who gets a share (carve), does not look at the GPU (gpudrv)
// and does not judge clients (guard). Percent is of the device's SMs, memory is
// in MiB; both hold for each client process, not for all of them together, and a
// client that hides the pipe folder escapes both.
//
// A process is named by its number and its start time, never by the number alone.
package mpsd

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

// Control starts, sets up and stops daemons. Every error is a *gpudrv.Error:
// Unsupported without the control program, Invalid for an argument that is not
// legal, NotFound when no daemon runs for the device, InUse with the clients as
// holders, Hung when a deadline passed, Broken for an answer nobody expected.
// Ensure, SetLimits and Stop of one device must not overlap; the agent queues
// them. The others may be called at any time.
type Control interface {
	// Ensure starts the daemon of a device, named by the UUID of a GPU or a MIG
	// device, unless it runs; a daemon left by an earlier agent is adopted.
	Ensure(ctx context.Context, uuid string) (Daemon, error)
	// SetLimits sets what every client gets: as the default of the next server and
	// in the running one, which is started if there is none. It returns what the
	// daemon says afterwards, and fails with Broken if that is not what was asked; a
	// daemon shows memory from 1 GiB on in whole GiB only.
	// Clients that are connected keep their old percentage.
	SetLimits(ctx context.Context, uuid string, want Limits) (Limits, error)
	// Limits reads the limits of the running server, or the defaults without one.
	Limits(ctx context.Context, uuid string) (Limits, error)
	// Clients lists who is connected, ascending by process number.
	Clients(ctx context.Context, uuid string) ([]Client, error)
	// Terminate cuts a client off, so that ending its process afterwards does not
	// take its neighbours along. It succeeds if the client is not connected.
	Terminate(ctx context.Context, uuid string, c Client) error
	// Stop ends server and daemon and removes their folders; it succeeds if none
	// runs. InUse while a client is connected.
	Stop(ctx context.Context, uuid string) error
	// List returns the daemons that run, ascending by device.
	List(ctx context.Context) ([]Daemon, error)
}

// Daemon is one running control daemon.
type Daemon struct {
	Device string // UUID of the GPU or MIG device
	// PipeDir is the folder that clients need as CUDA_MPS_PIPE_DIRECTORY; a
	// container gets it read-only.
	PipeDir string
	Process process.Identity
}

// Limits hold for each client process.
type Limits struct {
	Percent int       // of the device's SMs, 1 to 100
	Memory  units.MiB // device memory; 0 is no limit
}

// Client is one process that is connected to a daemon's server.
type Client struct {
	Server  int // process number of the server
	Process process.Identity
}
