package rating_test

import (
	"math/big"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/money"
)

func price(text string) money.Price { return money.MustPrice(text, usd) }

func cents(n int64) money.Amount { return money.NewAmount(n, usd) }

// tiers takes pairs of an end in priced units, 0 for the last, and a price.
func tiers(kind billing.Tiering, pairs ...any) billing.Tiers {
	t := billing.Tiers{Kind: kind}
	for i := 0; i < len(pairs); i += 2 {
		s := billing.Step{Price: price(pairs[i+1].(string))}
		if end := pairs[i].(int); end > 0 {
			s.UpTo = big.NewRat(int64(end), 1)
		}
		t.Steps = append(t.Steps, s)
	}
	return t
}
