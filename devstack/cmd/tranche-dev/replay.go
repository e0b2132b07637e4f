package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/replay"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
	"github.com/tranche-cloud/tranche/devstack/internal/trace"
)

const replayOrganizations = 8

// replayTail is how long what still runs is left running after the last arrival.
const replayTail = time.Minute

func replayCommand() *cobra.Command {
	var c stack.Config
	var dir string
	limit, speed := 300, 120
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Play the densest part of a trace as real API calls on a stack of its own",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || speed < 1 || speed > 100_000 {
				return errors.New("--limit must be at least 1 and --speed 1 to 100000")
			}
			tasks, err := trace.Load(dir)
			if err != nil {
				return err
			}
			arrivals, skipped := trace.Plan(trace.Densest(tasks, limit), replayOrganizations)
			if len(arrivals) == 0 {
				return errors.New("the trace has no tasks of one GPU")
			}
			return runReplay(cmd.Context(), cmd.OutOrStdout(), c, replay.Play{
				Arrivals: arrivals, Organizations: replayOrganizations, Speed: speed, Tail: replayTail,
			}, skipped)
		},
	}
	cmd.Flags().StringVar(&dir, "trace", "", "folder of the trace, in openb format")
	cmd.Flags().IntVar(&limit, "limit", limit, "number of consecutive GPU arrivals")
	cmd.Flags().IntVar(&speed, "speed", speed, "seconds of the trace a real second")
	cmd.Flags().StringVar(&c.Dir, "dir", ".replay", "folder of the stack; emptied first")
	cmd.Flags().StringVar(&c.BinDir, "bin-dir", binDir(), "folder of the binaries")
	_ = cmd.MarkFlagRequired("trace") // the flag is there
	return cmd
}

func runReplay(ctx context.Context, out io.Writer, c stack.Config, p replay.Play, skipped int) (err error) {
	c.Stage = func(what string, took time.Duration) { fmt.Fprintf(out, "%-16s %6.1f s\n", what, took.Seconds()) }
	s, stop, err := freshStack(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	began := time.Now()
	fleet := market.Replay()
	if err := s.Enrol(ctx, fleet); err != nil {
		return err
	}
	c.Stage(fmt.Sprintf("%d hosts", len(fleet)), time.Since(began))
	buyers, err := replay.Prepare(ctx, s, p.Organizations)
	if err != nil {
		return err
	}
	last := p.Arrivals[len(p.Arrivals)-1].At
	fmt.Fprintf(out, "\nplaying %d arrivals of %.1f h at %d×: %.0f s. GPUs are simulated; organizations share hosts.\n\n",
		len(p.Arrivals), last.Hours(), p.Speed, (last/time.Duration(p.Speed) + p.Tail).Seconds())
	result, err := replay.Run(ctx, s, buyers, p)
	if result == nil {
		return err
	}
	if err := errors.Join(err, result.Report(out, skipped, replay.Slots())); err != nil {
		return err
	}
	invoices, err := result.Invoices(ctx, s)
	if err != nil {
		return err
	}
	if err := result.ReportInvoices(out, invoices); err != nil {
		return err
	}
	report, err := s.Doctor(ctx)
	fmt.Fprintf(out, "\ndoctor\n%s", report)
	return err
}

// freshStack starts a stack in an emptied folder on ports that nobody uses.
func freshStack(ctx context.Context, c stack.Config) (s *stack.Stack, stop func() error, err error) {
	if err := stack.Remove(c.Dir); err != nil {
		return nil, nil, err
	}
	ports, release, err := stack.FreePorts()
	if err != nil {
		return nil, nil, err
	}
	c.Ports = ports
	if s, err = stack.Start(ctx, c); err != nil {
		release()
		return nil, nil, err
	}
	return s, func() error {
		defer release()
		return s.Stop(context.WithoutCancel(ctx))
	}, nil
}
