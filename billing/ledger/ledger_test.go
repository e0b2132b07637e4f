package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

var usd = money.MustCurrency("USD")

func TestInvoiceJournal(t *testing.T) {
	from := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	v := billing.Invoice{
		ID: id.New[id.Invoice](), Org: id.New[id.Org](), State: billing.Open, Period: metering.Between(from, from.AddDate(0, 1, 0)),
		Currency: usd, Subtotal: money.NewAmount(735, usd), TaxTotal: money.NewAmount(0, usd), Total: money.NewAmount(735, usd),
	}
	j, err := ledger.ForInvoice(v, ledger.Funding{})
	require.NoError(t, err)
	require.Equal(t, []ledger.Posting{
		{Account: ledger.Receivable, Amount: money.NewAmount(735, usd), Document: v.ID},
		{Account: ledger.Revenue, Amount: money.NewAmount(-735, usd)},
		{Account: ledger.Tax, Amount: money.NewAmount(0, usd)},
	}, j.Postings)
	require.Equal(t, time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), j.EffectiveOn)
	require.Equal(t, [16]byte(v.ID), j.Reference)

	v.Total = money.NewAmount(736, usd)
	_, err = ledger.ForInvoice(v, ledger.Funding{})
	require.Equal(t, fault.Internal, fault.KindOf(err))
	v.State = billing.Preview
	_, err = ledger.ForInvoice(v, ledger.Funding{})
	require.Equal(t, fault.Internal, fault.KindOf(err))
}

func TestJournalsSumToNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := ledger.Journal{Currency: usd}
		sum := int64(0)
		for _, minor := range rapid.SliceOfN(rapid.Int64Range(-1e9, 1e9), 0, 5).Draw(t, "minor") {
			j.Postings = append(j.Postings, ledger.Posting{Account: ledger.Revenue, Amount: money.NewAmount(minor, usd)})
			sum += minor
		}
		if len(j.Postings) < 2 || sum != 0 {
			require.Error(t, j.Check())
		}
		j.Postings = append(j.Postings, ledger.Posting{Account: ledger.Receivable, Amount: money.NewAmount(-sum, usd)})
		require.Equal(t, len(j.Postings) >= 2, j.Check() == nil)
	})
	mixed := ledger.Journal{Currency: usd, Postings: []ledger.Posting{
		{Account: ledger.Receivable, Amount: money.NewAmount(1, usd)},
		{Account: ledger.Revenue, Amount: money.NewAmount(-1, money.MustCurrency("JPY"))},
	}}
	require.Error(t, mixed.Check())
}
