package situations

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Random draws a finished document: any usage, tiers, prices, discounts, flat lines,
// reservations, tax and prepayment, in one of the currencies; EUR, USD and JPY where
// none are named.
func Random(t *rapid.T, currencies ...string) billing.Invoice {
	if len(currencies) == 0 {
		currencies = []string{"EUR", "USD", "JPY"}
	}
	m := month(t, rapid.SampledFrom(currencies).Draw(t, "currency"))
	m.v.Locale = rapid.SampledFrom([]string{"en", "de", "zh", "xx"}).Draw(t, "locale")
	credit := rapid.IntRange(0, 4).Draw(t, "credit") == 0
	for range rapid.IntRange(0, 5).Draw(t, "lines") {
		m.randomLine(t, credit)
	}
	if !credit {
		m.randomReservation(t)
		m.randomFlat(t)
	} else {
		m.v.Kind = billing.CreditNote
		m.v.Corrects = &billing.DocumentRef{Number: "TR-2026-000001", Issued: Start}
	}
	tax := rapid.SampledFrom([]billing.Tax{{Category: "S", RatePPM: 190_000}, {Category: "S", RatePPM: 255_000}, {Category: "AE"}, {Category: "O"}, {Category: "Z"}, {Category: "E"}}).Draw(t, "tax")
	v := m.taxed(tax.Category, tax.RatePPM, "").open("TR-2026-000001")
	if v.Total.Sign() > 0 {
		prepaid := rapid.OneOf(rapid.Just(int64(0)), rapid.Just(v.Total.Minor()), rapid.Int64Range(0, v.Total.Minor())).Draw(t, "prepaid")
		return paid(t, v, billing.Settlement{Prepaid: money.NewAmount(prepaid, v.Currency)})
	}
	if v.Total.Sign() < 0 {
		back := rapid.OneOf(rapid.Just(int64(0)), rapid.Just(v.Total.Minor()), rapid.Int64Range(v.Total.Minor(), 0)).Draw(t, "back")
		return paid(t, v, billing.Settlement{Prepaid: money.NewAmount(back, v.Currency)})
	}
	return v
}

func (m *maker) randomUses(t *rapid.T, sign int64) []Use {
	uses := make([]Use, rapid.IntRange(1, 5).Draw(t, "resources"))
	for i := range uses {
		most := rapid.SampledFrom([]int64{10, 10 * second, 720 * Hour}).Draw(t, "most")
		uses[i] = Use{fmt.Sprintf("r%d", i), sign * rapid.Int64Range(1, most).Draw(t, "micros")}
	}
	return uses
}

func randomPrice(t *rapid.T) string {
	return rapid.SampledFrom([]string{"0", "0.49", "2.49", "0.000000000001", "75.5", "1234.567891234567", "0.333333333333"}).Draw(t, "price")
}

func (m *maker) randomLine(t *rapid.T, credit bool) {
	l := gpu(rapid.SampledFrom([]string{"mig", "h100-whole"}).Draw(t, "sku"))
	l.Key.Meter = rapid.SampledFrom([]metering.Meter{metering.GPU, metering.GPURetained, metering.IP, metering.Storage, metering.Egress}).Draw(t, "meter")
	l.Key.PriceVersion = ID[id.PriceVersion](byte(10 + len(m.v.Lines))) // a version has one price
	l.Key.Tier = rapid.IntRange(0, 3).Draw(t, "tier")
	l.Key.Pricing = rapid.SampledFrom([]billing.PricingKind{billing.OnDemand, billing.Spot}).Draw(t, "pricing")
	l.Simulated = rapid.Bool().Draw(t, "simulated")
	for range rapid.IntRange(0, 2).Draw(t, "discounts") {
		l.Discounts = append(l.Discounts, billing.Discount{Name: "d", PPM: rapid.Int64Range(0, 1_000_000).Draw(t, "ppm")})
	}
	sign := int64(1)
	if credit {
		l.Key.Component, sign = billing.Correction, -1
	}
	m.line(l, randomPrice(t), m.randomUses(t, sign)...)
	if credit {
		m.corrects("TR-2026-000001", len(m.v.Lines))
	}
}

// randomReservation is a reservation with some of it used.
func (m *maker) randomReservation(t *rapid.T) {
	if !rapid.Bool().Draw(t, "reservation") {
		return
	}
	uses := m.randomUses(t, 1)
	used := int64(0)
	for _, u := range uses {
		used += u.Micros
	}
	unused := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 720*Hour)).Draw(t, "unused")
	m.line(meter(gpu("mig"), metering.Reservation, "reserved"), randomPrice(t), Use{"base", used + unused})
	m.line(covered(gpu("mig")), "0", uses...)
}

// randomFlat is amounts that stand for themselves; reductions are at most the net.
func (m *maker) randomFlat(t *rapid.T) {
	if rapid.Bool().Draw(t, "shortfall") {
		m.flatMinor(t, billing.Commitment, rapid.Int64Range(1, 1_000_000).Draw(t, "shortfall amount"))
	}
	for _, c := range []billing.Component{billing.CapCredit, billing.FixedDiscount, billing.PromoCredit, billing.AdvanceOffset} {
		net := int64(0)
		for _, l := range m.v.Lines {
			net += l.Amount.Minor()
		}
		if net > 0 && rapid.IntRange(0, 2).Draw(t, string(c)) == 0 {
			m.flatMinor(t, c, -rapid.Int64Range(1, net).Draw(t, "reduction"))
		}
	}
	m.v.Lines = slices.Clip(m.v.Lines)
}

func (m *maker) flatMinor(t require.TestingT, c billing.Component, minor int64) {
	a := money.NewAmount(minor, m.v.Currency)
	require.False(t, a.IsZero())
	m.flat(c, string(c), a.Decimal())
}
