package billing_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

var month = metering.Between(start, start.AddDate(0, 1, 0))

func usdMinor(minor int64) money.Amount { return money.NewAmount(minor, usd) }

func graduated() billing.Tiers {
	return billing.Tiers{Kind: billing.Graduated, Steps: []billing.Step{
		{UpTo: big.NewRat(100, 1), Price: money.MustPrice("3", usd)}, {UpTo: big.NewRat(1001, 2), Price: money.MustPrice("2.5", usd)},
		{Price: money.MustPrice("2", usd)},
	}}
}

// full is one of everything, and valid.
func full() billing.Terms {
	ctr := id.New[id.Contract]()
	return billing.Terms{
		Prices: []billing.ContractPrice{
			{Contract: ctr, Key: key, During: month, Price: money.MustPrice("0.4", usd)},
			{Contract: ctr, Key: other, During: month, Price: money.MustPrice("3", usd), Tiers: graduated()},
		},
		Discounts:      []billing.ScopedDiscount{{Contract: ctr, Discount: billing.Discount{Name: "partner", PPM: 125_000}, During: month}},
		Reservations:   []billing.ReservedCapacity{{ID: id.New[id.Reservation](), Name: "r", Family: "f", Region: "eu", Units: 4, During: month}},
		FreeQuotas:     []billing.FreeQuota{{Contract: ctr, Name: "trial", Scope: billing.Scope{Meter: metering.GPU}, Quantity: big.NewInt(3_600_000_000), During: month}},
		Minimums:       []billing.Minimum{{Micros: 60_000_000, During: month}},
		Caps:           []billing.Cap{{Contract: ctr, Hours: 672, During: month}, {Contract: ctr, Amount: usdMinor(9000), During: month}},
		Commitments:    []billing.CommittedAmount{{Contract: ctr, Name: "commit", Amount: usdMinor(5000), During: month}},
		FixedDiscounts: []billing.AmountOff{{Contract: ctr, Name: "welcome", Amount: usdMinor(1000), During: metering.Between(start, time.Time{})}},
		Promos:         []billing.Promo{{Grant: id.New[id.Grant](), Name: "promo", Priority: 2, Expires: month.To, Remaining: usdMinor(0)}},
		Starts:         []billing.Start{{ID: [16]byte{9}, Ended: start.Add(time.Hour), Party: "tenant", Earlier: 5}, {ID: [16]byte{8}, Ended: start.Add(time.Hour), Preempted: true}},
		SpotSeries: []billing.SpotPrice{
			{Region: "eu", SKU: key.SKU, During: metering.Between(start, start.Add(time.Hour)), Price: money.MustPrice("0.1", usd)},
			{Region: "eu", SKU: key.SKU, During: metering.Between(start.Add(time.Hour), time.Time{}), Price: money.MustPrice("0.2", usd)},
		},
		NoticeFree: 10 * time.Minute,
	}
}

func TestTermsAreChecked(t *testing.T) {
	require.NoError(t, full().Check(usd))
	require.NoError(t, billing.Terms{}.Check(usd))
	backwards := metering.Between(month.To, month.From)
	jpy := money.MustCurrency("JPY")
	for name, spoil := range map[string]func(*billing.Terms){
		"/prices/0/during":              func(m *billing.Terms) { m.Prices[0].During = backwards },
		"/prices/1/during":              func(m *billing.Terms) { m.Prices[1].Key = key },
		"/prices/0/price":               func(m *billing.Terms) { m.Prices[0].Price = money.MustPrice("1", jpy) },
		"/prices/0/meter":               func(m *billing.Terms) { m.Prices[0].Key.Meter = "steam" },
		"/prices/1/tiers/steps/1/up_to": func(m *billing.Terms) { m.Prices[1].Tiers.Steps[1].UpTo = big.NewRat(100, 1) },
		"/discounts/0/percent":          func(m *billing.Terms) { m.Discounts[0].PPM = 1_000_001 },
		"/discounts/0/scope/meter":      func(m *billing.Terms) { m.Discounts[0].Scope.Meter = "steam" },
		"/reservations/0":               func(m *billing.Terms) { m.Reservations[0].Family = "" },
		"/reservations/0/units":         func(m *billing.Terms) { m.Reservations[0].Units = -1 },
		"/reservations/1/during":        func(m *billing.Terms) { m.Reservations = append(m.Reservations, m.Reservations[0]) },
		"/free_quotas/0/scope/meter":    func(m *billing.Terms) { m.FreeQuotas[0].Scope.Meter = "" },
		"/free_quotas/0/quantity":       func(m *billing.Terms) { m.FreeQuotas[0].Quantity = big.NewInt(-1) },
		"/minimums/0/seconds":           func(m *billing.Terms) { m.Minimums[0].Micros = 32 * 86400 * 1e6 },
		"/starts/0":                     func(m *billing.Terms) { m.Starts[0].Earlier = -1 },
		"/caps/0/hours":                 func(m *billing.Terms) { m.Caps[0].Hours = 745 },
		"/caps/0":                       func(m *billing.Terms) { m.Caps[0].Amount = usdMinor(1) },
		"/caps/1/amount":                func(m *billing.Terms) { m.Caps[1].Amount = usdMinor(4999) },
		"/commitments/0/amount":         func(m *billing.Terms) { m.Commitments[0].Amount = usdMinor(-1) },
		"/fixed_discounts/0/amount":     func(m *billing.Terms) { m.FixedDiscounts[0].Amount = money.NewAmount(1, jpy) },
		"/fixed_discounts/0/during":     func(m *billing.Terms) { m.FixedDiscounts[0].During.From = time.Time{} },
		"/promos/0/remaining":           func(m *billing.Terms) { m.Promos[0].Remaining = usdMinor(-1) },
		"/promos/1/grant":               func(m *billing.Terms) { m.Promos = append(m.Promos, m.Promos[0]) },
		"/spot_series/1/during":         func(m *billing.Terms) { m.SpotSeries[1].During.From = start },
		"/spot_series/0/price":          func(m *billing.Terms) { m.SpotSeries[0].Price = money.MustPrice("1", jpy) },
		"/notice_free":                  func(m *billing.Terms) { m.NoticeFree = -time.Second },
	} {
		m := full()
		spoil(&m)
		err := m.Check(usd)
		require.Equal(t, fault.Invalid, fault.KindOf(err), name)
		require.Equal(t, name, fault.From(err).Fields[0].Pointer)
	}
}

func TestACapBelowTheCommitmentIsRefused(t *testing.T) {
	m := full()
	m.Caps[1].Amount = usdMinor(4999)
	err := m.Check(usd)
	require.ErrorContains(t, err, "commits to 50.00 USD a month")
	require.Contains(t, fault.From(err).Suggestion, "Raise the cap")
	m.Caps[1].Contract = id.New[id.Contract]()
	require.NoError(t, m.Check(usd), "another contract's cap is another promise")
}

func TestTermsSurviveTheirEncoding(t *testing.T) {
	m := full()
	text, err := billing.EncodeTerms(m)
	require.NoError(t, err)
	got, err := billing.DecodeTerms(text)
	require.NoError(t, err)
	require.Equal(t, m.Commitments, got.Commitments)
	require.Equal(t, m.FreeQuotas, got.FreeQuotas)
	require.Equal(t, m.Promos, got.Promos)
	require.Equal(t, m.Caps, reversed(got.Caps))
	require.ElementsMatch(t, m.Starts, got.Starts)
	again, err := billing.EncodeTerms(got)
	require.NoError(t, err)
	require.Equal(t, string(text), string(again))
	m.Starts[0], m.Starts[1] = m.Starts[1], m.Starts[0]
	shuffled, err := billing.EncodeTerms(m)
	require.NoError(t, err)
	require.Equal(t, string(text), string(shuffled), "order says nothing")

	empty, err := billing.EncodeTerms(billing.Terms{})
	require.NoError(t, err)
	require.Equal(t, "{}", string(empty))
	for _, damaged := range []string{"", "[]", `{"caps":[{"id":"x"}]}`, `{"free_quotas":[{"quantity":"1.5"}]}`, `{"starts":[{"id":"zz"}]}`, `{"caps":[{"minor":"1","currency":"XXQ"}]}`, `{"caps":[{"hours":"x"}]}`, `{"caps":[{"colour":"red"}]}`} {
		_, err := billing.DecodeTerms([]byte(damaged))
		require.Error(t, err, damaged)
	}
}

func reversed(caps []billing.Cap) []billing.Cap {
	if len(caps) == 2 && caps[0].Hours == 0 {
		return []billing.Cap{caps[1], caps[0]}
	}
	return caps
}

func TestTieredVersions(t *testing.T) {
	tiered := func(tiers billing.Tiers) (billing.Book, error) {
		return billing.Book{Currency: usd}.Publish(billing.Version{Tiers: map[billing.PriceKey]billing.Tiers{key: tiers}}, start)
	}
	b, err := tiered(graduated())
	require.NoError(t, err)
	require.Equal(t, "3.00", b.Versions[0].Prices[key].Decimal(), "what the first unit costs")
	b, err = tiered(billing.Tiers{Kind: billing.Package, PackageSize: big.NewRat(3, 1), Steps: []billing.Step{{Price: money.MustPrice("10", usd)}}})
	require.NoError(t, err)
	require.Equal(t, "3.333333333334", b.Versions[0].Prices[key].Decimal())

	open := billing.Step{Price: money.MustPrice("1", usd)}
	upTo := func(n *big.Rat) billing.Step { return billing.Step{UpTo: n, Price: money.MustPrice("1", usd)} }
	for name, tiers := range map[string]billing.Tiers{
		"no kind":        {Steps: []billing.Step{open}},
		"no step":        {Kind: billing.Volume},
		"gap at the end": {Kind: billing.Volume, Steps: []billing.Step{upTo(big.NewRat(1, 1))}},
		"open inside":    {Kind: billing.Graduated, Steps: []billing.Step{open, open}},
		"backwards":      {Kind: billing.Graduated, Steps: []billing.Step{upTo(big.NewRat(2, 1)), upTo(big.NewRat(1, 1)), open}},
		"not whole":      {Kind: billing.Graduated, Steps: []billing.Step{upTo(big.NewRat(1, 7)), open}},
		"currency":       {Kind: billing.Graduated, Steps: []billing.Step{{Price: money.MustPrice("1", money.MustCurrency("JPY"))}}},
		"no size":        {Kind: billing.Package, Steps: []billing.Step{open}},
		"negative size":  {Kind: billing.Package, PackageSize: big.NewRat(-1, 1), Steps: []billing.Step{open}},
		"two steps":      {Kind: billing.Package, PackageSize: big.NewRat(1, 1), Steps: []billing.Step{upTo(big.NewRat(1, 1)), open}},
		"stray size":     {Kind: billing.Volume, PackageSize: big.NewRat(1, 1), Steps: []billing.Step{open}},
	} {
		_, err := tiered(tiers)
		require.Equal(t, fault.Invalid, fault.KindOf(err), name)
		require.NotEmpty(t, fault.From(err).Fields, name)
	}
}
