package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

var from = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func cents(n int64) money.Amount { return money.NewAmount(n, usd) }

func line(c billing.Component, n int64) billing.Line {
	return billing.Line{Key: billing.LineKey{Component: c}, Amount: cents(n)}
}

// document is an open document with lines and a tax.
func document(tax int64, lines ...billing.Line) billing.Invoice {
	v := billing.Invoice{
		ID: id.New[id.Invoice](), Org: id.New[id.Org](), State: billing.Open, Kind: billing.UsageInvoice, Currency: usd,
		Period: metering.Between(from, from.AddDate(0, 1, 0)), Lines: lines,
	}
	sub := int64(0)
	for _, l := range lines {
		sub += l.Amount.Minor()
	}
	v.Subtotal, v.TaxTotal, v.Total = cents(sub), cents(tax), cents(sub+tax)
	return v
}

// sums adds up a journal by account.
func sums(js ...ledger.Journal) map[ledger.Account]int64 {
	out := map[ledger.Account]int64{}
	for _, j := range js {
		for _, p := range j.Postings {
			out[p.Account] += p.Amount.Minor()
		}
	}
	for a, n := range out {
		if n == 0 {
			delete(out, a)
		}
	}
	return out
}

func TestInvoiceWithPromoPrepaidAndAccrual(t *testing.T) {
	v := document(190, line(billing.UsageCharge, 1500), line(billing.PromoCredit, -500))
	j, err := ledger.ForInvoice(v, ledger.Funding{Prepaid: cents(700), Accrued: cents(990)})
	require.NoError(t, err)
	require.Equal(t, map[ledger.Account]int64{
		ledger.Receivable: 490, ledger.PrepaidUsed: 700, ledger.Promo: 500,
		ledger.Revenue: -1500 + 990, ledger.Tax: -190, ledger.Unbilled: -990,
	}, sums(j))
}

func TestAdvanceIsTaxedOnce(t *testing.T) {
	advance := document(190, line(billing.AdvancePaid, 1000))
	advance.Kind, advance.TaxPoint = billing.AdvanceInvoice, from.AddDate(0, 0, 4)
	issued, err := ledger.ForInvoice(advance, ledger.Funding{})
	require.NoError(t, err)
	require.Equal(t, from.AddDate(0, 0, 4), issued.EffectiveOn)
	e := ledger.Entry{Org: advance.Org, Reference: advance.ID, On: from}
	in, err := ledger.PrepaymentReceived(e, ledger.Clearing, cents(1190))
	require.NoError(t, err)
	burned, err := ledger.Burned(e, cents(1190))
	require.NoError(t, err)
	final := document(0, line(billing.UsageCharge, 1000), line(billing.AdvanceOffset, -1000))
	done, err := ledger.ForInvoice(final, ledger.Funding{AdvanceTax: cents(190)})
	require.NoError(t, err)
	require.Equal(t, map[ledger.Account]int64{ledger.Clearing: 1190, ledger.Revenue: -1000, ledger.Tax: -190}, sums(issued, in, burned, done))
}

func TestCreditNoteTakesEverythingBack(t *testing.T) {
	v := document(190, line(billing.UsageCharge, 1500), line(billing.PromoCredit, -500))
	j, err := ledger.ForInvoice(v, ledger.Funding{Prepaid: cents(1190)})
	require.NoError(t, err)
	burned, err := ledger.Burned(ledger.Entry{Org: v.Org, Reference: v.ID, On: from}, cents(1190))
	require.NoError(t, err)
	note := document(-190, line(billing.Correction, -1000))
	note.Kind = billing.CreditNote
	back, err := ledger.ForCreditNote(note, v.ID, ledger.Funding{Prepaid: cents(1190), Promo: cents(500)})
	require.NoError(t, err)
	require.Empty(t, sums(burned, j, back), "nothing is left but the records")
	for _, p := range back.Postings {
		if p.Account == ledger.Receivable {
			require.Equal(t, [16]byte(v.ID), p.Document, "a note settles the document it corrects")
		}
	}
}

func TestEveryJournalBalances(t *testing.T) {
	inv := id.New[id.Invoice]()
	rapid.Check(t, func(t *rapid.T) {
		e := ledger.Entry{Org: id.New[id.Org](), Reference: [16]byte{1}, On: from.Add(36 * time.Hour)}
		a := cents(rapid.Int64Range(-1e12, 1e12).Draw(t, "a"))
		b := cents(rapid.Int64Range(0, 1e12).Draw(t, "b"))
		for _, make := range []func() (ledger.Journal, error){
			func() (ledger.Journal, error) { return ledger.Accrued(e, a) },
			func() (ledger.Journal, error) { return ledger.Burned(e, a) },
			func() (ledger.Journal, error) { return ledger.PrepaymentReceived(e, ledger.UnappliedCash, b) },
			func() (ledger.Journal, error) { return ledger.PrepaymentReturned(e, ledger.Clearing, b) },
			func() (ledger.Journal, error) { return ledger.GrantIssued(e, b) },
			func() (ledger.Journal, error) { return ledger.GrantExpired(e, ledger.Promo, b) },
			func() (ledger.Journal, error) { return ledger.Paid(e, inv, a, b) },
			func() (ledger.Journal, error) { return ledger.UnappliedUsed(e, inv, b) },
			func() (ledger.Journal, error) { return ledger.Overpaid(e, inv, b) },
			func() (ledger.Journal, error) { return ledger.Refunded(e, ledger.Receivable, inv, b) },
			func() (ledger.Journal, error) { return ledger.FeeCharged(e, b) },
			func() (ledger.Journal, error) { return ledger.ChargebackOpened(e, b) },
			func() (ledger.Journal, error) { return ledger.ChargebackWon(e, b) },
			func() (ledger.Journal, error) { return ledger.ChargebackLost(e, inv, b) },
			func() (ledger.Journal, error) { return ledger.WrittenOff(e, inv, b) },
			func() (ledger.Journal, error) { return ledger.Recovered(e, inv, b) },
			func() (ledger.Journal, error) { return ledger.Deposited(e, b) },
			func() (ledger.Journal, error) {
				v := document(rapid.Int64Range(-1e6, 1e6).Draw(t, "tax"), line(billing.UsageCharge, a.Minor()), line(billing.PromoCredit, -b.Minor()))
				return ledger.ForInvoice(v, ledger.Funding{Prepaid: b, Accrued: a})
			},
		} {
			j, err := make()
			require.NoError(t, err)
			require.NoError(t, j.Check())
			require.GreaterOrEqual(t, len(j.Postings), 2)
			for _, p := range j.Postings {
				require.Contains(t, ledger.Accounts, p.Account)
			}
		}
	})
}
