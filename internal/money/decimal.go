package money

import (
	"fmt"
	"math/big"
	"strings"
)

// maxDigits bounds the text of a number before any arithmetic is done on it.
const maxDigits = 64

func pow10(n int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}

// parseDecimal reads -?digits[.digits] into an integer of 10^-scale. It refuses
// signs other than one minus, exponents, blanks, superfluous leading zeros, a
// negative zero and more than scale decimals. It returns how many were given.
func parseDecimal(text string, scale int) (value *big.Int, decimals int, err error) {
	if text == "" || len(text) > maxDigits {
		return nil, 0, fmt.Errorf("%w: want 1 to %d characters, got %d", ErrMalformed, maxDigits, len(text))
	}
	body, negative := strings.CutPrefix(text, "-")
	whole, fraction, point := strings.Cut(body, ".")
	if !digits(whole) || point && !digits(fraction) {
		return nil, 0, fmt.Errorf("%w: %.80q is not digits with at most one point", ErrMalformed, text)
	}
	if len(whole) > 1 && whole[0] == '0' {
		return nil, 0, fmt.Errorf("%w: %.80q has leading zeros", ErrMalformed, text)
	}
	if len(fraction) > scale {
		return nil, 0, fmt.Errorf("%w: %.80q has %d decimals, at most %d are allowed", ErrMalformed, text, len(fraction), scale)
	}
	value, ok := new(big.Int).SetString(whole+fraction+strings.Repeat("0", scale-len(fraction)), 10)
	if !ok {
		return nil, 0, fmt.Errorf("%w: %.80q", ErrMalformed, text)
	}
	if negative && value.Sign() == 0 {
		return nil, 0, fmt.Errorf("%w: %.80q is a negative zero", ErrMalformed, text)
	}
	if negative {
		value.Neg(value)
	}
	return value, len(fraction), nil
}

func digits(s string) bool {
	if s == "" {
		return false
	}
	for _, r := range []byte(s) {
		if r < '0' || r > '9' {
			return false
		}
	}
	return true
}

// formatDecimal writes an integer of 10^-scale with all its decimals, without
// trailing zeros beyond the first keep ones.
func formatDecimal(value *big.Int, scale, keep int) string {
	text := new(big.Int).Abs(value).String()
	if missing := scale + 1 - len(text); missing > 0 {
		text = strings.Repeat("0", missing) + text
	}
	whole, fraction := text[:len(text)-scale], text[len(text)-scale:]
	for len(fraction) > keep && fraction[len(fraction)-1] == '0' {
		fraction = fraction[:len(fraction)-1]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	if value.Sign() < 0 {
		whole = "-" + whole
	}
	return whole
}
