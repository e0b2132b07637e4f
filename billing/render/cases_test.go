package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/testkit/situations"
)

// B11 (docs/billing-cases.md): a rate is written from whole parts per million, so that
// 0.07 is 7 and not 7.000000000000001.
func TestB11RatesAreWrittenAsTheyAre(t *testing.T) {
	for ppm, want := range map[int64]string{70_000: "Tax S 7 % of", 255_000: "Tax S 25.5 % of", 1: "Tax S 0.0001 % of"} {
		v := situations.Named(t, "plain-usage")
		v.Taxes = []billing.Tax{{Category: "S", RatePPM: ppm, Base: v.Subtotal, Amount: v.TaxTotal}}
		require.Contains(t, page(t, v), want)
	}
}
