package app_test

import (
	"context"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

var usd = money.MustCurrency("USD")

// pointerOf is the first field that a refusal names.
func pointerOf(err error) string {
	if f := fault.From(err); len(f.Fields) > 0 {
		return f.Fields[0].Pointer
	}
	return ""
}

// graduated is a price that falls after 100 GPU-hours.
func graduated() *app.PriceTiers {
	return &app.PriceTiers{Kind: billing.Graduated, Steps: []app.PriceStep{{UpTo: "100", Price: "0.49"}, {Price: "0.45"}}}
}

func TestTieredPricesAndOtherMetersAreStored(t *testing.T) {
	b := newBilled(t)
	want := []app.OfferPrice{
		{Offer: slice, Meter: metering.Egress, PerHour: "0.01"},
		{Offer: slice, Meter: metering.GPU, Tiers: graduated()},
		{Offer: slice, Meter: metering.GPURetained, PerHour: "0.10"},
		{Offer: slice, Meter: metering.IP, PerHour: "0.004"},
		{Offer: slice, Meter: metering.Reservation, Tiers: &app.PriceTiers{
			Kind: billing.Package, PackageSize: "100.5", Steps: []app.PriceStep{{Price: "30.00"}}}},
		{Offer: slice, Meter: metering.Storage, Tiers: &app.PriceTiers{
			Kind: billing.Volume, Steps: []app.PriceStep{{UpTo: "1024", Price: "0.000109589041"}, {Price: "0.0001"}}}},
	}
	book, err := b.CreatePriceVersion(t.Context(), b.operator, b.book.ID, app.NewPrices{Prices: want})
	require.NoError(t, err)
	require.Equal(t, want, book.Versions[0].Prices)
	read, err := b.GetPriceBook(t.Context(), b.operator, b.book.ID)
	require.NoError(t, err)
	require.Equal(t, book, read)
	require.Equal(t, 4, b.count(t, `select count(*) from price_steps`)+b.count(t, `select count(*) from prices where tiering = 'package'`)-2)

	b.setClock(t, november.AddDate(0, 0, 9))
	c := b.tenant(t, "acme", quota.Limits{})
	require.NoError(t, b.Store.InOrg(t.Context(), c.Org, func(x *store.OrgTx) error {
		found, err := x.OffersOfOrg(t.Context(), c.Org, store.OfferFilter{ID: slice, Size: 1})
		require.NoError(t, err)
		require.Equal(t, "0.49", found[0].Price.Decimal(), "offers show what the first unit costs")
		stored, err := x.PriceBook(t.Context(), b.book.ID)
		require.NoError(t, err)
		tiers := stored.Versions[1].Tiers[billing.PriceKey{SKU: b.sku, Meter: metering.Reservation}]
		require.Equal(t, big.NewRat(201, 2), tiers.PackageSize)
		return nil
	}))
	_, err = b.owner.Exec(t.Context(), `update price_steps set amount = 0`)
	require.ErrorContains(t, err, "immutable")
}

func TestBadPricesAreRefused(t *testing.T) {
	b := newBilled(t)
	tiers := func(kind billing.Tiering, size string, steps ...app.PriceStep) app.OfferPrice {
		return app.OfferPrice{Offer: slice, Tiers: &app.PriceTiers{Kind: kind, PackageSize: size, Steps: steps}}
	}
	step := func(upTo, price string) app.PriceStep { return app.PriceStep{UpTo: upTo, Price: price} }
	for name, bad := range map[string]struct {
		price   app.OfferPrice
		pointer string
	}{
		"13 decimals":             {app.OfferPrice{Offer: slice, PerHour: "0.0000000000001"}, "/prices/0/price_per_hour"},
		"negative":                {app.OfferPrice{Offer: slice, PerHour: "-1"}, "/prices/0/price_per_hour"},
		"10^12":                   {app.OfferPrice{Offer: slice, PerHour: "1000000000000"}, "/prices/0/price_per_hour"},
		"a thousand digits":       {app.OfferPrice{Offer: slice, PerHour: strings.Repeat("9", 1000)}, "/prices/0/price_per_hour"},
		"no number":               {app.OfferPrice{Offer: slice, PerHour: "NaN"}, "/prices/0/price_per_hour"},
		"neither price nor tiers": {app.OfferPrice{Offer: slice}, "/prices/0/price_per_hour"},
		"price and tiers":         {app.OfferPrice{Offer: slice, PerHour: "1", Tiers: graduated()}, "/prices/0/price_per_hour"},
		"unknown meter":           {app.OfferPrice{Offer: slice, Meter: "steam", PerHour: "1"}, "/prices/0/meter"},
		"unknown offer":           {app.OfferPrice{Offer: "nothing", PerHour: "1"}, "/prices/0/offer"},
		"unknown tiering":         {tiers("bulk", "", step("", "1")), "/prices/0/tiers/kind"},
		"no step":                 {tiers(billing.Graduated, ""), "/prices/0/tiers/steps"},
		"a closed last step":      {tiers(billing.Graduated, "", step("100", "1")), "/prices/0/tiers/steps/0/up_to"},
		"an open first step":      {tiers(billing.Graduated, "", step("", "1"), step("", "1")), "/prices/0/tiers/steps/0/up_to"},
		"steps that overlap":      {tiers(billing.Volume, "", step("100", "1"), step("100", "1"), step("", "1")), "/prices/0/tiers/steps/1/up_to"},
		"steps that go back":      {tiers(billing.Volume, "", step("100", "1"), step("50", "1"), step("", "1")), "/prices/0/tiers/steps/1/up_to"},
		"a step of nothing":       {tiers(billing.Volume, "", step("0", "1"), step("", "1")), "/prices/0/tiers/steps/0/up_to"},
		"a negative step price":   {tiers(billing.Volume, "", step("100", "-1"), step("", "1")), "/prices/0/tiers/steps/0/price"},
		"an absurd step":          {tiers(billing.Volume, "", step("10000000000000", "1"), step("", "1")), "/prices/0/tiers/steps/0/up_to"},
		"a package of nothing":    {tiers(billing.Package, "0", step("", "1")), "/prices/0/tiers/package_size"},
		"a package without size":  {tiers(billing.Package, "", step("", "1")), "/prices/0/tiers/package_size"},
		"a size without package":  {tiers(billing.Graduated, "1", step("", "1")), "/prices/0/tiers/package_size"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.CreatePriceVersion(t.Context(), b.operator, b.book.ID, app.NewPrices{Prices: []app.OfferPrice{bad.price}})
			require.Contains(t, []fault.Kind{fault.Invalid, fault.Unprocessable}, fault.KindOf(err), "%v", err)
			require.Equal(t, bad.pointer, pointerOf(err), "%v", err)
		})
	}
	_, err := b.CreatePriceVersion(t.Context(), b.operator, b.book.ID, app.NewPrices{Prices: make([]app.OfferPrice, 1001)})
	require.Equal(t, "request.invalid", fault.CodeOf(err))
	_, err = b.CreatePriceVersion(t.Context(), b.operator, b.book.ID, app.NewPrices{
		Prices: []app.OfferPrice{{Offer: slice, PerHour: "1"}}, EffectiveFrom: november.AddDate(0, 0, -1)})
	require.Equal(t, "/effective_from", pointerOf(err))
	require.Equal(t, 1, b.count(t, `select count(*) from price_versions`), "nothing was written")
}

func TestTheBookOfAnOrganizationChangesAtAMonth(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c := b.tenant(t, "acme", quota.Limits{})
	no := false
	second, err := b.CreatePriceBook(ctx, b.operator, app.NewPriceBook{Name: "second", Currency: usd, Default: &no, NewPrices: app.NewPrices{Prices: []app.OfferPrice{{Offer: slice, PerHour: "1"}}}})
	require.NoError(t, err)
	euro, err := b.CreatePriceBook(ctx, b.operator, app.NewPriceBook{Name: "euro", Currency: money.MustCurrency("EUR"), NewPrices: app.NewPrices{Prices: []app.OfferPrice{{Offer: slice, PerHour: "1"}}}})
	require.NoError(t, err)
	december, january := november.AddDate(0, 1, 0), november.AddDate(0, 2, 0)

	for name, bad := range map[string]struct {
		in            app.BookChange
		code, pointer string
	}{
		"another currency": {app.BookChange{Book: euro.ID}, "request.invalid", "/price_book"},
		"no such book":     {app.BookChange{Book: id.New[id.PriceBook]()}, "resource.not_found", ""},
		"the past":         {app.BookChange{Book: second.ID, From: november.AddDate(0, -1, 0)}, "request.invalid", "/from"},
		"too soon":         {app.BookChange{Book: second.ID, From: november.AddDate(0, 0, 6)}, "request.invalid", "/from"},
		"inside a month":   {app.BookChange{Book: second.ID, From: december.Add(time.Hour)}, "request.invalid", "/from"},
	} {
		_, err := b.AssignPriceBook(ctx, b.operator, c.Org, bad.in)
		require.Equal(t, bad.code, fault.CodeOf(err), name)
		require.Equal(t, bad.pointer, pointerOf(err), name)
	}
	got, err := b.AssignPriceBook(ctx, b.operator, c.Org, app.BookChange{Book: second.ID})
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, december, got[0].During.To, "the old one ends where the new one begins")
	require.Equal(t, metering.Interval{From: december}, got[1].During)
	_, err = b.AssignPriceBook(ctx, b.operator, c.Org, app.BookChange{Book: b.book.ID, From: december})
	require.Equal(t, "state.conflict", fault.CodeOf(err))
	_, err = b.AssignPriceBook(ctx, b.operator, c.Org, app.BookChange{Book: b.book.ID, From: january})
	require.NoError(t, err)
	shown, err := b.ListBookAssignments(ctx, c.Caller, c.Org)
	require.NoError(t, err)
	require.Len(t, shown, 3)
	other := b.tenant(t, "other", quota.Limits{})
	_, err = b.ListBookAssignments(ctx, other.Caller, c.Org)
	require.Equal(t, "resource.not_found", fault.CodeOf(err))

	_, err = b.owner.Exec(ctx, `update organization_price_books set price_book_id = $1`, uuid.UUID(euro.ID))
	require.ErrorContains(t, err, "changed")
	_, err = b.owner.Exec(ctx, `delete from organization_price_books`)
	require.ErrorContains(t, err, "refused")
}

// raced runs a change 8 times at once and counts what was done and what was refused.
func raced(t *testing.T, change func() error) (done, refused int) {
	t.Helper()
	results := make(chan error, 8)
	for range cap(results) {
		go func() { results <- change() }()
	}
	for range cap(results) {
		switch err := <-results; {
		case err == nil:
			done++
		case fault.KindOf(err) == fault.Conflict || fault.KindOf(err) == fault.Unavailable:
			refused++
		default:
			t.Errorf("neither done nor refused: %v", err)
		}
	}
	return done, refused
}

func TestOfChangesAtOnceOneIsMade(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c := b.tenant(t, "acme", quota.Limits{})
	done, refused := raced(t, func() error {
		_, err := b.AssignPriceBook(ctx, b.operator, c.Org, app.BookChange{Book: b.book.ID})
		return err
	})
	require.Equal(t, []int{1, 7}, []int{done, refused}, "changes of the book")
	require.Equal(t, 2, b.count(t, `select count(*) from organization_price_books where org_id = $1`, uuid.UUID(c.Org)))
	done, refused = raced(t, func() error {
		_, err := b.PublishSpotPrice(ctx, b.operator, app.NewSpotPrice{Offer: slice, Currency: "USD", PerHour: "0.2", From: november.AddDate(0, 0, 2)})
		return err
	})
	require.Equal(t, []int{1, 7}, []int{done, refused}, "spot prices")
	made, err := b.CreateContract(ctx, b.operator, c.Org, app.NewContract{Name: "frame", From: november.AddDate(0, 1, 0), ContractTerms: everything()})
	require.NoError(t, err)
	done, refused = raced(t, func() error {
		_, err := b.EndContract(ctx, b.operator, c.Org, made.ID, time.Time{})
		return err
	})
	require.Equal(t, []int{1, 7}, []int{done, refused}, "ends of a contract")
}

func TestSpotSeries(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c := b.tenant(t, "acme", quota.Limits{})
	publish := func(price string, from time.Time) error {
		_, err := b.PublishSpotPrice(ctx, b.operator, app.NewSpotPrice{Offer: slice, Currency: "USD", PerHour: price, From: from})
		return err
	}
	require.NoError(t, publish("0.20", november.Add(time.Hour)))
	require.NoError(t, publish("0.15", november.Add(2*time.Hour)))
	require.NoError(t, publish("0.25", november.Add(5*time.Hour)))
	require.Equal(t, "state.conflict", fault.CodeOf(publish("0.1", november.Add(5*time.Hour))), "twice at one instant")
	require.Equal(t, "state.conflict", fault.CodeOf(publish("0.1", november.Add(3*time.Hour))), "the series is only appended to")
	require.Equal(t, "/from", pointerOf(publish("0.1", november.Add(-time.Hour))))
	require.Equal(t, "/price_per_hour", pointerOf(publish("-0.1", time.Time{})))
	_, err := b.PublishSpotPrice(ctx, b.operator, app.NewSpotPrice{Offer: slice, Currency: "XXX", PerHour: "1"})
	require.Equal(t, "/currency", pointerOf(err))
	_, err = b.PublishSpotPrice(ctx, b.operator, app.NewSpotPrice{Offer: "nothing", Currency: "USD", PerHour: "1"})
	require.Equal(t, "offer.unknown", fault.CodeOf(err))
	_, err = b.PublishSpotPrice(ctx, c.Caller, app.NewSpotPrice{Offer: slice, Currency: "USD", PerHour: "1"})
	require.Equal(t, "auth.forbidden", fault.CodeOf(err))

	pieces, err := b.SpotPrices(ctx, c.Caller, app.SpotQuery{Offer: slice, From: november.Add(90 * time.Minute), To: november.Add(3 * time.Hour)})
	require.NoError(t, err)
	require.Len(t, pieces, 2)
	require.Equal(t, metering.Between(november.Add(time.Hour), november.Add(2*time.Hour)), pieces[0].During)
	require.Equal(t, "0.15", pieces[1].Price.Decimal())
	pieces, err = b.SpotPrices(ctx, b.operator, app.SpotQuery{Offer: slice, Currency: "USD"})
	require.NoError(t, err)
	require.Len(t, pieces, 3)
	require.True(t, pieces[2].During.Open())
	_, err = b.owner.Exec(ctx, `update spot_prices set amount = 0`)
	require.ErrorContains(t, err, "immutable")
	_, err = b.owner.Exec(ctx, `insert into spot_prices (region_id, sku_id, currency, effective_from, amount) values ('local', $1, 'USD', $2, 1)`, b.sku, november.Add(4*time.Hour))
	require.ErrorContains(t, err, "spot price begins after")

	inst, from := b.instance(t, c, "cheap"), november.Add(90*time.Minute)
	require.True(t, b.start(t, c, inst, 1, from))
	b.exec(t, `update usage_segments set pricing_kind = 'spot'`)
	terms := b.terms(t, c, november, november.AddDate(0, 1, 0))
	require.Len(t, terms.SpotSeries, 3)
	require.Equal(t, metering.Between(november.Add(time.Hour), november.Add(2*time.Hour)), terms.SpotSeries[0].During)
	require.Equal(t, "local", terms.SpotSeries[0].Region)
}

// terms reads the terms of a customer.
func (b *billed) terms(t *testing.T, c customer, from, to time.Time) (out billing.Terms) {
	t.Helper()
	require.NoError(t, b.Store.InOrg(context.WithoutCancel(t.Context()), c.Org, func(x *store.OrgTx) (err error) {
		out, err = x.TermsOf(t.Context(), c.Org, metering.Between(from, to), to)
		return err
	}))
	return out
}

func TestPriceBooksMayNeedASecondOperator(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	require.NoError(t, b.SetApprovalRule(ctx, b.operator, app.ApprovalRule{Kind: app.ApprovePriceBook}))
	key, err := b.CreateOperator(ctx, "second")
	require.NoError(t, err)
	other := b.caller(t, key.Secret)
	version := app.NewPrices{Prices: []app.OfferPrice{{Offer: slice, PerHour: "0.60"}}}
	announce := func() error {
		_, err := b.CreatePriceVersion(ctx, b.operator, b.book.ID, version)
		return err
	}
	require.Equal(t, "approval.required", fault.CodeOf(announce()))
	_, err = b.CreatePriceBook(ctx, b.operator, app.NewPriceBook{Name: "another", Currency: usd, NewPrices: version})
	require.Equal(t, "approval.required", fault.CodeOf(err))
	waiting, err := b.ListApprovals(ctx, other, app.Page{Size: 10})
	require.NoError(t, err)
	require.Len(t, waiting.Items, 2)
	_, err = b.Approve(ctx, other, waiting.Items[1].ID)
	require.NoError(t, err)
	require.NoError(t, announce(), "the very same request passes once")
	require.Equal(t, "approval.required", fault.CodeOf(announce()))
	require.Equal(t, 2, b.count(t, `select count(*) from price_versions`))
}
