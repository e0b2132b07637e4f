package app_test

import (
	"context"
	"fmt"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// november is the month that is billed; the tests' business clock stands in it.
var november = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

const slice = "h200-mig-1g-16gib"

// billed is a world with one offer, a price book and tenants.
type billed struct {
	world
	book app.PriceBook
	sku  uuid.UUID
}

func newBilled(t *testing.T) *billed {
	t.Helper()
	b := &billed{world: newWorld(t, clock.Real()), sku: uuid.New()}
	b.setClock(t, november)
	b.exec(t, `insert into skus (id, code, content_hash, gpu_model, mode, gpu_mode, profile, gpu_count, memory_mib, isolation_gpu, isolation_host, vcpu, ram_mib)
		values ($1, $2, 'x', 'H200-141', 'mig', 'mig', '1g.18gb', 1, 16384, 'partitioned', 'shared_kernel', 4, 32768)`, b.sku, slice)
	b.exec(t, `insert into offers (id, sku_id, pool_id, region_id, simulated) values ($1, $2, 'default', 'local', true)`, slice, b.sku)
	book, err := b.CreatePriceBook(t.Context(), b.operator, app.NewPriceBook{
		Name: "list", Currency: money.MustCurrency("USD"), NewPrices: app.NewPrices{Prices: []app.OfferPrice{{Offer: slice, PerHour: "0.49"}}},
	})
	require.NoError(t, err)
	b.book = book
	return b
}

// setClock moves the business clock.
func (b *billed) setClock(t *testing.T, at time.Time) {
	t.Helper()
	b.exec(t, `update business_clock set base_real = clock_timestamp(), base_business = $1`, at)
}

// instance writes the row that usage is copied from.
func (b *billed) instance(t *testing.T, c customer, name string) id.Instance {
	t.Helper()
	inst := id.New[id.Instance]()
	b.exec(t, `insert into instances (org_id, id, project_id, cell_id, pool_id, name, offer_id, sku_id, image, desired, status,
		price_book_id, locked_price_version_id, locked_price, currency, simulated, created_at, accepted_at, intent_at)
		values ($1, $2, $3, 'local-1', 'default', $4, $5, $6, 'img', 'running', 'running', $7, $8, 0.49, 'USD', true, $9, $9, $9)`,
		uuid.UUID(c.Org), uuid.UUID(inst), uuid.UUID(c.project), name, slice, b.sku,
		uuid.UUID(b.book.ID), uuid.UUID(b.book.Versions[0].ID), november)
	return inst
}

func (b *billed) start(t *testing.T, c customer, inst id.Instance, run int, at time.Time) bool {
	t.Helper()
	var opened bool
	require.NoError(t, b.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) (err error) {
		opened, err = x.OpenSegment(t.Context(), store.OpenSegment{Org: c.Org, Instance: inst, Run: run, At: at, Reason: "process_started"})
		return err
	}))
	return opened
}

func (b *billed) stop(t *testing.T, c customer, inst id.Instance, event metering.Event, facts metering.Facts) bool {
	t.Helper()
	var closed bool
	require.NoError(t, b.Store.InOrg(t.Context(), c.Org, func(x *store.OrgTx) (err error) {
		closed, err = x.CloseByEvent(t.Context(), c.Org, inst, event, facts)
		return err
	}))
	return closed
}

// used runs an instance for so long on the second of November.
func (b *billed) used(t *testing.T, c customer, name string, d time.Duration) id.Instance {
	t.Helper()
	inst, from := b.instance(t, c, name), november.AddDate(0, 0, 1)
	require.True(t, b.start(t, c, inst, 1, from))
	require.True(t, b.stop(t, c, inst, metering.DeleteAccepted, metering.Facts{At: from.Add(d)}))
	return inst
}

func (b *billed) segments(t *testing.T, c customer, inst id.Instance) []metering.Interval {
	t.Helper()
	var out []metering.Interval
	require.NoError(t, b.Store.InOrg(t.Context(), c.Org, func(x *store.OrgTx) error {
		u, err := x.UsageOf(t.Context(), c.Org, store.UsageFilter{Instances: []id.Instance{inst}})
		for _, s := range u.Segments {
			out = append(out, s.During)
		}
		return err
	}))
	return out
}

func TestPriceBooks(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	require.True(t, b.book.Default, "the first of its currency")
	require.Len(t, b.book.Versions, 1)
	require.Equal(t, []app.OfferPrice{{Offer: slice, Meter: metering.GPU, PerHour: "0.49"}}, b.book.Versions[0].Prices)
	require.False(t, b.book.Versions[0].EffectiveFrom.Before(november))

	late := b.tenant(t, "late", quota.Limits{})
	require.Equal(t, 1, b.count(t, `select count(*) from organization_price_books where org_id = $1`, uuid.UUID(late.Org)))

	next, err := b.CreatePriceVersion(ctx, b.operator, b.book.ID, app.NewPrices{Prices: []app.OfferPrice{{Offer: slice, PerHour: "0.510000000001"}}})
	require.NoError(t, err)
	require.Len(t, next.Versions, 2)
	require.Equal(t, 2, next.Versions[0].Number, "newest first")
	require.Equal(t, "0.510000000001", next.Versions[0].Prices[0].PerHour)
	got, err := b.GetPriceBook(ctx, b.operator, b.book.ID)
	require.NoError(t, err)
	require.Equal(t, next, got)
	list, err := b.ListPriceBooks(ctx, b.operator, app.Page{Size: 10})
	require.NoError(t, err)
	require.Equal(t, []app.PriceBook{next}, list.Items)

	prices := func(p ...app.OfferPrice) app.NewPrices { return app.NewPrices{Prices: p} }
	for name, refused := range map[string]struct {
		in   app.NewPrices
		code string
	}{
		"unknown offer": {prices(app.OfferPrice{Offer: "nothing", PerHour: "1"}), "offer.unknown"},
		"bad decimal":   {prices(app.OfferPrice{Offer: slice, PerHour: "1e3"}), "request.invalid"},
		"twice":         {prices(app.OfferPrice{Offer: slice, PerHour: "1"}, app.OfferPrice{Offer: slice, PerHour: "1"}), "request.invalid"},
		"too soon":      {app.NewPrices{Prices: next.Versions[0].Prices, EffectiveFrom: november}, "request.invalid"},
	} {
		_, err := b.CreatePriceVersion(ctx, b.operator, b.book.ID, refused.in)
		require.Equal(t, refused.code, fault.CodeOf(err), name)
	}
	_, err = b.CreatePriceVersion(ctx, b.operator, id.New[id.PriceBook](), prices(app.OfferPrice{Offer: slice, PerHour: "1"}))
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
	_, err = b.CreatePriceBook(ctx, b.operator, app.NewPriceBook{Name: "list", Currency: money.MustCurrency("EUR"), NewPrices: prices(app.OfferPrice{Offer: slice, PerHour: "1"})})
	require.Equal(t, "name.taken", fault.CodeOf(err))

	yes := true
	second, err := b.CreatePriceBook(ctx, b.operator, app.NewPriceBook{Name: "second", Currency: money.MustCurrency("USD"), Default: &yes, NewPrices: prices(app.OfferPrice{Offer: slice, PerHour: "1"})})
	require.NoError(t, err)
	require.True(t, second.Default)
	require.Equal(t, 1, b.count(t, `select count(*) from price_books where is_default`))
	require.Equal(t, 1, b.count(t, `select count(*) from organization_price_books where org_id = $1`, uuid.UUID(late.Org)), "who has a book keeps it")
}

func TestTwoDefaultBooksAtOnceAreAConflict(t *testing.T) {
	b := newBilled(t)
	eur := money.MustCurrency("EUR")
	book := func(name string) app.NewPriceBook {
		return app.NewPriceBook{Name: name, Currency: eur, NewPrices: app.NewPrices{Prices: []app.OfferPrice{{Offer: slice, PerHour: "1"}}}}
	}
	second := make(chan error, 1)
	require.NoError(t, b.Store.ShareSystem(t.Context(), "test", func(ctx context.Context, _ *store.SystemTx) error {
		if _, err := b.CreatePriceBook(ctx, b.operator, book("first")); err != nil {
			return err
		}
		go func() {
			_, err := b.CreatePriceBook(t.Context(), b.operator, book("second"))
			second <- err
		}()
		require.Eventually(t, func() bool {
			return b.count(t, `select count(*) from pg_locks where not granted and pid in
				(select pid from pg_stat_activity where datname = current_database())`) > 0
		}, 20*time.Second, 10*time.Millisecond, "the second waits for the first")
		return nil
	}))
	require.Equal(t, "state.conflict", fault.CodeOf(<-second))
}

func TestSegmentsAreRecordedOnce(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	inst := b.instance(t, c, "one")
	at := func(s int) time.Time { return november.Add(time.Duration(s) * time.Second) }

	require.False(t, b.stop(t, c, inst, metering.StopRelease, metering.Facts{At: at(1)}), "nothing is open")
	require.True(t, b.start(t, c, inst, 1, at(10)))
	require.False(t, b.start(t, c, inst, 1, at(11)), "it is open already")
	require.True(t, b.stop(t, c, inst, metering.Silence, metering.Facts{LastProof: at(20)}))
	require.True(t, b.start(t, c, inst, 1, at(50)), "the same run is back")
	require.True(t, b.stop(t, c, inst, metering.OurFault, metering.Facts{FirstSymptom: at(60), LastProof: at(70)}))
	require.True(t, b.start(t, c, inst, 1, at(80)), "our fault leaves a gap")
	require.True(t, b.stop(t, c, inst, metering.StopRelease, metering.Facts{At: at(80)}))
	require.True(t, b.start(t, c, inst, 2, at(75)), "never inside an older one")
	require.Equal(t, []metering.Interval{
		metering.Between(at(10), at(20)), metering.Between(at(20), at(60)),
		metering.Between(at(80).Add(time.Microsecond), time.Time{}),
	}, b.segments(t, c, inst))
	require.Equal(t, 2, b.count(t, `select count(distinct start_id) from usage_segments`), "one start a run")
	require.Equal(t, 4, b.count(t, `select max(seq) from usage_segments`))

	err := b.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) error {
		_, err := x.OpenSegment(t.Context(), store.OpenSegment{Org: c.Org, Instance: id.New[id.Instance](), Run: 1, At: at(1)})
		return err
	})
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
}

// A run that is tried again on another host did not go on while the first was silent.
func TestSilenceIsFilledForTheSameAssignmentOnly(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	inst := b.instance(t, c, "one")
	at := func(s int) time.Time { return november.Add(time.Duration(s) * time.Second) }
	open := func(a id.Assignment, from time.Time) {
		require.NoError(t, b.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) error {
			_, err := x.OpenSegment(t.Context(), store.OpenSegment{
				Org: c.Org, Instance: inst, Assignment: a, Run: 1, At: from, Reason: "process_started",
			})
			return err
		}))
	}
	first, second := id.New[id.Assignment](), id.New[id.Assignment]()
	open(first, at(10))
	require.True(t, b.stop(t, c, inst, metering.Silence, metering.Facts{LastProof: at(20)}))
	open(first, at(10))
	require.True(t, b.stop(t, c, inst, metering.Silence, metering.Facts{LastProof: at(30)}))
	open(second, at(500))
	require.Equal(t, []metering.Interval{
		metering.Between(at(10), at(20)), metering.Between(at(20), at(30)), metering.Between(at(500), time.Time{}),
	}, b.segments(t, c, inst))
}

func TestUsage(t *testing.T) {
	b := newBilled(t)
	c, other := b.tenant(t, "acme", quota.Limits{}), b.tenant(t, "other", quota.Limits{})
	first, second := b.used(t, c, "one", 90*time.Minute+time.Microsecond), b.used(t, c, "two", 7*time.Second)
	b.used(t, other, "theirs", time.Hour)
	b.setClock(t, november.AddDate(0, 0, 3))
	window := app.UsageQuery{From: november, To: november.AddDate(0, 0, 5)}

	sums := map[metering.Bucket]string{}
	for _, size := range []metering.Bucket{metering.NoBucket, metering.Hour, metering.Day, metering.Month} {
		window.Bucket = size
		list, err := b.Usage(t.Context(), c.Caller, c.project, window, app.Page{Size: 200})
		require.NoError(t, err)
		quantity, exact := new(big.Int), new(big.Rat)
		for _, i := range list.Items {
			quantity.Add(quantity, i.Quantity)
			exact.Add(exact, i.Exact.Rat())
			require.Equal(t, "gpu_us", i.Unit)
		}
		sums[size] = fmt.Sprint(quantity, " ", exact.FloatString(12))
	}
	for size, sum := range sums {
		require.Equal(t, "5407000001 0.735952777913", sum, size)
	}

	window.Bucket, window.GroupBy = "", []string{"instance", "sku", "meter", "region"}
	all, err := b.Usage(t.Context(), c.Caller, c.project, window, app.Page{Size: 200})
	require.NoError(t, err)
	require.Len(t, all.Items, 2)
	require.Empty(t, all.Next)
	require.Equal(t, map[string]string{"instance": first.String(), "sku": slice, "meter": "gpu", "region": "local"}, all.Items[0].Group)
	page, err := b.Usage(t.Context(), c.Caller, c.project, window, app.Page{Size: 1})
	require.NoError(t, err)
	require.Equal(t, all.Items[:1], page.Items)
	page, err = b.Usage(t.Context(), c.Caller, c.project, window, app.Page{Size: 1, Cursor: page.Next})
	require.NoError(t, err)
	require.Equal(t, second.String(), page.Items[0].Group["instance"])
	require.Empty(t, page.Next)

	for code, bad := range map[string]func() error{
		"resource.not_found": func() error {
			_, err := b.Usage(t.Context(), c.Caller, other.project, app.UsageQuery{}, app.Page{Size: 1})
			return err
		},
		"request.invalid": func() error {
			_, err := b.Usage(t.Context(), c.Caller, c.project, app.UsageQuery{GroupBy: []string{"mood"}}, app.Page{Size: 1})
			return err
		},
		"page_token.invalid": func() error {
			_, err := b.Usage(t.Context(), c.Caller, c.project, app.UsageQuery{}, app.Page{Size: 1, Cursor: "x"})
			return err
		},
	} {
		require.Equal(t, code, fault.CodeOf(bad()))
	}
}

func TestPreviewIsTheSumOfBilledTime(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	empty, err := b.PreviewInvoice(t.Context(), c.Caller, "")
	require.NoError(t, err)
	require.Empty(t, empty.Lines)
	require.Equal(t, "0.00", empty.Total.Decimal())
	require.Len(t, empty.Taxes, 1)

	inst := b.used(t, c, "one", 90*time.Minute)
	b.setClock(t, november.AddDate(0, 0, 3))
	v, err := b.PreviewInvoice(t.Context(), c.Caller, "2026-11")
	require.NoError(t, err)
	require.Equal(t, billing.Preview, v.State)
	require.True(t, v.ID.IsZero())
	require.Len(t, v.Lines, 1)
	require.Equal(t, big.NewInt(metering.Total(b.segments(t, c, inst))), v.Lines[0].Quantity)
	require.Equal(t, "0.74", v.Total.Decimal(), "1.5 × 0.49 = 0.735")
	require.Equal(t, "H200-141 mig 1g.18gb", v.Lines[0].Description)
	require.True(t, v.Simulated())
	shown, err := b.GetInstance(t.Context(), c.Caller, c.project, inst, app.Wait{})
	require.NoError(t, err)
	require.Equal(t, b.segments(t, c, inst), shown.Billed)
	require.Equal(t, "0.735", shown.CostSoFar.Decimal())
	require.Zero(t, shown.CostSoFar.Cmp(v.Lines[0].Exact))
	_, err = b.PreviewInvoice(t.Context(), c.Caller, "2026-13")
	require.Equal(t, "request.invalid", fault.CodeOf(err))
	require.Zero(t, b.count(t, `select count(*) from invoices`))
}

// invoiceRun begins a run of a month and does its work.
func (w world) invoiceRun(t *testing.T, period string) store.InvoiceRun {
	t.Helper()
	run, err := w.CreateInvoiceRun(t.Context(), w.operator, period)
	require.NoError(t, err)
	for {
		step, err := w.AdvanceInvoiceRun(t.Context(), id.Request(run.ID))
		require.NoError(t, err)
		if step.Done {
			break
		}
	}
	run, err = w.GetInvoiceRun(t.Context(), w.operator, period)
	require.NoError(t, err)
	return run
}

func TestInvoiceRun(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	acme, emca := b.tenant(t, "acme", quota.Limits{}), b.tenant(t, "emca", quota.Limits{})
	b.used(t, acme, "one", 90*time.Minute)
	b.used(t, acme, "two", time.Hour)
	running := b.instance(t, emca, "running")
	require.True(t, b.start(t, emca, running, 1, november.AddDate(0, 0, 2)))

	_, err := b.CreateInvoiceRun(ctx, b.operator, "2026-11")
	require.Equal(t, "state.conflict", fault.CodeOf(err), "the month is not over")
	b.setClock(t, november.AddDate(0, 1, 0).Add(23*time.Hour))
	_, err = b.CreateInvoiceRun(ctx, b.operator, "2026-11")
	require.Equal(t, "state.conflict", fault.CodeOf(err), "within the grace")
	b.setClock(t, november.AddDate(0, 1, 1))
	_, err = b.GetInvoiceRun(ctx, b.operator, "2026-11")
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
	require.True(t, b.stop(t, emca, running, metering.DeleteAccepted, metering.Facts{At: november.AddDate(0, 0, 2).Add(time.Hour)}))

	begun, err := b.CreateInvoiceRun(ctx, b.operator, "2026-11")
	require.NoError(t, err)
	require.Equal(t, "running", begun.Status)
	same, err := b.CreateInvoiceRun(ctx, b.operator, "2026-11")
	require.NoError(t, err)
	require.Equal(t, begun.ID, same.ID, "a run at work is answered, not begun again")
	run := b.invoiceRun(t, "2026-11")
	require.Equal(t, begun.ID, run.ID)
	require.Equal(t, "succeeded", run.Status)
	require.Len(t, run.Invoices, 2)
	require.ElementsMatch(t, []string{"TR-2026-000001", "TR-2026-000002"}, []string{run.Invoices[0].Number, run.Invoices[1].Number})

	again, err := b.CreateInvoiceRun(ctx, b.operator, "2026-11")
	require.NoError(t, err)
	require.Equal(t, run, again, "a second run answers the first")

	list, err := b.ListInvoices(ctx, acme.Caller, app.InvoiceFilter{}, app.Page{Size: 10})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	v, err := b.GetInvoice(ctx, acme.Caller, list.Items[0].ID)
	require.NoError(t, err)
	require.NoError(t, v.Check())
	require.Equal(t, billing.Open, v.State)
	require.Equal(t, "1.23", v.Total.Decimal(), "2.5 × 0.49 = 1.225, rounded once")
	require.Len(t, v.Lines, 1)
	require.Len(t, v.Lines[0].Subjects, 2)
	require.Equal(t, "acme", v.Buyer.Name)
	require.NoError(t, b.RerateInvoice(ctx, acme.Org, v.ID))
	_, err = b.GetInvoice(ctx, emca.Caller, v.ID)
	require.Equal(t, "resource.not_found", fault.CodeOf(err), "of another organization")

	require.Equal(t, 0, b.count(t, `select coalesce(sum(amount_minor), 0) from ledger_postings`))
	require.Equal(t, 123+49, b.count(t, `select sum(amount_minor) from ledger_postings where account = 'receivable'`))
	require.Equal(t, 2, b.count(t, `select count(*) from events where type = 'invoice.finalized'`))

	late := b.instance(t, acme, "late")
	require.True(t, b.start(t, acme, late, 1, november.AddDate(0, 0, 20)))
	require.Equal(t, []metering.Interval{
		metering.Between(november.AddDate(0, 0, 20), november.AddDate(0, 1, 0)), metering.Between(november.AddDate(0, 1, 0), time.Time{}),
	}, b.segments(t, acme, late))
	require.Equal(t, 1, b.count(t, `select close_no from usage_segments where subject_id = $1 and billing_period = '2026-11'`, uuid.UUID(late)),
		"late for the invoice")
}

func TestOneOrganizationInTroubleKeepsNoOtherFromItsInvoice(t *testing.T) {
	b := newBilled(t)
	acme, emca := b.tenant(t, "acme", quota.Limits{}), b.tenant(t, "emca", quota.Limits{})
	b.used(t, acme, "one", time.Hour)
	b.used(t, emca, "two", time.Hour)
	b.exec(t, `update usage_segments set pricing_kind = 'spot' where org_id = $1`, uuid.UUID(acme.Org))
	b.setClock(t, november.AddDate(0, 1, 2))
	run := b.invoiceRun(t, "2026-11")
	require.Equal(t, "failed", run.Status)
	require.Len(t, run.Invoices, 1)
	require.Equal(t, emca.Org, run.Invoices[0].Org)

	b.exec(t, `update usage_segments set pricing_kind = 'on_demand' where org_id = $1`, uuid.UUID(acme.Org))
	require.Len(t, b.invoiceRun(t, "2026-11").Invoices, 2)
}

// The count of segments and their age are as in the draft; only the time is another.
func TestFinalizeBillsExactlyTheUsageThereIs(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	b.used(t, c, "one", time.Hour)
	b.setClock(t, november.AddDate(0, 1, 2))
	b.exec(t, `create function shorten() returns trigger language plpgsql as $$ begin
		update usage_segments set during = tstzrange(lower(during), upper(during) - interval '1 microsecond');
		return null;
	end $$`)
	b.exec(t, `create trigger shorten after insert on invoice_taxes for each row execute function shorten()`)
	_, err := b.InvoiceOrganization(t.Context(), c.Org, "2026-11")
	require.Equal(t, fault.Internal, fault.KindOf(err))
	require.Zero(t, b.count(t, `select count(*) from invoices where status = 'open'`))
	require.Zero(t, b.count(t, `select count(*) from invoice_numbers`))
}

func TestFinalizedInvoicesAreImmutable(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	b.used(t, c, "one", time.Hour)
	b.setClock(t, november.AddDate(0, 1, 2))
	b.invoiceRun(t, "2026-11")
	pool := b.db.OwnerPool(t)
	b.exec(t, `insert into invoices (org_id, id, period, period_from, period_to, close_no, currency, subtotal_minor, tax_minor,
			total_minor, content_hash, engine_version, inputs_hash, created_at)
		select org_id, gen_random_uuid(), period, period_from, period_to, 9, currency, 0, 0, 0, '', '', '', created_at from invoices`)
	b.exec(t, `insert into invoice_taxes (org_id, invoice_id, category, rate, base_minor, amount_minor)
		select org_id, id, 'X', 0, 0, 0 from invoices where status = 'draft'`)
	for _, sql := range []string{
		`update invoices set total_minor = 0, subtotal_minor = 0 where status = 'open'`, `update invoices set status = 'draft', number = null`, `delete from invoices where status = 'open'`, `truncate invoices cascade`,
		`update invoice_lines set amount_minor = 0`, `delete from line_subjects`, `delete from invoice_taxes where category <> 'X'`, `truncate invoice_taxes`,
		`update ledger_postings set amount_minor = 0`, `delete from ledger_journals`, `update prices set amount = 1`, `update price_versions set effective_from = 'epoch'`,
		`insert into ledger_postings select org_id, journal_id, 9, 'revenue', 1, currency from ledger_postings limit 1`,
		`insert into ledger_postings select org_id, journal_id, n, 'revenue', 9 - 2 * n, currency
			from (select * from ledger_postings limit 1) p, generate_series(4, 5) n`,
		`update invoice_taxes set invoice_id = (select id from invoices where status = 'open') where category = 'X'`,
	} {
		_, err := pool.Exec(t.Context(), sql)
		require.Error(t, err, sql)
	}
}

// Concurrent runs make one invoice each, and numbers without a gap, also where
// a transaction that took a number was rolled back.
func TestNumbersAreGapless(t *testing.T) {
	b := newBilled(t)
	const tenants = 12
	for i := range tenants {
		b.used(t, b.tenant(t, fmt.Sprintf("org-%02d", i), quota.Limits{}), "one", time.Duration(i+1)*time.Minute)
	}
	b.setClock(t, november.AddDate(0, 1, 2))
	taken := fmt.Errorf("rolled back on purpose")
	err := b.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) error {
		_, _, err := x.TakeNumber(t.Context(), billing.Series{Prefix: "TR", Kind: billing.UsageInvoice, Year: 2026}, november)
		require.NoError(t, err)
		return taken
	})
	require.ErrorIs(t, err, taken)

	run, err := b.CreateInvoiceRun(t.Context(), b.operator, "2026-11")
	require.NoError(t, err)
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs { // several workers of one run
		wg.Go(func() {
			for step := (app.Outcome{}); !step.Done && errs[i] == nil; {
				step, errs[i] = b.AdvanceInvoiceRun(context.WithoutCancel(t.Context()), id.Request(run.ID))
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, tenants, b.count(t, `select count(*) from invoices where status = 'open'`))
	require.Equal(t, tenants, b.count(t, `select count(distinct org_id) from invoices`), "no draft is left")
	require.Equal(t, tenants, b.count(t, `select count(distinct right(number, 6)::int) from invoices where right(number, 6)::int between 1 and $1`, tenants))
	require.Equal(t, tenants, b.count(t, `select count(*) from ledger_journals`))
}

// What ran over the end of the month, and still runs, is on the invoices of both months.
func TestRunningOverTheMonthIsInvoiced(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	inst := b.instance(t, c, "long")
	end := november.AddDate(0, 1, 0)
	require.True(t, b.start(t, c, inst, 1, end.Add(-time.Hour)))
	b.setClock(t, end.AddDate(0, 1, 2))
	// In either order: nothing is missed because the seal has not come by yet.
	totals := map[string]string{"2026-11": "0.49", "2026-12": "364.56"}
	for _, period := range []string{"2026-12", "2026-11"} {
		total := totals[period]
		b.invoiceRun(t, period)
		require.Equal(t, 1, b.count(t, `select count(*) from invoices where period = $1 and status = 'open' and total_minor = replace($2, '.', '')::bigint`, period, total))
	}
	require.True(t, b.segments(t, c, inst)[2].Open(), "it runs on")
	run := b.invoiceRun(t, "2026-10")
	require.Equal(t, "succeeded", run.Status)
	require.Empty(t, run.Invoices)
}
