package sim

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

// The calls of the MPS double that faults may hit.
const (
	OpMPSEnsure    = "mps_ensure"
	OpMPSSetLimits = "mps_set_limits"
	OpMPSTerminate = "mps_terminate"
	OpMPSStop      = "mps_stop"
	OpMPSProbe     = "mps_probe"
)

// daemon is a simulated MPS control daemon with its server.
type daemon struct {
	Device  string    `json:"device"` // UUID of the GPU or MIG device
	PID     int       `json:"pid"`
	Server  int       `json:"server,omitempty"` // 0 until limits are set
	Percent int       `json:"percent"`
	Memory  units.MiB `json:"memory_mib,omitempty"`
	// FaultAt is when a client's fault ended the server's clients; it takes nobody
	// new for a while, or until it is started again if Stuck.
	FaultAt time.Time `json:"fault_at,omitzero"`
	Stuck   bool      `json:"stuck,omitempty"`
}

const (
	// Both processes go by this name, as the kernel shortens it.
	serverName  = "nvidia-cuda-mps"
	daemonName  = serverName
	serverBytes = 66 * mib
	// recovery is how long a server takes nobody new after a fault.
	recovery = time.Second
	// started stands for the start time of simulated processes.
	started = 1
	// firstPID is above what a kernel gives out by default.
	firstPID = 5_000_000
)

func identity(pid int) process.Identity { return process.Identity{PID: pid, Started: started} }

// daemonOn returns the position of the device's daemon, or -1.
func (c card) daemonOn(device string) int {
	return slices.IndexFunc(c.Daemons, func(d daemon) bool { return d.Device == device })
}

// has says whether the card is the device or holds it as a MIG device.
func (c card) has(device string) bool {
	if c.UUID == device {
		return true
	}
	return slices.ContainsFunc(c.Instances, func(in instance) bool {
		return in.HasCompute && migUUID(c.UUID, in.ID, 0) == device
	})
}

// onDevice says whether a client's slice is the device.
func (c card) onDevice(cl client, device string) bool {
	if cl.GPUInstance < 0 {
		return c.UUID == device
	}
	return migUUID(c.UUID, cl.GPUInstance, 0) == device
}

// connected says whether a client runs through the device's daemon.
func (c card) connected(cl client, device string) bool {
	return cl.Limit > 0 && !cl.Cut && c.onDevice(cl, device)
}

// control is the double of MPS daemons. asClient is a client that talks to the
// daemon from a container: it may look and not touch.
type control struct {
	drv      *Driver
	asClient bool
}

var _ mpsd.Control = control{}

// MPS is the double of the host's MPS daemons, version 2: limits are per server
// and hold for each client process that connects after they were set. Daemons
// outlive the agent and end with a reboot.
func (d *Driver) MPS() mpsd.Control { return control{drv: d} }

// MPSAsClient is what a tenant reaches through the pipe folder: lists are
// answered, everything else is refused as Unsupported.
func (d *Driver) MPSAsClient() mpsd.Control { return control{drv: d, asClient: true} }

// owner finds the GPU that is or holds a device.
func (d *Driver) owner(op, device string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.st.GPUs {
		if c.has(device) {
			return c.UUID, nil
		}
	}
	return "", gpudrv.Refuse(gpudrv.NotFound, op, device, "no gpu or MIG device with this uuid")
}

// change runs a change of the card that holds the device.
func (m control) change(ctx context.Context, op, device string, f func(*card) error) error {
	if m.asClient {
		return gpudrv.Refuse(gpudrv.Unsupported, op, device, "clients may not do that")
	}
	uuid, err := m.drv.owner(op, device)
	if err != nil {
		return err
	}
	return m.drv.change(ctx, op, uuid, 0, f)
}

// pipeDir is where the daemon's sockets would be.
func (d *Driver) pipeDir(device string) string {
	return filepath.Join(cmp.Or(d.disk.dir, os.TempDir()), "mps", device)
}

func (d *Driver) describe(dm daemon) mpsd.Daemon {
	return mpsd.Daemon{Device: dm.Device, PipeDir: d.pipeDir(dm.Device), Process: identity(dm.PID)}
}

// Ensure implements mpsd.Control.
func (m control) Ensure(ctx context.Context, device string) (mpsd.Daemon, error) {
	var out daemon
	err := m.change(ctx, OpMPSEnsure, device, func(c *card) error {
		if i := c.daemonOn(device); i >= 0 {
			out = c.Daemons[i]
			return nil
		}
		c.PIDs++
		out = daemon{Device: device, PID: c.pid(), Percent: 100}
		c.Daemons = append(c.Daemons, out)
		return m.drv.makePipe(device)
	})
	return m.drv.describe(out), err
}

// makePipe makes the folder that containers get, if there is a data folder.
func (d *Driver) makePipe(device string) error {
	if d.disk.dir == "" {
		return nil
	}
	if err := os.MkdirAll(d.pipeDir(device), 0o755); err != nil {
		return gpudrv.Refuse(gpudrv.Broken, OpMPSEnsure, device, "make pipe folder").Because(err)
	}
	return nil
}

// pid is a process number that no other simulated process of the host has.
func (c card) pid() int {
	const perCard = 1000
	slot, err := strconv.ParseInt(c.PCI[len("00000000:"):len("00000000:10")], 16, 32)
	if err != nil {
		slot = 0
	}
	return firstPID + int(slot)*perCard + c.PIDs%perCard
}

// SetLimits implements mpsd.Control.
func (m control) SetLimits(ctx context.Context, device string, want mpsd.Limits) (mpsd.Limits, error) {
	var out mpsd.Limits
	err := m.change(ctx, OpMPSSetLimits, device, func(c *card) error {
		i := c.daemonOn(device)
		if i < 0 {
			return noDaemon(OpMPSSetLimits, device)
		}
		if want.Percent < 1 || want.Percent > 100 || want.Memory < 0 {
			return gpudrv.Refuse(gpudrv.Invalid, OpMPSSetLimits, device, "limits of %d percent and %s", want.Percent, want.Memory)
		}
		dm := &c.Daemons[i]
		if dm.Server == 0 {
			c.PIDs++
			dm.Server = c.pid()
		}
		dm.Percent, dm.Memory = want.Percent, want.Memory
		out = want
		return nil
	})
	return out, err
}

func noDaemon(op, device string) error {
	return gpudrv.Refuse(gpudrv.NotFound, op, device, "no MPS daemon runs")
}

// look finds the daemon of a device for reading.
func (m control) look(ctx context.Context, device string, f func(card, daemon)) error {
	uuid, err := m.drv.owner(OpRead, device)
	if err != nil {
		return err
	}
	found := false
	err = m.drv.read(ctx, OpRead, uuid, func(c card) {
		if i := c.daemonOn(device); i >= 0 {
			found = true
			f(c, c.Daemons[i])
		}
	})
	if err == nil && !found {
		return noDaemon(OpRead, device)
	}
	return err
}

// Limits implements mpsd.Control.
func (m control) Limits(ctx context.Context, device string) (out mpsd.Limits, err error) {
	err = m.look(ctx, device, func(_ card, dm daemon) {
		out = mpsd.Limits{Percent: dm.Percent, Memory: dm.Memory}
	})
	return out, err
}

// Clients implements mpsd.Control.
func (m control) Clients(ctx context.Context, device string) ([]mpsd.Client, error) {
	out := []mpsd.Client{}
	err := m.look(ctx, device, func(c card, dm daemon) {
		for _, cl := range c.Clients {
			if c.connected(cl, device) {
				out = append(out, mpsd.Client{Server: dm.Server, Process: identity(cl.PID)})
			}
		}
	})
	slices.SortFunc(out, func(a, b mpsd.Client) int { return a.Process.PID - b.Process.PID })
	return out, err
}

// Terminate implements mpsd.Control.
func (m control) Terminate(ctx context.Context, device string, want mpsd.Client) error {
	return m.change(ctx, OpMPSTerminate, device, func(c *card) error {
		if c.daemonOn(device) < 0 {
			return noDaemon(OpMPSTerminate, device)
		}
		for i := range c.Clients {
			if cl := &c.Clients[i]; cl.PID == want.Process.PID && c.connected(*cl, device) {
				cl.Cut, cl.Duty, cl.UsedBytes = true, -1, 0
			}
		}
		return nil
	})
}

// Stop implements mpsd.Control.
func (m control) Stop(ctx context.Context, device string) error {
	err := m.change(ctx, OpMPSStop, device, func(c *card) error {
		i := c.daemonOn(device)
		if i < 0 {
			return nil
		}
		busy, who := c.holders(func(cl client) bool { return c.connected(cl, device) })
		if busy {
			return gpudrv.Refuse(gpudrv.InUse, OpMPSStop, device, "clients are connected").HeldBy(who...)
		}
		c.Daemons = slices.Delete(c.Daemons, i, i+1)
		return nil
	})
	if gpudrv.KindOf(err) == gpudrv.NotFound {
		return nil // the device is gone, its daemon with it
	}
	if err == nil && m.drv.disk.dir != "" {
		if err := os.RemoveAll(m.drv.pipeDir(device)); err != nil {
			return gpudrv.Refuse(gpudrv.Broken, OpMPSStop, device, "remove pipe folder").Because(err)
		}
	}
	return err
}

// List implements mpsd.Control.
func (m control) List(ctx context.Context) ([]mpsd.Daemon, error) {
	if err := m.drv.wait(ctx, OpRead, "", m.drv.latency.Read); err != nil {
		return nil, err
	}
	m.drv.mu.Lock()
	defer m.drv.mu.Unlock()
	out := []mpsd.Daemon{}
	for _, c := range m.drv.st.GPUs {
		for _, dm := range c.Daemons {
			out = append(out, m.drv.describe(dm))
		}
	}
	slices.SortFunc(out, func(a, b mpsd.Daemon) int { return cmp.Compare(a.Device, b.Device) })
	return out, nil
}

// Probe runs a fresh client through the device's daemon and ends it, as a small
// CUDA program would: it fails while the server takes nobody.
func (d *Driver) Probe(ctx context.Context, device string) error {
	return control{drv: d}.change(ctx, OpMPSProbe, device, func(c *card) error {
		i := c.daemonOn(device)
		if i < 0 {
			return noDaemon(OpMPSProbe, device)
		}
		return c.Daemons[i].takes(d.now())
	})
}

// takes says whether the server takes a new client.
func (dm daemon) takes(at time.Time) error {
	if dm.Stuck || at.Sub(dm.FaultAt) < recovery {
		return gpudrv.Refuse(gpudrv.Broken, "mps_connect", dm.Device, "the server takes no client after a fault")
	}
	return nil
}
