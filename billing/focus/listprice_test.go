package focus_test

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/focus"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/testkit/situations"
)

func TestListPricesComeFromTheBookInForce(t *testing.T) {
	eur := money.MustCurrency("EUR")
	v := situations.Named(t, "reservation")
	covered := v.Lines[1]
	key := billing.PriceKey{SKU: covered.Key.SKU, Meter: metering.GPU}
	version := func(n byte, price string) billing.Version {
		return billing.Version{
			ID: situations.ID[id.PriceVersion](n), EffectiveFrom: situations.Start.AddDate(0, int(n)-2, 0),
			Prices: map[billing.PriceKey]money.Price{key: money.MustPrice(price, eur)},
		}
	}
	other := billing.Book{ID: situations.ID[id.PriceBook](2), Currency: eur, Versions: []billing.Version{version(9, "9")}}
	book := billing.Book{ID: situations.ID[id.PriceBook](1), Currency: eur, Versions: []billing.Version{version(1, "0.45"), version(2, "0.49"), version(3, "0.55")}}
	list := focus.ListPrices([]billing.Book{other, book})
	price, ok := list(covered)
	require.True(t, ok)
	require.Equal(t, "0.49", price.Decimal(), "the version in force when the usage began, not the locked one")

	got := rows(t, focus.Input{Invoices: []billing.Invoice{v}, ListPrices: list})
	require.Empty(t, focus.Check(got))
	require.Equal(t, "196", only(got, focus.CommitmentDiscountStatus, "Used")[0][focus.ListCost], "400 × 0.49")

	spot := covered
	spot.Key.Pricing = billing.Spot
	unknown := covered
	unknown.Key.SKU = [16]byte{99}
	foreign := covered
	foreign.Key.PriceVersion = situations.ID[id.PriceVersion](77)
	for name, l := range map[string]billing.Line{"spot": spot, "an unknown SKU": unknown, "a version of no book": foreign} {
		_, ok := list(l)
		require.False(t, ok, name)
	}
}

func TestListPricesOfSteps(t *testing.T) {
	eur := money.MustCurrency("EUR")
	l := situations.Named(t, "tiers").Lines[1]
	key := billing.PriceKey{SKU: l.Key.SKU, Meter: metering.GPU}
	tiers := billing.Tiers{Kind: billing.Graduated, Steps: []billing.Step{
		{UpTo: big.NewRat(100, 1), Price: money.MustPrice("0.49", eur)}, {Price: money.MustPrice("0.39", eur)},
	}}
	book := billing.Book{Currency: eur, Versions: []billing.Version{{
		ID: l.Key.PriceVersion, EffectiveFrom: situations.Start, Tiers: map[billing.PriceKey]billing.Tiers{key: tiers},
	}}}
	price, ok := focus.ListPrices([]billing.Book{book})(l)
	require.True(t, ok)
	require.Equal(t, "0.39", price.Decimal())
	l.Packages, l.PricedUnit = 2, "package of 100 GPU-hours"
	_, ok = focus.ListPrices([]billing.Book{book})(l)
	require.False(t, ok, "the price of an hour is none of a package")
}

// A package line is priced by the package, and its packages are shared by amount.
func TestPackagesAreThePricingUnit(t *testing.T) {
	v := situations.Named(t, "packages")
	got := only(rows(t, focus.Input{Invoices: []billing.Invoice{v}}), focus.ChargeCategory, "Usage")
	require.Len(t, got, 2)
	require.Equal(t, "100 GPU-Hours", got[0][focus.PricingUnit])
	require.Equal(t, "3", total(got, focus.PricingQuantity, every).RatString())
	require.Equal(t, "GPU-Seconds", got[0][focus.ConsumedUnit])
}
