// Package activities owns the steps that workflows call: each is one use case of
// internal/app, given and answering ids and numbers only. They run twice when a
// workflow task is lost, so each use case compares before it sets.
package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
)

// Result is what a step leaves to its workflow. WaitMS is how long to wait for a
// wake-up, in milliseconds of machine time; Again asks for another step at once;
// neither means that nothing is due.
type Result struct {
	Again  bool  `json:",omitempty"`
	WaitMS int64 `json:",omitempty"`
}

// Steps are the use cases that workflows drive.
type Steps interface {
	Advance(ctx context.Context, inst id.Instance) (app.Outcome, error)
	AdvanceHost(ctx context.Context, h id.Host) (app.Outcome, error)
	AdvanceGPU(ctx context.Context, g id.GPU) (app.Outcome, error)
	AdvanceInvoiceRun(ctx context.Context, run id.Request) (app.Outcome, error)
}

// Activities are the steps as Temporal calls them.
type Activities struct {
	Steps Steps
	Now   func() time.Time // machine clock
}

// AdvanceInstance takes an instance as far as it goes without waiting.
func (a *Activities) AdvanceInstance(ctx context.Context, key string) (Result, error) {
	inst, err := id.Parse[id.Instance](key)
	if err != nil {
		return Result{}, giveUp(err)
	}
	out, err := a.Steps.Advance(ctx, inst)
	return a.result(out), retryable(err)
}

// AdvanceHost takes a host as far as it goes without waiting.
func (a *Activities) AdvanceHost(ctx context.Context, key string) (Result, error) {
	h, err := id.Parse[id.Host](key)
	if err != nil {
		return Result{}, giveUp(err)
	}
	out, err := a.Steps.AdvanceHost(ctx, h)
	return a.result(out), retryable(err)
}

// AdvanceGPU takes a GPU's change of mode as far as it goes without waiting.
func (a *Activities) AdvanceGPU(ctx context.Context, key string) (Result, error) {
	g, err := id.Parse[id.GPU](key)
	if err != nil {
		return Result{}, giveUp(err)
	}
	out, err := a.Steps.AdvanceGPU(ctx, g)
	return a.result(out), retryable(err)
}

// AdvanceInvoiceRun invoices the next organizations of a run.
func (a *Activities) AdvanceInvoiceRun(ctx context.Context, key string) (Result, error) {
	run, err := id.Parse[id.Request](key)
	if err != nil {
		return Result{}, giveUp(err)
	}
	out, err := a.Steps.AdvanceInvoiceRun(ctx, run)
	return a.result(out), retryable(err)
}

func (a *Activities) result(o app.Outcome) Result {
	if o.Again || o.Done {
		return Result{Again: o.Again}
	}
	return Result{WaitMS: max(o.WaitUntil.Sub(a.Now()).Milliseconds(), 1)}
}

// GaveUp is the type of a failure that no retry cures.
const GaveUp = "gave_up"

// retry is the one table fault kind → whether trying the same step again may help.
var retry = map[fault.Kind]bool{
	fault.Invalid: false, fault.Unauthenticated: false, fault.Forbidden: false, fault.NotFound: false,
	fault.Conflict: true, fault.PreconditionFailed: true, fault.PreconditionRequired: false,
	fault.TooLarge: false, fault.Unprocessable: false, fault.RateLimited: true, fault.OverQuota: false,
	fault.OverBudget: false, fault.NoCapacity: true, fault.Unavailable: true, fault.Internal: true,
}

// Retries reports whether trying a failed step again may help.
func Retries(k fault.Kind) bool { return retry[k] }

// retryable turns a fault into what Temporal's retry policy understands. Details
// stay in our own log: a history must hold no more than the code.
func retryable(err error) error {
	if err == nil {
		return nil
	}
	f := fault.From(err)
	if retry[f.Kind] {
		return temporal.NewApplicationError(f.Code, string(f.Kind))
	}
	return giveUp(errors.New(f.Code))
}

func giveUp(err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), GaveUp, nil)
}
