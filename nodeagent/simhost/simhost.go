// Package simhost assembles one simulated host for an agent: the simulated driver,
// every carving technique over it, and the fake runtime, in one data folder. It is
// the only place that pairs them; a host made here says that it is simulated.
//
// It does not run the agent and owns no state beside the folder's.
package simhost

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/carve/mig"
	"github.com/tranche-cloud/tranche/nodeagent/carve/mps"
	"github.com/tranche-cloud/tranche/nodeagent/carve/sriov"
	"github.com/tranche-cloud/tranche/nodeagent/carve/timeslice"
	"github.com/tranche-cloud/tranche/nodeagent/carve/vfio"
	"github.com/tranche-cloud/tranche/nodeagent/carve/whole"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/runtime/fake"
)

// Config names a host of a fleet and where it lives.
type Config struct {
	Dir     string // data folder, made if missing
	Host    sim.FleetHost
	Latency sim.Latency
	Faults  sim.Script // what shall happen, counted from Open
	// LeaveComputeMode keeps GPUs in mps mode open to clients that hide from the
	// daemon, as on machines whose compute mode is their operator's.
	LeaveComputeMode bool
	// MachineBoot names the boot of the machine that all this runs on: when either
	// it or the simulated boot changes, containers are gone.
	MachineBoot string
	Clock       clock.Clock
	Log         *slog.Logger
}

// Host is a simulated host with what tests steer it by.
type Host struct {
	nodeagent.Host
	Sim        *sim.Driver // nil from Over
	Containers *fake.Runtime
}

// Open opens the host; one process at a time may have a folder open. Close the
// driver at the end: Sim.Close.
func Open(ctx context.Context, cfg Config) (Host, error) {
	drv, err := sim.Open(sim.Config{
		Dir: filepath.Join(cfg.Dir, "sim"), Host: cfg.Host, Latency: cfg.Latency, Faults: cfg.Faults, Log: cfg.Log,
	})
	if err != nil {
		return Host{}, err
	}
	h, err := assemble(ctx, cfg, drv)
	if err != nil {
		return Host{}, errors.Join(err, drv.Close())
	}
	return h, nil
}

func assemble(ctx context.Context, cfg Config, drv *sim.Driver) (Host, error) {
	shares := mps.Config{Daemons: drv.MPS(), Probe: drv, LeaveComputeMode: cfg.LeaveComputeMode}
	set := carve.NewSet(drv, map[gpu.Kind]carve.Carver{
		gpu.Whole: whole.New(drv), gpu.MIG: mps.NewInside(mig.New(drv), drv.MPS()),
		gpu.MPS: mps.New(drv, shares), gpu.TimeSlice: timeslice.New(drv, ""),
		carve.SRIOV: sriov.New(drv), carve.VFIO: vfio.New(drv),
	})
	h, err := over(ctx, cfg, drv, set)
	h.Sim = drv
	return h, err
}

// Over is Open over simulated GPUs that another process drives; the caller closes the
// driver. MPS daemons and virtual machines are simulated in that other process and not
// reached: the techniques are whole, mig and timeslice.
func Over(ctx context.Context, cfg Config, drv gpudrv.Driver) (Host, error) {
	return over(ctx, cfg, drv, carve.NewSet(drv, map[gpu.Kind]carve.Carver{
		gpu.Whole: whole.New(drv), gpu.MIG: mig.New(drv), gpu.TimeSlice: timeslice.New(drv, ""),
	}))
}

func over(ctx context.Context, cfg Config, drv gpudrv.Driver, set *carve.Set) (Host, error) {
	facts, err := drv.Host(ctx)
	if err != nil {
		return Host{}, err
	}
	boot := cfg.MachineBoot + "/" + facts.BootID
	containers, err := fake.Open(fake.Config{
		Dir: filepath.Join(cfg.Dir, "containers"), BootID: boot, Uptime: nodeagent.Uptime, Clock: cfg.Clock,
		ReadBack: func(ctx context.Context, name string, s gpu.Slot) error { return readBack(ctx, set, name, s) },
	})
	if err != nil {
		return Host{}, err
	}
	modes := map[string]gpu.Mode{}
	for _, d := range cfg.Host.Devices() {
		modes[d.UUID] = d.Mode
	}
	return Host{
		Host: nodeagent.Host{
			Dir: cfg.Dir, Driver: drv, Carve: set, Runtime: containers, RuntimeName: "fake", Modes: modes,
			VCPU: cfg.Host.VCPU, RAM: cfg.Host.RAM, BootID: boot, Uptime: nodeagent.Uptime,
			Clock: cfg.Clock, Log: cfg.Log,
		},
		Containers: containers,
	}, nil
}

// readBack asks the driver whether a slot exists.
func readBack(ctx context.Context, set *carve.Set, name string, s gpu.Slot) error {
	plan, err := set.Plan(ctx, carve.Slice{ID: name, Slot: s})
	if err == nil && !plan.Present {
		return gpudrv.Refuse(gpudrv.NotFound, "read_back", s.GPU, "%s is not there", s)
	}
	return err
}
