// Package money owns currencies, amounts, prices and the one rounding rule of
// the product. Three types keep three jobs apart: Amount is what documents and
// ledgers carry (whole minor units), Price is what a price list carries (at most
// 12 decimals), Exact is what views carry before any rounding (a rational).
//
// It does not own what is charged or when (billing, billing/rating), taxes, or
// currency conversion: there is none. No floating point number exists here.
package money

import (
	"errors"
	"fmt"
)

// Errors that parsing and arithmetic fail with, wrapped with the offending text.
var (
	// ErrCurrency is an unknown or missing currency code.
	ErrCurrency = errors.New("unknown currency")
	// ErrMismatch is arithmetic over two currencies.
	ErrMismatch = errors.New("currencies differ")
	// ErrMalformed is text that is not a decimal number of the wanted form.
	ErrMalformed = errors.New("malformed decimal")
	// ErrRange is a value that does not fit; nothing ever wraps.
	ErrRange = errors.New("value out of range")
)

// Currency is a currency of the table below. The zero value is no currency; two
// currencies are the same if they compare equal.
type Currency struct {
	code     string
	exponent int
}

// exponents is the number of decimals of the minor unit (ISO 4217) of every
// currency that is accepted. A code that is not here is refused: there is no
// default. Exponents of payment providers differ and are not these.
var exponents = map[string]int{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0,
	"KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0, "UYI": 0, "VND": 0, "VUV": 0,
	"XAF": 0, "XOF": 0, "XPF": 0,

	"AED": 2, "ARS": 2, "AUD": 2, "BGN": 2, "BRL": 2, "CAD": 2, "CHF": 2,
	"CNY": 2, "COP": 2, "CZK": 2, "DKK": 2, "EGP": 2, "EUR": 2, "GBP": 2,
	"GEL": 2, "HKD": 2, "HUF": 2, "IDR": 2, "ILS": 2, "INR": 2, "KES": 2,
	"KZT": 2, "MAD": 2, "MXN": 2, "MYR": 2, "NGN": 2, "NOK": 2, "NZD": 2,
	"PEN": 2, "PHP": 2, "PKR": 2, "PLN": 2, "QAR": 2, "RON": 2, "RSD": 2,
	"SAR": 2, "SEK": 2, "SGD": 2, "THB": 2, "TRY": 2, "TWD": 2, "UAH": 2,
	"USD": 2, "UYU": 2, "UZS": 2, "ZAR": 2,

	"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,

	"CLF": 4, "UYW": 4,
}

// ParseCurrency returns the currency of an upper-case ISO 4217 code. It fails
// with ErrCurrency for any code that is not in the table.
func ParseCurrency(code string) (Currency, error) {
	exponent, ok := exponents[code]
	if !ok {
		return Currency{}, fmt.Errorf("%w: %.16q", ErrCurrency, code)
	}
	return Currency{code: code, exponent: exponent}, nil
}

// MustCurrency is ParseCurrency for codes that are written in source code; it
// panics for an unknown one.
func MustCurrency(code string) Currency {
	c, err := ParseCurrency(code)
	if err != nil {
		panic(err)
	}
	return c
}

// Code returns the ISO 4217 code, "" for the zero value.
func (c Currency) Code() string { return c.code }

// Exponent returns the number of decimals of the minor unit, 0 to 4.
func (c Currency) Exponent() int { return c.exponent }

// IsZero reports whether there is no currency.
func (c Currency) IsZero() bool { return c == Currency{} }

// String returns the ISO 4217 code.
func (c Currency) String() string { return c.code }

func same(a, b Currency) error {
	if a.IsZero() || b.IsZero() {
		return fmt.Errorf("%w: none given", ErrCurrency)
	}
	if a != b {
		return fmt.Errorf("%w: %s and %s", ErrMismatch, a, b)
	}
	return nil
}
