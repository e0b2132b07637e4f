package wallet

import (
	"math/big"
	"slices"

	"github.com/tranche-cloud/tranche/internal/money"
)

const (
	maxThresholds = 10
	maxPercent    = 1000
)

// Budget is what something should cost at most in a calendar month, net.
type Budget struct {
	Amount     money.Amount
	Thresholds []int // percent of Amount at which to tell, ascending
	Hard       bool  // stops what runs and refuses starts at Amount
}

// DefaultThresholds are those of a budget that names none.
var DefaultThresholds = []int{50, 80, 100}

// Check refuses budgets that cannot work. It fails with fault.Invalid.
func (b Budget) Check(c money.Currency) error {
	switch {
	case b.Amount.Currency() != c:
		return invalid("/amount", "currency", "must be in "+c.Code()+", the currency of the organization")
	case b.Amount.Sign() <= 0:
		return invalid("/amount", "range", "must be more than 0")
	case len(b.Thresholds) > maxThresholds:
		return invalid("/thresholds", "range", "must be 10 at most")
	}
	for i, t := range b.Thresholds {
		if t < 1 || t > maxPercent || i > 0 && t <= b.Thresholds[i-1] {
			return invalid("/thresholds", "range", "must ascend between 1 and 1000 percent")
		}
	}
	return nil
}

// Reached lists the thresholds that spent has reached and that were not told
// before, ascending.
func (b Budget) Reached(spent money.Amount, told []int) []int {
	var out []int
	have := new(big.Int).Mul(big.NewInt(spent.Minor()), big.NewInt(100))
	for _, t := range b.Thresholds {
		need := new(big.Int).Mul(big.NewInt(b.Amount.Minor()), big.NewInt(int64(t)))
		if have.Cmp(need) >= 0 && !slices.Contains(told, t) {
			out = append(out, t)
		}
	}
	return out
}

// Exhausted reports whether a hard budget is spent.
func (b Budget) Exhausted(spent money.Amount) bool {
	return b.Hard && spent.Minor() >= b.Amount.Minor()
}
