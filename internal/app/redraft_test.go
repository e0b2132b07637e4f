package app_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// advanced is a tenant whose issuer taxes at receipt, with an advance invoice and the
// money of it in the wallet.
func (b *billed) advanced(t *testing.T, minor int64) customer {
	t.Helper()
	b.setClock(t, november.AddDate(0, -1, 0))
	b.german(t, func(i *billing.Issuer) { i.TaxPoint = billing.AtReceipt })
	b.setClock(t, november)
	c := b.tenant(t, "acme", quota.Limits{})
	b.buyer(t, c, "DE", "")
	payment, gross := id.New[id.Payment](), cents(minor)
	var advance billing.Invoice
	require.NoError(t, b.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) (err error) {
		advance, err = b.IssueAdvance(t.Context(), x, c.Org, payment, gross)
		return err
	}))
	b.lot(t, c, payment, gross, advance.TaxTotal)
	return c
}

// lot is the money of an advance invoice in the wallet.
func (b *billed) lot(t *testing.T, c customer, payment id.Payment, gross, tax money.Amount) {
	t.Helper()
	require.NoError(t, b.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) error {
		if _, err := x.LockWallet(t.Context(), c.Org); err != nil {
			return err
		}
		_, err := x.InsertGrant(t.Context(), c.Org, store.NewLot{Lot: wallet.Lot{
			Grant: id.New[id.Grant](), Kind: wallet.Prepaid, Name: "Prepayment", Priority: 100, Amount: gross, Tax: tax,
			Source: payment, CreatedAt: november,
		}})
		if err != nil {
			return err
		}
		j, err := ledger.PrepaymentReceived(ledger.Entry{Org: c.Org, Reference: payment, On: november}, ledger.Bank, gross)
		if err != nil {
			return err
		}
		return x.Post(t.Context(), j)
	}))
}

// deducted sums what live documents deduct of advances.
func (b *billed) deducted(t *testing.T, c customer) int {
	t.Helper()
	return b.count(t, `select coalesce(-sum(l.amount_minor), 0) from invoice_lines l join invoices i on i.id = l.invoice_id
		where i.org_id = $1 and i.live and i.status = 'open' and l.component = 'advance_deduction'`, uuid.UUID(c.Org))
}

// Two months drafted at once see the same advance: it is deducted once.
func TestAnAdvanceIsDeductedOnceByTwoMonths(t *testing.T) {
	b := newBilled(t)
	c := b.advanced(t, 300) // 2.52 and 0.48
	b.used(t, c, "one", 10*time.Hour)
	december := november.AddDate(0, 1, 1)
	inst := b.instance(t, c, "two")
	require.True(t, b.start(t, c, inst, 1, december))
	require.True(t, b.stop(t, c, inst, metering.DeleteAccepted, metering.Facts{At: december.Add(10 * time.Hour)}))
	b.setClock(t, november.AddDate(0, 2, 2))
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = b.InvoiceOrganization(t.Context(), c.Org, []string{"2026-11", "2026-12"}[i%2])
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			require.Equal(t, "state.conflict", fault.CodeOf(err))
		}
	}
	for _, period := range []string{"2026-11", "2026-12"} {
		_, err := b.InvoiceOrganization(t.Context(), c.Org, period)
		require.NoError(t, err)
	}
	require.Equal(t, 252, b.deducted(t, c))
	require.Equal(t, map[ledger.Account]int64{
		ledger.Bank: 300, ledger.Receivable: 2*583 - 300, ledger.Revenue: -980, ledger.Tax: -2 * 93,
	}, b.balances(t, c.Org))
	b.rebuilt(t)
}

// Late usage is paid out of advances as any other, and made again it is what it was.
func TestLateUsageMadeAgainDeductsOnce(t *testing.T) {
	b := newBilled(t)
	c := b.advanced(t, 1000) // 8.40 and 1.60
	inst := b.used(t, c, "one", 10*time.Hour)
	first := b.invoiced(t, c)[0]
	require.Equal(t, "0.00", first.Total.Decimal())
	b.arrives(t, c, inst, november.AddDate(0, 0, 10), 2*time.Hour+30*time.Minute)
	late := b.invoiced(t, c)[1]
	require.Equal(t, 1, late.CloseNo)
	require.Equal(t, "0.00", late.Total.Decimal(), "1.23 less 1.23 of the advance")
	require.Equal(t, 490+123, b.deducted(t, c))
	b.rebuilt(t)
	for range 2 {
		_, next, err := b.ReissueInvoice(t.Context(), b.operator, c.Org, late.ID, app.Cancellation{Reason: "another address", Refund: billing.RefundWallet})
		require.NoError(t, err)
		require.Len(t, next.Lines, len(late.Lines))
		require.Equal(t, late.AdvancesTaken(), next.AdvancesTaken())
		require.Equal(t, late.Total, next.Total)
		require.Equal(t, 490+123, b.deducted(t, c))
		require.NoError(t, next.Check())
		late = next
	}
	require.Zero(t, b.balances(t, c.Org)[ledger.Receivable])
	require.Zero(t, b.balances(t, c.Org)[ledger.PrepaidUsed])
	b.rebuilt(t)
}

// A month that stays without its invoice for long is burned and accrued all the same.
func TestAnOldMonthWithoutADocumentIsBurned(t *testing.T) {
	b := newBilled(t)
	c := b.prepaid(t, "acme", 1000)
	b.used(t, c, "one", 10*time.Hour)
	b.tickAt(t, november.AddDate(0, 4, 9))
	require.Equal(t, "5.10", b.wallet(t, c).Prepaid.Decimal())
	require.NoError(t, b.AccrueAll(t.Context()))
	require.Equal(t, map[ledger.Account]int64{
		ledger.Bank: 1000, ledger.Prepaid: -510, ledger.PrepaidUsed: -490, ledger.Unbilled: 490, ledger.Revenue: -490,
	}, b.balances(t, c.Org))
	_, err := b.InvoiceOrganization(t.Context(), c.Org, "2026-11")
	require.NoError(t, err)
	b.tickAt(t, november.AddDate(0, 4, 10))
	require.Equal(t, "5.10", b.wallet(t, c).Prepaid.Decimal())
	require.Equal(t, map[ledger.Account]int64{ledger.Bank: 1000, ledger.Prepaid: -510, ledger.Revenue: -490}, b.balances(t, c.Org))
	b.rebuilt(t)
}
