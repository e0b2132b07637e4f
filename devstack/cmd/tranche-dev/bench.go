package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/devstack/internal/bench"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
)

func benchCommand() *cobra.Command {
	c := stack.Config{Durable: true, OneProcess: true}
	var file string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure accepting, create to running, and memory, with their peers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBench(cmd.Context(), cmd.OutOrStdout(), c, file)
		},
	}
	cmd.Flags().StringVar(&file, "out", "", "also write the results to this file, as JSON")
	cmd.Flags().StringVar(&c.Dir, "dir", ".bench", "folder of the stack; emptied first")
	cmd.Flags().StringVar(&c.BinDir, "bin-dir", binDir(), "folder of the binaries")
	return cmd
}

func runBench(ctx context.Context, out io.Writer, c stack.Config, file string) (err error) {
	fmt.Fprintln(out, "Everything runs on this machine and shares its processors. GPUs are simulated; Postgres syncs to disk.")
	c.Stage = func(what string, took time.Duration) { fmt.Fprintf(out, "%-60s %6.1f s\n", what, took.Seconds()) }
	s, stop, err := freshStack(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	records, err := bench.Run(ctx, s, out)
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := bench.Table(out, records); err != nil {
		return err
	}
	if file == "" {
		return nil
	}
	return bench.Write(file, records)
}
