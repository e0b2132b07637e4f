package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/nvml"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/replay"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

// driverFlags pick and set up the GPU driver of a command.
type driverFlags struct {
	driver    string
	fleet     string
	faults    string
	latency   string
	host      string
	dataDir   string
	recording string
	library   string
	smi       string
	leave     bool
}

func (f *driverFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.driver, "driver", "nvml", "GPU driver: nvml, sim or replay")
	flags.StringVar(&f.fleet, "fleet", "", "sim: fleet file")
	flags.StringVar(&f.faults, "faults", "", "sim: fault file, what shall happen to the simulated hosts")
	flags.StringVar(&f.latency, "latency", "demo", "sim: how long calls take: none, demo or driver")
	flags.StringVar(&f.host, "host", "", "sim: host of the fleet file (default: its only one)")
	flags.StringVar(&f.dataDir, "data-dir", "", "folder of the agent's state (sim: default is a new one each time)")
	flags.StringVar(&f.recording, "recording", "", "replay: file written by record")
	flags.StringVar(&f.library, "nvml-library", "", "nvml: path of libnvidia-ml.so.1 (default: the dynamic linker's)")
	flags.BoolVar(&f.leave, "leave-settings", false,
		"nvml: change no MIG switch, compute mode or length of turns, and reset no GPU")
	flags.StringVar(&f.smi, "nvidia-smi", "", "nvml: absolute path of nvidia-smi (default: the usual places)")
}

// open returns the driver and what to do at the end.
func (f *driverFlags) open() (gpudrv.Driver, func() error, error) {
	switch f.driver {
	case "nvml":
		if f.smi != "" && !filepath.IsAbs(f.smi) {
			return nil, nil, fmt.Errorf("--nvidia-smi must be an absolute path, not %q", f.smi)
		}
		return closing(nvml.Open(nvml.Config{Library: f.library, SMI: f.smi, LeaveSettings: f.leave}))
	case "replay":
		if f.recording == "" {
			return nil, nil, errors.New("--driver=replay needs --recording")
		}
		d, err := replay.Open(f.recording)
		return closing(d, err)
	case "sim":
		return f.openSim()
	default:
		return nil, nil, fmt.Errorf("--driver must be nvml, sim or replay, not %q", f.driver)
	}
}

func closing(d gpudrv.Driver, err error) (gpudrv.Driver, func() error, error) {
	if err != nil {
		return nil, nil, err
	}
	return d, d.Close, nil
}

// fleetHost is the host that the flags name.
func (f *driverFlags) fleetHost() (sim.FleetHost, error) {
	if f.fleet == "" {
		return sim.FleetHost{}, errors.New("--driver=sim needs --fleet")
	}
	fleet, err := sim.LoadFleet(f.fleet)
	if err != nil {
		return sim.FleetHost{}, err
	}
	if f.host == "" && len(fleet.Hosts) == 1 {
		return fleet.Hosts[0], nil
	}
	h, ok := fleet.Host(f.host)
	if !ok {
		return sim.FleetHost{}, fmt.Errorf("fleet file %s has %d hosts, none is %q: say --host", f.fleet, len(fleet.Hosts), f.host)
	}
	return h, nil
}

// simulated is what the flags say about every simulated host.
func (f *driverFlags) simulated() (faults sim.Script, latency sim.Latency, err error) {
	switch f.latency {
	case "none":
	case "demo":
		latency = sim.DefaultLatency()
	case "driver":
		latency = sim.DriverLatency()
	default:
		return faults, latency, fmt.Errorf("--latency must be none, demo or driver, not %q", f.latency)
	}
	if f.faults == "" {
		return faults, latency, nil
	}
	if faults, err = sim.LoadScript(f.faults); err != nil {
		return faults, latency, err
	}
	fleet, err := sim.LoadFleet(f.fleet)
	if err != nil {
		return faults, latency, err
	}
	if err := faults.Check(fleet); err != nil {
		return faults, latency, fmt.Errorf("fault file %s: %w", f.faults, err)
	}
	return faults, latency, nil
}

func (f *driverFlags) openSim() (gpudrv.Driver, func() error, error) {
	h, err := f.fleetHost()
	if err != nil {
		return nil, nil, err
	}
	faults, latency, err := f.simulated()
	if err != nil {
		return nil, nil, err
	}
	if f.dataDir != "" {
		return closing(sim.Open(sim.Config{Dir: simDir(f.dataDir), Host: h, Latency: latency, Faults: faults}))
	}
	dir, err := os.MkdirTemp("", "tranche-sim-")
	if err != nil {
		return nil, nil, fmt.Errorf("make folder of simulated gpus: %w", err)
	}
	d, err := sim.Open(sim.Config{Dir: dir, Host: h})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return d, func() error { return errors.Join(d.Close(), os.RemoveAll(dir)) }, nil
}

// simDir is where the simulated GPUs of an agent live.
func simDir(dataDir string) string { return filepath.Join(dataDir, "sim") }
