package rating

import (
	"cmp"
	"fmt"
	"math/big"
	"math/bits"
	"slices"

	"github.com/tranche-cloud/tranche/internal/money"
)

// maxUnits bounds the units of one segment, so that no sum of a month's quantities
// leaves 128 bits: 2^56 units over 2^42 µs, a billion times.
const maxUnits = 1 << 56

// quantity is a sum of unit·microseconds, or of counted units. It is never negative.
type quantity struct{ hi, lo uint64 }

// times is units × micros, both not negative.
func times(units, micros int64) quantity {
	hi, lo := bits.Mul64(uint64(units), uint64(micros))
	return quantity{hi, lo}
}

func (q quantity) add(r quantity) quantity {
	lo, carry := bits.Add64(q.lo, r.lo, 0)
	hi, _ := bits.Add64(q.hi, r.hi, carry)
	return quantity{hi, lo}
}

// sub is q − r; r is not greater.
func (q quantity) sub(r quantity) quantity {
	lo, borrow := bits.Sub64(q.lo, r.lo, 0)
	hi, _ := bits.Sub64(q.hi, r.hi, borrow)
	return quantity{hi, lo}
}

func (q quantity) less(r quantity) bool { return q.hi < r.hi || q.hi == r.hi && q.lo < r.lo }

func (q quantity) zero() bool { return q.hi == 0 && q.lo == 0 }

// over divides by a positive number; the quotient fits 64 bits, because a rate over
// a stretch of time is divided by the rate.
func (q quantity) over(rate int64) (whole, rest int64) {
	quo, rem := bits.Div64(q.hi, q.lo, uint64(rate))
	return int64(quo), int64(rem)
}

func (q quantity) big() *big.Int {
	v := new(big.Int).SetUint64(q.hi)
	return v.Add(v.Lsh(v, 64), new(big.Int).SetUint64(q.lo))
}

// quantityOf takes a whole number of quantity units.
func quantityOf(v *big.Int) (quantity, error) {
	if v.Sign() < 0 || v.BitLen() > 120 {
		return quantity{}, fmt.Errorf("%w: the quantity %s", money.ErrRange, v)
	}
	lo := new(big.Int).And(v, new(big.Int).SetUint64(^uint64(0)))
	return quantity{new(big.Int).Rsh(v, 64).Uint64(), lo.Uint64()}, nil
}

// apportioned splits a total that is not negative over weights that are not, by
// largest remainder, ties to the earlier: the parts sum to the total exactly. Without
// any weight all parts are 0.
func apportioned(total *big.Int, weights []*big.Int) []*big.Int {
	sum, left := new(big.Int), new(big.Int).Set(total)
	for _, w := range weights {
		sum.Add(sum, w)
	}
	parts := make([]big.Int, 2*len(weights))
	out, rests := make([]*big.Int, len(weights)), parts[len(weights):]
	for i := range out {
		out[i] = &parts[i]
	}
	if sum.Sign() == 0 || total.Sign() == 0 {
		return out
	}
	order := make([]int, len(weights))
	var product big.Int
	for i, w := range weights {
		out[i].QuoRem(product.Mul(total, w), sum, &rests[i])
		left.Sub(left, out[i])
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(rests[b].Cmp(&rests[a]), cmp.Compare(a, b)) })
	for _, i := range order[:left.Int64()] {
		out[i].Add(out[i], one)
	}
	return out
}

var one = big.NewInt(1)
