package money_test

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/money"
)

// The numbered cases are faults that other billing systems had, with right values
// (docs/billing-cases.md).

// A multiplier below a millionth is not printed to six digits on its way.
func TestB09SmallMultipliersAreExact(t *testing.T) {
	got := money.MustPrice("0.0000001234", usd).Times(big.NewInt(1_000_000), 1)
	require.Equal(t, 0, got.Cmp(money.NewExact(big.NewRat(1234, 10_000), usd)))
	require.Equal(t, "0.1234", got.Decimal())
	require.Equal(t, "0.12", rounded(t, got))
}

// What is owed less what was paid is nothing, not a rest below it.
func TestB10ADifferenceOfEqualsIsNothing(t *testing.T) {
	rest := money.NewExact(big.NewRat(102_0000000000000024, 1e16), usd)
	paid, err := rest.Round()
	require.NoError(t, err)
	left, err := money.NewAmount(10200, usd).Sub(paid)
	require.NoError(t, err)
	require.True(t, left.IsZero())
	require.Zero(t, left.Sign())
}

// Minor digits come from the table of currencies; what is not in it is refused.
func TestB17MinorDigitsAreOfTheTable(t *testing.T) {
	for _, code := range []string{"BHD", "OMR", "TND"} {
		c, err := money.ParseCurrency(code)
		require.NoError(t, err)
		require.Equal(t, 3, c.Exponent(), code)
	}
	_, err := money.ParseCurrency("XXQ")
	require.ErrorIs(t, err, money.ErrCurrency)
}

// Less than a minor unit over three lines is nothing for each, and no division by it.
func TestB18NothingIsSplitIntoNothing(t *testing.T) {
	total, err := money.NewExact(big.NewRat(4, 1000), usd).Round()
	require.NoError(t, err)
	third := big.NewRat(1, 3)
	parts, err := money.Apportion(total, []*big.Rat{third, third, third})
	require.NoError(t, err)
	zero := money.NewAmount(0, usd)
	require.Equal(t, []money.Amount{zero, zero, zero}, parts)
}

// A total is of one currency: another one in it is an error, not a number.
func TestB19CurrenciesAreNeverSummed(t *testing.T) {
	dollars, yen := money.NewAmount(1235, usd), money.NewAmount(1235, jpy)
	_, err := money.Sum(usd, dollars, yen)
	require.ErrorIs(t, err, money.ErrMismatch)
	_, err = dollars.Sub(yen)
	require.ErrorIs(t, err, money.ErrMismatch)
}
