package app_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

func dollars(minor int64) money.Amount { return money.NewAmount(minor, money.MustCurrency("USD")) }

// second makes another operator.
func (w world) second(t *testing.T, name string) app.Caller {
	t.Helper()
	key, err := w.CreateOperator(t.Context(), name)
	require.NoError(t, err)
	return w.caller(t, key.Secret)
}

func TestFourEyesAboveALimit(t *testing.T) {
	w := newWorld(t, clock.Real())
	ctx := t.Context()
	other := w.second(t, "second")
	body := map[string]string{"invoice": "inv_1", "reason": "goodwill"}
	ask := func(c app.Caller, body any, amount money.Amount) (app.Permit, error) {
		return w.RequireApproval(ctx, c, app.ApproveCreditNote, body, amount)
	}

	permit, err := ask(w.operator, body, dollars(1_000_000))
	require.NoError(t, err, "no rule, no second operator")
	require.Equal(t, app.Permit{}, permit)

	require.NoError(t, w.SetApprovalRule(ctx, w.operator, app.ApprovalRule{Kind: app.ApproveCreditNote, Above: dollars(100_00)}))
	_, err = ask(w.operator, body, dollars(-100_00))
	require.NoError(t, err, "the limit itself is free; the sign does not matter")
	_, err = ask(w.operator, body, money.NewAmount(1_000_000, money.MustCurrency("EUR")))
	require.NoError(t, err, "a rule is for its currency")

	_, err = ask(w.operator, body, dollars(100_01))
	require.Equal(t, "approval.required", fault.CodeOf(err))
	require.Contains(t, fault.From(err).Suggestion, "apr_", "it says what to approve")
	list, err := w.ListApprovals(ctx, w.operator, app.Page{Size: 10})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.JSONEq(t, `{"invoice":"inv_1","reason":"goodwill"}`, string(list.Items[0].Body))
	_, err = ask(w.operator, body, dollars(100_01))
	require.Equal(t, "approval.required", fault.CodeOf(err), "asking again makes no second request")
	require.Equal(t, 1, w.count(t, `select count(*) from approvals`))

	apr := list.Items[0].ID
	_, err = w.Approve(ctx, w.operator, apr)
	require.Equal(t, "approval.self", fault.CodeOf(err))
	done, err := w.Approve(ctx, other, apr)
	require.NoError(t, err)
	require.Equal(t, "approved", done.State)
	_, err = w.Approve(ctx, other, apr)
	require.Equal(t, "state.conflict", fault.CodeOf(err))

	_, err = ask(w.operator, map[string]string{"invoice": "inv_1", "reason": "more"}, dollars(100_01))
	require.Equal(t, "approval.required", fault.CodeOf(err), "another body is another request")
	_, err = ask(w.operator, body, dollars(500_00))
	require.Equal(t, "approval.required", fault.CodeOf(err), "so is another amount")

	permit, err = ask(w.operator, body, dollars(100_01))
	require.NoError(t, err)
	var wins atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if w.Store.InSystem(ctx, "test", func(x *store.SystemTx) error { return permit.Spend(ctx, x) }) == nil {
				wins.Add(1)
			}
		})
	}
	group.Wait()
	require.Equal(t, int32(1), wins.Load(), "it is executed once")
	_, err = ask(w.operator, body, dollars(100_01))
	require.Equal(t, "approval.required", fault.CodeOf(err), "and then asked for again")
}

func TestLooseningARuleNeedsASecondOperator(t *testing.T) {
	w := newWorld(t, clock.Real())
	ctx := t.Context()
	other := w.second(t, "second")
	rule := func(minor int64) app.ApprovalRule {
		return app.ApprovalRule{Kind: app.ApproveWriteOff, Above: dollars(minor)}
	}
	require.NoError(t, w.SetApprovalRule(ctx, w.operator, rule(500)))
	require.NoError(t, w.SetApprovalRule(ctx, w.operator, rule(100)), "a stricter rule needs nobody")
	require.Equal(t, "approval.required", fault.CodeOf(w.SetApprovalRule(ctx, w.operator, rule(101))))
	list, err := w.ListApprovals(ctx, other, app.Page{Size: 10})
	require.NoError(t, err)
	_, err = w.Approve(ctx, other, list.Items[0].ID)
	require.NoError(t, err)
	require.NoError(t, w.SetApprovalRule(ctx, w.operator, rule(101)))
	rules, err := w.ApprovalRules(ctx, w.operator)
	require.NoError(t, err)
	require.Equal(t, int64(101), rules[0].Above)

	for _, bad := range []app.ApprovalRule{
		{Kind: "coffee", Above: dollars(1)}, {Kind: app.ApproveWriteOff}, {Kind: app.ApprovePriceBook, Above: dollars(1)},
		{Kind: app.ApproveRefund, Above: dollars(-1)},
	} {
		require.Equal(t, "request.invalid", fault.CodeOf(w.SetApprovalRule(ctx, w.operator, bad)))
	}
	_, err = w.Approve(ctx, other, id.New[id.Approval]())
	require.Equal(t, fault.NotFound, fault.KindOf(err))
}
