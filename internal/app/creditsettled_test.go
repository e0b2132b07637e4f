package app_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/quota"
)

// transferred pays a document by bank.
func (b *billed) transferred(t *testing.T, v billing.Invoice, amount string) {
	t.Helper()
	got, err := b.ImportStatement(t.Context(), b.operator, "DE1", []byte(statement+"t-"+v.Number+",2026-12-20,"+amount+",USD,"+v.Number+",Acme\n"))
	require.NoError(t, err)
	require.Equal(t, 1, got.Matched)
}

// What was written off was never paid: a credit makes the loss smaller and gives
// nobody money.
func TestCreditOfAWrittenOffInvoiceMakesNoMoney(t *testing.T) {
	b := newBilled(t)
	b.german(t, nil)
	c := b.tenant(t, "acme", quota.Limits{})
	b.buyer(t, c, "DE", "")
	inst := b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	_, err := b.WriteOffInvoice(t.Context(), b.operator, c.Org, v.ID, app.WriteOffOrder{Reason: "insolvent"})
	require.NoError(t, err)
	b.transferred(t, v, "2.00") // after all
	require.Equal(t, int64(383), b.balances(t, c.Org)[ledger.WriteOff])

	b.excludes(t, c, inst, november.AddDate(0, 0, 1).Add(time.Hour), 90*time.Minute)
	note := b.invoiced(t, c)[1]
	require.Equal(t, "-0.87", note.Total.Decimal())
	require.Equal(t, "0.00", b.wallet(t, c).Prepaid.Decimal())
	books := b.balances(t, c.Org)
	require.Zero(t, books[ledger.Receivable])
	require.Equal(t, int64(383-87), books[ledger.WriteOff], "the loss is smaller")
	b.balanced(t, c, v.ID)

	_, err = b.CancelInvoice(t.Context(), b.operator, c.Org, v.ID, app.Cancellation{Reason: "wrong", Refund: billing.RefundWallet})
	require.NoError(t, err)
	books = b.balances(t, c.Org)
	require.Zero(t, books[ledger.Receivable])
	require.Zero(t, books[ledger.WriteOff])
	require.Equal(t, "2.00", b.wallet(t, c).Prepaid.Decimal(), "what was paid, and no more")
	b.balanced(t, c, v.ID)
	b.rebuilt(t)
}

// A credit without a decision about money leaves nothing negative either.
func TestCreditOfAWrittenOffInvoiceWithoutARefund(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	_, err := b.WriteOffInvoice(t.Context(), b.operator, c.Org, v.ID, app.WriteOffOrder{Reason: "insolvent"})
	require.NoError(t, err)
	for _, r := range []billing.Refund{"", billing.RefundNone, billing.RefundProvider, billing.RefundWallet} {
		_, err = b.credit(t, c, v.ID, app.CreditRequest{Net: usdAmount(50), Refund: r})
		require.NoError(t, err)
		require.Zero(t, b.count(t, `select coalesce(sum(amount_minor), 0) from ledger_postings where account = 'receivable' and document_id = $1`, uuid.UUID(v.ID)))
	}
	require.Equal(t, map[ledger.Account]int64{ledger.Revenue: -290, ledger.WriteOff: 290}, b.balances(t, c.Org))
	b.rebuilt(t)
}

// A document paid from the wallet first and by a transfer for the rest gives back to
// each what came from it: the wallet first.
func TestRefundOfAPartlyPrepaidInvoice(t *testing.T) {
	b := newBilled(t)
	c, v := b.funded(t, 500)
	b.transferred(t, v, "3.80")
	_, err := b.credit(t, c, v.ID, app.CreditRequest{Net: usdAmount(400), Refund: billing.RefundProvider})
	require.NoError(t, err)
	require.Equal(t, "4.00", b.wallet(t, c).Prepaid.Decimal())
	require.Zero(t, b.count(t, `select count(*) from payment_refunds`), "the wallet has it all")
	b.balanced(t, c, v.ID)

	_, err = b.credit(t, c, v.ID, app.CreditRequest{Net: usdAmount(300), Refund: billing.RefundProvider})
	require.NoError(t, err)
	require.Equal(t, "5.00", b.wallet(t, c).Prepaid.Decimal())
	require.Equal(t, 200, b.count(t, `select coalesce(sum(amount_minor), 0) from payment_refunds`))
	require.Zero(t, b.balances(t, c.Org)[ledger.UnappliedCash])
	b.balanced(t, c, v.ID)
	b.rebuilt(t)
}
