package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/tax"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

func TestIssuers(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	standing, err := b.GetIssuer(ctx, b.operator, billing.DefaultIssuer, time.Time{})
	require.NoError(t, err)
	require.Equal(t, "TR", standing.Prefix)
	require.Equal(t, "Tranche", standing.LegalName)

	i := b.german(t, func(i *billing.Issuer) { i.SmallAmounts = []money.Amount{*usdAmount(100)} })
	got, err := b.GetIssuer(ctx, b.operator, "de", time.Time{})
	require.NoError(t, err)
	require.Equal(t, i, got)
	later := i
	later.LegalName, later.EffectiveFrom = "Tranche SE", november.AddDate(0, 6, 0)
	_, err = b.PutIssuer(ctx, b.operator, later)
	require.NoError(t, err)
	for at, name := range map[time.Time]string{later.EffectiveFrom.Add(-time.Microsecond): "Tranche GmbH", later.EffectiveFrom: "Tranche SE"} {
		got, err := b.GetIssuer(ctx, b.operator, "de", at)
		require.NoError(t, err)
		require.Equal(t, name, got.LegalName)
	}
	list, err := b.ListIssuers(ctx, b.operator)
	require.NoError(t, err)
	require.Len(t, list, 2)

	for code, change := range map[string]func(*billing.Issuer){
		"issuer.prefix_fixed": func(i *billing.Issuer) { i.Prefix = "EU" },
		"issuer.prefix_taken": func(i *billing.Issuer) { i.Slug = "eu" },
		"request.invalid":     func(i *billing.Issuer) { i.TaxID = "FR12345678901" },
		"state.conflict":      func(i *billing.Issuer) { i.EffectiveFrom = november.AddDate(-1, 0, 0) },
	} {
		bad := i
		bad.EffectiveFrom = time.Time{}
		change(&bad)
		_, err := b.PutIssuer(ctx, b.operator, bad)
		require.Equal(t, code, fault.CodeOf(err))
	}
	_, err = b.PutTaxTable(ctx, b.operator, "nobody", tax.Starter())
	require.Equal(t, "issuer.unknown", fault.CodeOf(err))
	_, err = b.PutTaxTable(ctx, b.operator, "de", tax.Table{Rules: []tax.Rule{{Category: "X"}}})
	require.Equal(t, "request.invalid", fault.CodeOf(err))
	n, err := b.PutTaxTable(ctx, b.operator, "de", tax.Starter())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	table, n, err := b.GetTaxTable(ctx, b.operator, "de")
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, tax.Starter(), table)
}

func TestBillingProfiles(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	b.TaxIDs = register{"EL123456789": "valid"}
	b.german(t, nil)
	c, other := b.tenant(t, "acme", quota.Limits{}), b.tenant(t, "other", quota.Limits{})
	p, err := b.SetBillingProfile(ctx, c.Caller, c.Org, store.BillingProfile{Name: "Acme", Country: "gr", TaxID: "el 123 456 789", Issuer: "de"})
	require.NoError(t, err)
	require.Equal(t, tax.ID("EL123456789"), p.TaxID)
	require.Equal(t, billing.DefaultIssuer, p.Issuer, "a tenant does not choose who sells")
	require.Equal(t, 1, b.count(t, `select count(*) from tax_id_checks where outcome = 'valid' and consultation = 'C-1'`))
	got, err := b.BillingProfile(ctx, c.Caller, c.Org)
	require.NoError(t, err)
	require.Equal(t, p, got)

	for name, bad := range map[string]store.BillingProfile{
		"another country's id": {Country: "DE", TaxID: "FR12345678901"}, "an id of the EU abroad": {Country: "US", TaxID: "DE123456789"},
		"no country": {TaxID: "DE123456789"}, "country": {Country: "Germany"}, "status": {Status: "club"}, "locale": {Locale: "fr"},
		"endpoint": {Endpoint: "somewhere"}, "lines": {Name: "a\nb"},
	} {
		_, err := b.SetBillingProfile(ctx, c.Caller, c.Org, bad)
		require.Equal(t, "request.invalid", fault.CodeOf(err), name)
		require.NotEmpty(t, fault.From(err).Fields, name)
	}
	_, err = b.SetBillingProfile(ctx, b.operator, c.Org, store.BillingProfile{Issuer: "nobody"})
	require.Equal(t, "issuer.unknown", fault.CodeOf(err))
	_, err = b.BillingProfile(ctx, other.Caller, c.Org)
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
	_, err = b.CheckTaxID(ctx, other.Caller, other.Org)
	require.Equal(t, "tax_id.missing", fault.CodeOf(err))

	b.TaxIDs = register{}
	check, err := b.CheckTaxID(ctx, c.Caller, c.Org)
	require.NoError(t, err)
	require.Equal(t, "unknown", check.Outcome, "a register that is away says nothing")
	_, err = b.RecordTaxIDCheck(ctx, c.Caller, c.Org, app.TaxIDAnswer{Outcome: "valid", Source: "me"})
	require.Equal(t, "auth.forbidden", fault.CodeOf(err))
	check, err = b.RecordTaxIDCheck(ctx, b.operator, c.Org, app.TaxIDAnswer{Outcome: "valid", Source: "by telephone", Consultation: "7"})
	require.NoError(t, err)
	require.Equal(t, "valid", check.Outcome)
}

// With the tax point at receipt a prepayment is invoiced at once, and deducted from the
// invoices of the usage that it pays for.
func TestAdvancesAreInvoicedAndDeducted(t *testing.T) {
	b := newBilled(t)
	b.german(t, func(i *billing.Issuer) { i.TaxPoint = billing.AtReceipt })
	c, plain := b.tenant(t, "acme", quota.Limits{}), b.tenant(t, "plain", quota.Limits{})
	b.buyer(t, c, "DE", "")
	payment := id.New[id.Payment]()
	var advance, again, none billing.Invoice
	require.NoError(t, b.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) (err error) {
		if advance, err = b.IssueAdvance(t.Context(), x, c.Org, payment, *usdAmount(300)); err != nil {
			return err
		}
		if again, err = b.IssueAdvance(t.Context(), x, c.Org, payment, *usdAmount(300)); err != nil {
			return err
		}
		none, err = b.IssueAdvance(t.Context(), x, plain.Org, payment, *usdAmount(300))
		return err
	}))
	require.Equal(t, "DE-AD-2026-000001", advance.Number)
	require.Equal(t, advance.ID, again.ID, "once a payment")
	require.True(t, none.ID.IsZero(), "its issuer taxes consumption")
	require.Equal(t, []string{"2.52", "0.48", "3.00"}, []string{advance.Subtotal.Decimal(), advance.TaxTotal.Decimal(), advance.Total.Decimal()})

	b.lot(t, c, payment, advance.Total, advance.TaxTotal)

	b.used(t, c, "one", 10*time.Hour)
	b.setClock(t, november.AddDate(0, 1, 2))
	preview, err := b.PreviewInvoice(t.Context(), c.Caller, "2026-11")
	require.NoError(t, err)
	v := b.invoiced(t, c)[0]
	require.Equal(t, preview.ContentHash, v.ContentHash)
	require.Len(t, v.Lines, 2)
	require.Equal(t, billing.AdvanceOffset, v.Lines[1].Key.Component)
	require.Equal(t, "-2.52", v.Lines[1].Amount.Decimal())
	require.Equal(t, "Abzüglich Vorauszahlung DE-AD-2026-000001", v.Lines[1].Description)
	require.Equal(t, []string{"2.38", "0.45", "2.83"}, []string{v.Subtotal.Decimal(), v.TaxTotal.Decimal(), v.Total.Decimal()})
	require.NoError(t, b.RerateInvoice(t.Context(), c.Org, v.ID))

	_, err = b.CancelInvoice(t.Context(), b.operator, c.Org, v.ID, app.Cancellation{Reason: "wrong", Refund: billing.RefundNone})
	require.NoError(t, err)
	require.NoError(t, b.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) error {
		left, err := x.AdvancesLeft(t.Context(), c.Org)
		require.Len(t, left, 1)
		require.Equal(t, "2.52", left[0].Net.Decimal(), "the advance is there again")
		return err
	}))
	require.Zero(t, b.count(t, `select coalesce(sum(amount_minor), 0) from ledger_postings`))
}
