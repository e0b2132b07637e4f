package wallet_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
)

var (
	usd = money.MustCurrency("USD")
	now = time.Date(2026, 11, 10, 0, 0, 0, 0, time.UTC)
)

func cents(n int64) money.Amount { return money.NewAmount(n, usd) }

// grant is a lot whose id tells lots apart and orders them last.
func grant(n byte, amount int64, priority int, expires time.Time) wallet.Lot {
	return wallet.Lot{
		Grant: id.Grant{n}, Kind: wallet.Prepaid, Priority: priority, Expires: expires, Amount: cents(amount), Remaining: cents(amount),
	}
}

// purse applies steps to lots and keeps what was recorded.
type purse struct {
	lots     []wallet.Lot
	recorded []wallet.Use
}

func (p *purse) burn(t require.TestingT, total int64, at time.Time) wallet.Step {
	s, err := wallet.Burn(p.lots, p.recorded, cents(total), at)
	require.NoError(t, err)
	p.apply(t, s.Uses)
	return s
}

func (p *purse) apply(t require.TestingT, uses []wallet.Use) {
	for _, u := range uses {
		i := slices.IndexFunc(p.lots, func(l wallet.Lot) bool { return l.Grant == u.Grant })
		left := p.lots[i].Remaining.Minor() - u.Amount.Minor()
		require.GreaterOrEqual(t, left, int64(0))
		require.LessOrEqual(t, left, p.lots[i].Amount.Minor())
		p.lots[i].Remaining = cents(left)
	}
	p.recorded = append(p.recorded, uses...)
}

func (p *purse) balance() (n int64) {
	for _, l := range p.lots {
		n += l.Remaining.Minor()
	}
	return n
}

func TestOrderOfUse(t *testing.T) {
	soon, late := now.AddDate(0, 0, 1), now.AddDate(0, 1, 0)
	lots := []wallet.Lot{grant(6, 1, 2, time.Time{}), grant(5, 1, 1, time.Time{}), grant(4, 1, 1, late), grant(3, 1, 1, soon), grant(2, 1, 1, late), grant(9, 1, 0, time.Time{})}
	var order []byte
	for _, l := range wallet.Ordered(lots) {
		order = append(order, l.Grant[0])
	}
	require.Equal(t, []byte{9, 3, 2, 4, 5, 6}, order, "priority, earliest expiry, id; never is last")
}

// B4: the balance and the movement are the same whole minor units.
func TestB4BalanceAndMovementAreOneNumber(t *testing.T) {
	p := purse{lots: []wallet.Lot{grant(1, 1797, 0, time.Time{})}}
	s := p.burn(t, 1797, now)
	require.Equal(t, "17.97", s.Delta.Decimal())
	require.Zero(t, p.balance())
}

// B5: 14.29 net and 24 % make 17.72; the wallet pays exactly that.
func TestB5WalletPaysTheTotal(t *testing.T) {
	p := purse{lots: []wallet.Lot{grant(1, 10000, 0, time.Time{})}}
	s := p.burn(t, 1772, now)
	require.Equal(t, cents(1772), s.Burned)
	require.Equal(t, cents(0), s.Excess)
	require.Equal(t, int64(8228), p.balance())
}

// B6: eight lines of 1.4 minor units are 8, 40 % tax 3: credit is at most 11.
func TestB6CreditIsAtMostTheRoundedTotal(t *testing.T) {
	p := purse{lots: []wallet.Lot{grant(1, 100, 0, time.Time{})}}
	require.Equal(t, cents(11), p.burn(t, 11, now).Burned)
	require.Equal(t, int64(89), p.balance())
}

// B7: 0 ≤ credit ≤ total, whatever came before.
func TestB7CreditIsBetweenNothingAndTheTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := purse{lots: []wallet.Lot{grant(1, rapid.Int64Range(0, 5000).Draw(t, "a"), 0, time.Time{}), grant(2, rapid.Int64Range(0, 5000).Draw(t, "b"), 0, time.Time{})}}
		had := p.balance()
		for _, total := range rapid.SliceOfN(rapid.Int64Range(-3000, 9000), 1, 20).Draw(t, "totals") {
			s := p.burn(t, total, now)
			want := max(total, 0)
			require.GreaterOrEqual(t, s.Burned.Minor(), int64(0))
			require.LessOrEqual(t, s.Burned.Minor(), want)
			require.Equal(t, want, s.Burned.Minor()+s.Excess.Minor(), "what no lot covers is owed")
			require.Equal(t, had, p.balance()+s.Burned.Minor(), "nothing comes or goes")
			require.Equal(t, min(want, had), s.Burned.Minor(), "as far as the lots reach")
		}
	})
}

// Any number of ticks burns what one tick burns, and from the same lots.
func TestBurnTelescopes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lots := func() []wallet.Lot {
			return []wallet.Lot{grant(1, 300, 2, time.Time{}), grant(2, 400, 1, time.Time{}), grant(3, 500, 1, now.AddDate(0, 1, 0))}
		}
		last := rapid.Int64Range(0, 2000).Draw(t, "last")
		many, one := purse{lots: lots()}, purse{lots: lots()}
		for _, total := range rapid.SliceOfN(rapid.Int64Range(0, 2000), 0, 10).Draw(t, "ticks") {
			many.burn(t, total, now)
		}
		many.burn(t, last, now)
		one.burn(t, last, now)
		require.Equal(t, one.lots, many.lots)
	})
}

// B45: refunds of 10, then 5, take 15, not 25.
func TestB45RefundsAddUp(t *testing.T) {
	p := purse{lots: []wallet.Lot{grant(1, 50, 0, time.Time{})}}
	p.burn(t, 40, now)
	p.burn(t, 30, now)
	p.burn(t, 25, now)
	require.Equal(t, int64(25), p.balance(), "15 went back")
}

// B48: a negative bill is no extra credit.
func TestB48NegativeBillGivesNothingExtra(t *testing.T) {
	p := purse{lots: []wallet.Lot{grant(1, 20, 0, time.Time{})}}
	p.burn(t, 20, now)
	s := p.burn(t, -25, now)
	require.Equal(t, cents(0), s.Burned)
	require.Equal(t, cents(0), s.Excess)
	require.Equal(t, int64(20), p.balance())
}

func TestUnwindFollowsTheRecord(t *testing.T) {
	p := purse{lots: []wallet.Lot{grant(1, 10, 0, time.Time{}), grant(2, 10, 1, time.Time{})}}
	p.burn(t, 15, now)
	p.lots[0].Priority, p.lots[1].Priority = 1, 0
	back, err := wallet.Unwind(p.recorded, cents(7))
	require.NoError(t, err)
	require.Equal(t, []wallet.Use{{Grant: id.Grant{2}, Amount: cents(-5)}, {Grant: id.Grant{1}, Amount: cents(-2)}}, back,
		"the last use first, whatever the order would be today")
	_, err = wallet.Unwind(p.recorded, cents(16))
	require.Equal(t, fault.Internal, fault.KindOf(err))
}

func TestExpiredLotsAreNotUsed(t *testing.T) {
	p := purse{lots: []wallet.Lot{grant(1, 10, 0, now), grant(2, 10, 1, now.Add(time.Microsecond))}}
	s := p.burn(t, 15, now)
	require.Equal(t, cents(5), s.Excess)
	require.Equal(t, []wallet.Use{{Grant: id.Grant{2}, Amount: cents(10)}}, s.Uses)
}

func TestSpendable(t *testing.T) {
	s, err := wallet.Spendable(cents(500), cents(1190), 190_000)
	require.NoError(t, err)
	require.Equal(t, "15.00", s.Decimal())
	hold := wallet.Hold(money.MustPrice("40", usd))
	require.Equal(t, "1.00", hold.Decimal(), "90 seconds of 40 an hour")
	require.NoError(t, wallet.Admit(s, cents(1400).Exact(), hold))
	err = wallet.Admit(s, cents(1401).Exact(), hold)
	require.Equal(t, fault.OverBudget, fault.KindOf(err))
	require.Equal(t, "budget.exhausted", fault.CodeOf(err))
}

func TestBudgetsTellOnce(t *testing.T) {
	b := wallet.Budget{Amount: cents(1000), Thresholds: []int{50, 80, 100}, Hard: true}
	require.NoError(t, b.Check(usd))
	require.Empty(t, b.Reached(cents(499), nil))
	require.Equal(t, []int{50}, b.Reached(cents(500), nil))
	require.Equal(t, []int{80, 100}, b.Reached(cents(1000), []int{50}))
	require.Empty(t, b.Reached(cents(2000), []int{50, 80, 100}))
	require.False(t, b.Exhausted(cents(999)))
	require.True(t, b.Exhausted(cents(1000)))
	for name, bad := range map[string]wallet.Budget{
		"amount":     {Amount: cents(0)},
		"currency":   {Amount: money.NewAmount(1, money.MustCurrency("JPY"))},
		"descending": {Amount: cents(1), Thresholds: []int{80, 50}},
		"absurd":     {Amount: cents(1), Thresholds: []int{0}},
		"many":       {Amount: cents(1), Thresholds: []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
	} {
		require.Equal(t, fault.Invalid, fault.KindOf(bad.Check(usd)), name)
	}
}

func TestAutoTopUp(t *testing.T) {
	order := wallet.AutoTopUp{Threshold: cents(500), Amount: cents(2000), MonthlyMax: cents(5000)}
	require.NoError(t, order.Check(usd))
	require.True(t, order.Due(cents(499), cents(3000)))
	require.False(t, order.Due(cents(500), cents(0)), "not below the threshold")
	require.False(t, order.Due(cents(0), cents(3001)), "the month's most")
	require.False(t, wallet.AutoTopUp{}.Due(cents(0), cents(0)))
	order.MonthlyMax = cents(1999)
	require.Equal(t, fault.Invalid, fault.KindOf(order.Check(usd)))
	require.Equal(t, fault.Invalid, fault.KindOf(wallet.AutoTopUp{}.Check(usd)))
}
