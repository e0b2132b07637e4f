package main

import (
	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/agent/runtime/containerd"
	"github.com/tranche-cloud/tranche/agent/runtime/runc"
)

// shimCommandName is how the agent starts itself beside each container of the runc
// runtime; nobody else does.
const shimCommandName = "container-shim"

// logCommand keeps the log of one container of the containerd runtime.
func logCommand() *cobra.Command {
	return &cobra.Command{
		Use:                containerd.LogCommand,
		Short:              "Keep the log of one container",
		Hidden:             true,
		DisableFlagParsing: true,
		PersistentPreRunE:  func(*cobra.Command, []string) error { return nil },
		RunE:               func(_ *cobra.Command, args []string) error { return containerd.Log(args) },
	}
}

func shimCommand() *cobra.Command {
	return &cobra.Command{
		Use:                shimCommandName,
		Short:              "Hold one container of the runc runtime",
		Hidden:             true,
		DisableFlagParsing: true,
		// It must not care for the agent's environment.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE:              func(cmd *cobra.Command, args []string) error { return runc.Shim(cmd.Context(), args) },
	}
}
