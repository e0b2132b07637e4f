package app_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/testkit/stripefake"
)

// toppedUp is a payment that filled the wallet.
func (w *paying) toppedUp(t *testing.T, minor int64) store.Payment {
	t.Helper()
	w.exec(t, `insert into wallets (org_id, currency) values ($1, 'USD') on conflict do nothing`, uuid.UUID(w.acme.Org))
	w.card(t, stripefake.CardOK)
	require.NoError(t, w.ChargeTopUp(t.Context(), w.acme.Org, [16]byte{7}, dollars(minor)))
	w.collect(t)
	w.deliverAll(t)
	require.Equal(t, minor, w.wallet(t))
	return w.payments(t)[0]
}

func (w *paying) wallet(t *testing.T) int64 {
	t.Helper()
	return int64(w.count(t, `select prepaid_minor from wallets where org_id = $1`, uuid.UUID(w.acme.Org)))
}

// spend uses up a part of the wallet, as a month's invoice does.
func (w *paying) spend(t *testing.T, minor int64) {
	t.Helper()
	w.exec(t, `update credit_grants set remaining_minor = remaining_minor - $1`, minor)
	w.exec(t, `update wallets set prepaid_minor = prepaid_minor - $1`, minor)
}

func TestADisputedTopUpIsNotSpent(t *testing.T) {
	w := newPaying(t)
	w.toppedUp(t, 25_00)
	ref := w.fake.Dispute(w.fake.Intents()[0], 25_00)
	w.deliverAll(t)
	require.Zero(t, w.wallet(t), "the bank has the money")
	require.Zero(t, w.books(t, ledger.Prepaid))
	inv := w.invoice(t, 10_00)
	w.exec(t, `update payment_customers set method_ref = ''`)
	w.collect(t)
	require.Equal(t, int64(10_00), w.owed(t, inv), "it pays no invoice either")

	w.fake.CloseDispute(ref, true)
	w.deliverAll(t)
	require.Equal(t, int64(25_00), w.wallet(t))
	require.Equal(t, int64(-25_00), w.books(t, ledger.Prepaid))
	require.Zero(t, w.books(t, ledger.UnappliedCash))
	require.Zero(t, w.books(t, ledger.Disputes))
	require.True(t, w.payments(t)[0].Free().IsZero())
}

func TestALostDisputeOfATopUpReducesTheWallet(t *testing.T) {
	w := newPaying(t)
	w.toppedUp(t, 25_00)
	w.spend(t, 5_00)
	ref := w.fake.Dispute(w.fake.Intents()[0], 25_00)
	w.deliverAll(t)
	w.exec(t, `update credit_grants set remaining_minor = 200`) // a credit note gave some back meanwhile
	w.exec(t, `update wallets set prepaid_minor = 200`)
	w.fake.CloseDispute(ref, false)
	w.deliverAll(t)
	require.Zero(t, w.wallet(t))
	require.Equal(t, int64(3_00), w.books(t, ledger.WriteOff), "only what was spent is lost")
	require.Zero(t, w.books(t, ledger.UnappliedCash))
	require.Zero(t, w.books(t, ledger.Disputes))
	require.Equal(t, dollars(22_00), w.payments(t)[0].ChargedBack)
	require.Equal(t, dollars(3_00), w.payments(t)[0].Allocated)
}

func TestARefundElsewhereOfASpentTopUpIsALoss(t *testing.T) {
	w := newPaying(t)
	p := w.toppedUp(t, 25_00)
	w.spend(t, 20_00)
	w.fake.RefundElsewhere(w.fake.Intents()[0], 15_00)
	w.fake.RefundElsewhere(w.fake.Intents()[0], 10_00)
	w.deliverAll(t)
	require.Zero(t, w.count(t, `select count(*) from provider_events where state = 'received'`), "nothing is tried for ever")
	require.Equal(t, 2, w.count(t, `select count(*) from payment_refunds where state = 'succeeded'`))
	require.Zero(t, w.wallet(t))
	require.Equal(t, int64(20_00), w.books(t, ledger.WriteOff))
	require.Zero(t, w.books(t, ledger.UnappliedCash))
	require.Equal(t, -fee(25_00), w.books(t, ledger.Clearing))
	require.Equal(t, dollars(5_00), w.payments(t)[0].Refunded)

	w.fake.FailRefunds(w.fake.Intents()[0])
	w.deliverAll(t)
	require.Zero(t, w.books(t, ledger.WriteOff), "the bank sent it back")
	require.Equal(t, 25_00-fee(25_00), w.books(t, ledger.Clearing))
	require.Equal(t, dollars(5_00), w.payments(t)[0].Free())
	require.Equal(t, int64(-5_00), w.books(t, ledger.UnappliedCash))
	require.Equal(t, 2, w.events(t, "payment.refund_failed"))
	require.Equal(t, p.ID, w.payments(t)[0].ID)
}
