package money

import (
	"fmt"
	"math/big"
	"slices"
)

// Apportion splits total over weights by largest remainder: the parts sum to
// total exactly, each differs from its exact share by less than one minor unit,
// and ties go to the lower index. Without any weight only a zero total can be
// split; otherwise, and for a negative weight, it fails with ErrRange.
func Apportion(total Amount, weights []*big.Rat) ([]Amount, error) {
	sum := new(big.Rat)
	for _, w := range weights {
		if w.Sign() < 0 {
			return nil, fmt.Errorf("%w: negative weight %s", ErrRange, w)
		}
		sum.Add(sum, w)
	}
	parts := make([]Amount, len(weights))
	for i := range parts {
		parts[i] = NewAmount(0, total.currency)
	}
	if total.minor == 0 {
		return parts, nil
	}
	if sum.Sign() == 0 {
		return nil, fmt.Errorf("%w: %s over no weight", ErrRange, total)
	}
	sign := int64(total.Sign())
	left := new(big.Int).Abs(big.NewInt(total.minor))
	perWeight := new(big.Rat).Quo(new(big.Rat).SetInt(left), sum)
	remainders := make([]*big.Rat, len(weights))
	for i, w := range weights {
		share := new(big.Rat).Mul(perWeight, w)
		floor := new(big.Int).Quo(share.Num(), share.Denom())
		remainders[i] = share.Sub(share, new(big.Rat).SetInt(floor))
		left.Sub(left, floor)
		parts[i].minor = sign * floor.Int64()
	}
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return remainders[b].Cmp(remainders[a]) })
	for _, i := range order[:left.Int64()] {
		parts[i].minor += sign
	}
	return parts, nil
}
