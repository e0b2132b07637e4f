package app

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
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
		if err == nil && v.State == billing.Draft { // a run is making it right now
			return store.NotFound()
		}
		return err
	})
	return v, err
}

// ListInvoices lists finalized invoices without their lines, newest first.
func (a *App) ListInvoices(ctx context.Context, c Caller, p Page) (List[billing.Invoice], error) {
	k, err := keyset[id.Invoice](p)
	if err != nil {
		return List[billing.Invoice]{}, err
	}
	var items []billing.Invoice
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		items, err = t.Invoices(ctx, c.Org, k)
		return err
	})
	return paged(items, p.Size, func(v billing.Invoice) string { return v.ID.String() }), err
}

// billReader is what composing an invoice reads.
type billReader interface {
	usageReader
	Buyer(context.Context, id.Org) (billing.Party, money.Currency, error)
}

// compose rates the usage of a window up to at into an invoice without id or state.
func (a *App) compose(ctx context.Context, t billReader, org id.Org, window metering.Interval, at time.Time) (billing.Invoice, store.Basis, error) {
	usage, err := t.UsageOf(ctx, org, store.UsageFilter{Window: window})
	if err != nil {
		return billing.Invoice{}, store.Basis{}, err
	}
	buyer, currency, err := t.Buyer(ctx, org)
	if err != nil {
		return billing.Invoice{}, store.Basis{}, err
	}
	res, err := rating.Rate(rating.Inputs{Period: window, At: at, Currency: currency, Books: usage.Books, Usage: usage.Segments})
	if err != nil {
		return billing.Invoice{}, store.Basis{}, err
	}
	v, err := billing.Invoice{
		Org: org, Period: window, Currency: currency, Seller: a.seller(), Buyer: buyer, Lines: res.Lines,
	}.Compose()
	return v, store.Basis{Result: res, MaxRecorded: usage.MaxRecorded}, err
}

func (a *App) seller() billing.Party {
	if a.Seller.Name == "" {
		return billing.Party{Name: "Tranche"}
	}
	return a.Seller
}

func (a *App) grace() time.Duration {
	if a.Grace == 0 {
		return DefaultGrace
	}
	return a.Grace
}

// RerateInvoice rates a finalized invoice again from its usage and compares the
// content hash. It fails with fault.Internal if they differ.
func (a *App) RerateInvoice(ctx context.Context, org id.Org, inv id.Invoice) error {
	return a.Store.InSystem(ctx, "rate an invoice again", func(t *store.SystemTx) error {
		stored, err := t.Invoice(ctx, org, inv)
		if err != nil {
			return err
		}
		if err := stored.Check(); err != nil {
			return err
		}
		again, _, err := a.compose(ctx, t, org, stored.Period, stored.Period.To)
		if err != nil {
			return err
		}
		again.Seller, again.Buyer = stored.Seller, stored.Buyer // as they were then
		if again, err = again.Compose(); err != nil {
			return err
		}
		if again.ContentHash != stored.ContentHash {
			return fault.New(fault.Internal, "internal", fmt.Sprintf("Invoice %s does not rate again to its content hash.", stored.Number))
		}
		return nil
	})
}
