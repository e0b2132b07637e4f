package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tranche-cloud/tranche/agent/boundary"
	"github.com/tranche-cloud/tranche/agent/node"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/group"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/remote"
	"github.com/tranche-cloud/tranche/nodeagent/simhost"
)

// splitFlags say where the parts of a split agent meet.
type splitFlags struct {
	socket      string
	linkUser    string
	sshDir      string
	sshUser     string
	sshPort     int
	gpuPatience time.Duration
}

func (f *splitFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.socket, "socket", "/run/tranche/helper.sock", "socket for the link")
	flags.StringVar(&f.linkUser, "link-user", "tranche-link", "user that may connect, by name or number; root always may")
	flags.StringVar(&f.sshDir, "ssh-dir", "", "folder that is shared with the SSH gateway; empty is no gateway")
	flags.StringVar(&f.sshUser, "ssh-user", "tranche-sshgw", "user of the SSH gateway, by name or number")
	flags.IntVar(&f.sshPort, "ssh-port", 2222, "port on which tenants reach the SSH gateway")
	flags.DurationVar(&f.gpuPatience, "gpu-patience", 10*time.Second, "after how long without an answer a GPU is taken for hung")
}

func helperCommand() *cobra.Command {
	var f runFlags
	var s splitFlags
	cmd := &cobra.Command{
		Use:   "helper",
		Short: "Do as root what the link asks for: carve, run containers, open SSH",
		Long: "Do as root what the link asks for: carve GPUs, run containers, open SSH.\n\n" +
			"It talks to nobody but the link, on a socket; it starts the gpu-worker, which alone uses the\n" +
			"GPU driver. With --driver=sim the GPUs are simulated; techniques are whole, mig and timeslice.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.help(cmd.Context(), s) },
	}
	f.driver.register(cmd.Flags())
	f.node.register(cmd.Flags())
	s.register(cmd.Flags())
	cmd.Flags().StringVar(&f.bootID, "boot-id", "", "sim: name of this boot (default: the kernel's)")
	return cmd
}

// help serves the link until the context ends.
func (f *runFlags) help(ctx context.Context, s splitFlags) (err error) {
	if f.driver.dataDir == "" {
		return errors.New("helper needs --data-dir, the folder of containers, images and network")
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	link, err := userOf("link-user", s.linkUser)
	if err != nil {
		return err
	}
	n, err := f.apart(ctx, s, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := os.MkdirAll(filepath.Dir(s.socket), 0o755); err != nil { //nolint:gosec // the link passes through
		return fmt.Errorf("make the socket's folder: %w", err)
	}
	l, err := boundary.Listen(s.socket, link.gid)
	if err != nil {
		return err
	}
	cfg := n.Helper()
	cfg.Users = []uint32{uint32(link.uid)} //nolint:gosec // a user's number
	server := boundary.New(cfg)
	background := func(ctx context.Context) error { n.Background(ctx); return nil }
	serve := func(ctx context.Context) error { return server.Serve(ctx, l) }
	return group.Run(ctx, background, serve)
}

// apart assembles the host over a gpu-worker.
func (f *runFlags) apart(ctx context.Context, s splitFlags, log *slog.Logger) (*node.Node, error) {
	o, err := f.node.options(f.driver.dataDir)
	if err != nil {
		return nil, err
	}
	if s.sshDir != "" {
		gateway, err := userOf("ssh-user", s.sshUser)
		if err != nil {
			return nil, err
		}
		o.Gateway = &node.Gateway{
			State: filepath.Join(s.sshDir, "state"), HostKey: filepath.Join(s.sshDir, "gateway", publicKeyFile), Port: s.sshPort,
			UID: gateway.uid, GID: gateway.gid,
		}
	}
	open := func(ctx context.Context) (gpudrv.Driver, error) { return f.superviseGPUs(ctx, s.gpuPatience, log) }
	switch f.driver.driver {
	case "nvml":
		r, err := f.real(log)
		if err != nil {
			return nil, err
		}
		r.Open = open
		return node.NVIDIA(ctx, r, o)
	case "sim":
		h, err := f.driver.fleetHost()
		if err != nil {
			return nil, err
		}
		if f.bootID == "" {
			if f.bootID, err = nodeagent.BootID(); err != nil {
				return nil, err
			}
		}
		gpus, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return node.SimulatedOver(ctx, simhost.Config{
			Dir: f.driver.dataDir, Host: h, MachineBoot: f.bootID, Clock: clock.Real(), Log: log,
		}, gpus, o)
	}
	return nil, fmt.Errorf("helper needs --driver=nvml or sim, not %q", f.driver.driver)
}

// writeFactor is how much longer a change may take than a read.
const writeFactor = 6

// superviseGPUs starts the gpu-worker with the driver of the flags.
func (f *runFlags) superviseGPUs(ctx context.Context, patience time.Duration, log *slog.Logger) (*remote.Supervisor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	d := f.driver
	return remote.Supervise(ctx, remote.Config{
		Start: remote.Command(self, workerCommandName, "--driver="+d.driver, "--fleet="+d.fleet, "--faults="+d.faults,
			"--latency="+d.latency, "--host="+d.host, "--data-dir="+d.dataDir, "--nvml-library="+d.library,
			"--nvidia-smi="+d.smi, "--leave-settings="+strconv.FormatBool(d.leave), "--mps-control="+f.node.mpsControl),
		ReadWithin: patience, WriteWithin: writeFactor * patience,
		Hung: func(uuid string, all []string) {
			log.Error("gpu hangs", "gpu", uuid, "all", all, "cordon", len(all) > 1)
		},
		Clock: clock.Real(), Log: log,
	})
}

// account is a user of the system.
type account struct{ uid, gid int }

// userOf finds a user by name or number; a bare number is its own group, too.
func userOf(flag, name string) (account, error) {
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return account{int(n), int(n)}, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, fmt.Errorf("--%s: no user %q: packaging/install makes it: %w", flag, name, err)
	}
	uid, errUID := strconv.Atoi(u.Uid)
	gid, errGID := strconv.Atoi(u.Gid)
	return account{uid, gid}, errors.Join(errUID, errGID)
}
