package payment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
)

func amount(minor int64, code string) money.Amount {
	return money.NewAmount(minor, money.MustCurrency(code))
}

func parsed(t *testing.T, text, code string) money.Amount {
	t.Helper()
	a, err := money.ParseAmount(text, money.MustCurrency(code))
	require.NoError(t, err)
	return a
}

// Cases B15 and B16 of public bug reports: factors of 100 that were hard-coded, and
// provider exponents taken from ISO 4217.
func TestB15B16ProviderUnits(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text, code string
		units      int64
	}{
		{"1235", "JPY", 1235}, {"1.235", "KWD", 1235}, {"12.35", "USD", 1235}, // B15
		{"2000", "UGX", 200000}, {"5", "ISK", 500}, // B16
		{"0.001", "BHD", 1}, {"700", "KRW", 700},
	} {
		a := parsed(t, tc.text, tc.code)
		units, err := payment.ProviderUnits(a)
		require.NoError(t, err)
		require.Equal(t, tc.units, units, "%s", a)
		back, err := payment.FromProvider(units, tc.code)
		require.NoError(t, err)
		require.Equal(t, a, back, "the ledger keeps the amount of the currency")
	}
	for _, code := range []string{"CLF", "IQD", "UYW"} {
		_, err := payment.ProviderUnits(amount(1, code))
		require.Equal(t, "payment.currency", fault.CodeOf(err), code)
	}
	_, err := payment.FromProvider(1, "XXQ")
	require.Equal(t, "payment.currency", fault.CodeOf(err))
	_, err = payment.FromProvider(150, "UGX")
	require.Equal(t, "payment.amount", fault.CodeOf(err), "half a shilling is none")
	_, err = payment.ProviderUnits(amount(1<<62, "UGX"))
	require.ErrorIs(t, err, money.ErrRange)
}

func TestOnlyWholeStepsAreCharged(t *testing.T) {
	t.Parallel()
	charge, left, err := payment.Chargeable(parsed(t, "1.235", "KWD"))
	require.NoError(t, err)
	require.Equal(t, parsed(t, "1.230", "KWD"), charge)
	require.Equal(t, parsed(t, "0.005", "KWD"), left)
	for _, a := range []money.Amount{amount(1, "USD"), amount(1, "UGX"), amount(1, "JPY")} {
		charge, left, err := payment.Chargeable(a)
		require.NoError(t, err)
		require.Equal(t, a, charge)
		require.True(t, left.IsZero())
	}
}

func TestNoMessageOrderChangesTheOutcomeOfAnAttempt(t *testing.T) {
	t.Parallel()
	says := []payment.Observed{
		payment.SaysProcessing, payment.SaysNeedsAction, payment.SaysDeclined, payment.SaysCancelled, payment.SaysSucceeded,
	}
	rapid.Check(t, func(rt *rapid.T) {
		heard := rapid.SliceOf(rapid.SampledFrom(says)).Draw(rt, "heard")
		state, paid := payment.Planned, false
		for _, o := range heard {
			paid = paid || o == payment.SaysSucceeded
			next, moved := payment.NextAttempt(state, o)
			if moved {
				require.NotEqual(rt, state, next)
				state = next
			}
			require.Equal(rt, paid, state == payment.Succeeded, "money that came stays, whatever is heard after it")
		}
	})
	for _, s := range payment.AttemptStates {
		require.Equal(t, s == payment.Planned || s == payment.Processing || s == payment.NeedsAction, s.Live(), s)
	}
}

func TestRetriesEnd(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	next, ok := payment.RetryAt(1, "insufficient_funds", at)
	require.True(t, ok)
	require.Equal(t, at.AddDate(0, 0, 1), next)
	_, ok = payment.RetryAt(4, "insufficient_funds", at)
	require.False(t, ok)
	_, ok = payment.RetryAt(1, "stolen_card", at)
	require.False(t, ok, "a stolen card is not tried again")
}

func TestDisputesPassThroughOpen(t *testing.T) {
	t.Parallel()
	steps := payment.DisputeSteps
	require.Equal(t, []payment.DisputeState{payment.DisputeOpen, payment.DisputeLost}, steps(payment.NoDispute, payment.DisputeLost))
	require.Equal(t, []payment.DisputeState{payment.DisputeWon}, steps(payment.DisputeOpen, payment.DisputeWon))
	for _, over := range []payment.DisputeState{payment.DisputeWon, payment.DisputeLost} {
		require.Empty(t, steps(over, payment.DisputeOpen), "a late message changes nothing")
		require.Empty(t, steps(over, over))
	}
	require.Empty(t, steps(payment.NoDispute, payment.NoDispute))
}

func TestRefundsMoveForward(t *testing.T) {
	t.Parallel()
	require.True(t, payment.RefundMoves(payment.RefundPlanned, payment.RefundSucceeded))
	require.True(t, payment.RefundMoves(payment.RefundSucceeded, payment.RefundFailed), "a bank may send it back")
	require.False(t, payment.RefundMoves(payment.RefundFailed, payment.RefundSucceeded))
	require.False(t, payment.RefundMoves(payment.RefundSucceeded, payment.RefundPending))
}

func TestNamesOfInvoicesInReferences(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"TR-2026-000001", "invoice tr2026000001, thanks", "TR 2026 000001", "RF:TR-2026-\n000001.", "tr-2026-00 0001",
	} {
		require.True(t, payment.Names(text, "TR-2026-000001"), text)
	}
	for _, text := range []string{"TR-2026-0000011", "XTR-2026-000001", "TR-2026-00001", "", "2026-000001"} {
		require.False(t, payment.Names(text, "TR-2026-000001"), text)
	}
	require.False(t, payment.Names("anything", ""))
}

func TestMatchingOfTransfers(t *testing.T) {
	t.Parallel()
	acme, other := id.New[id.Org](), id.New[id.Org]()
	a := payment.Candidate{Org: acme, Invoice: id.New[id.Invoice](), Number: "TR-2026-000001", Due: amount(100_00, "USD"), Written: amount(0, "USD")}
	b := payment.Candidate{Org: acme, Invoice: id.New[id.Invoice](), Number: "TR-2026-000002", Due: amount(50_00, "USD"), Written: amount(0, "USD")}
	paid := payment.Candidate{Org: acme, Invoice: id.New[id.Invoice](), Number: "TR-2026-000003", Due: amount(0, "USD"), Written: amount(0, "USD")}
	given := payment.Candidate{Org: acme, Invoice: id.New[id.Invoice](), Number: "TR-2026-000005", Due: amount(0, "USD"), Written: amount(30_00, "USD")}
	foreign := payment.Candidate{Org: other, Invoice: id.New[id.Invoice](), Number: "TR-2026-000004", Due: amount(100_00, "USD"), Written: amount(0, "USD")}
	all := []payment.Candidate{b, a, paid, given, foreign}
	match := func(minor int64, reference string) payment.Match {
		return payment.MatchTransfer(payment.Transfer{Amount: amount(minor, "USD"), Reference: reference}, all)
	}
	paysOf := func(c payment.Candidate, minor int64) payment.Allocation {
		return payment.Allocation{Invoice: c.Invoice, Amount: amount(minor, "USD")}
	}

	got := match(100_00, "TR-2026-000001")
	require.Equal(t, []payment.Allocation{paysOf(a, 100_00)}, got.Allocations)
	require.Equal(t, acme, got.Org)
	got = match(150_00, "TR-2026-000002 and TR-2026-000001")
	require.Equal(t, []payment.Allocation{paysOf(a, 100_00), paysOf(b, 50_00)}, got.Allocations)
	got = match(120_00, "TR-2026-000001")
	require.Equal(t, int64(20_00), got.Unapplied.Minor(), "what is over is unapplied")
	got = match(77_00, "TR-2026-000003")
	require.Equal(t, acme, got.Org)
	require.Empty(t, got.Allocations)
	require.Equal(t, int64(77_00), got.Unapplied.Minor(), "paid twice: the second is recorded in full")
	got = match(30_00, "TR-2026-000005")
	require.Equal(t, []payment.Allocation{paysOf(given, 30_00)}, got.Allocations, "written off, and paid after all")
	got = match(100_00, "from "+acme.String())
	require.Equal(t, []payment.Allocation{paysOf(a, 100_00)}, got.Allocations)

	for reference, minor := range map[string]int64{
		"TR-2026-000001":                    99_99,  // short
		"TR-2026-000001 and TR-2026-000002": 149_99, // short of both
		"TR-2026-000001, TR-2026-000004":    200_00, // of two organizations
		"thank you":                         100_00, // an amount alone is never enough
		"":                                  1,
	} {
		got := match(minor, reference)
		require.True(t, got.Org.IsZero(), reference)
		require.Empty(t, got.Allocations)
		require.NotEmpty(t, got.Why)
	}
	eur := payment.MatchTransfer(payment.Transfer{Amount: amount(100_00, "EUR"), Reference: "TR-2026-000001"}, all)
	require.True(t, eur.Org.IsZero(), "another currency waits")
	require.Contains(t, eur.Why, "USD")
}

func TestMatchedMoneyIsConserved(t *testing.T) {
	t.Parallel()
	org := id.New[id.Org]()
	rapid.Check(t, func(rt *rapid.T) {
		var all []payment.Candidate
		reference := ""
		for i, due := range rapid.SliceOfN(rapid.Int64Range(0, 1000), 1, 5).Draw(rt, "due") {
			number := "TR-2026-00000" + string(rune('1'+i))
			all = append(all, payment.Candidate{Org: org, Invoice: id.New[id.Invoice](), Number: number, Due: amount(due, "USD"), Written: amount(rapid.Int64Range(0, 50).Draw(rt, "written"), "USD")})
			if rapid.Bool().Draw(rt, "named") {
				reference += " " + number
			}
		}
		came := rapid.Int64Range(1, 5000).Draw(rt, "came")
		got := payment.MatchTransfer(payment.Transfer{Amount: amount(came, "USD"), Reference: reference}, all)
		if got.Org.IsZero() {
			return
		}
		sum := got.Unapplied.Minor()
		require.GreaterOrEqual(rt, sum, int64(0))
		for _, x := range got.Allocations {
			require.Positive(rt, x.Amount.Minor())
			sum += x.Amount.Minor()
		}
		require.Equal(rt, came, sum)
	})
}

func TestChargebackAgainst(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 3, 22, 0, 0, 0, time.UTC)
	j, err := payment.ChargebackAgainst(ledger.Entry{Org: id.New[id.Org](), On: at}, ledger.WriteOff, amount(500, "USD"))
	require.NoError(t, err)
	require.NoError(t, j.Check())
	require.Equal(t, time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC), j.EffectiveOn)
}
