package app_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// What is for operators is refused to tenants here, too, whatever the API did before.
func TestTenantsAreRefusedWhatIsForOperators(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", quota.Limits{})
	ctx, c, o := t.Context(), acme.Caller, acme.org.ID
	for name, err := range map[string]error{
		"CloseMonth":         errOf(w.CloseMonth(ctx, c, "2020-01")),
		"ReratePeriod":       errOf(w.ReratePeriod(ctx, c, "2020-01")),
		"ImportStatement":    errOf(w.ImportStatement(ctx, c, "DE02", nil)),
		"ResolveDiscrepancy": w.ResolveDiscrepancy(ctx, c, id.New[id.Discrepancy](), store.VerdictBilled, "x"),
		"CreateCoupon":       w.CreateCoupon(ctx, c, app.Coupon{Code: "FREE", Amount: dollars(1), MaxUses: 1}),
		"CreateGrant":        errOf(w.CreateGrant(ctx, c, o, app.NewGrant{Name: "g", Amount: dollars(1)})),
		"RecordPrepayment":   errOf(w.RecordPrepayment(ctx, c, o, app.Prepayment{Reference: "r", Amount: dollars(1)})),
		"SetMoneyMode":       w.SetMoneyMode(ctx, c, o, wallet.PrepaidMode),
		"AssignPriceBook":    errOf(w.AssignPriceBook(ctx, c, o, app.BookChange{})),
		"CreatePriceBook":    errOf(w.CreatePriceBook(ctx, c, app.NewPriceBook{Name: "b"})),
		"CreatePriceVersion": errOf(w.CreatePriceVersion(ctx, c, id.New[id.PriceBook](), app.NewPrices{})),
		"SetGPUCost":         w.SetGPUCost(ctx, c, store.GPUCost{Model: "H200-141"}),
		"RevenueReport":      errOf(w.RevenueReport(ctx, c, "2020-01")),
		"CreateInvoiceRun":   errOf(w.CreateInvoiceRun(ctx, c, "2020-01")),
		"SetApprovalRule":    w.SetApprovalRule(ctx, c, app.ApprovalRule{Kind: app.ApproveRefund, Above: dollars(1)}),
	} {
		require.Equal(t, "auth.forbidden", fault.CodeOf(err), name)
	}
}

func errOf[T any](_ T, err error) error { return err }

func TestAReferenceIsOfOnePrepayment(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	record := func(minor int64) (bool, error) {
		return b.RecordPrepayment(t.Context(), b.operator, c.Org, app.Prepayment{Reference: "r", Amount: cents(minor)})
	}
	fresh, err := record(500)
	require.NoError(t, err)
	require.True(t, fresh)
	fresh, err = record(500)
	require.NoError(t, err)
	require.False(t, fresh)
	_, err = record(700)
	require.Equal(t, "state.conflict", fault.CodeOf(err))
	require.Equal(t, "5.00", b.wallet(t, c).Prepaid.Decimal())
}

// Whoever is first, no rule is loosened without a second operator.
func TestRulesAreNotLoosenedByARace(t *testing.T) {
	w := newWorld(t, clock.Real())
	var mu sync.Mutex
	lowest := int64(1000)
	race(t, func(n int) error {
		above := int64(n%8 + 1)
		err := w.SetApprovalRule(t.Context(), w.operator, app.ApprovalRule{Kind: app.ApproveRefund, Above: dollars(above)})
		switch fault.CodeOf(err) {
		case "approval.required", "state.conflict":
			return nil
		}
		mu.Lock()
		lowest = min(lowest, above)
		mu.Unlock()
		return err
	})
	rules, err := w.ApprovalRules(t.Context(), w.operator)
	require.NoError(t, err)
	require.Len(t, rules, 1)
	require.Equal(t, lowest, rules[0].Above)
}

// What was asked for, received and given stays as it was written, also for the system.
func TestMoneyThatCameIsNotRewritten(t *testing.T) {
	w := newWorld(t, clock.Real())
	conn, err := pgx.Connect(t.Context(), w.db.AppDSN)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) })
	_, err = conn.Exec(t.Context(), `select set_config('role', 'tranche_system', false)`)
	require.NoError(t, err)
	for _, sql := range []string{
		`update payments set amount_minor = 1`, `update payment_refunds set amount_minor = 1`, `update payment_disputes set amount_minor = 1`,
		`update approvals set body_hash = ''`, `update approvals set requested_by = 'me'`, `update approvals set amount_minor = 0`,
		`update credit_grants set amount_minor = 1`, `update credit_grants set source_id = id`, `update coupons set max_uses = 1000`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "permission denied", sql)
	}
}

// A label is looked for over several rounds, period and kind by the database.
func TestDocumentsAreListedByPeriodAndLabel(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	b.used(t, c, "one", 10*time.Hour)
	b.setClock(t, november.AddDate(0, 1, 2))
	_, err := b.InvoiceOrganization(t.Context(), c.Org, "2026-11")
	require.NoError(t, err)
	for f, want := range map[app.InvoiceFilter]int{
		{}: 1, {Period: "2026-11"}: 1, {Period: "2026-10"}: 0, {Kind: billing.UsageInvoice}: 1, {Kind: billing.CreditNote}: 0,
		{Label: "open"}: 1, {Label: billing.LabelPaid}: 0, {Period: "2026-11", Label: "open", Kind: billing.UsageInvoice}: 1,
	} {
		got, err := b.ListInvoices(t.Context(), c.Caller, f, app.Page{Size: 1})
		require.NoError(t, err)
		require.Len(t, got.Items, want, "%+v", f)
		require.Empty(t, got.Next)
	}
}
