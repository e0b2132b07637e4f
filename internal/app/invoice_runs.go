package app

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// numberPrefix is the series of invoices: TR-2026-000001.
const numberPrefix = "TR"

// finalizeAttempts bounds how often a draft is made again because usage or another
// run came in between.
const finalizeAttempts = 3

// CreateInvoiceRun finalizes the invoices of a month for every organization with
// usage, each in transactions of its own. It is idempotent: organizations that have
// their invoice keep it, and a run with nothing left to do answers the last one. It
// fails with state.conflict within the grace, and with request.invalid.
func (a *App) CreateInvoiceRun(ctx context.Context, c Caller, period string) (store.InvoiceRun, error) {
	ctx = store.Apart(ctx)
	window, err := metering.ParsePeriod(period)
	if err != nil {
		return store.InvoiceRun{}, err
	}
	if _, err := a.SealDue(ctx); err != nil {
		return store.InvoiceRun{}, err
	}
	pending, err := a.pendingInvoices(ctx, period, window)
	if err != nil {
		return store.InvoiceRun{}, err
	}
	if len(pending) == 0 {
		run, err := a.GetInvoiceRun(ctx, c, period)
		if fault.KindOf(err) != fault.NotFound {
			return run, err
		}
	}
	run := [16]byte(id.New[id.Request]())
	err = a.Store.InSystem(ctx, "begin an invoice run", func(t *store.SystemTx) error {
		if err := t.InsertInvoiceRun(ctx, run, period, c.actor()); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "invoice_run.create", period))
	})
	if err != nil {
		return store.InvoiceRun{}, err
	}
	failed := a.finalizeAll(ctx, pending, period, window)
	if err := a.endRun(ctx, run, failed); err != nil {
		return store.InvoiceRun{}, err
	}
	if failed != nil {
		return store.InvoiceRun{}, failed
	}
	return a.GetInvoiceRun(ctx, c, period)
}

// GetInvoiceRun reads the newest run of a month. It fails with resource.not_found.
func (a *App) GetInvoiceRun(ctx context.Context, _ Caller, period string) (run store.InvoiceRun, err error) {
	err = a.Store.InSystem(ctx, "read an invoice run", func(t *store.SystemTx) error {
		run, err = t.LatestInvoiceRun(ctx, period)
		return err
	})
	return run, err
}

// pendingInvoices lists the organizations that still need their invoice.
func (a *App) pendingInvoices(ctx context.Context, period string, window metering.Interval) (pending []id.Org, err error) {
	err = a.Store.InSystem(ctx, "look for usage to invoice", func(t *store.SystemTx) error {
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		if end := window.To.Add(a.grace()); now.Before(end) {
			return fault.New(fault.Conflict, "state.conflict",
				fmt.Sprintf("Usage of %s may still arrive until %s.", period, end.Format(time.RFC3339))).
				Suggest("Run it after the grace.")
		}
		if err := billable(ctx, t, id.Org{}, window); err != nil {
			return err
		}
		orgs, err := t.OrganizationsWithUsage(ctx, window)
		if err != nil {
			return err
		}
		for _, org := range orgs {
			live, err := t.LiveInvoice(ctx, org, period)
			if err != nil {
				return err
			}
			if live.State != billing.Open {
				pending = append(pending, org)
			}
		}
		return nil
	})
	return pending, err
}

// billable refuses a period with usage that is open or crosses its bounds.
func billable(ctx context.Context, t *store.SystemTx, org id.Org, window metering.Interval) error {
	u, err := t.Unbillable(ctx, org, window)
	if err != nil || u == (store.Unbillable{}) {
		return err
	}
	return fault.New(fault.Conflict, "state.conflict",
		fmt.Sprintf("%d usage segments of %s are open and %d cross the month.", u.Open, metering.PeriodOf(window.From), u.Crossing)).
		Suggest("Stop or delete what ran over the end of the month.")
}

// finalizeAll does as many as it can: one organization in trouble keeps no other from
// its invoice. It fails with the first failure.
func (a *App) finalizeAll(ctx context.Context, orgs []id.Org, period string, window metering.Interval) (first error) {
	for _, org := range orgs {
		err := a.finalizeOrg(ctx, org, period, window)
		if err == nil {
			continue
		}
		err = fmt.Errorf("invoicing %s for %s: %w", org, period, err)
		a.Log.Error("an invoice could not be made", "org_id", org.String(), "period", period, "error", err)
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			return first
		}
	}
	return first
}

func (a *App) endRun(ctx context.Context, run [16]byte, failed error) error {
	var problem *store.InvoiceRunProblem
	if failed != nil {
		f := fault.From(failed)
		problem = &store.InvoiceRunProblem{Code: f.Code, Detail: f.Detail}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return a.Store.InSystem(ctx, "end an invoice run", func(t *store.SystemTx) error {
		return t.EndInvoiceRun(ctx, run, problem)
	})
}

// finalizeOrg drafts and finalizes one invoice, again if something came in between.
func (a *App) finalizeOrg(ctx context.Context, org id.Org, period string, window metering.Interval) (err error) {
	for range finalizeAttempts {
		var v billing.Invoice
		var basis store.Basis
		err = a.Store.InSystem(ctx, "draft an invoice", func(t *store.SystemTx) error {
			v, basis, err = a.draft(ctx, t, org, period, window)
			return err
		})
		if err != nil || v.State == billing.Open {
			return err
		}
		err = a.Store.InSystem(ctx, "finalize an invoice", func(t *store.SystemTx) error {
			return finalize(ctx, t, v, basis)
		})
		if fault.KindOf(err) != fault.Conflict {
			return err
		}
	}
	return err
}

// draft writes a draft, in place of an older one that was made of other usage. If
// the period has its invoice already, it returns that, open.
func (a *App) draft(ctx context.Context, t *store.SystemTx, org id.Org, period string, window metering.Interval) (billing.Invoice, store.Basis, error) {
	if err := t.SerializeInvoicing(ctx, org); err != nil {
		return billing.Invoice{}, store.Basis{}, err
	}
	live, err := t.LiveInvoice(ctx, org, period)
	if err != nil || live.State == billing.Open {
		return billing.Invoice{ID: live.ID, State: live.State}, store.Basis{}, err
	}
	v, basis, err := a.compose(ctx, t, org, window, window.To)
	if err != nil {
		return billing.Invoice{}, store.Basis{}, err
	}
	v.State = billing.Draft
	if live.SameAs(v, basis) {
		v.ID = live.ID
		return v, basis, nil
	}
	if live.State == billing.Draft {
		if err := t.DeleteDraft(ctx, org, live.ID); err != nil {
			return billing.Invoice{}, store.Basis{}, err
		}
	}
	v.ID = id.New[id.Invoice]()
	return v, basis, t.InsertDraft(ctx, v, basis)
}

// finalize makes a draft an open invoice: checks that it is made of exactly the
// usage there is, posts it, and takes the number last. It does nothing if another
// run was faster, and fails with state.conflict if the draft or the usage changed.
func finalize(ctx context.Context, t *store.SystemTx, v billing.Invoice, basis store.Basis) error {
	if err := t.SerializeInvoicing(ctx, v.Org); err != nil {
		return err
	}
	live, err := t.LiveInvoice(ctx, v.Org, metering.PeriodOf(v.Period.From))
	if err != nil || live.State == billing.Open {
		return err
	}
	if err := t.LockBillingAccount(ctx, v.Org); err != nil {
		return err
	}
	if err := billable(ctx, t, v.Org, v.Period); err != nil {
		return err
	}
	if err := sameUsage(ctx, t, v, basis, live); err != nil {
		return err
	}
	if err := post(ctx, t, v); err != nil {
		return err
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	series := billing.SeriesAt(numberPrefix, billing.UsageInvoice, now, time.UTC)
	n, issued, err := t.TakeNumber(ctx, series, now)
	if err != nil {
		return err
	}
	done, err := v.Finalized(series.Number(n), issued, time.UTC, 14)
	if err != nil {
		return err
	}
	return t.SaveFinalized(ctx, done, series)
}

// post writes what follows from an invoice: its journal, the closed period, the event.
func post(ctx context.Context, t *store.SystemTx, v billing.Invoice) error {
	funding, err := settleFunding(ctx, t, v)
	if err != nil {
		return err
	}
	journal, err := ledger.ForInvoice(v, funding)
	if err != nil {
		return err
	}
	if err := t.Post(ctx, journal); err != nil {
		return err
	}
	if err := t.CloseUsageUntil(ctx, v.Org, v.Period.To); err != nil {
		return err
	}
	return t.AppendEvent(ctx, store.Event{Org: v.Org, Type: "invoice.finalized", Subject: v.ID})
}

func sameUsage(ctx context.Context, t *store.SystemTx, v billing.Invoice, basis store.Basis, live store.LiveInvoice) error {
	segments, recorded, err := t.UsageCount(ctx, v.Org, v.Period)
	if err != nil {
		return err
	}
	if live.ID != v.ID || segments != basis.Result.Segments || !recorded.Equal(basis.MaxRecorded) {
		return fault.New(fault.Conflict, "state.conflict", "Usage came in while the invoice was made.").Suggest("Run it again.")
	}
	unbilled, err := t.UnbilledSubjects(ctx, v)
	if err != nil {
		return err
	}
	if unbilled != 0 {
		return fault.New(fault.Internal, "internal", "An invoice does not bill its usage exactly.").
			Because(fmt.Errorf("%d subjects of invoice %s differ from their segments", unbilled, v.ID))
	}
	return nil
}
