package app

import (
	"context"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/focus"
	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// exportPage is how many rows of a list the cost export reads at a time.
const exportPage = 200

// FocusExport is an organization's costs of a month, "" for the running one, by FOCUS:
// its documents of the month, payments into the prepaid balance and, while the month
// runs, a preview without an invoice id. Once no document is added, the rows are the
// same each time. It fails with request.invalid.
func (a *App) FocusExport(ctx context.Context, c Caller, period string) (focus.Export, error) {
	var in focus.Input
	err := a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
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
		in = focus.Input{Org: c.Org, Commitments: map[string]string{}, Resources: map[metering.Subject]focus.Resource{}}
		if in.Invoices, err = documentsOf(ctx, t, c.Org, period); err != nil {
			return err
		}
		if now.Before(window.To) && !now.Before(window.From) {
			v, _, err := a.compose(ctx, t, c.Org, window, now)
			if err != nil {
				return err
			}
			v.State, v.ID = billing.Preview, id.Invoice{}
			in.Invoices = append(in.Invoices, v)
		}
		if in.TopUps, err = topUpsOf(ctx, t, c.Org, period); err != nil {
			return err
		}
		return describeExport(ctx, t, c.Org, period, &in)
	})
	if err != nil {
		return focus.Export{}, err
	}
	return focus.New(in)
}

// pages reads a list to its end; key is the id of an item.
func pages[T any](read func(store.Keyset) ([]T, error), key func(T) [16]byte, take func(T) error) error {
	for k := (store.Keyset{Size: exportPage}); ; {
		items, err := read(k)
		if err != nil {
			return err
		}
		for _, x := range items {
			if err := take(x); err != nil {
				return err
			}
		}
		if len(items) < exportPage {
			return nil
		}
		last := key(items[len(items)-1])
		k.Before = &last
	}
}

// documentsOf reads the issued documents of a month with their lines, oldest first.
func documentsOf(ctx context.Context, t *store.OrgTx, org id.Org, period string) ([]billing.Invoice, error) {
	var out []billing.Invoice
	err := pages(
		func(k store.Keyset) ([]billing.Invoice, error) { return t.Invoices(ctx, org, "", period, k) },
		func(v billing.Invoice) [16]byte { return v.ID },
		func(v billing.Invoice) error {
			if v.State != billing.Open || metering.PeriodOf(v.Period.From) != period {
				return nil
			}
			full, err := t.Invoice(ctx, org, v.ID)
			out = append(out, full)
			return err
		})
	if err != nil || len(out) == 0 {
		return nil, err
	}
	slices.Reverse(out)
	return prepaidAtIssue(ctx, t, org, out)
}

// prepaidAtIssue gives documents the prepaid balance that paid them when they were issued:
// what went back later is on the credit note.
func prepaidAtIssue(ctx context.Context, t *store.OrgTx, org id.Org, documents []billing.Invoice) ([]billing.Invoice, error) {
	ids := make([]id.Invoice, len(documents))
	for i, v := range documents {
		ids[i] = v.ID
	}
	prepaid, err := t.PrepaidAtIssue(ctx, org, documents[0].Currency, ids)
	if err != nil {
		return nil, err
	}
	for i, v := range documents {
		documents[i].Settlement.Prepaid = prepaid[v.ID]
	}
	return documents, nil
}

// topUpsOf reads what was paid into the prepaid balance in a month, oldest first, but
// for payments that have an advance invoice.
func topUpsOf(ctx context.Context, t *store.OrgTx, org id.Org, period string) ([]focus.TopUp, error) {
	var out []focus.TopUp
	err := pages(
		func(k store.Keyset) ([]wallet.Lot, error) { return t.ListGrants(ctx, org, k) },
		func(l wallet.Lot) [16]byte { return l.Grant },
		func(l wallet.Lot) error {
			if l.Kind != wallet.Prepaid || metering.PeriodOf(l.CreatedAt) != period {
				return nil
			}
			_, invoiced, err := t.AdvanceOf(ctx, org, id.Payment(l.Source))
			if err == nil && !invoiced {
				out = append(out, focus.TopUp{ID: l.Grant, At: l.CreatedAt, Amount: l.Amount})
			}
			return err
		})
	slices.Reverse(out)
	return out, err
}

// describeExport adds what documents do not say: where resources stood, list prices,
// and names of reservations.
func describeExport(ctx context.Context, t *store.OrgTx, org id.Org, period string, in *focus.Input) error {
	used, err := t.ResourcesUsed(ctx, org, period)
	if err != nil {
		return err
	}
	for subject, r := range used {
		in.Resources[subject] = focus.Resource{Region: r.Region, Labels: r.Labels}
	}
	err = pages(
		func(k store.Keyset) ([]store.Reservation, error) { return t.Reservations(ctx, org, k) },
		func(r store.Reservation) [16]byte { return r.ID },
		func(r store.Reservation) error { in.Commitments[r.ID.String()] = r.Name; return nil })
	if err != nil {
		return err
	}
	var books []billing.Book
	err = pages(
		func(k store.Keyset) ([]store.PriceBook, error) { return t.PriceBooks(ctx, k) },
		func(b store.PriceBook) [16]byte { return b.ID },
		func(b store.PriceBook) error { books = append(books, b.Book); return nil })
	in.ListPrices = focus.ListPrices(books)
	return err
}
