package money

import (
	"fmt"
	"math/big"
)

// PriceDecimals is the finest step of a Price: 10^-12 of a currency unit.
const PriceDecimals = 12

// maxWhole keeps a price inside numeric(24,12).
const maxWhole = 1_000_000_000_000

// Price is a unit price, such as the price of a GPU hour: never negative, at
// most 12 decimals, below 10^12. Prices compare equal with == if they are the
// same number in the same currency. The zero value has no currency.
type Price struct {
	whole, fraction int64 // currency units and 10^-12 of one
	currency        Currency
}

// ParsePrice reads a decimal such as 0.49. It fails with ErrMalformed for a
// negative or over-precise number, with ErrRange from 10^12 on and with
// ErrCurrency without a currency.
func ParsePrice(text string, c Currency) (Price, error) {
	if c.IsZero() {
		return Price{}, fmt.Errorf("%w: none given", ErrCurrency)
	}
	value, _, err := parseDecimal(text, PriceDecimals)
	if err != nil {
		return Price{}, err
	}
	return PriceOf(value, c)
}

// MustPrice is ParsePrice for prices that are written in source code; it panics
// for a malformed one.
func MustPrice(text string, c Currency) Price {
	p, err := ParsePrice(text, c)
	if err != nil {
		panic(err)
	}
	return p
}

// PriceOf returns the price of so many 10^-12 units. It fails with ErrMalformed
// for a negative number and with ErrRange from 10^12 units on.
func PriceOf(pico *big.Int, c Currency) (Price, error) {
	if pico.Sign() < 0 {
		return Price{}, fmt.Errorf("%w: a price is never negative", ErrMalformed)
	}
	whole, fraction := new(big.Int).QuoRem(pico, pow10(PriceDecimals), new(big.Int))
	if !whole.IsInt64() || whole.Int64() >= maxWhole {
		return Price{}, fmt.Errorf("%w: a price is below 10^12", ErrRange)
	}
	return Price{whole: whole.Int64(), fraction: fraction.Int64(), currency: c}, nil
}

// Pico returns the price in 10^-12 currency units.
func (p Price) Pico() *big.Int {
	v := new(big.Int).Mul(big.NewInt(p.whole), pow10(PriceDecimals))
	return v.Add(v, big.NewInt(p.fraction))
}

// Currency returns the currency.
func (p Price) Currency() Currency { return p.currency }

// IsZero reports whether the price is nothing, in whatever currency.
func (p Price) IsZero() bool { return p.whole == 0 && p.fraction == 0 }

// Decimal returns the number without trailing zeros, but with at least the
// currency's minor digits: 0.49, 2.50, 0.000123.
func (p Price) Decimal() string { return formatDecimal(p.Pico(), PriceDecimals, p.currency.exponent) }

// String returns the number and the code, such as 0.49 USD.
func (p Price) String() string { return p.Decimal() + " " + p.currency.code }

// Lower returns the lower of two prices of one currency; p if they are equal. It
// fails with ErrMismatch over two currencies.
func (p Price) Lower(q Price) (Price, error) {
	if err := same(p.currency, q.currency); err != nil {
		return Price{}, err
	}
	if q.Pico().Cmp(p.Pico()) < 0 {
		return q, nil
	}
	return p, nil
}

// Times returns the exact price of quantity/divisor units. It panics if divisor
// is not positive: divisors come from a table, not from callers.
func (p Price) Times(quantity *big.Int, divisor int64) Exact {
	if divisor <= 0 {
		panic("money: a divisor is positive")
	}
	num := new(big.Int).Mul(p.Pico(), quantity)
	den := new(big.Int).Mul(pow10(PriceDecimals), big.NewInt(divisor))
	return Exact{rat: new(big.Rat).SetFrac(num, den), currency: p.currency}
}
