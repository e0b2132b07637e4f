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

// Documents are read in rounds until a page of a label is full, since the label follows
// from the ledger; a page that is not full after all rounds goes on where they ended.
const (
	labelRounds = 10
	labelRound  = 200
)

// ListInvoices lists finalized documents without their lines, newest first. A page may
// have fewer than were asked for, even none, and go on.
func (a *App) ListInvoices(ctx context.Context, c Caller, f InvoiceFilter, p Page) (List[billing.Invoice], error) {
	start, err := keyset[id.Invoice](p)
	if err != nil {
		return List[billing.Invoice]{}, err
	}
	if f.Label != "" {
		start.Size = max(start.Size, labelRound)
	}
	var items []billing.Invoice
	var last id.Invoice // where the rounds ended with more to read
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		items, last = nil, id.Invoice{}
		k := start
		for range labelRounds {
			rows, err := t.Invoices(ctx, c.Org, f.Kind, f.Period, k)
			if err != nil {
				return err
			}
			for _, v := range rows {
				if (f.Label == "" || f.Label == v.Label()) && len(items) <= p.Size {
					items = append(items, v)
				}
			}
			if len(rows) < k.Size || len(items) > p.Size {
				last = id.Invoice{}
				return nil
			}
			last = rows[len(rows)-1].ID
			before := [16]byte(last)
			k.Before = &before
		}
		return nil
	})
	out := paged(items, p.Size, func(v billing.Invoice) string { return v.ID.String() })
	if out.Next == "" && !last.IsZero() {
		out.Next = last.String()
	}
	return out, err
}

func (a *App) grace() time.Duration {
	if a.Grace == 0 {
		return DefaultGrace
	}
	return a.Grace
}
