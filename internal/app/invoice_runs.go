package app

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// CreateInvoiceRun begins to invoice a month for every organization that it owes a
// document; AdvanceInvoiceRun does the work. It is idempotent: while a run of the month
// is at work it answers that one, and with nothing left to do the last one. Operators
// only. It fails
// with state.conflict within the grace, and with request.invalid.
func (a *App) CreateInvoiceRun(ctx context.Context, c Caller, period string) (run store.InvoiceRun, err error) {
	if err := operatorOnly(c); err != nil {
		return store.InvoiceRun{}, err
	}
	window, err := metering.ParsePeriod(period)
	if err != nil {
		return store.InvoiceRun{}, err
	}
	err = a.Store.InSystem(ctx, "begin an invoice run", func(t *store.SystemTx) error {
		if err := a.ready(ctx, t, window); err != nil {
			return err
		}
		if err := t.SerializeInvoicing(ctx, id.Org{}); err != nil { // one begins a run at a time
			return err
		}
		due, err := t.AnyOrganizationDue(ctx, period)
		if err != nil {
			return err
		}
		if !due {
			run, err = t.LatestInvoiceRun(ctx, period)
			if fault.KindOf(err) != fault.NotFound {
				return err
			}
		}
		_, fresh, err := t.BeginInvoiceRun(ctx, id.New[id.Request](), period, c.actor())
		if err != nil {
			return err
		}
		if fresh {
			if err := t.Audit(ctx, c.audit(id.Org{}, "invoice_run.create", period)); err != nil {
				return err
			}
		}
		run, err = t.LatestInvoiceRun(ctx, period)
		return err
	})
	return run, err
}

// GetInvoiceRun reads the newest run of a month. It fails with resource.not_found.
func (a *App) GetInvoiceRun(ctx context.Context, _ Caller, period string) (run store.InvoiceRun, err error) {
	err = a.Store.InSystem(ctx, "read an invoice run", func(t *store.SystemTx) error {
		run, err = t.LatestInvoiceRun(ctx, period)
		return err
	})
	return run, err
}
