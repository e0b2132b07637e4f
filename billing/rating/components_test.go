package rating_test

import (
	"encoding/hex"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

func TestComponentsFollowTheirOrder(t *testing.T) {
	w := tiny(t, "1")
	ctr, grant := id.New[id.Contract](), id.New[id.Grant]()
	in := w.inputs(w.hours(1, 0, 700), w.hours(2, 0, 0.5))
	for i := range in.Usage {
		in.Usage[i].SKU.Family, in.Usage[i].Region, in.Usage[i].StartID = "f", "eu", [16]byte{byte(i + 1)}
	}
	in.Terms = billing.Terms{
		Reservations:   []billing.ReservedCapacity{{ID: id.New[id.Reservation](), Name: "base", Family: "f", Region: "eu", Units: 1, During: metering.Between(start, start.Add(100*time.Hour))}},
		Discounts:      []billing.ScopedDiscount{{Contract: ctr, Discount: billing.Discount{Name: "tenth", PPM: 100_000}, During: period}},
		Minimums:       []billing.Minimum{{Micros: 3_600_000_000, During: period}},
		Starts:         []billing.Start{{ID: [16]byte{2}, Ended: start.Add(30 * time.Minute), Party: "tenant"}},
		Caps:           []billing.Cap{{Contract: ctr, Hours: 500, During: period}},
		Commitments:    []billing.CommittedAmount{{Contract: ctr, Name: "commit", Amount: cents(50_000), During: period}},
		FixedDiscounts: []billing.AmountOff{{Contract: ctr, Name: "welcome", Amount: cents(5_000), During: period}},
		Promos:         []billing.Promo{{Grant: grant, Name: "launch", Remaining: cents(100_000)}},
	}
	res := rated(t, w, in)
	var got []string
	for _, l := range res.Lines {
		got = append(got, string(l.Key.Component)+" "+l.Amount.Decimal()+" "+l.Quantity.String())
	}
	require.Equal(t, []string{
		"usage 540.45 2161800000000",       // (600 h + 0.5 h) × 0.90
		"covered 0.00 360000000000",        // 100 h of the older start
		"minimum_charge 0.45 1800000000",   // half an hour is missing
		"monthly_cap -90.00 -360000000000", // 600 h of the first slot are 100 h too many
		"commitment 49.10 0",               // 500.00 − 450.90
		"fixed_discount -50.00 0",
		"promo_credit -450.00 0", // all that is left
	}, got)
	require.Equal(t, "0.00", total(res.Lines))
	require.Equal(t, "550.00", res.Promos[0].Left.Decimal())
	require.Equal(t, "0", res.Reservations[0].Unused.String())
}

func TestMinimumIsOncePerStartAndOnlyIfTheTenantEndedIt(t *testing.T) {
	w := tiny(t, "3.60")
	minimum := func(s billing.Start, usage ...rating.Usage) string {
		in := w.inputs(usage...)
		in.Terms.Minimums = []billing.Minimum{{Micros: 60_000_000, During: period}, {Micros: 30_000_000, During: period}}
		in.Terms.Starts = []billing.Start{s}
		return total(of(rated(t, w, in).Lines, billing.MinimumCharge))
	}
	one := w.usage(1, whole, start, start.Add(10*time.Second))
	two := w.usage(1, whole, start.Add(10*time.Second), start.Add(20*time.Second)) // a resize within the start
	ended := billing.Start{Ended: start.Add(20 * time.Second), Party: "tenant"}
	require.Equal(t, "0.04", minimum(ended, one, two), "40 s are missing, once")
	later := ended
	later.Earlier = 15_000_000
	require.Equal(t, "0.03", minimum(later, one, two), "25 s are missing: other months count")
	later.Earlier = 45_000_000
	require.Equal(t, "0.00", minimum(later, one, two))
	ours := ended
	ours.Party = "operator"
	require.Equal(t, "0.00", minimum(ours, one, two))
	taken := ended
	taken.Preempted = true
	require.Equal(t, "0.00", minimum(taken, one, two))
	elsewhen := ended
	elsewhen.Ended = period.From
	require.Equal(t, "0.00", minimum(elsewhen, one, two), "it ended with the month before")
	one.Units, two.Units = 4, 4
	require.Equal(t, "0.16", minimum(ended, one, two))
}

func TestSpotIsOneLineWithItsMeanPrice(t *testing.T) {
	w := tiny(t, "9")
	u := w.hours(1, 0, 3)
	u.Pricing, u.Region = billing.Spot, "eu"
	u.Lock = &billing.Lock{Version: w.book.Versions[0].ID, Price: price("0.01")}
	in := w.inputs(u)
	in.Terms.SpotSeries = []billing.SpotPrice{
		{Region: "eu", SKU: whole.ID, During: metering.Between(start, start.Add(time.Hour)), Price: price("1")},
		{Region: "eu", SKU: whole.ID, During: metering.Between(start.Add(time.Hour), time.Time{}), Price: price("1.05")},
	}
	res := rated(t, w, in)
	require.Len(t, res.Lines, 1)
	l := res.Lines[0]
	require.Equal(t, "3.10", l.Amount.Decimal(), "the lock never applies to spot")
	require.Equal(t, "1.033333333333", l.UnitPrice.Decimal())
	require.Contains(t, l.Description, "spot, mean price")
	require.Equal(t, "spot", l.Key.Reference)
	require.True(t, l.Key.PriceVersion.IsZero())

	in.Terms.NoticeFree = 4 * time.Hour
	in.Terms.Starts = []billing.Start{{Ended: start.Add(3 * time.Hour), Preempted: true}}
	free := rated(t, w, in)
	require.Equal(t, "0.00", total(free.Lines))
	require.Equal(t, billing.Covered, free.Lines[0].Key.Component)
	in.Terms.NoticeFree = 3 * time.Hour
	require.Equal(t, "3.10", total(rated(t, w, in).Lines), "it had run for as long")
	in.Terms.SpotSeries[0].Region = "us"
	_, err := rating.Rate(in)
	require.ErrorContains(t, err, `has no price at 2026-11-01T00:00:00Z`)
}

func TestElasticGuaranteeCoversAndBurstIsCharged(t *testing.T) {
	w := tiny(t, "2")
	in := w.inputs(w.hours(1, 0, 10), w.hours(2, 5, 10), w.hours(3, 6, 2))
	for i := range in.Usage {
		in.Usage[i].SKU.Family, in.Usage[i].Region, in.Usage[i].StartID = "f", "eu", [16]byte{byte(i + 1)}
	}
	r := billing.ReservedCapacity{ID: id.New[id.Reservation](), Name: "g", Family: "f", Region: "eu", Units: 2, During: metering.Between(start, start.Add(20*time.Hour))}
	in.Terms.Reservations = []billing.ReservedCapacity{r}
	res := rated(t, w, in)
	require.Equal(t, "4.00", total(res.Lines), "2 h of the third at once")
	require.Equal(t, r.ID.String(), of(res.Lines, billing.Covered)[0].Key.Reference)
	hours := func(q *big.Int) string { return new(big.Rat).SetFrac(q, big.NewInt(3_600_000_000)).RatString() }
	require.Equal(t, []string{"40", "20", "20"}, []string{hours(res.Reservations[0].Reserved), hours(res.Reservations[0].Used), hours(res.Reservations[0].Unused)})
}

func TestEveryMeterIsRated(t *testing.T) {
	w := tiny(t, "0")
	v := w.book.Versions[0]
	for meter, c := range map[metering.Meter]struct {
		units int64
		want  string
	}{
		metering.GPU: {2, "6.00"}, metering.GPURetained: {1, "3.00"}, metering.IP: {1, "3.00"}, metering.Reservation: {4, "12.00"},
		metering.Storage: {10 * 1024, "30.00"}, metering.Egress: {5 << 30, "15.00"},
	} {
		v.Prices[billing.PriceKey{SKU: whole.ID, Meter: meter}] = price("3")
		u := w.hours(1, 2, 1)
		u.Meter, u.Units = meter, c.units
		res := rated(t, w, w.inputs(u))
		require.Equal(t, c.want, total(res.Lines), meter)
		unit, err := metering.UnitOf(meter)
		require.NoError(t, err)
		require.Equal(t, unit.Quantity, res.Lines[0].QuantityUnit)
		cost, err := rating.Cost(w.inputs(u))
		require.NoError(t, err)
		require.Equal(t, c.want, cost.Decimal(), meter)
	}
}

func TestCountedUsageInPools(t *testing.T) {
	w := tiny(t, "0")
	key := billing.PriceKey{SKU: whole.ID, Meter: metering.Egress}
	w.book.Versions[0].Prices[key] = price("3")
	w.book.Versions[0].Tiers = map[billing.PriceKey]billing.Tiers{key: tiers(billing.Graduated, 6, "3", 0, "1")}
	gib := func(subject byte, from float64, n int64) rating.Usage {
		u := w.hours(subject, from, 1)
		u.Meter, u.Units = metering.Egress, n<<30
		return u
	}
	in := w.inputs(gib(2, 5, 4), gib(1, 5, 4), gib(1, 9, 4))
	in.Terms.FreeQuotas = []billing.FreeQuota{{Name: "free", Scope: billing.Scope{Meter: metering.Egress}, Quantity: big.NewInt(3 << 30), During: metering.Between(start, start.Add(9*time.Hour))}}
	res := rated(t, w, in)
	require.Equal(t, "21.00", total(res.Lines), "3 free, 6 at 3.00, 3 at 1.00")
	views, err := rating.Views(in, []metering.Interval{metering.Between(start, start.Add(6*time.Hour)), metering.Between(start.Add(6*time.Hour), period.To)}, func(rating.Usage) string { return "" })
	require.NoError(t, err)
	require.Equal(t, []string{"15.00", "6.00"}, []string{views[0].Exact.Decimal(), views[1].Exact.Decimal()})

	w.book.Versions[0].Tiers[key] = billing.Tiers{Kind: billing.Package, PackageSize: big.NewRat(5, 1), Steps: []billing.Step{{Price: price("10")}}}
	in.Terms = billing.Terms{}
	require.Equal(t, "30.00", total(rated(t, w, in).Lines), "12 GiB open three packages of 5")
}

func TestPackagesAreNeverMoreThanNeeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := tiny(t, "0", billing.Tiers{Kind: billing.Package, PackageSize: big.NewRat(rapid.Int64Range(1, 50).Draw(t, "size"), 2), Steps: []billing.Step{{Price: price("7")}}})
		usage, sum := draw(t, w), new(big.Int)
		for i := range usage {
			usage[i].SKU, usage[i].Lock = whole, nil
			sum.Add(sum, metering.Quantity(usage[i].Units, usage[i].During.Intersect(period)))
		}
		size := w.book.Versions[0].Tiers[billing.PriceKey{SKU: whole.ID, Meter: metering.GPU}].PackageSize
		need := new(big.Rat).Quo(new(big.Rat).SetFrac(sum, big.NewInt(3_600_000_000)), size)
		up := new(big.Int).Add(need.Num(), new(big.Int).Sub(need.Denom(), big.NewInt(1)))
		packages := up.Quo(up, need.Denom()).Int64()
		res, err := rating.Rate(w.inputs(usage...))
		require.NoError(t, err)
		require.Equal(t, packages, res.Lines[0].Packages)
		hours, err := metering.Split(period, metering.Hour)
		require.NoError(t, err)
		views, err := rating.Views(w.inputs(usage...), hours, func(rating.Usage) string { return "" })
		require.NoError(t, err)
		shown := new(big.Rat)
		for _, v := range views {
			shown.Add(shown, v.Exact.Rat())
		}
		require.Zero(t, shown.Cmp(big.NewRat(7*packages, 1)))
	})
}

// More of one thing never costs less, unless the price is one of volume.
func TestMoreNeverCostsLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]billing.Tiering{billing.Graduated, billing.Package}).Draw(t, "kind")
		x := tiers(kind, 100, "3", 200, "1", 0, "0.5")
		if kind == billing.Package {
			x = billing.Tiers{Kind: kind, PackageSize: big.NewRat(7, 1), Steps: []billing.Step{{Price: price("10")}}}
		}
		w := tiny(t, "0", x)
		u := w.usage(1, whole, start, start.Add(time.Duration(rapid.Int64Range(1, 500*3600*1e6).Draw(t, "us"))*time.Microsecond))
		less, err := rating.Rate(w.inputs(u))
		require.NoError(t, err)
		u.During.To = u.During.To.Add(time.Duration(rapid.Int64Range(1, 100*3600*1e6).Draw(t, "more")) * time.Microsecond)
		more, err := rating.Rate(w.inputs(u))
		require.NoError(t, err)
		require.LessOrEqual(t, sumOf(less.Lines), sumOf(more.Lines)+int64(len(more.Lines)), "but for a rounding a line")
	})
}

func TestADiscountOfHalfTheMonthSeparatesLines(t *testing.T) {
	w := tiny(t, "1")
	in := w.inputs(w.hours(1, 0, 20))
	in.Terms.Discounts = []billing.ScopedDiscount{{Discount: billing.Discount{Name: "late", PPM: 500_000}, During: metering.Between(start.Add(15*time.Hour), time.Time{})}}
	res := rated(t, w, in)
	require.Len(t, res.Lines, 2)
	require.Equal(t, []string{"15.00", "2.50"}, []string{res.Lines[0].Amount.Decimal(), res.Lines[1].Amount.Decimal()})
	require.NotEqual(t, res.Lines[0].Key, res.Lines[1].Key)
	require.Equal(t, metering.Between(start, start.Add(15*time.Hour)), res.Lines[0].During)
}

func TestACommitmentOfHalfTheMonthCountsItsOwnUsage(t *testing.T) {
	w := tiny(t, "1")
	in := w.inputs(w.hours(1, 0, 30), w.hours(2, 400, 20))
	in.Terms.Commitments = []billing.CommittedAmount{{Name: "c", Amount: cents(10_000), During: metering.Between(start.Add(360*time.Hour), time.Time{})}}
	res := rated(t, w, in)
	require.Equal(t, "30.00", of(res.Lines, billing.Commitment)[0].Amount.Decimal(), "50.00 − 20.00")
	require.Equal(t, "80.00", total(res.Lines))
}

func TestACapInMoney(t *testing.T) {
	w := tiny(t, "1")
	in := w.inputs(w.hours(1, 0, 300), w.hours(2, 0, 100))
	in.Usage[1].Project = id.New[id.Project]()
	in.Terms.Caps = []billing.Cap{{Contract: id.New[id.Contract](), Amount: cents(25_000), During: period}}
	require.Equal(t, "250.00", total(rated(t, w, in).Lines))
	in.Terms.Caps[0].Amount = cents(40_000)
	require.Equal(t, "400.00", total(rated(t, w, in).Lines))
}

func TestPromosGoInOrder(t *testing.T) {
	w := tiny(t, "1")
	in := w.inputs(w.hours(1, 0, 100))
	promo := func(n byte, priority int, expires time.Time) billing.Promo {
		return billing.Promo{Grant: id.Grant{n}, Priority: priority, Expires: expires, Remaining: cents(4000)}
	}
	in.Terms.Promos = []billing.Promo{
		promo(1, 1, time.Time{}), promo(2, 1, period.To), promo(3, 0, time.Time{}), promo(4, 0, period.From),
	}
	res := rated(t, w, in)
	used := map[id.Grant]string{}
	for _, p := range res.Promos {
		used[p.Grant] = p.Used.Decimal()
	}
	require.Equal(t, map[id.Grant]string{{3}: "40.00", {2}: "40.00", {1}: "20.00", {4}: "0.00"}, used, "what never expires comes last, what has expired not at all")
}

func TestMonthlyTermsWantOneMonth(t *testing.T) {
	w := tiny(t, "1")
	in := w.inputs()
	in.Period.To = in.Period.To.Add(time.Microsecond)
	in.Terms.Commitments = []billing.CommittedAmount{{Name: "c", Amount: cents(1), During: period}}
	_, err := rating.Rate(in)
	require.Equal(t, fault.Internal, fault.KindOf(err))
	in.Terms.Commitments[0].Amount = money.NewAmount(1, money.MustCurrency("JPY"))
	_, err = rating.Rate(in)
	require.Equal(t, "/commitments/0/amount", fault.From(err).Fields[0].Pointer)
}

func TestEnginesAreKept(t *testing.T) {
	w := newWorld(t)
	in := w.inputs(w.hours(1, 0, 37.5))
	one, err := rating.RateWith("1", in)
	require.NoError(t, err)
	two, err := rating.RateWith("2", in)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2"}, []string{one.Engine, two.Engine})
	require.Equal(t, one.Lines[0].Key, two.Lines[0].Key, "a plain line has the key it always had")
	require.Equal(t, one.Lines[0].Amount, two.Lines[0].Amount)
	require.True(t, strings.HasPrefix(one.Document, "engine 1\nperiod "))
	_, err = rating.RateWith("3", in)
	require.Equal(t, fault.Internal, fault.KindOf(err))
}

// A closed invoice of engine 1 is found again bit for bit.
func TestTheFirstEngineIsAsItWas(t *testing.T) {
	w := tiny(t, "2.49")
	w.book.ID, w.book.Versions[0].ID, w.project = id.PriceBook{1}, id.PriceVersion{2}, id.Project{3}
	u := w.hours(1, 0, 1)
	u.ID, u.SKU.Code = id.Segment{4}, "h100-whole"
	res, err := rating.RateWith("1", w.inputs(u))
	require.NoError(t, err)
	require.Equal(t, "40a8c8b91570753d3eb55167bb5e17ac0093f9172b59c6fc5847d77b2c06a39e", hex.EncodeToString(res.DocumentHash[:]))
	hash := res.Lines[0].Subjects[0].Hash
	require.Equal(t, "be1b2a1ca7750af6c7198bff3751454b9b765b089be9a5195dc0f5c83051f733", hex.EncodeToString(hash[:]))
	require.Len(t, res.Lines, 1)
}

func TestEveryTermIsInTheDocument(t *testing.T) {
	w := tiny(t, "1")
	base := w.inputs(w.hours(1, 0, 100))
	base.Usage[0].SKU.Family, base.Usage[0].Region = "f", "eu"
	base.Terms.NoticeFree = time.Second
	first := rated(t, w, base)
	scope := billing.Scope{Meter: metering.IP} // selects none of it
	for name, change := range map[string]func(*rating.Inputs){
		"discount": func(in *rating.Inputs) { in.Terms.Discounts = []billing.ScopedDiscount{{Scope: scope, During: period}} },
		"reservation": func(in *rating.Inputs) {
			in.Terms.Reservations = []billing.ReservedCapacity{{ID: id.Reservation{1}, Family: "g", Units: 1, During: period}}
		},
		"quota": func(in *rating.Inputs) {
			in.Terms.FreeQuotas = []billing.FreeQuota{{Scope: scope, Quantity: big.NewInt(1), During: period}}
		},
		"price": func(in *rating.Inputs) {
			in.Terms.Prices = []billing.ContractPrice{{Key: billing.PriceKey{Meter: metering.IP}, Price: price("1"), During: period}}
		},
		"minimum": func(in *rating.Inputs) {
			in.Terms.Minimums = []billing.Minimum{{Scope: scope, Micros: 1, During: period}}
		},
		"cap": func(in *rating.Inputs) { in.Terms.Caps = []billing.Cap{{Scope: scope, Hours: 1, During: period}} },
		"commitment": func(in *rating.Inputs) {
			in.Terms.Commitments = []billing.CommittedAmount{{Amount: cents(1), During: period}}
		},
		"fixed": func(in *rating.Inputs) {
			in.Terms.FixedDiscounts = []billing.AmountOff{{Scope: scope, Amount: cents(1), During: period}}
		},
		"promo":      func(in *rating.Inputs) { in.Terms.Promos = []billing.Promo{{Grant: id.Grant{1}, Remaining: cents(0)}} },
		"start":      func(in *rating.Inputs) { in.Terms.Starts = []billing.Start{{ID: [16]byte{5}, Ended: start.Add(1e9)}} },
		"notice":     func(in *rating.Inputs) { in.Terms.NoticeFree = 2 * time.Second },
		"before end": func(in *rating.Inputs) { in.At = period.To.Add(-time.Second) },
		"segment":    func(in *rating.Inputs) { in.Usage = append([]rating.Usage{}, w.hours(1, 0, 99)) },
	} {
		in := base
		change(&in)
		res, err := rating.Rate(in)
		require.NoError(t, err, name)
		require.NotEqual(t, first.DocumentHash, res.DocumentHash, name)
	}
	past := base
	past.Terms.Discounts = []billing.ScopedDiscount{{During: metering.Between(start.AddDate(-1, 0, 0), start)}}
	require.Equal(t, first.DocumentHash, rated(t, w, past).DocumentHash, "what ended before the period is no input")
}

func TestLateUsageCorrectsItsLine(t *testing.T) {
	w := tiny(t, "1", tiers(billing.Volume, 100, "3", 0, "1"))
	in := w.inputs(w.hours(1, 0, 90))
	in.Usage[0].SKU.Family = "f"
	before := rated(t, w, in)
	require.Equal(t, "270.00", total(before.Lines))
	late := w.hours(2, 0, 60)
	late.SKU.Family = "f"
	in.Usage = append(in.Usage, late)
	res, err := rating.Adjust(in, billed(before.Lines))
	require.NoError(t, err)
	require.Equal(t, "-120.00", total(res.Lines), "150 h at 1.00 less what was billed: a credit note")
	require.Len(t, res.Lines, 2)
	require.Equal(t, "TR-1", res.Lines[0].Corrects.Number)
	require.Nil(t, res.Lines[1].Corrects, "a step that was not on the invoice")
	advance := billing.Line{No: 9, Key: billing.LineKey{Component: billing.AdvanceOffset, Reference: "pay"}, Amount: cents(-5000)}
	with, err := rating.Adjust(in, billed(append(before.Lines, advance)))
	require.NoError(t, err)
	require.Equal(t, res.Lines, with.Lines, "an advance is no usage")
	require.Equal(t, []string{"-324000000000", "540000000000"}, []string{res.Lines[0].Quantity.String(), res.Lines[1].Quantity.String()})
}

func TestPriceRules(t *testing.T) {
	w := tiny(t, "2")
	w.book.Versions[0].Prices[billing.PriceKey{SKU: whole.ID, Meter: metering.GPURetained}] = price("0.5")
	in := rating.PriceInputs{At: start.Add(time.Hour), Currency: usd, Book: w.book, SKU: whole, Region: "eu", Pricing: billing.OnDemand}
	rules, err := rating.PreviewPrice(in)
	require.NoError(t, err)
	states := map[billing.ChargeState]billing.PriceRule{}
	for _, r := range rules {
		states[r.State] = r
	}
	require.Len(t, states, 6)
	require.Equal(t, "2.00", states[billing.Running].Price.Decimal())
	require.Equal(t, "0.50", states[billing.StoppedRetain].Net.Decimal())
	for _, s := range []billing.ChargeState{billing.Preparing, billing.StoppedRelease, billing.Unavailable, billing.DeletedInstance} {
		require.Empty(t, states[s].Meter, s)
	}

	ctr := id.New[id.Contract]()
	in.Terms = billing.Terms{
		Prices:    []billing.ContractPrice{{Contract: ctr, Key: billing.PriceKey{SKU: whole.ID, Meter: metering.GPU}, During: period, Price: price("3"), Tiers: tiers(billing.Graduated, 100, "3", 0, "1")}},
		Discounts: []billing.ScopedDiscount{{Discount: billing.Discount{Name: "half", PPM: 500_000}, During: period}},
		Minimums:  []billing.Minimum{{Micros: 60_000_000, During: period}}, Caps: []billing.Cap{{Contract: ctr, Hours: 672, During: period}},
	}
	rules, err = rating.PreviewPrice(in)
	require.NoError(t, err)
	r := rules[1]
	require.Equal(t, billing.FromContract, r.Source)
	require.Equal(t, ctr.String(), r.Contract)
	require.Equal(t, []string{"3.00", "1.50", "1m0s"}, []string{r.Price.Decimal(), r.Net.Decimal(), r.Minimum.String()})
	require.Equal(t, int64(672), r.CapHours)
	require.Equal(t, in.Terms.Prices[0].Tiers, r.Tiers)

	in.Lock = &billing.Lock{Version: w.book.Versions[0].ID, Price: price("0.75")}
	rules, err = rating.PreviewPrice(in)
	require.NoError(t, err)
	require.Equal(t, billing.FromLock, rules[1].Source)
	require.True(t, rules[1].Tiers.IsZero())

	in.Pricing = billing.Spot
	_, err = rating.PreviewPrice(in)
	require.Equal(t, fault.Internal, fault.KindOf(err))
	in.Terms.SpotSeries = []billing.SpotPrice{{Region: "eu", SKU: whole.ID, During: metering.Between(start, time.Time{}), Price: price("0.2")}}
	in.Terms.NoticeFree = time.Minute
	rules, err = rating.PreviewPrice(in)
	require.NoError(t, err)
	require.Equal(t, billing.FromSpot, rules[1].Source)
	require.Equal(t, time.Minute, rules[1].NoticeFree)
	require.Equal(t, billing.PreemptedEarly, rules[3].State)
}
