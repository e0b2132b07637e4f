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
	"golang.org/x/sync/errgroup"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/simhost"
)

// version is the agent's, set by the linker in releases.
var version = "0.1.0-dev"

// runFlags are the flags of run.
type runFlags struct {
	driver    driverFlags
	hosts     string
	gateway   string
	tokenFile string
	bootID    string
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Link this host to the control plane and do what it orders",
		Long: "Link this host to the control plane and do what it orders.\n\n" +
			"With --driver=sim the host is one of the fleet file's, its GPUs are simulated and no\n" +
			"container is started. --hosts=all runs every host of the fleet file in one process, each\n" +
			"with a data folder, an identity and a stream of its own.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	f.driver.register(cmd.Flags())
	cmd.Flags().StringVar(&f.hosts, "hosts", "", "sim: \"all\" for every host of the fleet file")
	cmd.Flags().StringVar(&f.gateway, "gateway", "https://127.0.0.1:8443", "address of the gateway")
	cmd.Flags().StringVar(&f.tokenFile, "join-token-file", "", "file with the join token; read while the host is not enrolled")
	cmd.Flags().StringVar(&f.bootID, "boot-id", "", "name of this boot (default: the kernel's)")
	return cmd
}

func (f *runFlags) run(ctx context.Context) error {
	if f.driver.driver != "sim" {
		return fmt.Errorf("run needs --driver=sim: there is no container runtime for %s in this release", f.driver.driver)
	}
	if f.driver.dataDir == "" {
		return errors.New("run needs --data-dir")
	}
	if f.bootID == "" {
		boot, err := nodeagent.BootID()
		if err != nil {
			return err
		}
		f.bootID = boot
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	hosts, err := f.chosen()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for dir, h := range hosts {
		group.Go(func() error {
			if err := f.serve(ctx, dir, h, log.With("host", h.Name)); err != nil {
				return fmt.Errorf("host %s: %w", h.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// chosen returns the hosts to run by their data folder.
func (f *runFlags) chosen() (map[string]sim.FleetHost, error) {
	switch f.hosts {
	case "":
		h, err := f.driver.fleetHost()
		return map[string]sim.FleetHost{f.driver.dataDir: h}, err
	case "all":
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
func (f *runFlags) serve(ctx context.Context, dir string, h sim.FleetHost, log *slog.Logger) (err error) {
	host, err := openWhenFree(ctx, simhost.Config{
		Dir: dir, Host: h, Latency: sim.DefaultLatency(), MachineBoot: f.bootID, Clock: clock.Real(), Log: log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Sim.Close()) }()
	keeper, err := nodeagent.NewKeeper(ctx, host.Host)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keeper.Close()) }()
	agent, err := nodeagent.New(nodeagent.Config{
		Name: h.Name, Dir: dir, Gateway: f.gateway, MachineID: nodeagent.MachineID(), Version: version,
		Token: f.token, Clock: host.Clock, Log: log,
	}, keeper)
	if err != nil {
		return err
	}
	return agent.Run(ctx)
}

// Bounds of the wait for a predecessor that was killed and has not ended yet.
const (
	freeWithin = 10 * time.Second
	freeEvery  = 50 * time.Millisecond
)

// openWhenFree opens a simulated host, waiting while another process has its folder.
func openWhenFree(ctx context.Context, cfg simhost.Config) (simhost.Host, error) {
	ctx, cancel := context.WithTimeout(ctx, freeWithin)
	defer cancel()
	for {
		h, err := simhost.Open(ctx, cfg)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return h, err
		}
		timer := cfg.Clock.NewTimer(freeEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return simhost.Host{}, err
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
