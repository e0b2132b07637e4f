package main

import (
	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/devstack/internal/stack"
)

func doctorCommand() *cobra.Command {
	var c stack.Config
	var output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Audit the running development stack",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := stack.Attach(cmd.Context(), c)
			if err != nil {
				return err
			}
			report, err := s.Doctor(cmd.Context(), "-o", output)
			if _, werr := cmd.OutOrStdout().Write(report); err == nil {
				err = werr
			}
			return err
		},
	}
	cmd.Flags().StringVar(&c.Dir, "dir", ".dev", "folder of the stack")
	cmd.Flags().StringVar(&c.BinDir, "bin-dir", binDir(), "folder of the binaries")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}
