package bench

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tranche-cloud/tranche/devstack/internal/postgres"
	"github.com/tranche-cloud/tranche/devstack/internal/process"
)

const (
	pgbenchDatabase = "pgbench"
	pgbenchScale    = 10
	pgbenchSeconds  = 8

	bareTogether = 400
	bareQueue    = "bench"
)

var tps = regexp.MustCompile(`tps = ([0-9.]+)`)

// pgbench is the yardstick for accepting: simple updates by as many clients.
func (r *run) pgbench(ctx context.Context) error {
	if err := r.stack.Postgres.EnsureDatabase(ctx, pgbenchDatabase, postgres.Superuser); err != nil {
		return err
	}
	call := func(args ...string) (string, error) {
		out, err := process.Run(ctx, process.Spec{
			Name: "pgbench", Path: r.stack.Postgres.Binary("pgbench"),
			Args: append(args, "-h", "127.0.0.1", "-p", strconv.Itoa(r.stack.Ports.Postgres), "-U", postgres.Superuser, pgbenchDatabase),
			Env:  []string{"PGPASSWORD=" + r.stack.Postgres.Password()},
		})
		return string(out), err
	}
	if _, err := call("-i", "-q", "-s", strconv.Itoa(pgbenchScale)); err != nil {
		return err
	}
	out, err := call("-N", "-c", strconv.Itoa(clients), "-j", "2", "-T", strconv.Itoa(pgbenchSeconds))
	if err != nil {
		return err
	}
	found := tps.FindStringSubmatch(out)
	if found == nil {
		return errors.New("pgbench told no rate: " + out)
	}
	rate, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		return fmt.Errorf("read pgbench's rate: %w", err)
	}
	r.add(Record{ID: "B4-peer", Case: fmt.Sprintf("pgbench -N/%d clients", clients), Metric: "rate", Unit: "1/s", Value: rate,
		N: int(rate * pgbenchSeconds)})
	return nil
}

// bareWorkflow has the shape of an instance's first run, and does nothing: three
// local activities, a signal, two local activities.
func bareWorkflow(ctx workflow.Context) error {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{ScheduleToCloseTimeout: 5 * time.Second})
	nothing := func(context.Context) error { return nil }
	for range 3 {
		if err := workflow.ExecuteLocalActivity(ctx, nothing).Get(ctx, nil); err != nil {
			return err
		}
	}
	workflow.GetSignalChannel(ctx, "observed").Receive(ctx, nil)
	for range 2 {
		if err := workflow.ExecuteLocalActivity(ctx, nothing).Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// bareWorkflows is the yardstick for create → running: what Temporal alone takes.
func (r *run) bareWorkflows(ctx context.Context) error {
	c, err := sdk.DialContext(ctx, sdk.Options{HostPort: r.stack.TemporalAddress(), Namespace: r.stack.TemporalNamespace(), Logger: silent()})
	if err != nil {
		return fmt.Errorf("connect to Temporal: %w", err)
	}
	defer c.Close()
	w := worker.New(c, bareQueue, worker.Options{})
	w.RegisterWorkflowWithOptions(bareWorkflow, workflow.RegisterOptions{Name: "bare"})
	if err := w.Start(); err != nil {
		return fmt.Errorf("start the bare worker: %w", err)
	}
	defer w.Stop()

	one := func(n int) (time.Duration, error) {
		began := time.Now()
		id := fmt.Sprintf("bare-%d-%d", began.UnixNano(), n)
		run, err := c.ExecuteWorkflow(ctx, sdk.StartWorkflowOptions{ID: id, TaskQueue: bareQueue}, "bare")
		if err != nil {
			return 0, err
		}
		if err := c.SignalWorkflow(ctx, id, "", "observed", nil); err != nil {
			return 0, err
		}
		err = run.Get(ctx, nil)
		return time.Since(began), err
	}
	var single sample
	for n := range alone {
		took, err := one(n)
		if err != nil {
			return err
		}
		single = append(single, took)
	}
	began := time.Now()
	took, err := spread(bareTogether, one)
	if err != nil {
		return err
	}
	rate := bareTogether / time.Since(began).Seconds()
	r.add(
		Record{ID: "B5-peer", Case: "bare workflow/1 client", Metric: "p50", Unit: "ms", Value: single.percentile(50), SD: single.deviation(), N: len(single)},
		Record{ID: "B5-peer", Case: fmt.Sprintf("bare workflow/%d clients", clients), Metric: "rate", Unit: "1/s", Value: rate, N: len(took)},
	)
	return nil
}

// silent drops the SDK's log.
func silent() log.Logger { return log.NewStructuredLogger(discard) }
