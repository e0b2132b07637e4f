package money

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
)

// Amount is a sum of money in whole minor units of one currency: what lines,
// taxes, totals and postings carry. It may be negative. The zero value belongs
// to no currency and cannot be added to anything.
type Amount struct {
	minor    int64
	currency Currency
}

// NewAmount returns minor units (cents, for USD) of a currency.
func NewAmount(minor int64, c Currency) Amount { return Amount{minor: minor, currency: c} }

// ParseAmount reads a decimal with exactly the minor digits of the currency:
// 12.30 for USD, 12 for JPY. It fails with ErrMalformed, ErrCurrency or, beyond
// 64 bits, ErrRange.
func ParseAmount(text string, c Currency) (Amount, error) {
	if c.IsZero() {
		return Amount{}, fmt.Errorf("%w: none given", ErrCurrency)
	}
	value, decimals, err := parseDecimal(text, c.exponent)
	if err != nil {
		return Amount{}, err
	}
	if decimals != c.exponent {
		return Amount{}, fmt.Errorf("%w: %.80q has %d decimals, %s has %d", ErrMalformed, text, decimals, c, c.exponent)
	}
	return fromBig(value, c)
}

// ReadAmount reads an amount as people write it, with at most the minor digits of the
// currency: 100, 12.3 and 12.30 for USD. It fails as ParseAmount does.
func ReadAmount(text string, c Currency) (Amount, error) {
	if c.IsZero() {
		return Amount{}, fmt.Errorf("%w: none given", ErrCurrency)
	}
	value, _, err := parseDecimal(text, c.exponent)
	if err != nil {
		return Amount{}, err
	}
	return fromBig(value, c)
}

func fromBig(value *big.Int, c Currency) (Amount, error) {
	if !value.IsInt64() {
		return Amount{}, fmt.Errorf("%w: %s minor units of %s", ErrRange, value, c)
	}
	return Amount{minor: value.Int64(), currency: c}, nil
}

// Minor returns the whole minor units.
func (a Amount) Minor() int64 { return a.minor }

// Currency returns the currency.
func (a Amount) Currency() Currency { return a.currency }

// IsZero reports whether the sum is nothing, in whatever currency.
func (a Amount) IsZero() bool { return a.minor == 0 }

// Sign returns -1, 0 or 1.
func (a Amount) Sign() int { return cmp.Compare(a.minor, 0) }

// Decimal returns the number with exactly the currency's minor digits.
func (a Amount) Decimal() string {
	e := a.currency.exponent
	return formatDecimal(big.NewInt(a.minor), e, e)
}

// String returns the number and the code, such as 12.30 USD.
func (a Amount) String() string { return a.Decimal() + " " + a.currency.code }

// Exact returns the same sum as an Exact.
func (a Amount) Exact() Exact {
	return Exact{rat: new(big.Rat).SetFrac(big.NewInt(a.minor), pow10(a.currency.exponent)), currency: a.currency}
}

// Add returns a + b. It fails with ErrMismatch over two currencies and with
// ErrRange beyond 64 bits.
func (a Amount) Add(b Amount) (Amount, error) {
	if err := same(a.currency, b.currency); err != nil {
		return Amount{}, err
	}
	sum := a.minor + b.minor
	if b.minor > 0 && sum < a.minor || b.minor < 0 && sum > a.minor {
		return Amount{}, fmt.Errorf("%w: %s + %s", ErrRange, a, b)
	}
	return Amount{minor: sum, currency: a.currency}, nil
}

// Sub returns a − b; it fails like Add.
func (a Amount) Sub(b Amount) (Amount, error) {
	n, err := b.Neg()
	if err != nil {
		return Amount{}, err
	}
	return a.Add(n)
}

// Neg returns −a. It fails with ErrRange for the one value without a negative.
func (a Amount) Neg() (Amount, error) {
	if a.minor == math.MinInt64 {
		return Amount{}, fmt.Errorf("%w: negative of %s", ErrRange, a)
	}
	return Amount{minor: -a.minor, currency: a.currency}, nil
}

// Sum adds amounts of one currency; no amounts make zero. It fails like Add.
func Sum(c Currency, amounts ...Amount) (Amount, error) {
	total := NewAmount(0, c)
	for _, a := range amounts {
		next, err := total.Add(a)
		if err != nil {
			return Amount{}, err
		}
		total = next
	}
	return total, nil
}
