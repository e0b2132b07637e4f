package billing_test

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// plain is a line of an amount that was agreed, not measured.
func plain(no int, minor int64) billing.Line {
	a := money.NewAmount(minor, usd)
	return billing.Line{
		No: no, Key: billing.LineKey{Component: billing.Commitment}, Description: "agreed", Exact: a.Exact(), Amount: a,
	}
}

// issued is an open invoice over agreed amounts at one rate.
func issued(t require.TestingT, ppm int64, minors ...int64) billing.Invoice {
	v := billing.Invoice{
		ID: id.New[id.Invoice](), Kind: billing.UsageInvoice, State: billing.Draft, Currency: usd,
		Period: metering.Between(start, start.AddDate(0, 1, 0)), TaxPoint: start.AddDate(0, 1, 0),
		Seller: billing.Party{Name: "Seller"}, Buyer: billing.Party{Name: "Buyer"},
	}
	for i, m := range minors {
		v.Lines = append(v.Lines, plain(i+1, m))
	}
	v, err := v.WithTax("S", ppm, "").Compose()
	require.NoError(t, err)
	v, err = v.Finalized("TR-2026-000001", start.AddDate(0, 1, 1), time.UTC, 14)
	require.NoError(t, err)
	return v
}

// credited issues one more note and returns them all.
func credited(t require.TestingT, v billing.Invoice, notes []billing.Invoice, what ...billing.LineCredit) []billing.Invoice {
	n, err := billing.Credit(v, notes, what)
	require.NoError(t, err)
	require.NoError(t, n.Check())
	n.ID, n.State = id.New[id.Invoice](), billing.Open
	return append(notes, n)
}

func sum(notes []billing.Invoice, of func(billing.Invoice) money.Amount) string {
	total := money.NewAmount(0, usd)
	for _, n := range notes {
		total, _ = total.Sub(of(n))
	}
	return total.Decimal()
}

func gross(v billing.Invoice) money.Amount { return v.Total }
func taxes(v billing.Invoice) money.Amount { return v.TaxTotal }

// Tax is rounded once a group, and the last note takes what is left. Each note's tax
// is that of all credited so far, so the missing cent falls to the note in which it
// appears: the second of the 68.33 lines, 81.99, where 85.00 comes last.
func TestB01CreditNotesSumToTheInvoice(t *testing.T) {
	v := issued(t, 200_000, 6833, 6833, 5750, 8500)
	require.Equal(t, "55.83", v.TaxTotal.Decimal())
	require.Equal(t, "334.99", v.Total.Decimal())
	for last, want := range map[int]string{1: "81.99", 4: "102.00"} {
		order := []int{1, 2, 3, 4}
		order = append(slices.DeleteFunc(order, func(n int) bool { return n == last }), last)
		var notes []billing.Invoice
		for _, no := range order {
			notes = credited(t, v, notes, billing.LineCredit{No: no})
		}
		require.Equal(t, "334.99", sum(notes, gross))
		require.Equal(t, want, sum(notes[3:], gross), "the last one, of line %d", last)
	}
}

func TestB02NoteIsNetAndTax(t *testing.T) {
	v := issued(t, 250_000, 20000)
	net := money.NewAmount(19333, usd)
	notes := credited(t, v, nil, billing.LineCredit{No: 1, Net: &net})
	require.Equal(t, "48.33", sum(notes, taxes))
	require.Equal(t, "241.66", sum(notes, gross))
}

func TestB03NothingIsLeftAndNothingWasRefused(t *testing.T) {
	v := issued(t, 200_000, 6833, 6833, 5750, 8500)
	var notes []billing.Invoice
	for no := 4; no >= 1; no-- {
		notes = credited(t, v, notes, billing.LineCredit{No: no})
	}
	left, err := billing.CreditLeft(v, notes)
	require.NoError(t, err)
	require.True(t, left.Net.IsZero() && left.Gross.IsZero())
	_, err = billing.Credit(v, notes, nil)
	require.Equal(t, "credit.nothing", fault.CodeOf(err))
}

// Eight lines of 1.4 minor units at 40 %: each line rounds, the tax is of their sum.
func TestB06TaxIsOfTheRoundedNet(t *testing.T) {
	v := billing.Invoice{State: billing.Draft, Currency: usd, Period: metering.Between(start, start.AddDate(0, 1, 0))}
	for no := range 8 {
		exact := money.NewExact(big.NewRat(14, 1000), usd)
		amount, err := exact.Round()
		require.NoError(t, err)
		v.Lines = append(v.Lines, billing.Line{No: no + 1, Key: billing.LineKey{Component: billing.Adjustment}, Exact: exact, Amount: amount})
	}
	v, err := v.WithTax("S", 400_000, "").Compose()
	require.NoError(t, err)
	require.Equal(t, []string{"0.08", "0.03", "0.11"}, []string{v.Subtotal.Decimal(), v.TaxTotal.Decimal(), v.Total.Decimal()})
}

func TestB05GrossOfOnePrice(t *testing.T) {
	v := issued(t, 240_000, 1429)
	require.Equal(t, "17.72", v.Total.Decimal())
	v, err := v.Settled(billing.Settlement{Prepaid: v.Total})
	require.NoError(t, err)
	require.True(t, v.Due.IsZero())
	require.Equal(t, billing.LabelPaid, v.Label())
}

// 0 ≤ credit ≤ total, and the whole credit is exactly the total: integers leave no
// rest as 102 − 102.0000000000000024 does.
func TestB07B10CreditsStayWithinTheTotal(t *testing.T) {
	v := issued(t, 0, 10200)
	more := money.NewAmount(10201, usd)
	_, err := billing.Credit(v, nil, []billing.LineCredit{{No: 1, Net: &more}})
	require.Equal(t, "credit.exceeds", fault.CodeOf(err))
	all := money.NewAmount(10200, usd)
	notes := credited(t, v, nil, billing.LineCredit{No: 1, Net: &all})
	left, err := billing.CreditLeft(v, notes)
	require.NoError(t, err)
	require.True(t, left.Gross.IsZero())
}

// Four times 2.9 % is 0.116 of a unit, exactly.
func TestB08RatesAreExact(t *testing.T) {
	require.Equal(t, big.NewRat(116, 1000), new(big.Rat).Mul(big.NewRat(4, 1), big.NewRat(29_000, 1_000_000)))
	require.Equal(t, "116.00", issued(t, 29_000, 400_000).TaxTotal.Decimal())
}

// A gross of 100.00 at 20 % holds 16.67 of tax, not 20.00.
func TestB12InclusiveTax(t *testing.T) {
	v, err := billing.Advance(billing.Invoice{TaxPoint: start}, money.NewAmount(10000, usd), "S", 200_000, "", id.New[id.Payment]())
	require.NoError(t, err)
	require.NoError(t, v.Check())
	require.Equal(t, []string{"83.33", "16.67", "100.00"}, []string{v.Subtotal.Decimal(), v.TaxTotal.Decimal(), v.Total.Decimal()})
}

// Rounding the tax of each line would make 55.84.
func TestB13TaxIsOneAGroup(t *testing.T) {
	v := issued(t, 200_000, 6833, 6833, 5750, 8500)
	require.Len(t, v.Taxes, 1)
	require.Equal(t, "55.83", v.Taxes[0].Amount.Decimal())
}

func TestB42TwoNotesOfSixtyOnAHundred(t *testing.T) {
	v := issued(t, 0, 10000)
	sixty := money.NewAmount(6000, usd)
	notes := credited(t, v, nil, billing.LineCredit{No: 1, Net: &sixty})
	_, err := billing.Credit(v, notes, []billing.LineCredit{{No: 1, Net: &sixty}})
	require.Equal(t, "credit.exceeds", fault.CodeOf(err))
}

// A note never refunds more tax than there was.
func TestB55RefundedTaxIsAtMostTheTax(t *testing.T) {
	v := issued(t, 250_000, 100_000)
	more := money.NewAmount(150_000, usd)
	_, err := billing.Spread(v, nil, more)
	require.Equal(t, "credit.exceeds", fault.CodeOf(err))
	require.Equal(t, "250.00", sum(credited(t, v, nil), taxes))
}

// A fee that a coupon took away has nothing to credit.
func TestB56NothingWasPaidNothingIsCredited(t *testing.T) {
	v := issued(t, 200_000, 10000, -10000)
	require.True(t, v.Total.IsZero())
	_, err := billing.Credit(v, nil, nil)
	require.Equal(t, "credit.nothing", fault.CodeOf(err))
}

func TestB50SeriesArePerIssuerAndKind(t *testing.T) {
	for want, s := range map[string]billing.Series{
		"TR-2026-000001":    {Prefix: "TR", Kind: billing.UsageInvoice, Year: 2026},
		"DE-2026-000001":    {Prefix: "DE", Kind: billing.UsageInvoice, Year: 2026},
		"TR-CN-2026-000001": {Prefix: "TR", Kind: billing.CreditNote, Year: 2026},
		"TR-AD-2026-000001": {Prefix: "TR", Kind: billing.AdvanceInvoice, Year: 2026},
	} {
		require.Equal(t, want, s.Number(1))
		got, n, err := billing.ParseNumber(want)
		require.NoError(t, err)
		require.Equal(t, s, got)
		require.Equal(t, 1, n)
	}
}

func TestCreditIsRefused(t *testing.T) {
	v := issued(t, 200_000, 1000, -200)
	two, nothing, yen := money.NewAmount(200, usd), money.NewAmount(0, usd), money.NewAmount(1, money.MustCurrency("JPY"))
	for name, c := range map[string]struct {
		what []billing.LineCredit
		code string
	}{
		"no such line":   {[]billing.LineCredit{{No: 3}}, "request.invalid"},
		"twice":          {[]billing.LineCredit{{No: 1, Net: &two}, {No: 1, Net: &two}}, "request.invalid"},
		"nothing":        {[]billing.LineCredit{{No: 1, Net: &nothing}}, "request.invalid"},
		"other currency": {[]billing.LineCredit{{No: 1, Net: &yen}}, "request.invalid"},
		"negative line":  {[]billing.LineCredit{{No: 2}}, "request.invalid"},
		"over the group": {[]billing.LineCredit{{No: 1}}, "credit.exceeds"},
	} {
		_, err := billing.Credit(v, nil, c.what)
		require.Equal(t, c.code, fault.CodeOf(err), name)
	}
	draft := v
	draft.State = billing.Draft
	_, err := billing.Credit(draft, nil, nil)
	require.Equal(t, "state.conflict", fault.CodeOf(err))
}

// Whatever is credited in whatever pieces, the notes sum to the invoice at the end
// and never to more before.
func TestCreditsOfAnyOrderLeaveExactlyNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minors := rapid.SliceOfN(rapid.Int64Range(1, 99_999), 1, 6).Draw(t, "lines")
		v := issued(t, rapid.SampledFrom([]int64{0, 70_000, 190_000, 255_000, 333_333}).Draw(t, "rate"), minors...)
		var notes []billing.Invoice
		for range rapid.IntRange(0, 5).Draw(t, "notes") {
			left, err := billing.CreditLeft(v, notes)
			require.NoError(t, err)
			if left.Net.Minor() < 2 {
				break
			}
			what, err := billing.Spread(v, notes, money.NewAmount(rapid.Int64Range(1, left.Net.Minor()-1).Draw(t, "net"), usd))
			require.NoError(t, err)
			notes = credited(t, v, notes, what...)
			left, err = billing.CreditLeft(v, notes)
			require.NoError(t, err)
			require.GreaterOrEqual(t, left.Gross.Minor(), int64(0))
		}
		notes = credited(t, v, notes)
		require.Equal(t, v.Total.Decimal(), sum(notes, gross))
		require.Equal(t, v.TaxTotal.Decimal(), sum(notes, taxes))
	})
}

func TestLabelsAreDerived(t *testing.T) {
	v := issued(t, 0, 1000)
	amount := func(m int64) money.Amount { return money.NewAmount(m, usd) }
	for want, s := range map[string]billing.Settlement{
		"open": {Paid: amount(999)}, "paid": {Paid: amount(900), Prepaid: amount(100)},
		"uncollectible": {WrittenOff: amount(1000)}, "void": {Credited: amount(1000)},
	} {
		got, err := v.Settled(s)
		require.NoError(t, err)
		require.Equal(t, want, got.Label())
	}
	v.Cancelled = true
	require.Equal(t, "void", v.Label())
	v.State = billing.Carried
	require.Equal(t, "carried", v.Label())
}

func TestIssuersAreChecked(t *testing.T) {
	good := billing.Issuer{
		Slug: "eu", LegalName: "Tranche GmbH", Address: []string{"Street 1"}, Country: "DE", TimeZone: "Europe/Berlin", Prefix: "DE",
		PaymentDays: 14, Locale: "de", TaxPoint: billing.AtConsumption, Retention: 10, Original: billing.FormatPDF,
	}
	require.NoError(t, good.Check())
	for name, spoil := range map[string]func(*billing.Issuer){
		"slug": func(i *billing.Issuer) { i.Slug = "E U" }, "name": func(i *billing.Issuer) { i.LegalName = "" },
		"address": func(i *billing.Issuer) { i.Address = nil }, "country": func(i *billing.Issuer) { i.Country = "de" },
		"prefix": func(i *billing.Issuer) { i.Prefix = "DE-CN" }, "mark": func(i *billing.Issuer) { i.Prefix = "CN" },
		"days": func(i *billing.Issuer) { i.PaymentDays = -1 }, "locale": func(i *billing.Issuer) { i.Locale = "fr" },
		"tax point": func(i *billing.Issuer) { i.TaxPoint = "" }, "retention": func(i *billing.Issuer) { i.Retention = 1 },
		"original": func(i *billing.Issuer) { i.Original = "odt" }, "zone": func(i *billing.Issuer) { i.TimeZone = "Mars" },
		"local": func(i *billing.Issuer) { i.TimeZone = "Local" },
		"small": func(i *billing.Issuer) { i.SmallAmounts = []money.Amount{money.NewAmount(-1, usd)} },
	} {
		bad := good
		spoil(&bad)
		err := bad.Check()
		require.Equal(t, fault.Invalid, fault.KindOf(err), name)
		require.NotEmpty(t, fault.From(err).Fields, name)
	}
}
