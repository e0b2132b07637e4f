package app_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

func TestRevenueAndMargin(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	acme, bolt := b.tenant(t, "acme", quota.Limits{}), b.tenant(t, "bolt", quota.Limits{})
	b.used(t, acme, "one", 10*time.Hour)
	b.used(t, bolt, "two", 100*time.Hour)
	cost := store.GPUCost{Model: "H200-141", PerHour: money.MustPrice("0.40", money.MustCurrency("USD")), From: november}
	require.NoError(t, b.SetGPUCost(ctx, b.operator, cost))
	require.Equal(t, "state.conflict", fault.CodeOf(b.SetGPUCost(ctx, b.operator, cost)), "a cost is immutable")
	require.Equal(t, fault.Invalid, fault.KindOf(b.SetGPUCost(ctx, b.operator, store.GPUCost{Model: "H200-141"})))

	b.setClock(t, november.AddDate(0, 1, 2))
	require.NoError(t, b.AccrueAll(ctx))
	_, err := b.InvoiceOrganization(ctx, acme.Org, "2026-11")
	require.NoError(t, err)
	r, err := b.RevenueReport(ctx, b.operator, "2026-11")
	require.NoError(t, err)
	require.Len(t, r.Rows, 2)
	require.Equal(t, "acme", r.Rows[0].OrgName)
	require.Equal(t, "H200-141", r.Rows[0].Model)
	require.False(t, r.Rows[0].Accrued)
	require.True(t, r.Rows[1].Accrued)
	require.Equal(t, []app.RevenueTotal{{Invoiced: cents(490), Accrued: cents(4900), Posted: cents(5390)}}, r.Totals,
		"the ledger says what documents and accruals say")
	require.Len(t, r.Margins, 1)
	m := r.Margins[0]
	require.Equal(t, cents(5390), m.Revenue)
	require.Positive(t, m.Sold)
	require.Equal(t, m.Cost.Rat(), cost.PerHour.Times(big.NewInt(m.Sold), time.Hour.Microseconds()).Rat(), "no GPU was looked at: what was sold was there")
	_, err = b.RevenueReport(ctx, b.operator, "x")
	require.Equal(t, fault.Invalid, fault.KindOf(err))
}
