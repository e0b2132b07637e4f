package app_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/tax"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// register answers about tax ids as it is told.
type register map[tax.ID]string

func (r register) Validate(_ context.Context, i tax.ID, _ string) (app.TaxIDAnswer, error) {
	if r[i] == "" {
		return app.TaxIDAnswer{}, errors.New("the register is away")
	}
	return app.TaxIDAnswer{Outcome: r[i], Source: "register", Consultation: "C-1"}, nil
}

// german is an issuer with the starter table, a time zone ahead of UTC and documents
// in German.
func (b *billed) german(t *testing.T, change func(*billing.Issuer)) billing.Issuer {
	t.Helper()
	i := billing.Issuer{
		Slug: "de", LegalName: "Tranche GmbH", Address: []string{"Straße 1", "10115 Berlin"}, Country: "DE", TaxID: "DE123456789",
		TimeZone: "Europe/Berlin", Prefix: "DE", Bank: billing.Bank{Holder: "Tranche GmbH", IBAN: "DE02120300000000202051"},
		PaymentDays: 14, Locale: "de", TaxPoint: billing.AtConsumption, Retention: 10, Original: billing.FormatPDF,
	}
	if change != nil {
		change(&i)
	}
	i, err := b.PutIssuer(t.Context(), b.operator, i)
	require.NoError(t, err)
	_, err = b.PutTaxTable(t.Context(), b.operator, "de", tax.Starter())
	require.NoError(t, err)
	return i
}

// buyer gives an organization a billing profile of the German issuer.
func (b *billed) buyer(t *testing.T, c customer, country, taxID string) {
	t.Helper()
	_, err := b.SetBillingProfile(t.Context(), b.operator, c.Org, store.BillingProfile{
		Name: "Buyer " + country, Address: []string{"Road 1"}, Country: country, TaxID: tax.ID(taxID), Issuer: "de",
	})
	require.NoError(t, err)
}

// invoiced closes November for an organization and returns its documents.
func (b *billed) invoiced(t *testing.T, c customer) []billing.Invoice {
	t.Helper()
	b.setClock(t, november.AddDate(0, 1, 2))
	list, err := b.InvoiceOrganization(t.Context(), c.Org, "2026-11")
	require.NoError(t, err)
	out := make([]billing.Invoice, 0, len(list))
	for _, v := range list {
		if v.State != billing.Open {
			out = append(out, v)
			continue
		}
		full, err := b.GetInvoice(t.Context(), c.Caller, v.ID)
		require.NoError(t, err)
		require.NoError(t, full.Check())
		out = append(out, full)
	}
	return out
}

// balanced asserts that every journal is, and that what is due is what is receivable.
func (b *billed) balanced(t *testing.T, c customer, documents ...id.Invoice) {
	t.Helper()
	require.Zero(t, b.count(t, `select coalesce(sum(amount_minor), 0) from ledger_postings`))
	for _, inv := range documents {
		v, err := b.GetInvoice(t.Context(), c.Caller, inv)
		require.NoError(t, err)
		require.Equal(t, int(v.Due.Minor()), b.count(t, `select coalesce(sum(amount_minor), 0) from ledger_postings
			where account = 'receivable' and document_id = $1`, uuid.UUID(inv)), v.Number)
	}
}

func TestInvoicesBearTax(t *testing.T) {
	b := newBilled(t)
	b.TaxIDs = register{"FR12345678901": "valid", "DE987654321": "valid"}
	b.german(t, nil)
	for name, want := range map[string]struct {
		country, id string
		category    string
		tax, total  string
		note        string
	}{
		"home":    {"DE", "DE987654321", "S", "0.93", "5.83", ""},
		"reverse": {"FR", "FR12345678901", "AE", "0.00", "4.90", tax.NoteReverseCharge.Text("de")},
		"unknown": {"FR", "FR10987654321", "S", "0.98", "5.88", ""},
		"abroad":  {"US", "", "O", "0.00", "4.90", tax.NoteOutsideEU.Text("de")},
	} {
		c := b.tenant(t, name, quota.Limits{})
		b.setClock(t, november)
		b.buyer(t, c, want.country, want.id)
		b.used(t, c, "one", 10*time.Hour)
		b.setClock(t, november.AddDate(0, 1, 2))
		preview, err := b.PreviewInvoice(t.Context(), c.Caller, "2026-11")
		require.NoError(t, err)
		v := b.invoiced(t, c)[0]
		require.Equal(t, []string{want.category, want.tax, want.total, want.note},
			[]string{v.Taxes[0].Category, v.TaxTotal.Decimal(), v.Total.Decimal(), v.Taxes[0].Note}, name)
		require.Equal(t, preview.ContentHash, v.ContentHash, "a preview is what the invoice will be")
		require.Equal(t, "de", v.Locale)
		require.Equal(t, "Tranche GmbH", v.Seller.Name)
		require.Equal(t, "DE02120300000000202051", v.Seller.Bank.IBAN)
		require.Equal(t, time.Date(2026, 12, 17, 0, 0, 0, 0, time.UTC), v.DueOn)
		require.Equal(t, november.AddDate(0, 1, 0).Add(-time.Microsecond), v.TaxPoint)
		require.NoError(t, b.RerateInvoice(t.Context(), c.Org, v.ID))
		b.balanced(t, c, v.ID)
	}
	require.Equal(t, 4, b.count(t, `select count(*) from invoices where number like 'DE-2026-00000_'`))
	report, err := b.ReratePeriod(t.Context(), b.operator, "2026-11")
	require.NoError(t, err)
	require.Equal(t, app.RerateReport{Period: "2026-11", Documents: 4}, report)
}

// Numbers follow the year of the issuer's zone: half past eleven in London is the new
// year in Berlin.
func TestNumbersHaveTheYearOfTheIssuersZone(t *testing.T) {
	b := newBilled(t)
	b.german(t, nil)
	c := b.tenant(t, "acme", quota.Limits{})
	b.buyer(t, c, "DE", "")
	b.used(t, c, "one", time.Hour)
	b.setClock(t, time.Date(2026, 12, 31, 23, 30, 0, 0, time.UTC))
	list, err := b.InvoiceOrganization(t.Context(), c.Org, "2026-11")
	require.NoError(t, err)
	require.Equal(t, "DE-2027-000001", list[0].Number)
	require.Equal(t, time.Date(2027, 1, 15, 0, 0, 0, 0, time.UTC), list[0].DueOn)
}

func TestB25B39B51FinalizeOnceWhoeverAsks(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	b.used(t, c, "one", 10*time.Hour)
	b.setClock(t, november.AddDate(0, 1, 2))
	var wg sync.WaitGroup
	errs := make([]error, 64)
	for i := range errs {
		wg.Go(func() { _, errs[i] = b.InvoiceOrganization(context.WithoutCancel(t.Context()), c.Org, "2026-11") })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, 1, b.count(t, `select count(*) from invoices`))
	require.Equal(t, 1, b.count(t, `select count(*) from events where type = 'invoice.finalized'`))
	require.Equal(t, 1, b.count(t, `select max(last) from invoice_numbers`))
	again := b.invoiced(t, c)
	require.Len(t, again, 1, "a second run makes nothing")
}

func TestB49FiftyFinalizesAtOnceAreGapless(t *testing.T) {
	b := newBilled(t)
	const tenants = 50
	orgs := make([]customer, tenants)
	for i := range orgs {
		orgs[i] = b.tenant(t, fmt.Sprintf("org-%02d", i), quota.Limits{})
		b.used(t, orgs[i], "one", time.Duration(i+1)*time.Minute)
	}
	b.setClock(t, november.AddDate(0, 1, 2))
	var wg sync.WaitGroup
	errs := make([]error, tenants)
	for i, c := range orgs {
		wg.Go(func() { _, errs[i] = b.InvoiceOrganization(context.WithoutCancel(t.Context()), c.Org, "2026-11") })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, tenants, b.count(t, `select count(distinct number) from invoices where right(number, 6)::int between 1 and $1`, tenants))
	require.Zero(t, b.count(t, `select count(*) from invoices a join invoices b
		on a.number < b.number and a.finalized_at > b.finalized_at`), "dates never go back")
}

func (b *billed) credit(t *testing.T, c customer, inv id.Invoice, r app.CreditRequest) (billing.Invoice, error) {
	t.Helper()
	r.Reason = "goodwill"
	return b.CreateCreditNote(t.Context(), b.operator, c.Org, inv, r)
}

func usdAmount(minor int64) *money.Amount {
	a := money.NewAmount(minor, money.MustCurrency("USD"))
	return &a
}

func TestCreditNotes(t *testing.T) {
	b := newBilled(t)
	b.german(t, nil)
	c := b.tenant(t, "acme", quota.Limits{})
	b.buyer(t, c, "DE", "")
	b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	require.Equal(t, "5.83", v.Total.Decimal())

	first, err := b.credit(t, c, v.ID, app.CreditRequest{Lines: []billing.LineCredit{{No: 1, Net: usdAmount(100)}}})
	require.NoError(t, err)
	require.NoError(t, first.Check())
	require.Equal(t, "DE-CN-2026-000001", first.Number)
	require.Equal(t, "-1.19", first.Total.Decimal())
	require.Equal(t, v.Number, first.Corrects.Number)
	second, err := b.credit(t, c, v.ID, app.CreditRequest{Net: usdAmount(50)})
	require.NoError(t, err)
	require.Equal(t, "-0.60", second.Total.Decimal(), "round(1.50 × 19 %) − 0.19 is 0.10")

	for code, r := range map[string]app.CreditRequest{
		"credit.exceeds":  {Net: usdAmount(341)},
		"request.invalid": {Lines: []billing.LineCredit{{No: 2}}},
	} {
		_, err := b.credit(t, c, v.ID, r)
		require.Equal(t, code, fault.CodeOf(err))
	}
	_, err = b.CreateCreditNote(t.Context(), c.Caller, c.Org, v.ID, app.CreditRequest{Reason: "mine"})
	require.Equal(t, "auth.forbidden", fault.CodeOf(err))

	last, err := b.credit(t, c, v.ID, app.CreditRequest{})
	require.NoError(t, err)
	require.Equal(t, "-4.04", last.Total.Decimal(), "what is left of 5.83")
	got, err := b.GetInvoice(t.Context(), c.Caller, v.ID)
	require.NoError(t, err)
	require.Equal(t, "void", got.Label())
	require.Equal(t, "5.83", got.Settlement.Credited.Decimal())
	require.True(t, got.Due.IsZero())
	_, err = b.credit(t, c, v.ID, app.CreditRequest{})
	require.Equal(t, "credit.nothing", fault.CodeOf(err))
	b.balanced(t, c, v.ID)
	require.Equal(t, 3, b.count(t, `select max(last) from invoice_numbers where kind = 'credit_note'`))

	note, err := b.GetInvoice(t.Context(), c.Caller, first.ID)
	require.NoError(t, err)
	require.Equal(t, first.ContentHash, note.ContentHash)
	require.Equal(t, 1, note.Lines[0].Corrects.No)
	require.NoError(t, b.RerateInvoice(t.Context(), c.Org, first.ID))
}

func TestB52CreditedInFullThenCancelled(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	_, err := b.credit(t, c, v.ID, app.CreditRequest{})
	require.NoError(t, err)
	note, err := b.CancelInvoice(t.Context(), b.operator, c.Org, v.ID, app.Cancellation{Reason: "wrong"})
	require.NoError(t, err)
	require.True(t, note.ID.IsZero(), "nothing more to credit")
	require.Equal(t, 1, b.count(t, `select count(*) from invoices where kind = 'credit_note'`))
	b.balanced(t, c, v.ID)
}

func TestB42CreditRacesNeverExceedTheInvoice(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	var wg sync.WaitGroup
	errs := make([]error, 64)
	for i := range errs {
		wg.Go(func() { _, errs[i] = b.credit(t, c, v.ID, app.CreditRequest{Net: usdAmount(300)}) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		require.Contains(t, []string{"credit.exceeds", "service.unavailable"}, fault.CodeOf(err))
	}
	require.Equal(t, 1, won, "3.00 of 4.90 fits once")
	require.Equal(t, 300, b.count(t, `select credited_minor from invoices where kind = 'usage'`))
	require.Equal(t, 1, b.count(t, `select max(last) from invoice_numbers where kind = 'credit_note'`), "no number was lost")
	b.balanced(t, c, v.ID)
}

func TestB40TwoCancelsAreOne(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	var wg sync.WaitGroup
	errs := make([]error, 64)
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = b.CancelInvoice(context.WithoutCancel(t.Context()), b.operator, c.Org, v.ID, app.Cancellation{Reason: "wrong"})
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		require.Equal(t, fault.Conflict, fault.KindOf(err), err)
	}
	require.Equal(t, 1, won)
	require.Equal(t, 1, b.count(t, `select count(*) from invoices where kind = 'credit_note'`))
	require.Equal(t, 1, b.count(t, `select count(*) from ledger_journals where kind = 'credit_note'`))
	got, err := b.GetInvoice(t.Context(), c.Caller, v.ID)
	require.NoError(t, err)
	require.Equal(t, "void", got.Label())
	b.balanced(t, c, v.ID)
	require.Empty(t, b.count(t, `select count(*) from invoices where live and kind = 'usage'`))
	list, err := b.InvoiceOrganization(t.Context(), c.Org, "2026-11")
	require.NoError(t, err)
	require.Len(t, list, 1, "what was cancelled is not billed again by itself")
	require.True(t, list[0].Cancelled)
}

func TestCancelOfAPaidInvoiceNeedsADecision(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	require.NoError(t, b.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) error {
		j, err := ledger.Paid(ledger.Entry{Org: c.Org, Reference: uuid.New(), On: november.AddDate(0, 1, 2)}, v.ID, v.Total, *usdAmount(0))
		if err != nil {
			return err
		}
		return x.Post(t.Context(), j)
	}))
	paid, err := b.GetInvoice(t.Context(), c.Caller, v.ID)
	require.NoError(t, err)
	require.Equal(t, "paid", paid.Label())
	_, err = b.CancelInvoice(t.Context(), b.operator, c.Org, v.ID, app.Cancellation{Reason: "wrong"})
	require.Equal(t, "refund.required", fault.CodeOf(err))
	require.Zero(t, b.count(t, `select count(*) from invoices where kind = 'credit_note'`))
	require.Equal(t, 1, b.count(t, `select count(*) from invoices where live`))
	note, err := b.CancelInvoice(t.Context(), b.operator, c.Org, v.ID, app.Cancellation{Reason: "wrong", Refund: billing.RefundWallet})
	require.NoError(t, err)
	require.Equal(t, billing.RefundWallet, note.Refund)
	require.Equal(t, 490, b.count(t, `select sum(remaining_minor) from credit_grants where org_id = $1`, uuid.UUID(c.Org)))
	b.balanced(t, c, v.ID)
}

func TestReissue(t *testing.T) {
	b := newBilled(t)
	b.german(t, nil)
	c := b.tenant(t, "acme", quota.Limits{})
	b.buyer(t, c, "DE", "")
	b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	b.buyer(t, c, "US", "")
	note, next, err := b.ReissueInvoice(t.Context(), b.operator, c.Org, v.ID, app.Cancellation{Reason: "the buyer moved"})
	require.NoError(t, err)
	require.Equal(t, "-5.83", note.Total.Decimal())
	require.Equal(t, "4.90", next.Total.Decimal())
	require.Equal(t, "DE-2026-000002", next.Number)
	require.Equal(t, v.Number, next.Replaces.Number)
	require.Equal(t, v.Lines[0].Quantity, next.Lines[0].Quantity)
	require.NoError(t, b.RerateInvoice(t.Context(), c.Org, next.ID))
	require.NoError(t, b.RerateInvoice(t.Context(), c.Org, v.ID), "the old one, too")
	b.balanced(t, c, v.ID, next.ID)
	standing := b.invoiced(t, c)
	require.Len(t, standing, 1)
	require.Equal(t, next.ID, standing[0].ID)
	_, _, err = b.ReissueInvoice(t.Context(), b.operator, c.Org, note.ID, app.Cancellation{Reason: "again"})
	require.Equal(t, "state.conflict", fault.CodeOf(err))
}

func TestSmallAmountsAreCarriedOn(t *testing.T) {
	b := newBilled(t)
	b.german(t, func(i *billing.Issuer) { i.SmallAmounts = []money.Amount{*usdAmount(100)} })
	c := b.tenant(t, "acme", quota.Limits{})
	b.buyer(t, c, "DE", "")
	b.used(t, c, "one", time.Hour)
	carried := b.invoiced(t, c)
	require.Len(t, carried, 1)
	require.Equal(t, billing.Carried, carried[0].State)
	require.Zero(t, b.count(t, `select count(*) from invoice_numbers`))
	list, err := b.ListInvoices(t.Context(), c.Caller, app.InvoiceFilter{}, app.Page{Size: 10})
	require.NoError(t, err)
	require.Empty(t, list.Items)
	_, err = b.GetInvoice(t.Context(), c.Caller, carried[0].ID)
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
	require.NoError(t, b.RerateInvoice(t.Context(), c.Org, carried[0].ID))
	again, err := b.PreviewInvoice(t.Context(), c.Caller, "2026-11")
	require.NoError(t, err)
	require.Equal(t, "0.49", again.Subtotal.Decimal(), "its usage counts once")

	inst, from := b.instance(t, c, "december"), november.AddDate(0, 1, 5)
	require.True(t, b.start(t, c, inst, 1, from))
	require.True(t, b.stop(t, c, inst, metering.DeleteAccepted, metering.Facts{At: from.Add(2 * time.Hour)}))
	b.setClock(t, november.AddDate(0, 2, 2))
	preview, err := b.PreviewInvoice(t.Context(), c.Caller, "2026-12")
	require.NoError(t, err)
	made, err := b.InvoiceOrganization(t.Context(), c.Org, "2026-12")
	require.NoError(t, err)
	v, err := b.GetInvoice(t.Context(), c.Caller, made[0].ID)
	require.NoError(t, err)
	require.NoError(t, v.Check())
	require.Equal(t, preview.ContentHash, v.ContentHash)
	require.Len(t, v.Lines, 2)
	require.Equal(t, billing.CarryOver, v.Lines[1].Key.Component)
	require.Equal(t, "Übertrag aus 2026-11", v.Lines[1].Description)
	require.Equal(t, "1.47", v.Subtotal.Decimal(), "0.98 of December and 0.49 of November")
	require.Equal(t, "0.28", v.TaxTotal.Decimal())
	require.NoError(t, b.RerateInvoice(t.Context(), c.Org, v.ID))
	require.Zero(t, b.count(t, `select count(*) from invoices where status = 'carried' and carried_by is null`))
	b.balanced(t, c, v.ID)
}

// What promotional credit paid for is invoiced at any amount: carried on, the month would
// cost nothing and leave the credit unspent.
func TestPromotionalCreditIsSpentOnSmallMonths(t *testing.T) {
	b := newBilled(t)
	b.german(t, func(i *billing.Issuer) { i.SmallAmounts = []money.Amount{*usdAmount(100)} })
	c := b.tenant(t, "acme", quota.Limits{})
	b.buyer(t, c, "DE", "")
	_, err := b.CreateGrant(t.Context(), b.operator, c.Org, app.NewGrant{Name: "gift", Amount: *usdAmount(500)})
	require.NoError(t, err)
	b.used(t, c, "one", time.Hour)
	made := b.invoiced(t, c)
	require.Len(t, made, 1)
	require.Equal(t, billing.Open, made[0].State)
	require.Equal(t, "0.00", made[0].Total.Decimal())
	require.Equal(t, "4.51", b.wallet(t, c).Promo.Decimal(), "0.49 of the gift is spent")
	require.NoError(t, b.RerateInvoice(t.Context(), c.Org, made[0].ID))
	b.balanced(t, c, made[0].ID)
}

// The last invoice of an organization has everything, whatever it comes to.
func TestB64TheLastInvoiceHasAll(t *testing.T) {
	b := newBilled(t)
	b.german(t, func(i *billing.Issuer) { i.SmallAmounts = []money.Amount{*usdAmount(10_000)} })
	c := b.tenant(t, "acme", quota.Limits{})
	b.buyer(t, c, "DE", "")
	b.used(t, c, "one", time.Hour)
	b.used(t, c, "two", time.Minute)
	b.setClock(t, november.AddDate(0, 1, 2))
	made, err := b.InvoiceRemainder(t.Context(), c.Org, "2026-11")
	require.NoError(t, err)
	require.Equal(t, billing.Open, made[0].State)
	require.Equal(t, 2, b.count(t, `select count(*) from line_subjects`))
}

func TestFourEyesOnCreditNotes(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	b.exec(t, `insert into approval_rules (kind, currency, above_minor, updated_by) values ('credit_note', 'USD', 200, 'test')`)
	_, err := b.credit(t, c, v.ID, app.CreditRequest{Net: usdAmount(200)})
	require.NoError(t, err, "up to the limit")
	_, err = b.credit(t, c, v.ID, app.CreditRequest{Net: usdAmount(201)})
	require.Equal(t, "approval.required", fault.CodeOf(err))
	_, err = b.CancelInvoice(t.Context(), b.operator, c.Org, v.ID, app.Cancellation{Reason: "wrong"})
	require.Equal(t, "approval.required", fault.CodeOf(err))
	require.Equal(t, 1, b.count(t, `select count(*) from invoices where kind = 'credit_note'`))

	key, err := b.CreateOperator(t.Context(), "second")
	require.NoError(t, err)
	other := b.caller(t, key.Secret)
	list, err := b.ListApprovals(t.Context(), other, app.Page{Size: 10})
	require.NoError(t, err)
	require.Len(t, list.Items, 2)
	for _, x := range list.Items {
		_, err = b.Approve(t.Context(), b.operator, x.ID)
		require.Equal(t, "approval.self", fault.CodeOf(err), "who asks does not approve")
		_, err = b.Approve(t.Context(), other, x.ID)
		require.NoError(t, err)
	}
	_, err = b.CancelInvoice(t.Context(), b.operator, c.Org, v.ID, app.Cancellation{Reason: "wrong"})
	require.NoError(t, err)
	b.balanced(t, c, v.ID)
}
