package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tranche-cloud/tranche/agent/injection"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/carve/mig"
	"github.com/tranche-cloud/tranche/nodeagent/carve/mps"
	"github.com/tranche-cloud/tranche/nodeagent/carve/timeslice"
	"github.com/tranche-cloud/tranche/nodeagent/carve/whole"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/kept"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/nvml"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
	"github.com/tranche-cloud/tranche/nodeagent/scrub"
	"github.com/tranche-cloud/tranche/nodeagent/simhost"
	"github.com/tranche-cloud/tranche/nodeagent/spool"
)

// Simulated opens a host of a fleet file, with simulated GPUs and whatever container
// runtime the options name.
func Simulated(ctx context.Context, cfg simhost.Config, o Options) (_ *Node, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	host, err := simhost.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	n := &Node{Host: host.Host, close: []func() error{host.Sim.Close}}
	defer n.undo(&err)
	return n, n.furnish(ctx, o, surroundings{
		gpus: host.Sim, kind: injection.Simulated, mps: host.Sim.MPS(), bootID: host.BootID, clock: cfg.Clock, log: cfg.Log,
	})
}

// Real are the settings of a host with NVIDIA GPUs.
type Real struct {
	Driver nvml.Config
	// Open opens the driver, for example in a process of its own; nil opens it in this
	// one.
	Open func(context.Context) (gpudrv.Driver, error)
	// MPSControl is the absolute path of the MPS control program; "" tries the usual
	// places.
	MPSControl string
	// Probe is a small CUDA program and its arguments, which shows after a fault that
	// fresh clients work; none trusts the daemon.
	Probe []string
	// Scrub says how slices are cleaned, ScrubPrograms where the programs for it are.
	Scrub         scrub.Policy
	ScrubPrograms string
	// Modes are the sharing modes of the GPUs by UUID; a GPU that is not named keeps
	// the one it is in.
	Modes map[string]gpu.Mode
	Clock clock.Clock
	Log   *slog.Logger
}

// NVIDIA opens this machine's own GPUs.
func NVIDIA(ctx context.Context, r Real, o Options) (_ *Node, err error) {
	n := &Node{}
	defer n.undo(&err)
	if err := machine(&n.Host, r.Clock, r.Log); err != nil {
		return nil, err
	}
	n.Dir, n.Modes = o.Dir, r.Modes
	if r.Open == nil {
		r.Open = func(context.Context) (gpudrv.Driver, error) { return nvml.Open(r.Driver) }
	}
	inner, err := r.Open(ctx)
	if err != nil {
		return nil, err
	}
	n.close = append(n.close, inner.Close)
	drv, err := kept.Open(ctx, inner, filepath.Join(o.Dir, "shares.json"))
	if err != nil {
		return nil, err
	}
	daemons, err := mpsd.Open(mpsd.Config{Root: filepath.Join(o.runDir(), "mps"), Binary: r.MPSControl, Clock: r.Clock})
	if gpudrv.KindOf(err) == gpudrv.Unsupported {
		daemons, err = nil, nil // a host without MPS is a host; its mps mode is refused
	}
	if err != nil {
		return nil, err
	}
	n.Driver, n.noResets = drv, r.Driver.LeaveSettings
	if n.Host.Carve, err = techniques(drv, daemons, r); err != nil {
		return nil, err
	}
	if n.Host.Scrub, err = scrub.New(scrub.Config{
		Driver: drv, Policy: r.Scrub, Programs: r.ScrubPrograms, Device: deviceOf(drv),
	}); err != nil {
		return nil, err
	}
	if !r.Driver.LeaveSettings {
		n.computeMode = gpudrv.ComputeExclusiveProcess
	}
	return n, n.furnish(ctx, o, surroundings{
		gpus: drv, kind: injection.NVIDIA, mps: daemons, bootID: n.BootID, clock: r.Clock, log: r.Log,
	})
}

// deviceOf names the device that a program must be given to see a slot's memory.
func deviceOf(drv gpudrv.Reader) func(context.Context, gpu.Slot) (string, error) {
	return func(ctx context.Context, s gpu.Slot) (string, error) {
		if s.Mode.Kind != gpu.MIG {
			return s.GPU, nil
		}
		list, err := drv.GPUInstances(ctx, s.GPU)
		if err != nil {
			return "", err
		}
		for _, gi := range list {
			if gi.Placement.Start == s.Start && len(gi.Compute) > 0 {
				return gi.Compute[0].UUID, nil
			}
		}
		return "", gpudrv.Refuse(gpudrv.NotFound, "scrub", s.GPU, "no MIG device at %s", s)
	}
}

// techniques are those that real hardware has.
func techniques(drv gpudrv.Driver, daemons mpsd.Control, r Real) (nodeagent.Carver, error) {
	by := map[gpu.Kind]carve.Carver{
		gpu.Whole: whole.New(drv), gpu.MIG: mig.New(drv), gpu.TimeSlice: timeslice.New(drv, ""),
	}
	if daemons != nil {
		by[gpu.MIG] = mps.NewInside(mig.New(drv), daemons)
		cfg := mps.Config{Daemons: daemons, LeaveComputeMode: r.Driver.LeaveSettings}
		if len(r.Probe) > 0 {
			probe, err := mps.NewProgram(daemons, r.Probe[0], r.Probe[1:]...)
			if err != nil {
				return nil, err
			}
			cfg.Probe = probe
		}
		by[gpu.MPS] = mps.New(drv, cfg)
	}
	return carve.NewSet(drv, by), nil
}

func (o Options) runDir() string {
	if o.RunDir != "" {
		return o.RunDir
	}
	return filepath.Join(o.Dir, "run")
}

func (o Options) openSpool(s surroundings) (*spool.Spool, error) {
	if err := os.MkdirAll(o.Dir, 0o711); err != nil {
		return nil, err
	}
	return spool.Open(spool.Config{
		Path: filepath.Join(o.Dir, "spool.log"), BootID: s.bootID, Uptime: nodeagent.Uptime, Now: s.clock.Now,
	})
}

// closed forgives a second close.
func closed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// memory is the machine's, as the kernel counts it.
func memory() (units.MiB, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 63)
			return units.FromBytes(kib << 10), err
		}
	}
	return 0, errors.New("/proc/meminfo has no MemTotal")
}
