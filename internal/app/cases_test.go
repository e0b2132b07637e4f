package app_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/testkit/stripefake"
)

// The numbered cases are faults that other billing systems had, with right values
// (docs/billing-cases.md).

// A report has a total for each currency and none over them.
func TestB19AccountsAreOfOneCurrency(t *testing.T) {
	w := newPaying(t)
	w.invoiceIn(t, 1235, "USD")
	w.invoiceIn(t, 1235, "JPY")
	rows, err := w.LedgerAccounts(t.Context(), w.operator, w.acme.Org, december.AddDate(1, 0, 0))
	require.NoError(t, err)
	got := map[string]money.Amount{}
	for _, r := range rows {
		if r.Account == "receivable" {
			got[r.Balance.Currency().Code()] = r.Balance
		}
	}
	require.Equal(t, map[string]money.Amount{
		"USD": money.NewAmount(1235, money.MustCurrency("USD")), "JPY": money.NewAmount(1235, money.MustCurrency("JPY")),
	}, got)
}

// A billing cycle is a calendar month: many seals at once of its end move it once.
func TestB35AMonthEndsOnce(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	inst := b.instance(t, c, "one")
	b.setClock(t, november.Add(time.Second))
	require.True(t, b.start(t, c, inst, 1, november))
	b.setClock(t, november.AddDate(0, 1, 1))
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { _, errs[i] = b.SealDue(context.WithoutCancel(t.Context())) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, 2, b.count(t, `select count(*) from usage_segments`), "November, and what runs")
	require.Equal(t, 1, b.count(t, `select count(*) from usage_segments where upper(during) = $1`, november.AddDate(0, 1, 0)))
}

// One event for one transition, whoever tells it how often.
func TestB51PaidIsToldOnce(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardOK)
	inv := w.invoice(t, 30_00)
	w.collect(t)
	for _, e := range w.fake.Take() {
		for range 3 {
			_, err := w.deliver(t, e)
			require.NoError(t, err)
		}
	}
	w.soon(t)
	require.NoError(t, w.ProcessProviderEvents(t.Context()))
	w.collect(t)
	require.Zero(t, w.owed(t, inv))
	require.Equal(t, 1, w.count(t, `select count(*) from events where type = 'invoice.paid' and subject_id = $1`, uuid.UUID(inv)))
}

// A key that was used with another body is refused, not answered from memory.
func TestB53AKeyHasOneBody(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", quota.Limits{})
	work := func(context.Context) (app.Answer, error) { return app.Answer{Status: 201, Body: []byte(`{}`)}, nil }
	_, replayed, err := w.Idempotent(t.Context(), once(acme, "k", `{"amount": "1.00"}`), work)
	require.NoError(t, err)
	require.False(t, replayed)
	_, _, err = w.Idempotent(t.Context(), once(acme, "k", `{"amount": "2.00"}`), work)
	require.Equal(t, "idempotency.mismatch", fault.CodeOf(err))
	require.Equal(t, fault.Unprocessable, fault.KindOf(err))
}
