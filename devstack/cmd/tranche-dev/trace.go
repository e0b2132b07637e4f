package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/devstack/internal/trace"
)

func traceCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "trace", Short: "Traces for replay"}
	var seed uint64
	var tasks int
	var dir string
	gen := &cobra.Command{
		Use:   "gen",
		Short: "Write a made-up trace; the same seed gives the same trace",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("make the folder of the trace: %w", err)
			}
			f, err := os.Create(filepath.Join(dir, trace.DefaultFile))
			if err != nil {
				return fmt.Errorf("create the trace: %w", err)
			}
			if err := trace.Write(f, trace.Generate(seed, tasks)); err != nil {
				f.Close()
				return err
			}
			return f.Close()
		},
	}
	gen.Flags().Uint64Var(&seed, "seed", 1, "seed")
	gen.Flags().IntVar(&tasks, "tasks", 100, "number of tasks")
	gen.Flags().StringVar(&dir, "dir", "trace", "folder to write to")
	cmd.AddCommand(gen)
	return cmd
}
