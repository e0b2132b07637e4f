package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

const (
	// runBatch is how many organizations one step invoices at most.
	runBatch = 32
	// runAtOnce is how many of them at once: more than the database has cores only waits.
	runAtOnce = 4
	// runTries is how often an organization is tried before the run goes on without it.
	runTries = 4
	// runPause is the pause before an organization is tried again.
	runPause = time.Second
)

// AdvanceInvoiceRun invoices the next organizations of a run. One organization in
// trouble keeps no other from its invoice: it is tried a few times, then named by the
// run. Running it twice, or two at once, makes the same invoices once. It fails with
// resource.not_found for an unknown run, and with fault.Unavailable when trying again
// later may help.
func (a *App) AdvanceInvoiceRun(ctx context.Context, run id.Request) (Outcome, error) {
	if _, err := a.SealDue(ctx); err != nil {
		return Outcome{}, err
	}
	var period string
	var targets []store.RunTarget
	running := false
	err := a.Store.InSystem(ctx, "advance an invoice run", func(t *store.SystemTx) (err error) {
		if period, running, err = t.InvoiceRunPeriod(ctx, run); err != nil || !running {
			return err
		}
		if targets, err = t.PendingRunTargets(ctx, run, runBatch); err != nil {
			return err
		}
		if len(targets) == 0 {
			return t.FinishInvoiceRun(ctx, run)
		}
		return t.WakeInvoiceRunAt(ctx, run, a.Clock.Now().Add(store.WakeAgain))
	})
	if err != nil || !running || len(targets) == 0 {
		return Outcome{Done: true}, err
	}
	if tried := a.invoiceTargets(ctx, run, period, targets); tried {
		return Outcome{WaitUntil: a.Clock.Now().Add(runPause)}, ctx.Err()
	}
	return Outcome{Again: true}, ctx.Err()
}

// invoiceTargets works on several organizations at once and notes what became of
// each; it reports whether all of them have to be tried again.
func (a *App) invoiceTargets(ctx context.Context, run id.Request, period string, targets []store.RunTarget) bool {
	var wg sync.WaitGroup
	work := make(chan store.RunTarget)
	settled := make(chan bool, len(targets))
	for range min(runAtOnce, len(targets)) {
		wg.Go(func() {
			for target := range work {
				settled <- a.invoiceTarget(ctx, run, period, target)
			}
		})
	}
	for _, target := range targets {
		work <- target
	}
	close(work)
	wg.Wait()
	close(settled)
	for ok := range settled {
		if ok {
			return false
		}
	}
	return true
}

// invoiceTarget reports whether the organization needs no further look in this run.
func (a *App) invoiceTarget(ctx context.Context, run id.Request, period string, target store.RunTarget) bool {
	_, failed := a.InvoiceOrganization(ctx, target.Org, period)
	if ctx.Err() != nil {
		return false // the run goes on in another process
	}
	status, problem := "done", store.InvoiceRunProblem{}
	if failed != nil {
		f := fault.From(failed)
		status, problem = "pending", store.InvoiceRunProblem{Code: f.Code, Detail: f.Detail}
		if target.Attempts+1 >= runTries {
			status = "failed"
			a.Log.Error("an invoice could not be made", "org_id", target.Org.String(), "period", period, "error", failed)
		}
	}
	err := a.Store.InSystem(ctx, "note an invoice of a run", func(t *store.SystemTx) error {
		return t.SettleRunTarget(ctx, run, target.Org, status, problem)
	})
	if err != nil {
		a.Log.Warn("an invoice was made and not noted", "error", fmt.Errorf("settling %s: %w", target.Org, err))
		return false
	}
	return status != "pending"
}
