package focus

import (
	"math/big"
	"strings"

	"github.com/tranche-cloud/tranche/internal/money"
)

// number is an exact decimal: n of 10^-scale.
type number struct {
	n     *big.Int
	scale int
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// minor is minor units of a currency.
func minor(n int64, c money.Currency) number { return number{big.NewInt(n), c.Exponent()} }

// times is the exact product.
func (a number) times(b number) number {
	return number{new(big.Int).Mul(a.n, b.n), a.scale + b.scale}
}

// plus is the exact sum.
func (a number) plus(b number) number {
	s := max(a.scale, b.scale)
	return number{new(big.Int).Add(a.at(s), b.at(s)), s}
}

// at is the integer of a finer or equal scale.
func (a number) at(scale int) *big.Int { return new(big.Int).Mul(a.n, pow10(scale-a.scale)) }

// cut drops decimals beyond a scale, toward zero.
func (a number) cut(scale int) number {
	if a.scale <= scale {
		return a
	}
	return number{new(big.Int).Quo(a.n, pow10(a.scale-scale)), scale}
}

// divided is a quantity in units of so many, cut to the scale of quantities.
func divided(quantity *big.Int, by int64) number {
	n := new(big.Int).Mul(quantity, pow10(scale))
	return number{n.Quo(n, big.NewInt(by)), scale}
}

// String writes the number without exponent, superfluous zeros or a plus.
func (a number) String() string {
	digits := new(big.Int).Abs(a.n).String()
	if missing := a.scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	whole, fraction := digits[:len(digits)-a.scale], strings.TrimRight(digits[len(digits)-a.scale:], "0")
	if fraction != "" {
		whole += "." + fraction
	}
	if a.n.Sign() < 0 {
		return "-" + whole
	}
	return whole
}

// parse reads what String writes, and nothing else. False for anything else.
func parse(text string) (number, bool) {
	body := strings.TrimPrefix(text, "-")
	whole, fraction, point := strings.Cut(body, ".")
	if whole == "" || point && fraction == "" || len(whole) > 1 && whole[0] == '0' || strings.HasSuffix(fraction, "0") && point {
		return number{}, false
	}
	for _, d := range whole + fraction {
		if d < '0' || d > '9' {
			return number{}, false
		}
	}
	n, ok := new(big.Int).SetString(whole+fraction, 10)
	if !ok || n.Sign() == 0 && body != text {
		return number{}, false
	}
	if body != text {
		n.Neg(n)
	}
	return number{n, len(fraction)}, true
}

// equal compares numbers of any scale.
func (a number) equal(b number) bool {
	s := max(a.scale, b.scale)
	return a.at(s).Cmp(b.at(s)) == 0
}
