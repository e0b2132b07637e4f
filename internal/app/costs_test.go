package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/quota"
)

// cost is what one instance shows as its cost so far.
func (b *billed) cost(t *testing.T, c customer, name string) string {
	t.Helper()
	list, err := b.ListInstances(t.Context(), c.Caller, c.project, app.InstanceFilter{}, app.Page{Size: 50})
	require.NoError(t, err)
	for _, i := range list.Items {
		if i.Name == name {
			return i.CostSoFar.Decimal()
		}
	}
	require.Failf(t, "no instance", "named %s", name)
	return ""
}

// The exact cost that people watch follows the contract, and pools are those of the
// whole organization, whatever part of it is shown.
func TestCostsAndUsageFollowTheContract(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c := b.tenant(t, "acme", quota.Limits{})
	second, err := b.CreateProject(ctx, b.operator, c.Org, "second")
	require.NoError(t, err)
	_, err = b.CreateContract(ctx, b.operator, c.Org, app.NewContract{Name: "frame", ContractTerms: app.ContractTerms{
		Prices:    []app.OfferPrice{{Offer: slice, Tiers: &app.PriceTiers{Kind: "graduated", Steps: []app.PriceStep{{UpTo: "2", Price: "0.40"}, {Price: "0.20"}}}}},
		Discounts: []app.ContractDiscount{{Name: "partner", Percent: "50"}},
	}})
	require.NoError(t, err)
	elsewhere := c
	elsewhere.project = second.ID
	day := november.AddDate(0, 0, 1)
	one, two := b.instance(t, c, "one"), b.instance(t, elsewhere, "two")
	require.True(t, b.start(t, c, two, 1, day))
	require.True(t, b.stop(t, c, two, metering.DeleteAccepted, metering.Facts{At: day.Add(time.Hour)}))
	require.True(t, b.start(t, c, one, 1, day.Add(time.Hour)))
	require.True(t, b.stop(t, c, one, metering.StopRelease, metering.Facts{At: day.Add(3 * time.Hour)}))
	b.setClock(t, november.AddDate(0, 0, 3))

	require.Equal(t, "0.20", b.cost(t, elsewhere, "two"), "the first hour of the pool: 0.40 less half")
	require.Equal(t, "0.30", b.cost(t, c, "one"), "one hour at 0.40, one at 0.20, less half")
	for _, bucket := range []metering.Bucket{metering.NoBucket, metering.Hour} {
		list, err := b.Usage(ctx, c.Caller, c.project, app.UsageQuery{From: day, To: day.Add(24 * time.Hour), Bucket: bucket}, app.Page{Size: 50})
		require.NoError(t, err)
		total := list.Items[0].Exact
		for _, i := range list.Items[1:] {
			total, err = total.Add(i.Exact)
			require.NoError(t, err)
		}
		require.Equal(t, "0.30", total.Decimal(), bucket)
	}
	v, err := b.PreviewInvoice(ctx, c.Caller, "2026-11")
	require.NoError(t, err)
	require.Equal(t, "0.50", v.Subtotal.Decimal(), "the invoice says the same")
}

func TestReservedUsageCostsNothingBesideTheReservation(t *testing.T) {
	b, c := newReserving(t)
	now := november.AddDate(0, 0, 8)
	_, err := b.CreateReservation(t.Context(), c.Caller, c.Org, app.NewReservation{Project: c.project, Name: "base", Offer: slice, Units: 1, From: now.Add(time.Hour), To: now.Add(11 * time.Hour)})
	require.NoError(t, err)
	one, two := b.instance(t, c, "one"), b.instance(t, c, "two")
	require.True(t, b.start(t, c, one, 1, now.Add(time.Hour)))
	require.True(t, b.start(t, c, two, 1, now.Add(2*time.Hour)))
	b.setClock(t, now.Add(13*time.Hour))
	require.NoError(t, b.ProgressReservations(t.Context()))
	require.True(t, b.stop(t, c, one, metering.StopRelease, metering.Facts{At: now.Add(12 * time.Hour)}))
	require.True(t, b.stop(t, c, two, metering.StopRelease, metering.Facts{At: now.Add(3 * time.Hour)}))
	require.Equal(t, "0.49", b.cost(t, c, "one"), "the hour after the reservation")
	require.Equal(t, "0.49", b.cost(t, c, "two"), "one unit is reserved, the older start has it")
	list, err := b.Usage(t.Context(), c.Caller, c.project, app.UsageQuery{From: now, To: now.Add(24 * time.Hour), GroupBy: []string{"meter", "instance"}}, app.Page{Size: 50})
	require.NoError(t, err)
	got := map[string]string{}
	for _, i := range list.Items {
		got[i.Group["meter"]+" "+i.Group["instance"][:4]] = i.Exact.Decimal()
	}
	require.Equal(t, "3.00", got["reservation rsv_"], "10 hours at 0.30, used or not")
	v, err := b.PreviewInvoice(t.Context(), c.Caller, "2026-11")
	require.NoError(t, err)
	require.Equal(t, "3.98", v.Subtotal.Decimal(), "3.00 for the reservation, 2 × 0.49 beside it")
}

// What runs on over a month keeps its place: the reservation covers the oldest start.
func TestAReservationCoversTheOldestStartOverMonths(t *testing.T) {
	b, c := newReserving(t)
	december := november.AddDate(0, 1, 0)
	_, err := b.CreateReservation(t.Context(), c.Caller, c.Org, app.NewReservation{Project: c.project, Name: "base", Offer: slice, Units: 1, To: december.AddDate(0, 0, 1)})
	require.NoError(t, err)
	b.setClock(t, december.AddDate(0, 0, -2))
	younger, older := b.instance(t, c, "younger"), b.instance(t, c, "older") // the younger has the lower id
	require.True(t, b.start(t, c, older, 1, december.Add(-2*time.Hour)))
	require.True(t, b.start(t, c, younger, 1, december.Add(-time.Hour)))
	b.setClock(t, december.Add(4*time.Hour))
	require.True(t, b.stop(t, c, older, metering.StopRelease, metering.Facts{At: december.Add(3 * time.Hour)}))
	require.True(t, b.stop(t, c, younger, metering.StopRelease, metering.Facts{At: december.Add(3 * time.Hour)}))
	require.Equal(t, "0.00", b.cost(t, c, "older"))
	require.Equal(t, "1.96", b.cost(t, c, "younger"), "four hours at 0.49, also after the month's end")
	list, err := b.Usage(t.Context(), c.Caller, c.project, app.UsageQuery{From: december, To: december.Add(4 * time.Hour), GroupBy: []string{"instance", "meter"}}, app.Page{Size: 50})
	require.NoError(t, err)
	for _, i := range list.Items {
		if i.Group["instance"] == older.String() {
			require.Equal(t, "0.00", i.Exact.Decimal())
		}
	}
}
