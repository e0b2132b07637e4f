package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/agent/node"
	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/group"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/nvml"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/scrub"
	"github.com/tranche-cloud/tranche/nodeagent/simhost"
)

// version is the agent's, set by the linker in releases.
var version = "0.1.0-dev"

// runFlags are the flags of run.
type runFlags struct {
	driver    driverFlags
	node      nodeFlags
	hosts     string
	name      string
	gateway   string
	tokenFile string
	bootID    string
	gpuWorker bool
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Link this host to the control plane and do what it orders",
		Long: "Link this host to the control plane and do what it orders.\n\n" +
			"With --driver=sim the host is one of the fleet file's and its GPUs are simulated; say\n" +
			"--runtime=fake to start no containers, or containerd or runc to run real ones. --hosts=all\n" +
			"runs every host of the fleet file in one process, each with a data folder, an identity and a\n" +
			"stream of its own. With --driver=nvml the host is this machine and tenants' programs run on it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	f.driver.register(cmd.Flags())
	f.node.register(cmd.Flags())
	cmd.Flags().StringVar(&f.hosts, "hosts", "", "sim: \"all\" for every host of the fleet file")
	cmd.Flags().StringVar(&f.name, "name", "", "nvml: name of this host (default: the machine's)")
	cmd.Flags().StringVar(&f.gateway, "gateway", "https://127.0.0.1:8443", "address of the gateway")
	cmd.Flags().StringVar(&f.tokenFile, "join-token-file", "", "file with the join token; read while the host is not enrolled")
	cmd.Flags().BoolVar(&f.gpuWorker, "gpu-worker", false,
		"nvml: use the driver in a process of its own, which is given up when a GPU hangs")
	cmd.Flags().StringVar(&f.bootID, "boot-id", "", "sim: name of this boot (default: the kernel's)")
	return cmd
}

func (f *runFlags) run(ctx context.Context) error {
	if f.driver.dataDir == "" {
		return errors.New("run needs --data-dir, the folder of the agent's state")
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	switch f.driver.driver {
	case "sim":
		return f.runFleet(ctx, log)
	case "nvml":
		return f.runMachine(ctx, log)
	}
	return fmt.Errorf("run needs --driver=nvml or sim, not %q", f.driver.driver)
}

// runMachine keeps this machine and its own GPUs.
func (f *runFlags) runMachine(ctx context.Context, log *slog.Logger) error {
	name := f.name
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return fmt.Errorf("name of this host: %w", err)
		}
	}
	n, err := f.machine(ctx, log)
	if err != nil {
		return err
	}
	return f.keep(ctx, name, n, log)
}

// machine assembles this machine as a host.
func (f *runFlags) machine(ctx context.Context, log *slog.Logger) (*node.Node, error) {
	o, err := f.node.options(f.driver.dataDir)
	if err != nil {
		return nil, err
	}
	r, err := f.real(log)
	if err != nil {
		return nil, err
	}
	if f.gpuWorker {
		r.Open = func(ctx context.Context) (gpudrv.Driver, error) { return f.superviseGPUs(ctx, 0, log) }
	}
	return node.NVIDIA(ctx, r, o)
}

// real is what the flags say about this machine's GPUs.
func (f *runFlags) real(log *slog.Logger) (node.Real, error) {
	modes, err := f.node.gpuModes()
	if err != nil {
		return node.Real{}, err
	}
	policy, err := scrub.ParsePolicy(f.node.scrub)
	if err != nil {
		return node.Real{}, err
	}
	return node.Real{
		Scrub: policy, ScrubPrograms: f.node.programs,
		Driver: nvml.Config{
			Library: f.driver.library, SMI: f.driver.smi, MPSControl: f.node.mpsControl, LeaveSettings: f.driver.leave,
		},
		MPSControl: f.node.mpsControl, Probe: f.node.probe, Modes: modes, Clock: clock.Real(), Log: log,
	}, nil
}

// runFleet keeps the hosts of a fleet file.
func (f *runFlags) runFleet(ctx context.Context, log *slog.Logger) error {
	if f.bootID == "" {
		boot, err := nodeagent.BootID()
		if err != nil {
			return err
		}
		f.bootID = boot
	}
	hosts, err := f.chosen()
	if err != nil {
		return err
	}
	var jobs []group.Job
	for dir, h := range hosts {
		jobs = append(jobs, func(ctx context.Context) error {
			if err := f.serve(ctx, dir, h, log.With("host", h.Name)); err != nil {
				return fmt.Errorf("host %s: %w", h.Name, err)
			}
			return nil
		})
	}
	return group.Run(ctx, jobs...)
}

// chosen returns the hosts to run by their data folder.
func (f *runFlags) chosen() (map[string]sim.FleetHost, error) {
	switch f.hosts {
	case "":
		h, err := f.driver.fleetHost()
		return map[string]sim.FleetHost{f.driver.dataDir: h}, err
	case "all":
		if f.node.runtime != node.Fake {
			return nil, errors.New("--hosts=all needs --runtime=fake: real containers of several hosts on one machine would share one runtime")
		}
		fleet, err := sim.LoadFleet(f.driver.fleet)
		if err != nil {
			return nil, err
		}
		out := map[string]sim.FleetHost{}
		for _, h := range fleet.Hosts {
			out[filepath.Join(f.driver.dataDir, h.Name)] = h
		}
		return out, nil
	}
	return nil, fmt.Errorf("--hosts must be all, not %q; --host names one", f.hosts)
}

// serve runs the agent of one simulated host until ctx ends.
func (f *runFlags) serve(ctx context.Context, dir string, h sim.FleetHost, log *slog.Logger) error {
	o, err := f.node.options(dir)
	if err != nil {
		return err
	}
	faults, latency, err := f.driver.simulated()
	if err != nil {
		return err
	}
	n, err := openWhenFree(ctx, simhost.Config{
		Dir: dir, Host: h, Latency: latency, Faults: faults, MachineBoot: f.bootID, Clock: clock.Real(), Log: log,
	}, o)
	if err != nil {
		return err
	}
	return f.keep(ctx, h.Name, n, log)
}

// keep runs the agent over an assembled host, and its loops, until ctx ends or one of
// them cannot go on.
func (f *runFlags) keep(ctx context.Context, name string, n *node.Node, log *slog.Logger) (err error) {
	defer func() { err = errors.Join(err, n.Close()) }()
	var agent *nodeagent.Agent
	n.Host.Secrets = func(ctx context.Context, r agentlink.SecretsRequest) (agentlink.Secrets, error) {
		return agent.Secrets(ctx, r)
	}
	keeper, err := nodeagent.NewKeeper(ctx, n.Host)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keeper.Close()) }()
	agent, err = nodeagent.New(nodeagent.Config{
		Name: name, Dir: n.Host.Dir, Gateway: f.gateway, MachineID: nodeagent.MachineID(), Version: version,
		Token: f.token, Spool: n.Spool, Clock: n.Host.Clock, Log: log,
	}, keeper)
	if err != nil {
		return err
	}
	loops, err := n.Loops(ctx, keeper, agent.Linked)
	if ctx.Err() != nil {
		return nil // told to end before it began
	}
	if err != nil {
		return err
	}
	return group.Run(ctx, append(loops, agent.Run)...)
}

// Bounds of the wait for a predecessor that was killed and has not ended yet.
const (
	freeWithin = 10 * time.Second
	freeEvery  = 50 * time.Millisecond
)

// openWhenFree opens a simulated host, waiting while another process has its folder.
func openWhenFree(ctx context.Context, cfg simhost.Config, o node.Options) (*node.Node, error) {
	within, cancel := context.WithTimeout(ctx, freeWithin)
	defer cancel()
	for {
		n, err := node.Simulated(ctx, cfg, o)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return n, err
		}
		timer := cfg.Clock.NewTimer(freeEvery)
		select {
		case <-within.Done():
			timer.Stop()
			return nil, err
		case <-timer.C():
		}
	}
}

func (f *runFlags) token() (string, error) {
	if f.tokenFile == "" {
		return "", errors.New("this host is not enrolled: run needs --join-token-file")
	}
	text, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return "", fmt.Errorf("read join token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
