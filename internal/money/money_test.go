package money_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/money"
)

var (
	usd = money.MustCurrency("USD")
	jpy = money.MustCurrency("JPY")
	kwd = money.MustCurrency("KWD")
	clf = money.MustCurrency("CLF")
)

func TestCurrencyComesFromTheTable(t *testing.T) {
	for code, want := range map[string]int{"USD": 2, "EUR": 2, "JPY": 0, "KRW": 0, "BHD": 3, "OMR": 3, "TND": 3, "UYW": 4, "CLF": 4} {
		c, err := money.ParseCurrency(code)
		require.NoError(t, err)
		require.Equal(t, want, c.Exponent(), code)
		require.Equal(t, code, c.String())
	}
	for _, code := range []string{"", "XXQ", "usd", "US", "USD ", "DOLLARS"} {
		_, err := money.ParseCurrency(code)
		require.ErrorIs(t, err, money.ErrCurrency, "%q", code)
	}
	require.Panics(t, func() { money.MustCurrency("XXQ") })
}

func TestAmountHasExactlyTheMinorDigits(t *testing.T) {
	good := []struct {
		text  string
		c     money.Currency
		minor int64
	}{
		{"12.35", usd, 1235}, {"-0.01", usd, -1}, {"0.00", usd, 0}, {"1235", jpy, 1235},
		{"1.235", kwd, 1235}, {"0.0001", clf, 1}, {"92233720368547758.07", usd, math.MaxInt64},
		{"-92233720368547758.08", usd, math.MinInt64},
	}
	for _, g := range good {
		a, err := money.ParseAmount(g.text, g.c)
		require.NoError(t, err, g.text)
		require.Equal(t, g.minor, a.Minor())
		require.Equal(t, g.text, a.Decimal())
	}
	for _, text := range []string{"", "12.3", "12.345", "12", ".50", "1.", "+1.00", "1e2", " 1.00", "1.00 ", "01.00", "-0.00", "1,000.00", "NaN", "0x1.00", "١.٠٠", "1.0.0", "--1.00"} {
		_, err := money.ParseAmount(text, usd)
		require.ErrorIs(t, err, money.ErrMalformed, "%q", text)
	}
	_, err := money.ParseAmount("92233720368547758.08", usd)
	require.ErrorIs(t, err, money.ErrRange)
	_, err = money.ParseAmount("1.00", money.Currency{})
	require.ErrorIs(t, err, money.ErrCurrency)
}

func TestAmountsAsPeopleWriteThem(t *testing.T) {
	for text, minor := range map[string]int64{"100": 10000, "12.3": 1230, "12.30": 1230, "0": 0, "-5": -500} {
		a, err := money.ReadAmount(text, usd)
		require.NoError(t, err, text)
		require.Equal(t, minor, a.Minor(), text)
	}
	for _, text := range []string{"", "12.345", ".50", "1.", "1e2", "01", "1,000", "NaN"} {
		_, err := money.ReadAmount(text, usd)
		require.ErrorIs(t, err, money.ErrMalformed, "%q", text)
	}
	_, err := money.ReadAmount("12.0", jpy)
	require.ErrorIs(t, err, money.ErrMalformed)
	_, err = money.ReadAmount("92233720368547758", usd)
	require.NoError(t, err)
	_, err = money.ReadAmount("92233720368547759", usd)
	require.ErrorIs(t, err, money.ErrRange)
	_, err = money.ReadAmount("1", money.Currency{})
	require.ErrorIs(t, err, money.ErrCurrency)
}

func TestAmountsNeitherWrapNorMix(t *testing.T) {
	huge, one := money.NewAmount(math.MaxInt64, usd), money.NewAmount(1, usd)
	_, err := huge.Add(one)
	require.ErrorIs(t, err, money.ErrRange)
	_, err = money.NewAmount(math.MinInt64, usd).Sub(one)
	require.ErrorIs(t, err, money.ErrRange)
	_, err = money.NewAmount(math.MinInt64, usd).Neg()
	require.ErrorIs(t, err, money.ErrRange)
	_, err = one.Add(money.NewAmount(1, jpy))
	require.ErrorIs(t, err, money.ErrMismatch)
	_, err = one.Add(money.Amount{})
	require.ErrorIs(t, err, money.ErrCurrency)

	sum, err := money.Sum(usd, one, money.NewAmount(-3, usd))
	require.NoError(t, err)
	require.Equal(t, "-0.02 USD", sum.String())
	none, err := money.Sum(usd)
	require.NoError(t, err)
	require.True(t, none.IsZero())
}

func TestPriceText(t *testing.T) {
	for text, want := range map[string]string{
		"0.49": "0.49", "2.5": "2.50", "3": "3.00", "0.000000000001": "0.000000000001",
		"999999999999.999999999999": "999999999999.999999999999", "0.0000001234": "0.0000001234", "0": "0.00",
	} {
		p, err := money.ParsePrice(text, usd)
		require.NoError(t, err, text)
		require.Equal(t, want, p.Decimal())
	}
	for _, text := range []string{"", "-1", "0.0000000000001", "1e3", "1_000"} {
		_, err := money.ParsePrice(text, usd)
		require.ErrorIs(t, err, money.ErrMalformed, "%q", text)
	}
	_, err := money.ParsePrice("1000000000000", usd)
	require.ErrorIs(t, err, money.ErrRange)
	require.Equal(t, money.MustPrice("2.5", usd), money.MustPrice("2.50", usd), "the same price compares equal")
}

func TestLowerPrice(t *testing.T) {
	a, b := money.MustPrice("0.49", usd), money.MustPrice("0.50", usd)
	low, err := b.Lower(a)
	require.NoError(t, err)
	require.Equal(t, a, low)
	_, err = a.Lower(money.MustPrice("1", jpy))
	require.ErrorIs(t, err, money.ErrMismatch)
}

func TestRoundHalfAwayFromZero(t *testing.T) {
	cases := []struct{ num, den, want int64 }{
		{5, 10, 1}, {4, 10, 0}, {-5, 10, -1}, {-4, 10, 0}, {15, 10, 2}, {25, 10, 3}, {-25, 10, -3},
		{1, 3, 0}, {2, 3, 1}, {0, 7, 0}, {7, 1, 7},
	}
	for _, c := range cases {
		got := money.RoundHalfAway(big.NewInt(c.num), big.NewInt(c.den))
		require.Equal(t, c.want, got.Int64(), "%d/%d", c.num, c.den)
	}
	require.Panics(t, func() { money.RoundHalfAway(big.NewInt(1), big.NewInt(0)) })
}

// TestPublishedCases are inputs on which other billing systems went wrong.
func TestPublishedCases(t *testing.T) {
	hour := big.NewInt(3_600_000_000)
	month := new(big.Int).Mul(big.NewInt(744), hour)
	price := money.MustPrice("2.49", usd)
	require.Equal(t, "2.49", rounded(t, price.Times(hour, hour.Int64())), "no per-second price is ever rounded")
	require.Equal(t, "1852.56", rounded(t, price.Times(month, hour.Int64())))
	require.Equal(t, "0.1234", money.MustPrice("0.0000001234", usd).Times(big.NewInt(1_000_000), 1).Decimal())
	require.Equal(t, "16.00", rounded(t, money.MustPrice("2.00", usd).Times(new(big.Int).Mul(big.NewInt(8), hour), hour.Int64())))

	parts, err := money.Apportion(money.NewAmount(0, usd), []*big.Rat{big.NewRat(1, 1), big.NewRat(1, 1), big.NewRat(1, 1)})
	require.NoError(t, err)
	require.Len(t, parts, 3)
}

func rounded(t *testing.T, e money.Exact) string {
	t.Helper()
	a, err := e.Round()
	require.NoError(t, err)
	return a.Decimal()
}

func TestViewsAreCutTowardZero(t *testing.T) {
	third := money.NewExact(big.NewRat(2, 3), usd)
	require.Equal(t, "0.666666666666", third.Decimal())
	require.Equal(t, "-0.666666666666 USD", third.Scale(big.NewRat(-1, 1)).String())
	require.Equal(t, "0.00", money.ZeroExact(usd).Decimal())
	require.Equal(t, "0.00", money.NewExact(big.NewRat(-1, 1e15), usd).Decimal(), "no negative zero")
	require.Equal(t, 0, third.Truncated().Cmp(money.NewExact(big.NewRat(666666666666, 1e12), usd)))
	_, err := money.Exact{}.Round()
	require.ErrorIs(t, err, money.ErrCurrency)
	_, err = third.Add(money.ZeroExact(jpy))
	require.ErrorIs(t, err, money.ErrMismatch)
}

func TestApportionRefusesWhatCannotBeSplit(t *testing.T) {
	_, err := money.Apportion(money.NewAmount(1, usd), nil)
	require.ErrorIs(t, err, money.ErrRange)
	_, err = money.Apportion(money.NewAmount(1, usd), []*big.Rat{big.NewRat(-1, 1)})
	require.ErrorIs(t, err, money.ErrRange)
}

func TestApportionSumsExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := money.NewAmount(rapid.Int64Range(-1e12, 1e12).Draw(t, "total"), usd)
		drawn := rapid.SliceOfN(rapid.Int64Range(0, 1e15), 1, 30).Draw(t, "weights")
		weights, sum := make([]*big.Rat, len(drawn)), new(big.Rat)
		drawn[0]++ // at least one weight
		for i, w := range drawn {
			weights[i] = big.NewRat(w, 7)
			sum.Add(sum, weights[i])
		}
		parts, err := money.Apportion(total, weights)
		require.NoError(t, err)
		got, err := money.Sum(usd, parts...)
		require.NoError(t, err)
		require.Equal(t, total, got)
		for i, p := range parts {
			exact := new(big.Rat).Mul(new(big.Rat).Quo(weights[i], sum), big.NewRat(total.Minor(), 1))
			off := exact.Sub(exact, big.NewRat(p.Minor(), 1))
			require.Negative(t, off.Abs(off).Cmp(big.NewRat(1, 1)), "part %d is a minor unit or more away", i)
		}
	})
}

func TestRoundIsNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom([]money.Currency{usd, jpy, kwd, clf}).Draw(t, "currency")
		e := money.NewExact(big.NewRat(rapid.Int64Range(-1e12, 1e12).Draw(t, "num"), rapid.Int64Range(1, 1e9).Draw(t, "den")), c)
		a, err := e.Round()
		require.NoError(t, err)
		off, err := e.Sub(a.Exact())
		require.NoError(t, err)
		half := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(c.Exponent())), nil))
		half.Mul(half, big.NewRat(1, 2))
		require.LessOrEqual(t, new(big.Rat).Abs(off.Rat()).Cmp(half), 0)
		back, err := a.Exact().Round()
		require.NoError(t, err)
		require.Equal(t, a, back, "an amount is its own rounding")
	})
}

func FuzzParseAmount(f *testing.F) {
	for _, s := range []string{"0.00", "12.35", "-0.01", "1e9", "92233720368547758.08", "٣.00", ""} {
		f.Add(s, "USD")
	}
	f.Add("1235", "JPY")
	f.Fuzz(func(t *testing.T, text, code string) {
		c, err := money.ParseCurrency(code)
		if err != nil {
			return
		}
		a, err := money.ParseAmount(text, c)
		if err != nil {
			return
		}
		require.Equal(t, text, a.Decimal(), "what is accepted is canonical")
	})
}

func FuzzParsePrice(f *testing.F) {
	for _, s := range []string{"0.49", "2.5", "0.000000000001", "999999999999.999999999999", "-1", "1e3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := money.ParsePrice(text, usd)
		if err != nil {
			return
		}
		back, err := money.ParsePrice(p.Decimal(), usd)
		require.NoError(t, err)
		require.Equal(t, p, back)
	})
}
