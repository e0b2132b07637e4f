// Command tranche-agent is the node agent of a GPU host.
//
// Every flag has an environment variable: --data-dir is TRANCHE_DATA_DIR. A flag
// on the command line wins.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tranche-agent:", err)
		os.Exit(1)
	}
}

// root is the command with its subcommands, one a file.
func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "tranche-agent",
		Short:         "Node agent of a GPU host",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return bindEnv(cmd.Flags(), os.LookupEnv)
		},
	}
	cmd.AddCommand(runCommand(), inspectCommand(), recordCommand(), preflightCommand(), shimCommand(), logCommand(), purgeCommand(),
		linkCommand(), helperCommand(), workerCommand(), sshgwCommand())
	return cmd
}

// bindEnv gives every flag that was not set the value of its environment
// variable, if there is one.
func bindEnv(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var first error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "TRANCHE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		text, ok := lookup(name)
		if f.Changed || !ok || first != nil {
			return
		}
		if err := flags.Set(f.Name, text); err != nil {
			first = fmt.Errorf("environment variable %s: %w", name, err)
		}
	})
	return first
}
