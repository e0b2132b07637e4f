package app_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/testkit/stripefake"
)

// TestAStormOfMoneyLosesNothing lets collection, webhooks, transfers, refunds and
// write-offs of the same invoices run at once while the provider fails, and then
// compares what the provider and the bank took with the books, to the minor unit.
func TestAStormOfMoneyLosesNothing(t *testing.T) {
	w := newPaying(t)
	ctx := t.Context()
	w.card(t, stripefake.CardOK)
	var invoices []id.Invoice
	var numbers []string
	for range 8 {
		invoices = append(invoices, w.invoice(t, 10_00))
		numbers = append(numbers, w.number())
	}
	for range 6 {
		w.fake.Script(stripefake.OpCharge, stripefake.Fault{Status: http.StatusInternalServerError, After: true}, stripefake.Fault{Status: http.StatusTooManyRequests})
		w.fake.Script(stripefake.OpRead, stripefake.Fault{Status: http.StatusInternalServerError})
	}
	var mu sync.Mutex
	var kept []stripefake.Event
	tolerated := func(err error) {
		switch fault.KindOf(err) {
		case "", fault.Conflict, fault.Unavailable, fault.Unprocessable:
		default:
			t.Error(err)
		}
	}
	jobs := []func(n int){
		func(int) { tolerated(w.CollectPayments(ctx)) },
		func(int) { tolerated(w.ProcessProviderEvents(ctx)) },
		func(int) { tolerated(w.RunDunning(ctx)) },
		func(int) {
			mu.Lock()
			kept = append(kept, w.fake.Take()...)
			mine := append([]stripefake.Event(nil), kept...)
			mu.Unlock()
			rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			for _, e := range mine {
				_, err := w.ReceiveProviderEvent(ctx, "stripe", w.fake.Sign(e.Body, time.Now()), e.Body)
				tolerated(err)
			}
		},
		func(n int) {
			line := fmt.Sprintf("%d,2026-12-10,7.00,USD,%s,Acme\n%d-b,2026-12-10,12.00,USD,%s,Acme\n", n, numbers[n%8], n, numbers[(n+3)%8])
			_, err := w.ImportStatement(ctx, w.operator, "DE1", []byte(statement+line))
			tolerated(err)
		},
		func(int) {
			got, err := w.ListPayments(ctx, w.operator, w.acme.Org, app.Page{Size: 50})
			tolerated(err)
			for _, p := range got.Items {
				_, err := w.RefundPayment(ctx, w.operator, w.acme.Org, p.ID, app.RefundOrder{Amount: part(1_00), Reason: "storm", Reopen: rand.IntN(2) == 0})
				tolerated(err)
			}
		},
		func(n int) {
			_, err := w.WriteOffInvoice(ctx, w.operator, w.acme.Org, invoices[n%8], app.WriteOffOrder{Amount: part(2_00), Reason: "storm"})
			tolerated(err)
		},
	}
	var group sync.WaitGroup
	for i, job := range jobs {
		group.Go(func() {
			for n := range 6 {
				job(6*i + n)
			}
		})
	}
	group.Wait()
	w.exec(t, `update payment_customers set method_ref = ''`)
	for range 8 {
		w.soon(t)
		w.collect(t)
		require.NoError(t, w.ProcessProviderEvents(ctx))
	}
	w.deliverAll(t)
	w.settled(t)
}

// settled compares the books with the provider and the bank.
func (w *paying) settled(t *testing.T) {
	t.Helper()
	one := func(sql string) int64 { return int64(w.count(t, sql)) }
	refs, units := w.fake.Charged()
	refunded := one(`select coalesce(sum(amount_minor), 0) from payment_refunds where state = 'succeeded'`)
	bank := one(`select coalesce(sum(amount_minor), 0) from payments where provider = 'bank'`)
	require.Equal(t, units+bank-refunded-w.fake.Fees(), w.books(t, ledger.Clearing)+w.books(t, ledger.Bank))
	require.Zero(t, one(`select count(*) from payment_refunds where state in ('planned', 'pending')`))
	require.Equal(t, -one(`select coalesce(sum(amount_minor - allocated_minor - refunded_minor - charged_back_minor), 0) from payments`),
		w.books(t, ledger.UnappliedCash))
	require.Zero(t, one(`select count(*) from payments p where allocated_minor <>
		(select coalesce(sum(amount_minor), 0) from payment_allocations a where a.payment_id = p.id)`))
	require.Zero(t, one(`select count(*) from (select sum(amount_minor) as due from ledger_postings where account = 'receivable'
		group by document_id) d where due < 0`), "nothing is paid beyond what is owed")
	require.Equal(t, one(`select coalesce(sum(amount_minor), 0) from invoice_write_offs`), w.books(t, ledger.WriteOff))
	require.Equal(t, one(`select count(*) from payments where provider = 'stripe'`), int64(len(refs)))
	require.Zero(t, one(`select coalesce(sum(amount_minor), 0) from ledger_postings`))
}
