// Command tranched is the control plane: its roles api, worker and gateway, the
// three in one process as all, and the commands of the machine's operator.
//
// Every flag has an environment variable: --database-url is TRANCHE_DATABASE_URL.
// A flag on the command line wins. Logs are JSON lines on standard error.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the doctor found something,
// 4 the database refuses this binary (schema version, login role, clock).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/internal/fault"
)

const (
	exitFailed = 1
	exitUsage  = 2
	exitFound  = 3
	exitRefuse = 4
)

// gcPercent lets the heap grow to four times what lives before it is collected: a
// role's live heap is tens of MiB and its garbage much, and collecting at the
// runtime's default takes a fifth of its processor time. GOGC overrides it.
const gcPercent = 300

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	os.Exit(report(err))
}

// exitError carries the exit code of a failure that is not a plain one.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// report prints a failure with what to do about it, and returns the exit code.
func report(err error) int {
	if err == nil || errors.Is(err, context.Canceled) {
		return 0
	}
	if !errors.Is(err, errFound) {
		fmt.Fprintln(os.Stderr, "tranched:", err)
	}
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Suggestion != "" {
		fmt.Fprintln(os.Stderr, "tranched:", f.Suggestion)
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return exitFailed
}

// onlyCommands makes a word that is none of the command's own a wrong usage.
func onlyCommands(cmd *cobra.Command) {
	cmd.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return &exitError{exitUsage, fmt.Errorf("%q is no command of %s; see `%s --help`", args[0], c.CommandPath(), c.CommandPath())}
	}
	cmd.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "tranched",
		Short:         "Control plane of Tranche",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return bindEnv(cmd, os.Environ())
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	onlyCommands(cmd)
	cmd.AddCommand(
		roleCommand("api", "Serve the HTTP API", apiRole),
		roleCommand("worker", "Run workflows and the loops on Postgres", workerRole),
		roleCommand("gateway", "Serve the streams of agents", gatewayRole),
		roleCommand("all", "Run api, worker and gateway in one process", apiRole, workerRole, gatewayRole),
		migrateCommand(), doctorCommand(), adminCommand(),
	)
	return cmd
}

// bindEnv gives every flag of the command that was not set the value of its
// environment variable, if there is one. Variables of no flag are another's.
func bindEnv(cmd *cobra.Command, environ []string) error {
	flags := cmd.Flags()
	for _, entry := range environ {
		variable, text, _ := strings.Cut(entry, "=")
		name, ours := strings.CutPrefix(variable, "TRANCHE_")
		if !ours {
			continue
		}
		name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		if f := flags.Lookup(name); f == nil || f.Changed {
			continue
		}
		if err := flags.Set(name, text); err != nil {
			return &exitError{exitUsage, fmt.Errorf("environment variable %s: %w", variable, err)}
		}
	}
	return nil
}
