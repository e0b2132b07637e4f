package workflows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	tlog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/group"
	"github.com/tranche-cloud/tranche/internal/outbox"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/workflows/activities"
)

const (
	// retention is how long finished histories are kept, for people who look.
	retention = 24 * time.Hour
	// reconnect is the pause between two tries to reach Temporal.
	reconnect = time.Second
	// stopWithin is how long running steps may take to end at shutdown.
	stopWithin = 5 * time.Second
	// localSteps bounds the transactions that run at once.
	localSteps = 8
	pollers    = 4
)

// Config is what a worker needs. Address and Namespace name the Temporal server.
type Config struct {
	Address   string
	Namespace string
	App       *app.App
	Log       *slog.Logger
}

// Worker runs the workflows, the relay and the loops on Postgres of one process.
type Worker struct {
	Config
	temporal client.Client
}

// NewWorker prepares a worker; it does not connect yet. It fails for an address
// that cannot be read.
func NewWorker(c Config) (*Worker, error) {
	t, err := client.NewLazyClient(client.Options{
		HostPort: c.Address, Namespace: c.Namespace,
		Logger: tlog.NewStructuredLogger(slog.New(quiet{c.Log.Handler()})),
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to Temporal at %s: %w", c.Address, err)
	}
	return &Worker{Config: c, temporal: t}, nil
}

// Run works until ctx ends. It outlasts both Temporal and Postgres being away:
// what waits there is delivered and done when they are back.
func (w *Worker) Run(ctx context.Context) error {
	defer w.temporal.Close()
	wake := make(chan struct{}, 1)
	relay := outbox.Relay{Queue: w.App, Deliver: w.deliver, Clock: w.App.Clock, Log: w.Log}
	listen := func(ctx context.Context) error {
		return w.App.Store.Listen(ctx, []string{store.ChannelOutbox}, func(string, string) {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
	}
	deliver := func(ctx context.Context) error { return relay.Run(ctx, wake) }
	loop := func(ctx context.Context) error {
		w.App.Store.Singleton(ctx, "worker loops", w.loops, func(err error) {
			w.Log.Warn("loops on Postgres stopped, starting again", "error", err)
		})
		return ctx.Err()
	}
	if err := group.Run(ctx, listen, deliver, w.serve, loop); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// deliver wakes the workflow of one resource, starting it if it does not run.
func (w *Worker) deliver(ctx context.Context, kind, key string) error {
	options := client.StartWorkflowOptions{
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowTaskTimeout:      taskTimeout,
	}
	var run any
	switch kind {
	case store.OutboxInstance:
		options.ID, options.TaskQueue, run = "inst/"+key, QueueInstance, Instance
	case store.OutboxHost:
		options.ID, options.TaskQueue, run = "host/"+key, QueueHost, Host
	case store.OutboxGPU:
		options.ID, options.TaskQueue, run = "gpu/"+key, QueueHost, GPU
	case store.OutboxInvoiceRun:
		options.ID, options.TaskQueue, run = "invoice-run/"+key, QueueBilling, InvoiceRun
	default:
		return fmt.Errorf("wake %s %q: no workflow of that kind", kind, key)
	}
	_, err := w.temporal.SignalWithStartWorkflow(ctx, options.ID, wakeSignal, nil, options, run, key)
	if err != nil {
		return fmt.Errorf("wake %s: %w", options.ID, err)
	}
	return nil
}

// serve polls the task queues, starting over after whatever ends the polling.
func (w *Worker) serve(ctx context.Context) error {
	reported := false
	for ctx.Err() == nil {
		err := w.serveOnce(ctx)
		if err != nil && ctx.Err() == nil && !reported {
			w.Log.Warn("Temporal is away, trying again", "address", w.Address, "error", err)
		}
		reported = err != nil
		select {
		case <-ctx.Done():
		case <-time.After(reconnect):
		}
	}
	return ctx.Err()
}

func (w *Worker) serveOnce(ctx context.Context) error {
	if err := w.ensureNamespace(ctx); err != nil {
		return err
	}
	broken := make(chan error, 2)
	options := worker.Options{
		WorkflowPanicPolicy:                     worker.BlockWorkflow,
		LocalActivityWorkerOnly:                 true,
		MaxConcurrentLocalActivityExecutionSize: localSteps,
		MaxConcurrentWorkflowTaskPollers:        pollers,
		WorkerStopTimeout:                       stopWithin,
		OnFatalError: func(err error) {
			select {
			case broken <- err:
			default:
			}
		},
	}
	for _, queue := range []string{QueueInstance, QueueHost, QueueBilling} {
		x := worker.New(w.temporal, queue, options)
		Register(x, &activities.Activities{Steps: w.App, Now: w.App.Clock.Now})
		if err := x.Start(); err != nil {
			return fmt.Errorf("poll the queue %s: %w", queue, err)
		}
		defer x.Stop()
	}
	w.Log.Info("worker serves", "namespace", w.Namespace)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-broken:
		return err
	}
}

// Register makes every workflow and step known under its stable name.
func Register(r worker.Registry, a *activities.Activities) {
	r.RegisterWorkflowWithOptions(Instance, workflow.RegisterOptions{Name: "Instance"})
	r.RegisterWorkflowWithOptions(Host, workflow.RegisterOptions{Name: "Host"})
	r.RegisterWorkflowWithOptions(GPU, workflow.RegisterOptions{Name: "GPU"})
	r.RegisterWorkflowWithOptions(InvoiceRun, workflow.RegisterOptions{Name: "InvoiceRun"})
	r.RegisterActivityWithOptions(a, activity.RegisterOptions{})
}

// ensureNamespace registers the namespace if the server does not have it.
func (w *Worker) ensureNamespace(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	service := w.temporal.WorkflowService()
	_, err := service.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: w.Namespace})
	if _, missing := errors.AsType[*serviceerror.NamespaceNotFound](err); !missing {
		return err
	}
	_, err = service.RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace: w.Namespace, Description: "Tranche",
		WorkflowExecutionRetentionPeriod: durationpb.New(retention),
	})
	if _, there := errors.AsType[*serviceerror.NamespaceAlreadyExists](err); there {
		return nil
	}
	return err
}
