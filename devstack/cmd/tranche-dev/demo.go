package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/devstack/internal/stack"
	"github.com/tranche-cloud/tranche/devstack/internal/story"
)

// demoShift keeps the demo's ports away from those of a development stack.
const demoShift = 1000

func demoCommand() *cobra.Command {
	c := stack.Config{Ports: stack.DevPorts.Shift(demoShift)}
	var list string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play the whole story on a fresh stack, from enrolment to invoice",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch list {
			case "list":
				return story.List(cmd.OutOrStdout())
			case "":
				return runDemo(cmd.Context(), cmd.OutOrStdout(), c)
			}
			return fmt.Errorf("--steps %s: only list is known", list)
		},
	}
	cmd.Flags().StringVar(&c.Dir, "dir", ".demo", "folder of the stack; emptied first")
	cmd.Flags().StringVar(&c.BinDir, "bin-dir", binDir(), "folder of the binaries")
	cmd.Flags().StringVar(&list, "steps", "", "list prints the story without playing it")
	return cmd
}

func runDemo(ctx context.Context, out io.Writer, c stack.Config) (err error) {
	began := time.Now()
	fmt.Fprintln(out, "Tranche demo. Every GPU is simulated; Postgres, Temporal, the control plane and the")
	fmt.Fprintln(out, "agents are real processes on this machine.")
	containers := "Instances are real containers, without a network."
	if why := stack.CanContain(); why != nil {
		containers = "No container is started: " + why.Error() + "."
	} else {
		c.Containers = true
	}
	fmt.Fprintln(out, containers)
	fmt.Fprintln(out)
	c.Stage = func(what string, took time.Duration) { fmt.Fprintf(out, "    %-14s %.2f s\n", what, took.Seconds()) }
	if err := stack.Remove(c.Dir); err != nil {
		return err
	}
	s, err := stack.Start(ctx, c)
	if err != nil {
		return err
	}
	err = story.Tell(ctx, s, out)
	if err := errors.Join(err, s.Stop(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nGPUs were simulated. %s Whole demo: %.1f s\nDEMO OK\n", containers, time.Since(began).Seconds())
	return nil
}
