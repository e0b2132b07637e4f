package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
)

// failurePoll is how often the foreground looks whether a child was given up.
const failurePoll = time.Second

func devCommand() *cobra.Command {
	c := stack.Config{Durable: true}
	gpus, shift := 2, 0
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run the embedded stack in the foreground",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Ports = stack.DevPorts.Shift(shift)
			if c.Containers {
				if err := stack.CanContain(); err != nil {
					return err
				}
			}
			return runDev(cmd.Context(), cmd.OutOrStdout(), c, market.Small(gpus))
		},
	}
	cmd.Flags().StringVar(&c.Dir, "dir", ".dev", "folder of the stack; kept for the next start")
	cmd.Flags().StringVar(&c.BinDir, "bin-dir", binDir(), "folder of the binaries")
	cmd.Flags().IntVar(&shift, "port-shift", 0, "add this to every port, for a second stack")
	cmd.Flags().BoolVar(&c.Containers, "containers", false, "run instances in real containers (root, containerd), to enter by SSH")
	cmd.Flags().IntVar(&gpus, "gpus", gpus, "simulated GPUs a mode")
	return cmd
}

func runDev(ctx context.Context, out io.Writer, c stack.Config, fleet market.Fleet) (err error) {
	c.Stage = func(what string, took time.Duration) { fmt.Fprintf(out, "%-16s %6.1f s\n", what, took.Seconds()) }
	s, err := stack.Start(ctx, c)
	if err != nil {
		return err
	}
	defer func() {
		fmt.Fprintln(out, "stopping")
		err = errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}()
	began := time.Now()
	if err := s.Enrol(ctx, fleet); err != nil {
		return err
	}
	credentials, err := s.Furnish(ctx)
	if err != nil {
		return err
	}
	c.Stage("hosts, offers", time.Since(began))
	kind := "no container is started"
	if c.Containers {
		kind = "containers are real, without a network"
	}
	fmt.Fprintf(out, `
Tranche is up. GPUs are simulated and %s; organizations share hosts.
  API          %s
  credentials  %s
  operator     %s
  an image     %s
`, kind, s.URL(), filepath.Join(c.Dir, "credentials.json"), s.AdminToken(), s.Image())
	for _, org := range credentials.Orgs {
		fmt.Fprintf(out, "  %s  project %s  key %s\n", org.ID, org.Project, org.Key)
	}
	fmt.Fprintf(out, "  try          TRANCHE_API_URL=%s TRANCHE_API_KEY=%s %s offers ls\n", s.URL(), credentials.Orgs[0].Key, filepath.Join(c.BinDir, "tranche"))
	return watch(ctx, s)
}

// watch blocks until the user has enough or a child cannot be kept up.
func watch(ctx context.Context, s *stack.Stack) error {
	tick := time.NewTicker(failurePoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.Failed(); err != nil {
				return err
			}
		}
	}
}
