// Command tranche is the command line for tenants and operators: noun, verb. It
// speaks only to the public API, through the SDK. Standard output carries the
// document alone; progress and hints go to standard error; exit codes are listed in
// exit.go.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}, os.Getenv))
}

// streams are the three files of a process.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is what every command shares.
type app struct {
	streams
	getenv func(string) string
	output string
	apiURL string
}

func run(ctx context.Context, args []string, s streams, getenv func(string) string) int {
	a := &app{streams: s, getenv: getenv}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	return a.exit(ctx, root.ExecuteContext(ctx))
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "tranche",
		Short:         "Rent GPUs, whole or in slices",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return checkFormat(a.output)
		},
	}
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "table", "table or json")
	root.PersistentFlags().StringVar(&a.apiURL, "api-url", "", "address of the API (default: $TRANCHE_API_URL, then the login's)")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(a.login(), a.whoami(), a.offers(), a.instance(), a.op(), a.usage(), a.cost(), a.invoice(),
		a.wallet(), a.budget(), a.reservation(),
		a.contract(), a.payment(), a.registryLogin(), a.host(), a.gpu(), a.events(),
		a.invoiceRun(), a.creditNote(), a.prices(), a.issuer(), a.tax(), a.approval(), a.finance(),
		a.customer(), a.coupon())
	usageForUnknown(root)
	return root
}

// usageForUnknown makes an unknown verb a usage error everywhere, and argument
// errors too: cobra's own are plain errors.
func usageForUnknown(c *cobra.Command) {
	if c.HasSubCommands() {
		c.Args = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("%q is not a verb of %q; see `%s --help`", args[0], c.Name(), c.CommandPath())
			}
			return nil
		}
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	} else if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usagef("%v; usage: %s", err, c.UseLine())
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		usageForUnknown(sub)
	}
}
