// Command tranche-registry is an image registry for development: it serves a ready
// busybox and images made from folders and programs of this machine, from memory, on
// loopback alone. It has no login and forgets everything when it ends.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tranche-registry:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use: "tranche-registry", Short: "Image registry for development", SilenceUsage: true, SilenceErrors: true,
	}
	cmd.AddCommand(serveCommand())
	return cmd
}
