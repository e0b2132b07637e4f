package money

import (
	"fmt"
	"math/big"
)

// Exact is a sum of money as a rational number: nothing is lost until it is
// rounded, once, into an Amount. It may be negative. Values are immutable.
type Exact struct {
	rat      *big.Rat // nil means 0
	currency Currency
}

// ZeroExact returns nothing, in a currency.
func ZeroExact(c Currency) Exact { return Exact{rat: new(big.Rat), currency: c} }

// NewExact returns a rational number of currency units.
func NewExact(units *big.Rat, c Currency) Exact {
	return Exact{rat: new(big.Rat).Set(units), currency: c}
}

func (e Exact) value() *big.Rat {
	if e.rat == nil {
		return new(big.Rat)
	}
	return e.rat
}

// Rat returns the number of currency units, as a copy.
func (e Exact) Rat() *big.Rat { return new(big.Rat).Set(e.value()) }

// Currency returns the currency.
func (e Exact) Currency() Currency { return e.currency }

// Add returns e + f. It fails with ErrMismatch over two currencies.
func (e Exact) Add(f Exact) (Exact, error) {
	if err := same(e.currency, f.currency); err != nil {
		return Exact{}, err
	}
	return Exact{rat: new(big.Rat).Add(e.value(), f.value()), currency: e.currency}, nil
}

// Sub returns e − f. It fails with ErrMismatch over two currencies.
func (e Exact) Sub(f Exact) (Exact, error) {
	if err := same(e.currency, f.currency); err != nil {
		return Exact{}, err
	}
	return Exact{rat: new(big.Rat).Sub(e.value(), f.value()), currency: e.currency}, nil
}

// Scale returns e × factor.
func (e Exact) Scale(factor *big.Rat) Exact {
	return Exact{rat: new(big.Rat).Mul(e.value(), factor), currency: e.currency}
}

// Cmp compares the numbers, -1, 0 or 1; currencies are not looked at.
func (e Exact) Cmp(f Exact) int { return e.value().Cmp(f.value()) }

// Round returns the nearest Amount, half away from zero. This is the only
// rounding of the product. It fails with ErrRange beyond 64 bits and with
// ErrCurrency without a currency.
func (e Exact) Round() (Amount, error) {
	if e.currency.IsZero() {
		return Amount{}, fmt.Errorf("%w: none given", ErrCurrency)
	}
	num := new(big.Int).Mul(e.value().Num(), pow10(e.currency.exponent))
	return fromBig(RoundHalfAway(num, e.value().Denom()), e.currency)
}

// RoundHalfAway returns numerator/denominator rounded to the nearest integer,
// halves away from zero. It panics if denominator is not positive.
func RoundHalfAway(numerator, denominator *big.Int) *big.Int {
	if denominator.Sign() <= 0 {
		panic("money: a denominator is positive")
	}
	twice := new(big.Int).Lsh(new(big.Int).Abs(numerator), 1)
	twice.Add(twice, denominator)
	twice.Quo(twice, new(big.Int).Lsh(denominator, 1))
	if numerator.Sign() < 0 {
		twice.Neg(twice)
	}
	return twice
}

// Truncated returns e cut to 12 decimals, toward zero: what views show. Cutting
// never shows more than is owed; it is display, and no document is built on it.
func (e Exact) Truncated() Exact {
	return Exact{rat: new(big.Rat).SetFrac(e.pico(), pow10(PriceDecimals)), currency: e.currency}
}

func (e Exact) pico() *big.Int {
	num := new(big.Int).Mul(e.value().Num(), pow10(PriceDecimals))
	return num.Quo(num, e.value().Denom())
}

// Decimal returns the number cut to 12 decimals toward zero, without trailing
// zeros but with at least the currency's minor digits.
func (e Exact) Decimal() string {
	return formatDecimal(e.pico(), PriceDecimals, e.currency.exponent)
}

// String returns Decimal and the code.
func (e Exact) String() string { return e.Decimal() + " " + e.currency.code }
