package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/quota"
)

// rule is the price rule of a state.
func rule(t *testing.T, rules []billing.PriceRule, state billing.ChargeState) billing.PriceRule {
	t.Helper()
	for _, r := range rules {
		if r.State == state {
			return r
		}
	}
	require.Failf(t, "no rule", "of %s", state)
	return billing.PriceRule{}
}

func TestAPricePreviewSaysWhatAStateCostsAndWhatComes(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c := b.tenant(t, "acme", quota.Limits{})
	_, err := b.CreatePriceVersion(ctx, b.operator, b.book.ID, app.NewPrices{Prices: []app.OfferPrice{
		{Offer: slice, PerHour: "0.55"}, {Offer: slice, Meter: metering.GPURetained, PerHour: "0.10"}}})
	require.NoError(t, err)

	p, err := b.PricePreview(ctx, c.Caller, c.Org, app.PriceRequest{Offer: slice, Count: 2, Hours: "1.5"})
	require.NoError(t, err)
	require.Equal(t, []string{slice, slice, "H200-141/mig", "local"}, []string{p.Offer, p.SKU, p.Family, p.Region})
	running := rule(t, p.Rules, billing.Running)
	require.Equal(t, []any{"0.49", "0.49", billing.FromList}, []any{running.Price.Decimal(), running.Net.Decimal(), running.Source})
	require.Empty(t, rule(t, p.Rules, billing.Preparing).Meter, "nothing is charged before the start")
	require.Empty(t, rule(t, p.Rules, billing.StoppedRelease).Meter)
	require.Equal(t, "0.49", p.Lock.Price.Decimal())
	require.Equal(t, 1, p.InForce.Number)
	require.Equal(t, 2, p.Next.Number)
	require.False(t, p.Next.EffectiveFrom.Before(november.AddDate(0, 0, 7)))
	require.Equal(t, billing.FromLock, rule(t, p.Next.Rules, billing.Running).Source, "who starts now keeps the price")
	require.Equal(t, "0.10", rule(t, p.Next.Rules, billing.StoppedRetain).Price.Decimal())
	require.Equal(t, []string{"1.47", "1.47"}, []string{p.Estimate.Exact.Decimal(), p.Estimate.Amount.Decimal()}, "2 × 1.5 × 0.49")
	require.Equal(t, 90*time.Minute, p.Estimate.During.To.Sub(p.Estimate.During.From))

	p, err = b.PricePreview(ctx, b.operator, c.Org, app.PriceRequest{Shape: &app.PriceShape{Model: "H200-141", Mode: gpu.MIG, Memory: 10240}, Hours: "0.01"})
	require.NoError(t, err)
	require.Equal(t, slice, p.Offer)
	require.Equal(t, []string{"0.0049", "0.00"}, []string{p.Estimate.Exact.Decimal(), p.Estimate.Amount.Decimal()})
	require.Zero(t, b.count(t, `select count(*) from usage_segments`)+b.count(t, `select count(*) from instances`), "nothing is held")
}

func TestAPricePreviewKnowsTheContract(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c := b.tenant(t, "acme", quota.Limits{})
	_, err := b.CreateContract(ctx, b.operator, c.Org, app.NewContract{Name: "frame", ContractTerms: app.ContractTerms{
		Discounts:  []app.ContractDiscount{{Name: "partner", Percent: "10"}},
		FreeQuotas: []app.ContractQuota{{Name: "trial", Scope: app.TermScope{Meter: metering.GPU}, Quantity: "3"}},
		Minimums:   []app.ContractMinimum{{Seconds: 7200}},
		Caps:       []app.ContractCap{{Hours: 5}},
	}})
	require.NoError(t, err)
	preview := func(hours string) app.PricePreview {
		p, err := b.PricePreview(ctx, c.Caller, c.Org, app.PriceRequest{Offer: slice, Hours: hours})
		require.NoError(t, err)
		return p
	}
	p := preview("4")
	running := rule(t, p.Rules, billing.Running)
	require.Equal(t, []any{"0.49", "0.441", 2 * time.Hour, int64(5)}, []any{running.Price.Decimal(), running.Net.Decimal(), running.Minimum, running.CapHours})
	require.Equal(t, "0.441", p.Estimate.Exact.Decimal(), "3 of 4 hours are free, 10 % off the last")
	require.Equal(t, "0.882", preview("700").Estimate.Exact.Decimal(), "5 hours of the month are charged, 3 of them free")
	require.Equal(t, "0.00", preview("0.1").Estimate.Exact.Decimal(), "the minimum of two hours is inside the free quota")
	b.used(t, c, "one", 150*time.Minute)
	b.setClock(t, november.AddDate(0, 0, 5))
	require.Equal(t, "0.6615", preview("0.1").Estimate.Exact.Decimal(), "two hours at least, half an hour of them free: 1.5 × 0.441")
}

func TestAPricePreviewOfSpotFollowsItsSeries(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c := b.tenant(t, "acme", quota.Limits{})
	ask := app.PriceRequest{Offer: slice, PriorityClass: "spot", Hours: "3"}
	_, err := b.PricePreview(ctx, c.Caller, c.Org, ask)
	require.Equal(t, "offer.unavailable", fault.CodeOf(err))
	_, err = b.PublishSpotPrice(ctx, b.operator, app.NewSpotPrice{Offer: slice, Currency: "USD", PerHour: "0.20"})
	require.NoError(t, err)
	p, err := b.PricePreview(ctx, c.Caller, c.Org, ask)
	require.NoError(t, err)
	_, err = b.PublishSpotPrice(ctx, b.operator, app.NewSpotPrice{Offer: slice, Currency: "USD", PerHour: "0.40", From: p.At.Add(2 * time.Hour)})
	require.NoError(t, err)
	require.Equal(t, "0.60", p.Estimate.Amount.Decimal())
	require.Nil(t, p.Lock, "spot locks nothing")
	require.Equal(t, billing.FromSpot, rule(t, p.Rules, billing.Running).Source)
	p, err = b.PricePreview(ctx, c.Caller, c.Org, ask)
	require.NoError(t, err)
	require.Equal(t, "0.80", p.Estimate.Amount.Decimal(), "about 2 × 0.20 + 0.40")
}

func TestBadPricePreviewsAreRefused(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c, other := b.tenant(t, "acme", quota.Limits{}), b.tenant(t, "other", quota.Limits{})
	for name, bad := range map[string]struct {
		in            app.PriceRequest
		code, pointer string
	}{
		"nothing":            {app.PriceRequest{}, "request.invalid", "/offer"},
		"both":               {app.PriceRequest{Offer: slice, Shape: &app.PriceShape{}}, "request.invalid", "/offer"},
		"unknown offer":      {app.PriceRequest{Offer: "nothing"}, "offer.unknown", "/offer"},
		"unknown shape":      {app.PriceRequest{Shape: &app.PriceShape{Model: "H200-141", Mode: gpu.MIG, Memory: 1 << 40}}, "offer.unknown", "/shape"},
		"negative count":     {app.PriceRequest{Offer: slice, Count: -1}, "request.invalid", "/count"},
		"absurd count":       {app.PriceRequest{Offer: slice, Count: 1 << 40}, "request.invalid", "/count"},
		"no hours":           {app.PriceRequest{Offer: slice, Hours: "0"}, "request.invalid", "/hours"},
		"negative hours":     {app.PriceRequest{Offer: slice, Hours: "-1"}, "request.invalid", "/hours"},
		"too many hours":     {app.PriceRequest{Offer: slice, Hours: "8785"}, "request.invalid", "/hours"},
		"less than a tick":   {app.PriceRequest{Offer: slice, Hours: "0.000000000001"}, "request.invalid", "/hours"},
		"no such class":      {app.PriceRequest{Offer: slice, PriorityClass: "royal"}, "request.invalid", "/priority_class"},
		"nothing reserved":   {app.PriceRequest{Offer: slice, PriorityClass: "reserved"}, "request.invalid", "/priority_class"},
		"no such behavior":   {app.PriceRequest{Offer: slice, StopBehavior: "explode"}, "request.invalid", "/stop_behavior"},
		"no price to retain": {app.PriceRequest{Offer: slice, StopBehavior: "retain"}, "request.invalid", "/stop_behavior"},
	} {
		_, err := b.PricePreview(ctx, c.Caller, c.Org, bad.in)
		require.Equal(t, bad.code, fault.CodeOf(err), name)
		require.Equal(t, bad.pointer, pointerOf(err), name)
	}
	for caller, org := range map[*app.Caller]id.Org{&c.Caller: other.Org, &b.operator: id.New[id.Org]()} {
		_, err := b.PricePreview(ctx, *caller, org, app.PriceRequest{Offer: slice})
		require.Equal(t, "resource.not_found", fault.CodeOf(err))
	}
}
