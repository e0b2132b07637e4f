// Command tranche-dev runs Tranche on one machine for development, tests and
// benchmarks: the embedded stack, the demo story, trace replay, and what looks
// after a running stack. It never touches an installation it did not make.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "tranche-dev",
		Short:         "Tranche on one machine, for development and tests",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(devCommand(), demoCommand(), replayCommand(), traceCommand(), benchCommand(), benchCommand(),
		clockCommand(), doctorCommand(), hardwareCommand(), temporalCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tranche-dev:", err)
		os.Exit(1)
	}
}

// binDir is the default folder of the other binaries: where this one lies.
func binDir() string {
	self, err := os.Executable()
	if err != nil {
		return "bin"
	}
	return filepath.Dir(self)
}
