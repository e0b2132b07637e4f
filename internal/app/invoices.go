package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// DefaultGrace is how long after the end of a month its usage may still arrive, in
// business time.
const DefaultGrace = 24 * time.Hour

// PreviewInvoice rates a month, "" for the running one, up to now. Nothing is
// stored: id and number are absent. It fails with request.invalid.
func (a *App) PreviewInvoice(ctx context.Context, c Caller, period string) (v billing.Invoice, err error) {
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		if period == "" {
			period = metering.PeriodOf(now)
		}
		window, err := metering.ParsePeriod(period)
		if err != nil {
			return err
		}
		v, _, err = a.compose(ctx, t, c.Org, window, now)
		v.State = billing.Preview
		return err
	})
	return v, err
}

// GetInvoice reads a finalized invoice. It fails with resource.not_found.
func (a *App) GetInvoice(ctx context.Context, c Caller, inv id.Invoice) (v billing.Invoice, err error) {
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		v, err = t.Invoice(ctx, c.Org, inv)
		if err == nil && v.State != billing.Open { // a run is making it right now, or it is never issued
			return store.NotFound()
		}
		return err
	})
	return v, err
}

// InvoiceFilter narrows a list of documents; zero fields do not. Label is one of
// billing.Invoice.Label, Period a calendar month, YYYY-MM.
type InvoiceFilter struct {
	Kind   billing.Kind
	Label  string
	Period string
}

func (f InvoiceFilter) fits(v billing.Invoice) bool {
	kind := v.Kind
	if kind == "" {
		kind = billing.UsageInvoice
	}
	return (f.Kind == "" || f.Kind == kind) && (f.Label == "" || f.Label == v.Label()) &&
		(f.Period == "" || f.Period == metering.PeriodOf(v.Period.From))
}

// ListInvoices lists finalized documents without their lines, newest first. The label
// follows from the ledger, so documents are read until a page is full.
func (a *App) ListInvoices(ctx context.Context, c Caller, f InvoiceFilter, p Page) (List[billing.Invoice], error) {
	k, err := keyset[id.Invoice](p)
	if err != nil {
		return List[billing.Invoice]{}, err
	}
	var items []billing.Invoice
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		items = nil
		for k := k; ; {
			rows, err := t.Invoices(ctx, c.Org, k)
			if err != nil {
				return err
			}
			for _, v := range rows {
				if f.fits(v) && len(items) <= p.Size {
					items = append(items, v)
				}
			}
			if len(rows) < k.Size || len(items) > p.Size {
				return nil
			}
			last := [16]byte(rows[len(rows)-1].ID)
			k.Before = &last
		}
	})
	return paged(items, p.Size, func(v billing.Invoice) string { return v.ID.String() }), err
}

func (a *App) grace() time.Duration {
	if a.Grace == 0 {
		return DefaultGrace
	}
	return a.Grace
}
