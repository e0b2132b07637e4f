package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/agent/node"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/simhost"
)

func purgeCommand() *cobra.Command {
	var f runFlags
	var sure bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "End every container of this host and remove its traces, before the agent is uninstalled",
		Long: "End every container of this host and remove its traces, before the agent is uninstalled.\n\n" +
			"Tenants lose what runs here. The agent must not run; give the same flags as to run.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !sure {
				return errors.New("purge ends tenants' instances: say --yes if that is meant")
			}
			if f.driver.dataDir == "" {
				return errors.New("purge needs --data-dir, the folder of the agent's state")
			}
			return f.purge(cmd.Context())
		},
	}
	f.driver.register(cmd.Flags())
	f.node.register(cmd.Flags())
	cmd.Flags().BoolVar(&sure, "yes", false, "end what runs here")
	return cmd
}

func (f *runFlags) purge(ctx context.Context) (err error) {
	n, err := f.open(ctx, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	list, err := n.Host.Runtime.List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list {
		fmt.Fprintln(os.Stderr, "ending", c.Name)
		errs = append(errs, n.Host.Runtime.Stop(ctx, c.Name))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return n.Uninstall(ctx)
}

// open assembles the one host that the flags name, without an SSH gateway.
func (f *runFlags) open(ctx context.Context, log *slog.Logger) (*node.Node, error) {
	f.node.sshListen = ""
	if f.driver.driver == "nvml" {
		return f.machine(ctx, log)
	}
	boot, err := nodeagent.BootID()
	if err != nil {
		return nil, err
	}
	h, err := f.driver.fleetHost()
	if err != nil {
		return nil, err
	}
	o, err := f.node.options(f.driver.dataDir)
	if err != nil {
		return nil, err
	}
	return node.Simulated(ctx, simhost.Config{
		Dir: f.driver.dataDir, Host: h, MachineBoot: boot, Clock: clock.Real(), Log: log,
	}, o)
}
