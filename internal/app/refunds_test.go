package app_test

import (
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/testkit/stripefake"
)

// paid is an invoice that was charged, and its payment.
func (w *paying) paid(t *testing.T, minor int64) (id.Invoice, store.Payment) {
	t.Helper()
	inv := w.invoice(t, minor)
	w.collect(t)
	w.deliverAll(t)
	require.Zero(t, w.owed(t, inv))
	return inv, w.payments(t)[0]
}

// overpaid is a payment that pays for nothing.
func (w *paying) overpaid(t *testing.T, minor int64) store.Payment {
	t.Helper()
	w.fake.ChargeElsewhere("cus_of_checkout", minor, "usd", map[string]string{"tranche_organization": w.acme.Org.String()})
	w.deliverAll(t)
	return w.payments(t)[0]
}

func (w *paying) refund(t *testing.T, p store.Payment, amount *money.Amount, reopen bool) error {
	t.Helper()
	_, err := w.RefundPayment(t.Context(), w.operator, w.acme.Org, p.ID, app.RefundOrder{Amount: amount, Reason: "asked for", Reopen: reopen})
	return err
}

func part(minor int64) *money.Amount { a := dollars(minor); return &a }

// Case B45 of public bug reports: a refund counts with its own amount, not with the
// sum that the provider tells: 10 and then 5 are 15, not 25.
func TestB45RefundsCountByThemselves(t *testing.T) {
	w := newPaying(t)
	p := w.overpaid(t, 40_00)
	for _, minor := range []int64{10_00, 5_00} {
		require.NoError(t, w.refund(t, p, part(minor), false))
		w.collect(t)
		w.deliverAll(t)
	}
	w.soon(t)
	w.collect(t)
	got := w.payments(t)[0]
	require.Equal(t, dollars(15_00), got.Refunded)
	require.Equal(t, dollars(25_00), got.Free())
	require.Equal(t, int64(-25_00), w.books(t, ledger.UnappliedCash))
	require.Equal(t, 25_00-fee(40_00), w.books(t, ledger.Clearing))
	require.Equal(t, 2, w.count(t, `select count(*) from payment_refunds where state = 'succeeded'`))
}

// Case B40 of public bug reports: two refunds of everything at once are one; the
// other is refused.
func TestB40TwoFullRefundsAtOnceAreOne(t *testing.T) {
	w := newPaying(t)
	p := w.overpaid(t, 40_00)
	var mu sync.Mutex
	var codes []string
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			_, err := w.RefundPayment(t.Context(), w.operator, w.acme.Org, p.ID, app.RefundOrder{Amount: part(40_00), Reason: "twice"})
			mu.Lock()
			defer mu.Unlock()
			codes = append(codes, fault.CodeOf(err))
		})
	}
	group.Wait()
	counts := map[string]int{}
	for _, c := range codes {
		counts[c]++
	}
	require.Equal(t, map[string]int{"": 1, "payment.spent": 7}, counts)
	w.fake.Script(stripefake.OpRefund, stripefake.Fault{Silent: true, After: true})
	w.collect(t)
	w.soon(t)
	w.collect(t)
	require.Equal(t, 1, w.fake.Requests(stripefake.OpRefund), "one that was not answered is found")
	require.Zero(t, w.books(t, ledger.UnappliedCash))
	require.Equal(t, "payment.spent", fault.CodeOf(w.refund(t, p, nil, false)))
}

func TestRefundsOfPaidInvoices(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardOK)
	inv, p := w.paid(t, 40_00)
	require.Equal(t, "payment.spent", fault.CodeOf(w.refund(t, p, part(10_00), false)), "an invoice is not reopened by accident")
	require.NoError(t, w.refund(t, p, part(10_00), true))
	require.Equal(t, int64(10_00), w.owed(t, inv))
	w.exec(t, `update payment_customers set method_ref = ''`)
	w.collect(t)
	require.Zero(t, w.books(t, ledger.UnappliedCash))
	w.fake.FailRefunds(w.fake.Intents()[0])
	w.deliverAll(t)
	require.Equal(t, int64(-10_00), w.books(t, ledger.UnappliedCash), "the bank sent it back")
	require.Equal(t, 40_00-fee(40_00), w.books(t, ledger.Clearing))
	w.collect(t)
	require.Zero(t, w.owed(t, inv), "and it pays the invoice again")

	w.fake.RefundElsewhere(w.fake.Intents()[0], 15_00)
	w.deliverAll(t)
	require.Equal(t, int64(15_00), w.owed(t, inv), "a refund made at the provider counts, too")
	require.Equal(t, dollars(15_00), w.payments(t)[0].Refunded)

	require.Equal(t, "request.invalid", fault.CodeOf(w.refund(t, p, part(-1), true)))
	eur := money.NewAmount(1, money.MustCurrency("EUR"))
	require.Equal(t, "request.invalid", fault.CodeOf(w.refund(t, p, &eur, true)))
	_, err := w.RefundPayment(t.Context(), w.operator, w.acme.Org, p.ID, app.RefundOrder{})
	require.Equal(t, "request.invalid", fault.CodeOf(err), "a refund has a reason")
	_, err = w.RefundPayment(t.Context(), w.acme.Caller, w.acme.Org, p.ID, app.RefundOrder{Reason: "please"})
	require.Equal(t, fault.Forbidden, fault.KindOf(err))
}

func TestDisputesThatAreLost(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardOK)
	inv, p := w.paid(t, 40_00)
	ref := w.fake.Dispute(w.fake.Intents()[0], 40_00)
	w.deliverAll(t)
	require.Equal(t, int64(40_00), w.books(t, ledger.Disputes))
	require.Equal(t, fee(40_00)+15_00, w.books(t, ledger.Fees))
	require.Zero(t, w.owed(t, inv), "it is not owed while the dispute lasts")
	require.Equal(t, 1, w.events(t, "invoice.disputed"))
	require.Equal(t, "state.conflict", fault.CodeOf(w.refund(t, p, part(1_00), true)), "no refund beside a dispute")

	w.fake.CloseDispute(ref, false)
	all := w.fake.Take()
	for range 2 {
		for _, e := range all {
			_, err := w.deliver(t, e)
			require.NoError(t, err)
		}
	}
	require.Zero(t, w.books(t, ledger.Disputes))
	require.Equal(t, int64(40_00), w.owed(t, inv))
	require.Equal(t, -fee(40_00)-15_00, w.books(t, ledger.Clearing))
	require.Equal(t, 1, w.events(t, "invoice.dispute_lost"))
	w.collect(t)
	require.Len(t, w.attempts(t, inv), 1, "who disputes a charge is not charged again")
	require.Equal(t, dollars(40_00), w.payments(t)[0].ChargedBack)
}

func TestADisputeThatIsHeardOfLate(t *testing.T) {
	w := newPaying(t)
	meta := map[string]string{"tranche_organization": w.acme.Org.String()}
	ref := w.fake.ChargeElsewhere("cus_x", 70_00, "usd", meta)
	w.fake.CloseDispute(w.fake.Dispute(ref, 70_00), true)
	all := w.fake.Take()
	for i := range all { // the last word first, before the charge itself
		_, err := w.deliver(t, all[len(all)-1-i])
		require.NoError(t, err)
	}
	require.Zero(t, w.books(t, ledger.Disputes))
	require.Equal(t, 70_00-fee(70_00), w.books(t, ledger.Clearing), "money and fee came back")
	require.Equal(t, dollars(70_00), w.payments(t)[0].Free())
	require.Equal(t, 1, w.count(t, `select count(*) from payment_disputes where state = 'won'`))

	w.fake.Inquiry(ref, 1_00)
	before := w.journals(t)
	w.deliverAll(t)
	require.Equal(t, before, w.journals(t), "a question takes nothing")
}

func TestALostDisputeOfRefundedMoneyIsALoss(t *testing.T) {
	w := newPaying(t)
	p := w.overpaid(t, 50_00)
	require.NoError(t, w.refund(t, p, part(30_00), false))
	w.collect(t)
	w.fake.CloseDispute(w.fake.Dispute(w.fake.Intents()[0], 50_00), false)
	w.deliverAll(t)
	require.Equal(t, int64(30_00), w.books(t, ledger.WriteOff))
	require.Zero(t, w.books(t, ledger.UnappliedCash))
	require.Zero(t, w.books(t, ledger.Disputes))
}

func TestWriteOffAndLateRecovery(t *testing.T) {
	w := newPaying(t)
	ctx := t.Context()
	inv := w.invoice(t, 90_00)
	other := w.second(t, "second")
	require.NoError(t, w.SetApprovalRule(ctx, w.operator, app.ApprovalRule{Kind: app.ApproveWriteOff, Above: dollars(50_00)}))
	order := func(amount *money.Amount) error {
		_, err := w.WriteOffInvoice(ctx, w.operator, w.acme.Org, inv, app.WriteOffOrder{Amount: amount, Reason: "insolvent"})
		return err
	}
	require.NoError(t, order(part(40_00)), "under the limit")
	require.Equal(t, "payment.exceeds_due", fault.CodeOf(order(part(50_01))))
	require.Equal(t, "request.invalid", fault.CodeOf(order(part(0))))
	require.NoError(t, w.SetApprovalRule(ctx, w.operator, app.ApprovalRule{Kind: app.ApproveWriteOff, Above: dollars(10_00)}))
	require.Equal(t, "approval.required", fault.CodeOf(order(nil)))
	require.Equal(t, int64(50_00), w.owed(t, inv), "nothing was posted")
	list, err := w.ListApprovals(ctx, other, app.Page{Size: 5})
	require.NoError(t, err)
	_, err = w.Approve(ctx, other, list.Items[0].ID)
	require.NoError(t, err)
	require.NoError(t, order(nil))
	require.Zero(t, w.owed(t, inv))
	require.Equal(t, int64(90_00), w.books(t, ledger.WriteOff))
	require.Equal(t, "state.conflict", fault.CodeOf(order(nil)), "nothing is owed any more")

	got, err := w.ImportStatement(ctx, w.operator, "DE1", []byte(statement+"b1,2026-12-20,70.00,USD,"+w.number()+",Acme\n"))
	require.NoError(t, err)
	require.Equal(t, 1, got.Matched)
	require.Equal(t, int64(20_00), w.books(t, ledger.WriteOff), "what came after all is no loss")
	require.Zero(t, w.owed(t, inv))
	require.Zero(t, w.books(t, ledger.UnappliedCash))
	require.Equal(t, int64(70_00), w.books(t, ledger.Bank))
}

func TestTopUpsFillTheWallet(t *testing.T) {
	w := newPaying(t)
	ctx := t.Context()
	w.exec(t, `insert into wallets (org_id, currency) values ($1, 'USD') on conflict do nothing`, uuid.UUID(w.acme.Org))
	key := [16]byte{1}
	w.card(t, stripefake.CardOK)
	for range 3 {
		require.NoError(t, w.ChargeTopUp(ctx, w.acme.Org, key, dollars(25_00)))
	}
	w.collect(t)
	w.deliverAll(t)
	require.NoError(t, w.ChargeTopUp(ctx, w.acme.Org, key, dollars(25_00)))
	w.collect(t)
	refs, _ := w.fake.Charged()
	require.Len(t, refs, 1)
	require.Equal(t, int64(-25_00), w.books(t, ledger.Prepaid))
	require.Zero(t, w.books(t, ledger.UnappliedCash))
	p := w.payments(t)[0]
	require.True(t, p.Free().IsZero(), "it is in the wallet, and pays no invoice")

	require.NoError(t, w.refund(t, p, part(10_00), true))
	w.collect(t)
	require.Equal(t, int64(-15_00), w.books(t, ledger.Prepaid))
	require.Equal(t, "payment.spent", fault.CodeOf(w.refund(t, p, part(15_01), true)))
	require.Equal(t, payment.Succeeded, w.attemptState(t, key))
}

func (w *paying) attemptState(t *testing.T, subject [16]byte) payment.AttemptState {
	t.Helper()
	var state string
	require.NoError(t, w.owner.QueryRow(t.Context(), `select state from payment_attempts where subject_id = $1`, uuid.UUID(subject)).Scan(&state))
	return payment.AttemptState(state)
}
