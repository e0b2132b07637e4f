package rating_test

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// The numbered cases are faults that other billing systems had, with right values.

// tiny is a book with one price of one SKU, without changes.
func tiny(t require.TestingT, text string, tiers ...billing.Tiers) *world {
	w := &world{book: billing.Book{ID: id.New[id.PriceBook](), Currency: usd}, project: id.New[id.Project]()}
	key := billing.PriceKey{SKU: whole.ID, Meter: metering.GPU}
	v := billing.Version{ID: id.New[id.PriceVersion](), EffectiveFrom: start.AddDate(-1, 0, 0), Prices: map[billing.PriceKey]money.Price{key: price(text)}}
	for _, x := range tiers {
		v.Tiers = map[billing.PriceKey]billing.Tiers{key: x}
	}
	book, err := w.book.Publish(v, v.EffectiveFrom)
	require.NoError(t, err)
	w.book = book
	return w
}

// hours of one subject on the whole GPU, from an hour of the period on.
func (w *world) hours(subject byte, from, length float64) rating.Usage {
	at := func(h float64) time.Time { return start.Add(time.Duration(h * 3600e9)) }
	return w.usage(subject, whole, at(from), at(from+length))
}

func total(lines []billing.Line) string {
	sum := money.NewAmount(0, usd)
	for _, l := range lines {
		next, err := sum.Add(l.Amount)
		if err != nil {
			return err.Error()
		}
		sum = next
	}
	return sum.Decimal()
}

func of(lines []billing.Line, c billing.Component) (out []billing.Line) {
	for _, l := range lines {
		if l.Key.Component == c {
			out = append(out, l)
		}
	}
	return out
}

func rated(t *testing.T, w *world, in rating.Inputs) rating.Result {
	t.Helper()
	res, err := rating.Rate(in)
	require.NoError(t, err)
	for i, l := range res.Lines {
		require.Equal(t, i+1, l.No)
		rounded, err := l.Exact.Round()
		require.NoError(t, err)
		require.Equal(t, rounded, l.Amount, "a line is its exact value, rounded once")
	}
	return res
}

func TestB14PerSecondPriceIsNeverRounded(t *testing.T) {
	w := tiny(t, "2.49")
	require.Equal(t, "2.49", total(rated(t, w, w.inputs(w.hours(1, 0, 1))).Lines))
	in := w.inputs(w.usage(1, whole, start.AddDate(0, 1, 0), start.AddDate(0, 2, 0)))
	in.Period = metering.Between(start.AddDate(0, 1, 0), start.AddDate(0, 2, 0))
	in.At = in.Period.To
	require.Equal(t, "1852.56", total(rated(t, w, in).Lines), "2,678,400 s")
}

func TestB18BelowOneMinorUnit(t *testing.T) {
	w := tiny(t, "0.004")
	res := rated(t, w, w.inputs(w.hours(1, 0, 1), w.hours(2, 0, 1), w.hours(3, 0, 1)))
	require.Equal(t, "0.01", total(res.Lines), "0.012: instances do not round, the line does")
	res = rated(t, w, w.inputs(w.hours(1, 0, 1.0/3), w.hours(2, 0, 1.0/3), w.hours(3, 0, 1.0/3)))
	require.Equal(t, "0.00", total(res.Lines))
	for _, s := range res.Lines[0].Subjects {
		require.True(t, s.Amount.IsZero())
	}
}

func TestB20CommitmentOfAPartOfTheMonthIsProratedByTime(t *testing.T) {
	w := tiny(t, "1")
	in := w.inputs()
	// 60-billing has no monthly fee; a commitment is prorated by the month's own seconds: 91.00 × 42/91 of a
	// quarter is 42.00, 30.00 × 14/30 of November is 14.00.
	in.Terms.Commitments = []billing.CommittedAmount{{Name: "c", Amount: cents(3000), During: metering.Between(start.AddDate(0, 0, 16), time.Time{})}}
	require.Equal(t, "14.00", total(rated(t, w, in).Lines))
}

func TestB21B22MonthsTileWithoutGaps(t *testing.T) {
	from := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 60 {
		p, err := metering.ParsePeriod(metering.PeriodOf(from))
		require.NoError(t, err)
		require.Equal(t, from, p.From)
		from = p.To
	}
	require.Equal(t, time.Date(2029, 1, 1, 0, 0, 0, 0, time.UTC), from)
}

func TestB23AMonthIsItsOwnSeconds(t *testing.T) {
	w := tiny(t, "1")
	for month, hours := range map[time.Month]string{time.March: "744.00", time.November: "720.00"} {
		from := time.Date(2026, month, 1, 0, 0, 0, 0, time.UTC)
		in := w.inputs(w.usage(1, whole, from, from.AddDate(0, 1, 0)))
		in.Period, in.At = metering.Between(from, from.AddDate(0, 1, 0)), from.AddDate(0, 1, 0)
		require.Equal(t, hours, total(rated(t, w, in).Lines), "no zone of anybody's changes it")
	}
}

func TestB30TwoRunsOfOneDayAreTwoHours(t *testing.T) {
	w := tiny(t, "1")
	res := rated(t, w, w.inputs(w.hours(1, 10, 1), w.hours(1, 12, 1)))
	require.Equal(t, "7200000000", res.Lines[0].Quantity.String())
	require.Equal(t, "2.00", total(res.Lines))
}

func TestB31CommitmentOfAFullMonthIsNotProrated(t *testing.T) {
	w := tiny(t, "1")
	for _, month := range []time.Month{time.February, time.March} {
		from := time.Date(2026, month, 1, 0, 0, 0, 0, time.UTC)
		in := w.inputs(w.usage(1, whole, from, from.Add(time.Hour)))
		in.Period, in.At = metering.Between(from, from.AddDate(0, 1, 0)), from.AddDate(0, 1, 0)
		in.Terms.Commitments = []billing.CommittedAmount{{Name: "min", Amount: cents(3100), During: metering.Between(start.AddDate(-1, 0, 0), time.Time{})}}
		res := rated(t, w, in)
		require.Equal(t, "31.00", total(res.Lines))
		require.Equal(t, "30.00", of(res.Lines, billing.Commitment)[0].Amount.Decimal())
	}
}

func TestB32MonthlyCapIsOfTheSlot(t *testing.T) {
	w := tiny(t, "1.50")
	december := start.AddDate(0, 1, 0)
	a := w.usage(1, whole, december, december.Add(400*time.Hour))
	b := w.usage(2, whole, december.Add(400*time.Hour), december.Add(744*time.Hour))
	a.Slot, b.Slot = [16]byte{7}, [16]byte{7}
	in := w.inputs(a, b)
	in.Period, in.At = metering.Between(december, december.AddDate(0, 1, 0)), december.AddDate(0, 1, 0)
	in.Terms.Caps = []billing.Cap{{Hours: 672, During: in.Period}}
	res := rated(t, w, in)
	require.Equal(t, "1008.00", total(res.Lines), "672 h")
	credit := of(res.Lines, billing.CapCredit)
	require.Len(t, credit, 1)
	require.Equal(t, "-108.00", credit[0].Amount.Decimal())
	left := []int64{24_000, 20_640}
	for i, s := range credit[0].Subjects {
		minutes := new(big.Rat).SetFrac(s.Quantity, big.NewInt(60_000_000))
		left[i] += money.RoundHalfAway(minutes.Num(), minutes.Denom()).Int64()
	}
	require.Equal(t, []int64{21_677, 18_643}, left, "each keeps its proportion of 40,320 minutes")

	b.Slot = [16]byte{8}
	in.Usage[1] = b
	require.Empty(t, of(rated(t, w, in).Lines, billing.CapCredit), "two slots have a cap each")
}

func TestB33RunsOfASecondAreSeconds(t *testing.T) {
	w := tiny(t, "3600")
	var usage []rating.Usage
	for i := range 60 {
		usage = append(usage, w.usage(1, whole, start.Add(time.Duration(i)*time.Minute), start.Add(time.Duration(i)*time.Minute+time.Second)))
	}
	require.Equal(t, "60.00", total(rated(t, w, w.inputs(usage...)).Lines))
}

func TestB34UsageOfAFreeTimeStaysFree(t *testing.T) {
	w := tiny(t, "1")
	in := w.inputs(w.hours(1, 0, 5), w.hours(1, 100, 3))
	in.Terms.FreeQuotas = []billing.FreeQuota{{
		Name: "trial", Scope: billing.Scope{Meter: metering.GPU}, Quantity: big.NewInt(1_000 * 3_600_000_000), During: metering.Between(start, start.Add(50*time.Hour)),
	}}
	res := rated(t, w, in)
	require.Equal(t, "3.00", total(res.Lines))
	require.Equal(t, "18000000000", of(res.Lines, billing.Covered)[0].Quantity.String())
}

func TestB54FixedDiscountIsTakenOnce(t *testing.T) {
	w := tiny(t, "1")
	in := w.inputs(w.hours(1, 0, 50))
	in.Terms.FixedDiscounts = []billing.AmountOff{{Name: "welcome", Amount: cents(1000), During: period}}
	first := rated(t, w, in)
	require.Equal(t, "40.00", total(first.Lines))
	in.Usage = append(in.Usage, w.hours(2, 0, 50))
	late, err := rating.Adjust(in, billed(first.Lines))
	require.NoError(t, err)
	require.Equal(t, "50.00", total(late.Lines), "not 40.00: the discount was spent")
}

func TestB57CreditBeyondTheLinesIsKept(t *testing.T) {
	w := tiny(t, "1")
	in := w.inputs(w.hours(1, 0, 200), w.hours(2, 0, 200))
	in.Usage[1].Project = id.New[id.Project]()
	grant := id.New[id.Grant]()
	in.Terms.Promos = []billing.Promo{{Grant: grant, Name: "p", Remaining: cents(50_000)}}
	res := rated(t, w, in)
	require.Equal(t, "0.00", total(res.Lines))
	require.Equal(t, []rating.PromoUse{{Grant: grant, Used: cents(40_000), Left: cents(10_000)}}, res.Promos)
}

func TestB58TrueUpCountsEmptyTime(t *testing.T) {
	w := tiny(t, "0.40")
	var usage []rating.Usage
	for h := range 21 { // 21 hours of a day are used, 3 are not
		usage = append(usage, w.hours(1, float64(h), 1))
	}
	in := w.inputs(usage...)
	in.Terms.Commitments = []billing.CommittedAmount{{Name: "c", Amount: cents(2400), During: period}}
	require.Equal(t, "24.00", total(rated(t, w, in).Lines), "not 21.00; commitments are monthly here")
	in.Usage = nil
	require.Equal(t, "24.00", total(rated(t, w, in).Lines), "also of a month without usage")
	in.At = period.To.Add(-time.Second)
	require.Equal(t, "0.00", total(rated(t, w, in).Lines), "nothing lacks before the month is over")
}

func TestB59DiscountsMultiply(t *testing.T) {
	w := tiny(t, "1")
	in := w.inputs(w.hours(1, 0, 100))
	in.Terms.Discounts = []billing.ScopedDiscount{
		{Discount: billing.Discount{Name: "a", PPM: 200_000}, During: period},
		{Discount: billing.Discount{Name: "b", PPM: 100_000}, Scope: billing.Scope{Meter: metering.GPU}, During: period},
		{Discount: billing.Discount{Name: "elsewhere", PPM: 900_000}, Scope: billing.Scope{Meter: metering.IP}, During: period},
	}
	res := rated(t, w, in)
	require.Equal(t, "72.00", total(res.Lines), "28 % off")
	require.Len(t, res.Lines[0].Discounts, 2)
}

func TestB61B62GPUsAreCountedByTheUnit(t *testing.T) {
	w := tiny(t, "0.50")
	var quarters []rating.Usage
	for i := range 4 {
		quarters = append(quarters, w.hours(byte(i+1), 0, 1))
	}
	require.Equal(t, "2.00", total(rated(t, w, w.inputs(quarters...)).Lines), "4 shares of a GPU of 2.00, not 8.00")
	w = tiny(t, "2")
	eight := w.hours(1, 0, 1)
	eight.Units = 8
	require.Equal(t, "16.00", total(rated(t, w, w.inputs(eight)).Lines))
}

func TestB63NoQuantityHasTheListPrice(t *testing.T) {
	w := tiny(t, "2.49")
	u := w.hours(1, 0, 1)
	u.Units = 0
	l := rated(t, w, w.inputs(u)).Lines[0]
	require.Equal(t, "2.49", l.UnitPrice.Decimal())
	require.True(t, l.Amount.IsZero())
}

func TestB65GraduatedVolumeAtFractionalEdge(t *testing.T) {
	for hours, want := range map[float64][2]string{100: {"300.00", "300.00"}, 100.5: {"301.25", "251.25"}, 750: {"1800.00", "1500.00"}} {
		for i, kind := range []billing.Tiering{billing.Graduated, billing.Volume} {
			w := tiny(t, "3", tiers(kind, 100, "3", 500, "2.50", 0, "2"))
			one := w.hours(1, 0, hours/2) // two at once, so that 750 h fit a month
			one.Units = 2
			res := rated(t, w, w.inputs(one))
			require.Equal(t, want[i], total(res.Lines), "%s of %v", kind, hours)
			for _, l := range res.Lines {
				require.Positive(t, l.Key.Tier)
			}
		}
	}
}

func TestPackagesAreWhole(t *testing.T) {
	w := tiny(t, "0", billing.Tiers{Kind: billing.Package, PackageSize: big.NewRat(100, 1), Steps: []billing.Step{{Price: price("30")}}})
	for hours, want := range map[float64]string{0.001: "30.00", 100: "30.00", 100.001: "60.00", 250: "90.00"} {
		res := rated(t, w, w.inputs(w.hours(1, 0, hours)))
		require.Equal(t, want, total(res.Lines), "%v h", hours)
		require.Equal(t, "package of 100 × GPU-hour", res.Lines[0].PricedUnit)
	}
	// Two projects: whoever begins a package pays it.
	in := w.inputs(w.hours(1, 0, 60), w.hours(2, 60, 60))
	in.Usage[1].Project = id.New[id.Project]()
	res := rated(t, w, in)
	require.Equal(t, "60.00", total(res.Lines))
	require.Equal(t, []int64{1, 1}, []int64{res.Lines[0].Packages, res.Lines[1].Packages})
}

func billed(lines []billing.Line) (out []rating.Billed) {
	for _, l := range lines {
		out = append(out, rating.Billed{Ref: billing.LineRef{Number: "TR-1", No: l.No}, Line: l})
	}
	return out
}

func ExampleRate() {
	usd := money.MustCurrency("USD")
	from := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	sku := billing.SKU{ID: [16]byte{1}, Code: "h100-whole", Name: "H100-80 whole"}
	book := billing.Book{ID: id.PriceBook{1}, Currency: usd, Versions: []billing.Version{{
		ID: id.PriceVersion{1}, EffectiveFrom: from, Prices: map[billing.PriceKey]money.Price{{SKU: sku.ID, Meter: metering.GPU}: money.MustPrice("2.49", usd)},
	}}}
	usage := rating.Usage{SKU: sku, Book: book.ID, Pricing: billing.OnDemand, Segment: metering.Segment{
		Meter: metering.GPU, Units: 1, During: metering.Between(from, from.Add(37*time.Second)),
	}}
	res, err := rating.Rate(rating.Inputs{
		Period: metering.Between(from, from.AddDate(0, 1, 0)), At: from.AddDate(0, 1, 0), Currency: usd,
		Books: map[id.PriceBook]billing.Book{book.ID: book}, Usage: []rating.Usage{usage},
	})
	fmt.Println(res.Lines[0].Exact, res.Lines[0].Amount, err)
	// Output: 0.025591666666 USD 0.03 USD <nil>
}
