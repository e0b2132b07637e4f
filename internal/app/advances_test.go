package app_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/testkit/stripefake"
)

// atPoint is a tenant at home of a German issuer with the starter table (19 %), that
// taxes prepayments at a point.
func (b *billed) atPoint(t *testing.T, point billing.TaxPoint) customer {
	t.Helper()
	b.setClock(t, november.AddDate(0, -1, 0)) // in force in the month before, which the wallet looks at, too
	b.german(t, func(i *billing.Issuer) { i.TaxPoint = point })
	b.setClock(t, november)
	c := b.tenant(t, "acme", quota.Limits{})
	b.buyer(t, c, "DE", "")
	return c
}

// fifty is how long the slice runs for 50.00 at 0.49 an hour: 367,347 s are 50.00001.
const fifty = 367_347 * time.Second

// advances lists the advance invoices of an organization, whole, oldest first.
func (w world) advances(t *testing.T, c customer) []billing.Invoice {
	t.Helper()
	rows, err := w.owner.Query(t.Context(), `select id from invoices where org_id = $1 and kind = 'advance' order by number`, uuid.UUID(c.Org))
	require.NoError(t, err)
	defer rows.Close()
	var out []billing.Invoice
	for rows.Next() {
		var inv uuid.UUID
		require.NoError(t, rows.Scan(&inv))
		v, err := w.GetInvoice(t.Context(), c.Caller, id.Invoice(inv))
		require.NoError(t, err)
		require.NoError(t, v.Check())
		out = append(out, v)
	}
	require.NoError(t, rows.Err())
	return out
}

// sound asserts that the doctor finds nothing but that the instances here are rows
// without hosts, proof and quota (I3, I4, I13).
func (w world) sound(t *testing.T) {
	t.Helper()
	found, _, err := w.Audit(t.Context(), time.Hour)
	require.NoError(t, err)
	for _, i := range found {
		if !slices.Contains([]string{"I3", "I4", "I13"}, i.ID) {
			require.Empty(t, i.Offences, i.ID)
		}
	}
}

// sums are net, tax, total and due.
func sums(v billing.Invoice) []string {
	return []string{v.Subtotal.Decimal(), v.TaxTotal.Decimal(), v.Total.Decimal(), v.Due.Decimal()}
}

// 119.00 is paid in at 19 %: its tax is invoiced at once, and the invoice of usage of
// 50.00 takes its half of that off again: the tax of both is that of the prepayment
// received, of which the usage has 9.50.
func TestPrepaymentIsInvoicedAtReceiptAndDeductedFromUsage(t *testing.T) {
	b := newBilled(t)
	c := b.atPoint(t, billing.AtReceipt)
	b.prepay(t, c, "bank 1", 11900)
	again, err := b.RecordPrepayment(t.Context(), b.operator, c.Org, app.Prepayment{Reference: "bank 1", Amount: cents(11900)})
	require.NoError(t, err)
	require.False(t, again)

	made := b.advances(t, c)
	require.Len(t, made, 1, "once a payment")
	require.Equal(t, "DE-AD-2026-000001", made[0].Number)
	require.Equal(t, []string{"100.00", "19.00", "119.00", "0.00"}, sums(made[0]), "nothing of it is owed: it was paid")
	require.Equal(t, "paid", made[0].Label())
	require.Equal(t, 1900, b.count(t, `select tax_minor from credit_grants where org_id = $1`, uuid.UUID(c.Org)))
	require.Equal(t, map[ledger.Account]int64{ledger.Bank: 11900, ledger.Prepaid: -11900, ledger.Advance: 1900, ledger.Tax: -1900}, b.balances(t, c.Org))

	b.used(t, c, "one", fifty)
	b.tickAt(t, november.AddDate(0, 0, 9))
	require.Equal(t, "59.50", b.wallet(t, c).Prepaid.Decimal())
	v := b.invoiced(t, c)[0]
	require.Equal(t, []string{"0.00", "0.00", "0.00", "0.00"}, sums(v))
	require.Len(t, v.Lines, 2)
	require.Equal(t, "50.00", v.Lines[0].Amount.Decimal())
	require.Equal(t, billing.AdvanceOffset, v.Lines[1].Key.Component)
	require.Equal(t, "-50.00", v.Lines[1].Amount.Decimal())
	require.True(t, v.Settlement.Prepaid.IsZero(), "what a line deducts is not paid once more")
	require.Equal(t, "59.50", b.wallet(t, c).Prepaid.Decimal(), "the other half waits")
	require.Equal(t, map[ledger.Account]int64{
		ledger.Bank: 11900, ledger.Prepaid: -5950, ledger.Advance: 950, ledger.Revenue: -5000, ledger.Tax: -1900,
	}, b.balances(t, c.Org), "tax of both documents: 9.50 of the usage, 9.50 of what is left")
	require.NoError(t, b.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) error {
		left, err := x.AdvancesLeft(t.Context(), c.Org)
		require.Len(t, left, 1)
		require.Equal(t, "50.00", left[0].Net.Decimal())
		return err
	}))
	require.NoError(t, b.RerateInvoice(t.Context(), c.Org, v.ID))
	b.balanced(t, c, v.ID, made[0].ID)

	next, from := b.instance(t, c, "two"), november.AddDate(0, 1, 4)
	require.True(t, b.start(t, c, next, 1, from))
	require.True(t, b.stop(t, c, next, metering.DeleteAccepted, metering.Facts{At: from.Add(2 * fifty)}))
	b.setClock(t, november.AddDate(0, 2, 2))
	list, err := b.InvoiceOrganization(t.Context(), c.Org, "2026-12")
	require.NoError(t, err)
	v, err = b.GetInvoice(t.Context(), c.Caller, list[0].ID)
	require.NoError(t, err)
	require.Equal(t, []string{"50.00", "9.50", "59.50", "59.50"}, sums(v), "an advance is deducted once: 100.00 less the 50.00 that were left")
	require.Equal(t, map[ledger.Account]int64{
		ledger.Bank: 11900, ledger.Receivable: 5950, ledger.Revenue: -15000, ledger.Tax: -2850,
	}, b.balances(t, c.Org), "19 % of 150.00, and nothing is left in advance")
	b.balanced(t, c, v.ID)
	b.rebuilt(t)
	b.sound(t)
}

// Usage that a prepayment covers in part: both documents together bear the tax of the
// usage, and only what is left is owed.
func TestUsageBeyondAPrepaymentIsOwed(t *testing.T) {
	b := newBilled(t)
	c := b.atPoint(t, billing.AtReceipt)
	b.prepay(t, c, "bank 1", 3570) // 30.00 and 5.70
	b.used(t, c, "one", fifty)
	v := b.invoiced(t, c)[0]
	require.Equal(t, []string{"20.00", "3.80", "23.80", "23.80"}, sums(v))
	advance := b.advances(t, c)[0]
	together, err := advance.TaxTotal.Add(v.TaxTotal)
	require.NoError(t, err)
	require.Equal(t, "9.50", together.Decimal(), "19 % of 50.00")
	require.Equal(t, map[ledger.Account]int64{
		ledger.Bank: 3570, ledger.Receivable: 2380, ledger.Revenue: -5000, ledger.Tax: -950,
	}, b.balances(t, c.Org))
	b.balanced(t, c, v.ID, advance.ID)
	b.rebuilt(t)
	b.sound(t)
}

// Where tax is due at consumption, a prepayment makes no document.
func TestPrepaymentTaxedAtConsumptionIsNotInvoiced(t *testing.T) {
	b := newBilled(t)
	c := b.atPoint(t, billing.AtConsumption)
	b.prepay(t, c, "bank 1", 11900)
	require.Empty(t, b.advances(t, c))
	require.Equal(t, map[ledger.Account]int64{ledger.Bank: 11900, ledger.Prepaid: -11900}, b.balances(t, c.Org))
	b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	require.Equal(t, []string{"4.90", "0.93", "5.83", "0.00"}, sums(v))
	require.Equal(t, "5.83", v.Settlement.Prepaid.Decimal())
	b.balanced(t, c, v.ID)
}

// A top-up is invoiced as any prepayment is, and its refund takes the tax back.
func TestTopUpIsInvoicedAtReceiptAndCreditedWithItsRefund(t *testing.T) {
	w := newPaying(t)
	b := &billed{world: w.world}
	b.german(t, func(i *billing.Issuer) { i.TaxPoint = billing.AtReceipt })
	b.buyer(t, w.acme, "DE", "")
	w.card(t, stripefake.CardOK)
	_, err := w.OrderTopUp(t.Context(), w.acme.Caller, w.acme.Org, cents(11900))
	require.NoError(t, err)
	w.collect(t)
	w.deliverAll(t)
	made := w.advances(t, w.acme)
	require.Len(t, made, 1)
	require.Equal(t, []string{"100.00", "19.00", "119.00", "0.00"}, sums(made[0]))
	require.Equal(t, int64(-1900), w.books(t, ledger.Tax))
	require.Equal(t, int64(-11900), w.books(t, ledger.Prepaid))

	part := cents(5950)
	_, err = w.RefundPayment(t.Context(), w.operator, w.acme.Org, w.payments(t)[0].ID, app.RefundOrder{Amount: &part, Reason: "too much", Reopen: true})
	require.NoError(t, err)
	require.Equal(t, int64(-950), w.books(t, ledger.Tax))
	require.Equal(t, int64(950), w.books(t, ledger.Advance))
	require.Equal(t, int64(-5950), w.books(t, ledger.Prepaid))
	require.Zero(t, w.books(t, ledger.Receivable)+w.books(t, ledger.Revenue))
	require.Equal(t, 5950, w.count(t, `select credited_minor from invoices where kind = 'advance'`))
	require.Equal(t, 1, w.count(t, `select count(*) from invoices where kind = 'credit_note' and number = 'DE-CN-2026-000001'`))
	w.sound(t)
}
