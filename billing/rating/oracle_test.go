package rating_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// The oracle walks through a month unit by unit and microsecond by microsecond. So
// that this is short, all happens in the first microseconds, at prices to match.
const moments = 40

func us(n int) time.Time { return start.Add(time.Duration(n) * time.Microsecond) }

func drawSpan(t *rapid.T, label string) metering.Interval {
	from := rapid.IntRange(0, moments-1).Draw(t, label+" from")
	if rapid.Bool().Draw(t, label+" open") {
		return metering.Between(us(from), time.Time{})
	}
	return metering.Between(us(from), us(rapid.IntRange(from+1, moments).Draw(t, label+" to")))
}

// drawPrice is a multiple of 0.36 per hour: a microsecond of it has 12 decimals, also
// after two discounts of whole tenths.
func drawPrice(t *rapid.T, label string) money.Price {
	n := rapid.Int64Range(0, 1_000_000_000).Draw(t, label)
	p, err := money.PriceOf(new(big.Int).Mul(big.NewInt(n), big.NewInt(360_000_000_000)), usd)
	require.NoError(t, err)
	return p
}

func drawTiers(t *rapid.T) billing.Tiers {
	kind := rapid.SampledFrom([]billing.Tiering{billing.Graduated, billing.Volume}).Draw(t, "kind")
	out, end := billing.Tiers{Kind: kind}, int64(0)
	for range rapid.IntRange(0, 3).Draw(t, "steps") {
		end += rapid.Int64Range(1, 40).Draw(t, "step")
		out.Steps = append(out.Steps, billing.Step{UpTo: big.NewRat(end, 3_600_000_000), Price: drawPrice(t, "step price")})
	}
	out.Steps = append(out.Steps, billing.Step{Price: drawPrice(t, "last price")})
	return out
}

// drawTerms makes a world in which everything about usage may differ by the instant.
func drawTerms(t *rapid.T) rating.Inputs {
	skus := []billing.SKU{mig, whole}
	book := billing.Book{ID: id.New[id.PriceBook](), Currency: usd}
	for n := range rapid.IntRange(1, 2).Draw(t, "versions") {
		v := billing.Version{ID: id.New[id.PriceVersion](), EffectiveFrom: us(n * 17).Add(-time.Microsecond), Prices: map[billing.PriceKey]money.Price{}, Tiers: map[billing.PriceKey]billing.Tiers{}}
		for i := range skus {
			skus[i].Family = "f"
			k := billing.PriceKey{SKU: skus[i].ID, Meter: metering.GPU}
			if v.Prices[k] = drawPrice(t, "price"); rapid.Bool().Draw(t, "tiered") {
				v.Tiers[k] = drawTiers(t)
				v.Prices[k] = v.Tiers[k].First()
			}
		}
		book.Versions = append(book.Versions, v)
	}
	in := rating.Inputs{Period: period, At: period.To, Currency: usd, Books: map[id.PriceBook]billing.Book{book.ID: book}}
	projects := []id.Project{id.New[id.Project](), id.New[id.Project]()}
	for subject := range rapid.IntRange(1, 4).Draw(t, "subjects") {
		at := rapid.IntRange(0, 10).Draw(t, "begin")
		project := rapid.SampledFrom(projects).Draw(t, "project")
		for at < moments && rapid.IntRange(0, 3).Draw(t, "more") > 0 {
			sku := rapid.SampledFrom(skus).Draw(t, "sku")
			end := rapid.IntRange(at+1, moments).Draw(t, "end")
			u := rating.Usage{
				Segment: metering.Segment{
					ID: id.New[id.Segment](), Project: project, Subject: metering.Subject{Kind: "instance", ID: [16]byte{byte(subject + 1)}}, Meter: metering.GPU,
					Units: rapid.Int64Range(1, 3).Draw(t, "units"), StartID: [16]byte{byte(subject + 1), byte(at + 1)}, During: metering.Between(us(at), us(end)),
				},
				SKU: sku, Book: book.ID, Pricing: billing.OnDemand, Region: rapid.SampledFrom([]string{"eu", "us"}).Draw(t, "region"),
			}
			u.Started = us(rapid.IntRange(-5, at).Draw(t, "started"))
			switch rapid.IntRange(0, 3).Draw(t, "how") {
			case 0:
				lock, ok := book.Lock(book.Versions[0].ID, billing.PriceKey{SKU: sku.ID, Meter: metering.GPU})
				require.True(t, ok)
				u.Lock = &lock
			case 1:
				u.Pricing = billing.Spot
			}
			in.Usage = append(in.Usage, u)
			at = end + rapid.IntRange(0, 5).Draw(t, "gap")
		}
	}
	in.Terms = drawPromises(t, skus)
	return in
}

func drawPromises(t *rapid.T, skus []billing.SKU) (m billing.Terms) {
	for _, region := range []string{"eu", "us"} {
		for _, sku := range skus {
			at := rapid.IntRange(1, moments).Draw(t, "spot change")
			m.SpotSeries = append(m.SpotSeries,
				billing.SpotPrice{Region: region, SKU: sku.ID, During: metering.Between(us(0), us(at)), Price: drawPrice(t, "spot")},
				billing.SpotPrice{Region: region, SKU: sku.ID, During: metering.Between(us(at), time.Time{}), Price: drawPrice(t, "spot")})
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "reservations") {
		m.Reservations = append(m.Reservations, billing.ReservedCapacity{
			ID: id.New[id.Reservation](), Name: "r", Family: "f", Region: "eu", Units: rapid.Int64Range(1, 3).Draw(t, "reserved"), During: drawSpan(t, "reservation"),
		})
	}
	for n := range rapid.IntRange(0, 2).Draw(t, "quotas") {
		m.FreeQuotas = append(m.FreeQuotas, billing.FreeQuota{
			Name: fmt.Sprint("q", n), Scope: billing.Scope{Meter: metering.GPU}, Quantity: big.NewInt(rapid.Int64Range(1, 50).Draw(t, "quota")), During: drawSpan(t, "quota"),
		})
	}
	if n := len(m.FreeQuotas); n > 0 && rapid.Bool().Draw(t, "narrow") {
		m.FreeQuotas[n-1].Scope.SKU = mig.ID
	}
	if rapid.Bool().Draw(t, "contract") {
		p := billing.ContractPrice{Contract: id.New[id.Contract](), Key: billing.PriceKey{SKU: mig.ID, Meter: metering.GPU}, During: drawSpan(t, "contract"), Price: drawPrice(t, "contract price")}
		if rapid.Bool().Draw(t, "tiered contract") {
			p.Tiers = drawTiers(t)
		}
		m.Prices = append(m.Prices, p)
	}
	for n := range rapid.IntRange(0, 2).Draw(t, "discounts") {
		d := billing.ScopedDiscount{Discount: billing.Discount{Name: fmt.Sprint("d", n), PPM: 100_000 * rapid.Int64Range(0, 10).Draw(t, "tenths")}, During: drawSpan(t, "discount")}
		if rapid.Bool().Draw(t, "scoped") {
			d.Scope.SKU = whole.ID
		}
		m.Discounts = append(m.Discounts, d)
	}
	return m
}

// truth is what the oracle finds.
type truth struct {
	bySubject map[[16]byte]*big.Rat
	sum       *big.Rat
	covered   map[string]int64 // by reservation
	free      int64
	quantity  int64
}

func inside(i metering.Interval, t time.Time) bool {
	return !t.Before(i.From) && (i.Open() || t.Before(i.To))
}

// grain is a unit of a subject in one microsecond.
type grain struct {
	u   rating.Usage
	at  time.Time
	pos int64 // in the pool
}

// walk is the oracle.
func walk(in rating.Inputs) truth {
	out := truth{bySubject: map[[16]byte]*big.Rat{}, sum: new(big.Rat), covered: map[string]int64{}}
	var left []grain
	quotas := slices.Clone(in.Terms.FreeQuotas)
	slices.SortFunc(quotas, func(a, b billing.FreeQuota) int { return cmp.Compare(a.Name, b.Name) })
	eaten := make([]int64, len(quotas))
	position := int64(0)
	for n := -1; n < moments; n++ {
		at := us(n)
		for _, u := range bareUnits(in, at, &out) {
			if u.Pricing != billing.Spot {
				free := false
				for i, q := range quotas {
					if inside(q.During, at) && q.Scope.Matches(u.Meter, u.SKU.Family, u.SKU.ID) && eaten[i] < q.Quantity.Int64() {
						eaten[i]++
						out.free++
						free = true
						break
					}
				}
				if free {
					continue
				}
				position++
			}
			left = append(left, grain{u, at, position})
		}
	}
	for _, g := range left {
		p := new(big.Rat).SetFrac(priceOf(in, g, position).Pico(), big.NewInt(1e12))
		p.Mul(p, big.NewRat(1, 3_600_000_000))
		for _, d := range in.Terms.Discounts {
			if inside(d.During, g.at) && d.Scope.Matches(g.u.Meter, g.u.SKU.Family, g.u.SKU.ID) {
				p.Mul(p, big.NewRat(1_000_000-d.PPM, 1_000_000))
			}
		}
		if out.bySubject[g.u.Subject.ID] == nil {
			out.bySubject[g.u.Subject.ID] = new(big.Rat)
		}
		out.bySubject[g.u.Subject.ID].Add(out.bySubject[g.u.Subject.ID], p)
		out.sum.Add(out.sum, p)
	}
	return out
}

// bareUnits returns the units that no reservation covers at an instant, by subject.
func bareUnits(in rating.Inputs, at time.Time, out *truth) []rating.Usage {
	var running []rating.Usage
	for _, u := range in.Usage {
		if inside(u.During, at) {
			running = append(running, u)
			out.quantity += u.Units
		}
	}
	starts := map[[16]byte]time.Time{}
	for _, u := range in.Usage {
		if s, ok := starts[u.StartID]; !ok || u.Started.Before(s) {
			starts[u.StartID] = u.Started
		}
	}
	slices.SortFunc(running, func(a, b rating.Usage) int {
		return cmp.Or(starts[a.StartID].Compare(starts[b.StartID]), bytes.Compare(a.Subject.ID[:], b.Subject.ID[:]))
	})
	var seats []string
	reservations := slices.Clone(in.Terms.Reservations)
	slices.SortFunc(reservations, func(a, b billing.ReservedCapacity) int {
		return cmp.Or(a.During.From.Compare(b.During.From), bytes.Compare(a.ID[:], b.ID[:]))
	})
	for _, r := range reservations {
		for range r.Units {
			if inside(r.During, at) {
				seats = append(seats, r.ID.String())
			}
		}
	}
	var bare []rating.Usage
	for _, u := range running {
		for range u.Units {
			if u.Region == "eu" && u.Pricing != billing.Spot && len(seats) > 0 {
				out.covered[seats[0]]++
				seats = seats[1:]
				continue
			}
			bare = append(bare, u)
		}
	}
	slices.SortStableFunc(bare, func(a, b rating.Usage) int { return bytes.Compare(a.Subject.ID[:], b.Subject.ID[:]) })
	return bare
}

func priceOf(in rating.Inputs, g grain, total int64) money.Price {
	if g.u.Pricing == billing.Spot {
		for _, s := range in.Terms.SpotSeries {
			if s.Region == g.u.Region && s.SKU == g.u.SKU.ID && inside(s.During, g.at) {
				return s.Price
			}
		}
	}
	k := billing.PriceKey{SKU: g.u.SKU.ID, Meter: g.u.Meter}
	book := in.Books[g.u.Book]
	version, _ := book.At(g.at)
	flat, tiers := version.Prices[k], version.Tiers[k]
	for _, p := range in.Terms.Prices {
		if p.Key == k && inside(p.During, g.at) {
			flat, tiers = p.Price, p.Tiers
		}
	}
	if g.u.Lock == nil {
		return read(flat, tiers, tiers.Kind, g.pos, total)
	}
	ceiling := book.Versions[0].Tiers[k]
	kind := tiers.Kind
	if kind == billing.Flat || ceiling.Kind == billing.Volume {
		kind = cmp.Or(ceiling.Kind, kind)
	}
	lower, err := read(flat, tiers, kind, g.pos, total).Lower(read(g.u.Lock.Price, ceiling, kind, g.pos, total))
	if err != nil {
		return money.Price{}
	}
	return lower
}

func read(flat money.Price, tiers billing.Tiers, kind billing.Tiering, pos, total int64) money.Price {
	if kind == billing.Volume {
		pos = total
	}
	for _, s := range tiers.Steps {
		if s.UpTo == nil || big.NewRat(pos, 3_600_000_000).Cmp(s.UpTo) <= 0 {
			return s.Price
		}
	}
	return flat
}

func TestRatingAgreesWithAWalkThroughTheMonth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawTerms(t)
		want := walk(in)
		res, err := rating.Rate(in)
		require.NoError(t, err)
		sum, quantity, free := new(big.Rat), new(big.Int), new(big.Int)
		net := new(big.Rat)
		for _, l := range res.Lines {
			sum.Add(sum, l.Exact.Rat())
			net.Add(net, l.Amount.Exact().Rat())
			quantity.Add(quantity, l.Quantity)
			if l.Key.Component == billing.Covered && l.Key.Pricing == billing.OnDemand {
				free.Add(free, l.Quantity)
			}
			parts, err := rating.Trace(in, l.Key)
			require.NoError(t, err)
			for _, p := range parts {
				l.Quantity.Sub(l.Quantity, p.Quantity)
			}
			require.Zero(t, l.Quantity.Sign(), "a line is the sum of its parts")
		}
		require.Zero(t, want.sum.Cmp(sum), "oracle %s, lines %s", want.sum.FloatString(12), sum.FloatString(12))
		require.Equal(t, want.quantity, quantity.Int64(), "every unit is on one line")
		require.Equal(t, want.free, free.Int64())
		for _, r := range res.Reservations {
			require.Equal(t, want.covered[r.ID.String()], r.Used.Int64())
			require.GreaterOrEqual(t, r.Unused.Sign(), 0)
		}
		off := net.Sub(net, sum)
		require.LessOrEqual(t, off.Abs(off).Cmp(big.NewRat(int64(len(res.Lines)), 200)), 0)

		views, err := rating.Views(in, []metering.Interval{period}, func(u rating.Usage) string { return string(u.Subject.ID[:]) })
		require.NoError(t, err)
		for _, v := range views {
			exact := cmp.Or(want.bySubject[[16]byte([]byte(v.Group))], new(big.Rat))
			require.Zero(t, exact.Cmp(v.Exact.Rat()), "oracle %s, view %s", exact.FloatString(12), v.Exact)
		}
	})
}

func TestViewsOfAnyBucketAgreeUnderTerms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawTerms(t)
		whole, err := rating.Cost(in)
		require.NoError(t, err)
		var buckets []metering.Interval
		for from := start; from.Before(us(moments)); {
			to := from.Add(time.Duration(rapid.IntRange(1, moments).Draw(t, "bucket")) * time.Microsecond)
			buckets = append(buckets, metering.Between(from, to))
			from = to
		}
		hidden := rapid.Bool().Draw(t, "hide")
		sum := new(big.Rat)
		views, err := rating.Views(in, buckets, func(u rating.Usage) string {
			if hidden && u.SKU.ID == mig.ID {
				return rating.Hidden
			}
			return "shown"
		})
		require.NoError(t, err)
		for _, v := range views {
			sum.Add(sum, v.Exact.Rat())
		}
		if hidden {
			require.LessOrEqual(t, sum.Cmp(whole.Rat()), 0)
			return
		}
		require.Zero(t, sum.Cmp(whole.Rat()))
	})
}

func TestOrderCopiesAndSplitsChangeNoLineUnderTerms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawTerms(t)
		in.Terms.Commitments = []billing.CommittedAmount{{Name: "c", Amount: cents(rapid.Int64Range(1, 1e9).Draw(t, "commitment")), During: drawSpan(t, "commitment")}}
		in.Terms.FixedDiscounts = []billing.AmountOff{{Name: "f", Amount: cents(rapid.Int64Range(1, 1e6).Draw(t, "off")), During: period}}
		in.Terms.Promos = []billing.Promo{{Grant: id.New[id.Grant](), Name: "p", Remaining: cents(rapid.Int64Range(0, 1e6).Draw(t, "promo"))}, {Grant: id.New[id.Grant](), Name: "q", Scope: billing.Scope{SKU: mig.ID}, Remaining: cents(77)}}
		in.Terms.Minimums = []billing.Minimum{{Micros: rapid.Int64Range(1, 60).Draw(t, "minimum"), During: metering.Between(us(-9), time.Time{})}}
		for _, u := range in.Usage {
			in.Terms.Starts = append(in.Terms.Starts, billing.Start{ID: u.StartID, Ended: u.During.To, Party: "tenant"})
		}
		res, err := rating.Rate(in)
		require.NoError(t, err)
		again := in
		again.Usage = slices.Clone(in.Usage)
		if len(in.Usage) > 0 {
			again.Usage = append(again.Usage, in.Usage[rapid.IntRange(0, len(in.Usage)-1).Draw(t, "twice")])
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		r.Shuffle(len(again.Usage), func(i, j int) { again.Usage[i], again.Usage[j] = again.Usage[j], again.Usage[i] })
		again.Terms.Starts, again.Terms.Promos, again.Terms.Reservations = shuffled(r, in.Terms.Starts), shuffled(r, in.Terms.Promos), shuffled(r, in.Terms.Reservations)
		again.Terms.FreeQuotas, again.Terms.Discounts, again.Terms.SpotSeries = shuffled(r, in.Terms.FreeQuotas), shuffled(r, in.Terms.Discounts), shuffled(r, in.Terms.SpotSeries)
		same, err := rating.Rate(again)
		require.NoError(t, err)
		require.Equal(t, res, same)

		if len(in.Usage) == 0 {
			return
		}
		i := rapid.IntRange(0, len(in.Usage)-1).Draw(t, "which")
		head := in.Usage[i]
		tail := head
		cut := head.During.From.Add(time.Duration(rapid.Int64Range(0, head.During.Micros()).Draw(t, "cut")) * time.Microsecond)
		tail.ID, tail.During.From, head.During.To = id.New[id.Segment](), cut, cut
		again.Usage = append(slices.Delete(slices.Clone(in.Usage), i, i+1), head, tail)
		split, err := rating.Rate(again)
		require.NoError(t, err)
		require.Equal(t, bare(res.Lines), bare(split.Lines))
		require.Equal(t, res.Promos, split.Promos)
	})
}

func shuffled[T any](r *rand.Rand, all []T) []T {
	out := slices.Clone(all)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// bare is lines without what names the segments.
func bare(lines []billing.Line) []billing.Line {
	out := slices.Clone(lines)
	for i := range out {
		out[i].Subjects = slices.Clone(out[i].Subjects)
		for j := range out[i].Subjects {
			out[i].Subjects[j].Segments, out[i].Subjects[j].Hash = 0, [32]byte{}
		}
	}
	return out
}

func TestNothingFallsBelowZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawTerms(t)
		for n := range rapid.IntRange(1, 3).Draw(t, "discounts") {
			scope := rapid.SampledFrom([]billing.Scope{{}, {SKU: mig.ID}, {Meter: metering.GPU}}).Draw(t, "scope")
			amount := cents(rapid.Int64Range(1, 1e10).Draw(t, "amount"))
			in.Terms.FixedDiscounts = append(in.Terms.FixedDiscounts, billing.AmountOff{Name: fmt.Sprint(n), Scope: scope, Amount: amount, During: period})
			in.Terms.Promos = append(in.Terms.Promos, billing.Promo{Grant: id.New[id.Grant](), Scope: scope, Remaining: amount, Priority: n})
			in.Terms.Caps = append(in.Terms.Caps, billing.Cap{Contract: id.New[id.Contract](), Scope: scope, Amount: amount, During: period})
		}
		res, err := rating.Rate(in)
		require.NoError(t, err)
		sum := int64(0)
		for _, l := range res.Lines {
			sum += l.Amount.Minor()
		}
		require.GreaterOrEqual(t, sum, int64(0))
		for i, p := range res.Promos {
			back, err := p.Used.Add(p.Left)
			require.NoError(t, err)
			require.GreaterOrEqual(t, p.Left.Sign(), 0)
			require.Equal(t, in.Terms.Promos[i].Remaining, back)
		}
	})
}

// What arrives late costs what it would have cost in time, in any number of parts.
func TestLateUsageCostsWhatItWouldHaveCost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawTerms(t)
		in.Terms.FixedDiscounts = []billing.AmountOff{{Name: "f", Amount: cents(rapid.Int64Range(1, 1e6).Draw(t, "off")), During: period}}
		whole, err := rating.Rate(in)
		require.NoError(t, err)
		part := in
		var lines []billing.Line
		n := len(in.Usage)
		for _, upTo := range []int{n / 3, 2 * n / 3, n, n} {
			part.Usage = in.Usage[:upTo]
			late, err := rating.Adjust(part, billed(lines))
			require.NoError(t, err)
			for _, l := range late.Lines {
				require.Equal(t, billing.Adjustment, l.Key.Component)
				require.Equal(t, l.Amount.Exact().Rat(), l.Exact.Rat())
			}
			if upTo == n && len(lines) > 0 && part.Usage != nil && sumOf(lines) == sumOf(whole.Lines) && len(late.Lines) > 0 {
				require.Zero(t, sumOf(late.Lines))
			}
			lines = append(lines, late.Lines...)
		}
		require.Equal(t, sumOf(whole.Lines), sumOf(lines))
		again, err := rating.Adjust(in, billed(lines))
		require.NoError(t, err)
		require.Empty(t, again.Lines, "nothing is left to adjust")
	})
}

func sumOf(lines []billing.Line) (sum int64) {
	for _, l := range lines {
		sum += l.Amount.Minor()
	}
	return sum
}
