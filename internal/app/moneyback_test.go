package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
)

// funded is a prepaid tenant whose November (9.80) was paid by a grant of 1.00 and
// a balance.
func (b *billed) funded(t *testing.T, balance int64) (customer, billing.Invoice) {
	t.Helper()
	c := b.prepaid(t, "acme", balance)
	_, err := b.CreateGrant(t.Context(), b.operator, c.Org, app.NewGrant{Name: "gift", Amount: cents(100)})
	require.NoError(t, err)
	b.used(t, c, "one", 20*time.Hour)
	b.tickAt(t, november.AddDate(0, 0, 4))
	b.setClock(t, november.AddDate(0, 1, 2))
	made, err := b.InvoiceOrganization(t.Context(), c.Org, "2026-11")
	require.NoError(t, err)
	require.Len(t, made, 1)
	v, err := b.GetInvoice(t.Context(), c.Caller, made[0].ID)
	require.NoError(t, err)
	require.Equal(t, "8.80", v.Total.Decimal())
	return c, v
}

func TestCancelGivesWalletAndGrantBack(t *testing.T) {
	b := newBilled(t)
	c, v := b.funded(t, 500)
	require.Equal(t, "5.00", v.Settlement.Prepaid.Decimal())
	require.Equal(t, "3.80", v.Due.Decimal())
	cancel := func() error {
		_, err := b.CancelInvoice(t.Context(), b.operator, c.Org, v.ID, app.Cancellation{Reason: "wrong", Refund: billing.RefundWallet})
		return err
	}
	require.NoError(t, cancel())
	require.Equal(t, fault.Conflict, fault.KindOf(cancel()), "B40: a second one reverses nothing")
	w := b.wallet(t, c)
	require.Equal(t, "5.00", w.Prepaid.Decimal())
	require.Equal(t, "1.00", w.Promo.Decimal())
	require.Equal(t, map[ledger.Account]int64{ledger.Bank: 500, ledger.Prepaid: -500, ledger.Promo: -100, ledger.PromoExpense: 100}, b.balances(t, c.Org))
	b.rebuilt(t)

	b.tickAt(t, november.AddDate(0, 1, 3))
	require.Equal(t, "5.00", b.wallet(t, c).Prepaid.Decimal(), "a cancelled month is not burned again")
	b.rebuilt(t)
}

// B45: credits of 4.00 and 1.00 on a paid document give back 5.00 together.
func TestB45CreditNotesAddUpInTheWallet(t *testing.T) {
	b := newBilled(t)
	c, v := b.funded(t, 2000)
	require.Equal(t, "0.00", v.Due.Decimal())
	require.Equal(t, "11.20", b.wallet(t, c).Prepaid.Decimal())
	for i, net := range []int64{400, 100} {
		amount := cents(net)
		_, err := b.CreateCreditNote(t.Context(), b.operator, c.Org, v.ID, app.CreditRequest{Net: &amount, Reason: "goodwill", Refund: billing.RefundWallet})
		require.NoError(t, err)
		require.Equal(t, []string{"15.20", "16.20"}[i], b.wallet(t, c).Prepaid.Decimal())
		b.rebuilt(t)
	}
	require.Equal(t, map[ledger.Account]int64{
		ledger.Bank: 2000, ledger.Prepaid: -1620, ledger.Revenue: -480, ledger.PromoExpense: 100,
	}, b.balances(t, c.Org))
}

// B42: a crowd credits one document: never more than its total goes back.
func TestCreditNotesUnderACrowd(t *testing.T) {
	b := newBilled(t)
	c, v := b.funded(t, 2000)
	amount := cents(100)
	race(t, func(int) error {
		_, err := b.CreateCreditNote(t.Context(), b.operator, c.Org, v.ID, app.CreditRequest{Net: &amount, Reason: "goodwill", Refund: billing.RefundWallet})
		switch fault.KindOf(err) {
		case fault.Conflict, fault.Unprocessable, fault.Invalid:
			return nil
		}
		return err
	})
	require.Equal(t, "19.20", b.wallet(t, c).Prepaid.Decimal(), "eight notes of 1.00 on 8.80")
	b.rebuilt(t)
}

func TestPromoOfTwoMonthsIsUsedOnce(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	_, err := b.CreateGrant(t.Context(), b.operator, c.Org, app.NewGrant{Name: "gift", Amount: cents(500)})
	require.NoError(t, err)
	b.used(t, c, "one", 8*time.Hour) // 3.92
	december := november.AddDate(0, 1, 0)
	inst := b.instance(t, c, "two")
	require.True(t, b.start(t, c, inst, 1, december))
	b.tickAt(t, december.Add(8*time.Hour)) // within the grace of November
	w := b.wallet(t, c)
	require.Equal(t, "5.00", w.PromoHeld.Decimal(), "3.92 of November, 1.08 are left for December")
	require.Equal(t, "0.00", w.Spendable.Decimal())
	b.setClock(t, december.Add(30*time.Hour))
	_, err = b.InvoiceOrganization(t.Context(), c.Org, "2026-11")
	require.NoError(t, err)
	preview, err := b.PreviewInvoice(t.Context(), c.Caller, "2026-12")
	require.NoError(t, err)
	promo := money.NewAmount(0, money.MustCurrency("USD"))
	for _, l := range preview.Lines {
		if l.Key.Component == billing.PromoCredit {
			promo = l.Amount
		}
	}
	require.Equal(t, "-1.08", promo.Decimal())
	b.rebuilt(t)
}
