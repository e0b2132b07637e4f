package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/devstack/internal/hardware"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
)

// hardwareShift keeps its ports away from those of the other stacks.
const hardwareShift = 2000

func hardwareCommand() *cobra.Command {
	c := hardware.Config{Stack: stack.Config{Ports: stack.DevPorts.Shift(hardwareShift), OneProcess: true}}
	var agent string
	cmd := &cobra.Command{
		Use:   "hardware",
		Short: "Run a whole installation on this GPU machine and measure it",
		Long: "Run a whole installation on this GPU machine and measure it: shares, limits, hostile programs,\n" +
			"metering, residue, crashes, and that nothing is left. scripts/hardware/run calls it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.AgentArgs = strings.Fields(agent)
			if err := stack.Remove(c.Stack.Dir); err != nil {
				return err
			}
			return hardware.Run(cmd.Context(), c, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Stack.Dir, "dir", ".hardware", "folder of the stack; emptied first")
	f.StringVar(&c.Stack.BinDir, "bin-dir", binDir(), "folder of the binaries")
	f.StringVar(&c.Programs, "programs", "cuda/bin", "folder of the CUDA programs")
	f.StringVar(&c.Report, "report", "hardware.jsonl", "file for the figures")
	f.StringVar(&agent, "agent", "--driver=nvml --runtime=runc --leave-settings", "arguments of the agent, separated by spaces")
	return cmd
}
