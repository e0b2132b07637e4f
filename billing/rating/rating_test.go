package rating_test

import (
	"math/big"
	"math/rand/v2"
	"slices"
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

var (
	usd    = money.MustCurrency("USD")
	start  = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	period = metering.Between(start, start.AddDate(0, 1, 0))
	mig    = billing.SKU{ID: [16]byte{1}, Code: "h200-mig-1g-16gib", Name: "H200-141 mig 1g.18gb", IsolationGPU: "partitioned", IsolationHost: "shared_kernel"}
	whole  = billing.SKU{ID: [16]byte{2}, Code: "h100-whole", Name: "H100-80 whole", IsolationGPU: "dedicated", IsolationHost: "shared_kernel"}
)

// world is a book with a price change in the middle of the period.
type world struct {
	book    billing.Book
	project id.Project
	seq     byte
}

func newWorld(t require.TestingT) *world {
	w := &world{book: billing.Book{ID: id.New[id.PriceBook](), Currency: usd}, project: id.New[id.Project]()}
	for i, prices := range [][2]string{{"0.49", "2.49"}, {"0.510000000001", "2.333333333333"}} {
		v := billing.Version{
			ID: id.New[id.PriceVersion](), EffectiveFrom: start.AddDate(0, 0, 10*i),
			Prices: map[billing.PriceKey]money.Price{
				{SKU: mig.ID, Meter: metering.GPU}:   money.MustPrice(prices[0], usd),
				{SKU: whole.ID, Meter: metering.GPU}: money.MustPrice(prices[1], usd),
			},
		}
		next, err := w.book.Publish(v, v.EffectiveFrom.Add(-billing.Notice))
		require.NoError(t, err)
		w.book = next
	}
	return w
}

func (w *world) usage(subject byte, sku billing.SKU, from, to time.Time) rating.Usage {
	w.seq++
	return rating.Usage{
		Segment: metering.Segment{
			ID: id.New[id.Segment](), Project: w.project, Subject: metering.Subject{Kind: "instance", ID: [16]byte{subject}},
			Meter: metering.GPU, Seq: int64(w.seq), Units: 1, During: metering.Between(from, to),
		},
		SubjectName: "i", ProjectName: "p", SKU: sku, Book: w.book.ID, Pricing: billing.OnDemand,
	}
}

func (w *world) inputs(usage ...rating.Usage) rating.Inputs {
	return rating.Inputs{Period: period, At: period.To, Currency: usd, Books: map[id.PriceBook]billing.Book{w.book.ID: w.book}, Usage: usage}
}

func (w *world) rate(t require.TestingT, in rating.Inputs) (rating.Result, billing.Invoice) {
	res, err := rating.Rate(in)
	require.NoError(t, err)
	v, err := billing.Invoice{State: billing.Draft, Period: in.Period, Currency: in.Currency, Lines: res.Lines}.Compose()
	require.NoError(t, err)
	require.NoError(t, v.Check())
	return res, v
}

func TestHourOfOneGPU(t *testing.T) {
	w := newWorld(t)
	res, v := w.rate(t, w.inputs(w.usage(1, whole, start, start.Add(time.Hour))))
	require.Len(t, res.Lines, 1)
	l := res.Lines[0]
	require.Equal(t, "2.49", l.Amount.Decimal())
	require.Equal(t, "3600000000", l.Quantity.String())
	require.Equal(t, "gpu_us", l.QuantityUnit)
	require.Equal(t, "H100-80 whole", l.Description)
	require.Equal(t, "dedicated", l.Key.IsolationGPU)
	require.Equal(t, int64(1), res.Segments)
	require.Equal(t, "2.49", v.Total.Decimal())
}

func TestManySmallRunsAreOneRounding(t *testing.T) {
	w := newWorld(t)
	var usage []rating.Usage
	for i := range 60 { // a second each, of as many instances: not a minute each, not a cent each
		usage = append(usage, w.usage(byte(i+1), whole, start, start.Add(time.Second)))
	}
	res, _ := w.rate(t, w.inputs(usage...))
	require.Len(t, res.Lines, 1)
	require.Equal(t, "60000000", res.Lines[0].Quantity.String())
	require.Equal(t, "0.04", res.Lines[0].Amount.Decimal(), "60/3600 × 2.49 = 0.0415")
	require.Len(t, res.Lines[0].Subjects, 60)
	require.Equal(t, int64(1), res.Lines[0].Subjects[0].Amount.Minor(), "ties of the shares go to the lower id")
	require.Zero(t, res.Lines[0].Subjects[59].Amount.Minor())
}

func TestPriceChangeSplitsTheLineNotTheTime(t *testing.T) {
	w := newWorld(t)
	change := start.AddDate(0, 0, 10)
	u := w.usage(1, mig, change.Add(-time.Hour), change.Add(2*time.Hour))
	res, _ := w.rate(t, w.inputs(u))
	require.Len(t, res.Lines, 2)
	require.Equal(t, "0.49", res.Lines[0].Amount.Decimal())
	require.Equal(t, "1.02", res.Lines[1].Amount.Decimal())
	require.Equal(t, int64(1), res.Segments)

	u.Lock = &billing.Lock{Version: w.book.Versions[0].ID, Price: money.MustPrice("0.49", usd)}
	locked, _ := w.rate(t, w.inputs(u))
	require.Len(t, locked.Lines, 1, "under a lock it is one price, so one line")
	require.Equal(t, "1.47", locked.Lines[0].Amount.Decimal())
}

func TestDiscountsAreInsideTheOneRounding(t *testing.T) {
	w := newWorld(t)
	in := w.inputs(w.usage(1, whole, start, start.Add(time.Hour)))
	in.Discounts = []billing.Discount{{Name: "partner", PPM: 200_000}, {Name: "launch", PPM: 100_000}}
	res, err := rating.Rate(in)
	require.NoError(t, err)
	require.Equal(t, "1.7928", res.Lines[0].Exact.Decimal())
	require.Equal(t, "1.79", res.Lines[0].Amount.Decimal())
}

func TestOpenUsageIsRatedUpToAt(t *testing.T) {
	w := newWorld(t)
	in := w.inputs(w.usage(1, whole, start.Add(-time.Hour), time.Time{}))
	in.At = start.Add(30 * time.Minute)
	cost, err := rating.Cost(in)
	require.NoError(t, err)
	require.Equal(t, "1.245", cost.Decimal(), "from the start of the period only")
	in.At = start.Add(-time.Minute)
	res, err := rating.Rate(in)
	require.NoError(t, err)
	require.Empty(t, res.Lines)
}

func TestWhatCannotBeRatedIsAFault(t *testing.T) {
	w := newWorld(t)
	a, b := w.usage(1, mig, start, start.Add(time.Hour)), w.usage(1, mig, start.Add(time.Minute), start.Add(time.Hour))
	twoVersions := a
	twoVersions.During.To = start.Add(2 * time.Hour)
	unpriced, steam, spot := w.usage(1, billing.SKU{ID: [16]byte{9}}, start, start.Add(1)), a, a
	unpriced.During.To = start.Add(time.Second)
	steam.Meter, spot.Pricing = "steam", billing.Spot
	forged := w.usage(2, mig, start, start.Add(time.Hour))
	forged.Lock = &billing.Lock{Version: w.book.Versions[0].ID, Price: money.MustPrice("0.01", usd)}
	for name, usage := range map[string][]rating.Usage{
		"overlap": {a, b}, "two versions": {a, twoVersions}, "no price": {unpriced}, "unknown meter": {steam}, "spot": {spot},
		"two prices of one version": {a, forged},
	} {
		_, err := rating.Rate(w.inputs(usage...))
		require.Equal(t, fault.Internal, fault.KindOf(err), name)
	}
	huge := w.usage(1, whole, start, start.AddDate(0, 1, 0))
	huge.Units = 1 << 62
	_, err := rating.Rate(w.inputs(huge))
	require.ErrorIs(t, err, money.ErrRange)
}

// draw makes usage of a few subjects, without overlaps.
func draw(t *rapid.T, w *world) []rating.Usage {
	var usage []rating.Usage
	for subject := range rapid.IntRange(1, 5).Draw(t, "subjects") {
		at := start.Add(time.Duration(rapid.Int64Range(0, 9*86400*1e6).Draw(t, "begin")) * time.Microsecond)
		for range rapid.IntRange(1, 5).Draw(t, "segments") {
			end := at.Add(time.Duration(rapid.Int64Range(1, 5*86400*1e6).Draw(t, "length")) * time.Microsecond)
			u := w.usage(byte(subject+1), rapid.SampledFrom([]billing.SKU{mig, whole}).Draw(t, "sku"), at, end)
			u.Units = rapid.Int64Range(1, 8).Draw(t, "units")
			if rapid.Bool().Draw(t, "locked") {
				l, _ := w.book.Lock(w.book.Versions[0].ID, billing.PriceKey{SKU: u.SKU.ID, Meter: u.Meter})
				u.Lock = &l
			}
			usage = append(usage, u)
			at = end.Add(time.Duration(rapid.Int64Range(0, 86400*1e6).Draw(t, "gap")) * time.Microsecond)
		}
	}
	return usage
}

// oracle adds the money of every microsecond's price by hand, without lines.
func oracle(w *world, usage []rating.Usage) *big.Rat {
	change := w.book.Versions[1].EffectiveFrom
	sum := new(big.Rat)
	for _, u := range usage {
		k := billing.PriceKey{SKU: u.SKU.ID, Meter: u.Meter}
		for i, window := range []metering.Interval{metering.Between(start, change), metering.Between(change, period.To)} {
			price := new(big.Rat).SetFrac(w.book.Versions[i].Prices[k].Pico(), big.NewInt(1e12))
			if u.Lock != nil {
				if lock := new(big.Rat).SetFrac(u.Lock.Price.Pico(), big.NewInt(1e12)); lock.Cmp(price) < 0 {
					price = lock
				}
			}
			hours := big.NewRat(u.During.Intersect(window).Micros()*u.Units, 3_600_000_000)
			sum.Add(sum, price.Mul(price, hours))
		}
	}
	return sum
}

func TestNetIsWithinHalfAMinorUnitPerLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		usage := draw(t, w)
		res, v := w.rate(t, w.inputs(usage...))
		exact := oracle(w, usage)
		cost, err := rating.Cost(w.inputs(usage...))
		require.NoError(t, err)
		require.Zero(t, cost.Rat().Cmp(exact), "the exact view is exact")
		off := new(big.Rat).Sub(v.Subtotal.Exact().Rat(), exact)
		limit := big.NewRat(int64(len(res.Lines)), 200)
		require.LessOrEqual(t, off.Abs(off).Cmp(limit), 0)
		billed, used := new(big.Int), new(big.Int)
		for _, l := range res.Lines {
			billed.Add(billed, l.Quantity)
		}
		for _, u := range usage {
			used.Add(used, metering.Quantity(u.Units, u.During.Intersect(period)))
		}
		require.Zero(t, billed.Cmp(used), "Σ of lines is Σ of segments")
	})
}

func TestOrderAndDuplicatesChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		usage := draw(t, w)
		res, v := w.rate(t, w.inputs(usage...))
		shuffled := append(slices.Clone(usage), usage[rapid.IntRange(0, len(usage)-1).Draw(t, "twice")])
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again, w2 := w.rate(t, w.inputs(shuffled...))
		require.Equal(t, res, again)
		require.Equal(t, v.ContentHash, w2.ContentHash)
	})
}

func TestSplittingASegmentChangesNoLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		usage := draw(t, w)
		_, v := w.rate(t, w.inputs(usage...))
		i := rapid.IntRange(0, len(usage)-1).Draw(t, "which")
		head, tail := usage[i], usage[i]
		cut := head.During.From.Add(time.Duration(rapid.Int64Range(0, head.During.Micros()).Draw(t, "cut")) * time.Microsecond)
		tail.ID, tail.During.From, head.During.To = id.New[id.Segment](), cut, cut
		_, split := w.rate(t, w.inputs(append(slices.Delete(slices.Clone(usage), i, i+1), head, tail)...))
		require.Equal(t, v.ContentHash, split.ContentHash)
	})
}

func TestViewsOfAnyBucketSumToTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		usage := draw(t, w)
		sums := map[string]string{}
		for _, size := range []metering.Bucket{metering.NoBucket, metering.Hour, metering.Day, metering.Month} {
			buckets, err := metering.Split(period, size)
			require.NoError(t, err)
			views, err := rating.Views(w.inputs(usage...), buckets, func(u rating.Usage) string { return u.SKU.Code })
			require.NoError(t, err)
			money, quantity := map[string]*big.Rat{}, map[string]*big.Int{}
			for _, v := range views {
				if money[v.Group] == nil {
					money[v.Group], quantity[v.Group] = new(big.Rat), new(big.Int)
				}
				require.Zero(t, v.Exact.Cmp(v.Exact.Truncated()), "12 decimals are enough to show it")
				money[v.Group].Add(money[v.Group], v.Exact.Rat())
				quantity[v.Group].Add(quantity[v.Group], v.Quantity)
			}
			for g := range money {
				text := money[g].FloatString(12) + " " + quantity[g].String()
				if size == metering.NoBucket {
					sums[g] = text
				}
				require.Equal(t, sums[g], text, "%s by %s", g, size)
			}
			require.Len(t, money, len(sums))
		}
	})
}

func TestViewsAreBounded(t *testing.T) {
	w := newWorld(t)
	var usage []rating.Usage
	for subject := range 200 {
		usage = append(usage, w.usage(byte(subject), mig, start, start.AddDate(0, 0, 21)))
	}
	hours, err := metering.Split(metering.Between(start, start.AddDate(0, 0, 21)), metering.Hour)
	require.NoError(t, err)
	in := w.inputs(usage...)
	bySubject := func(u rating.Usage) string { return string(u.Subject.ID[:]) }
	_, err = rating.Views(in, hours, bySubject)
	require.Equal(t, "request.invalid", fault.CodeOf(err), "200 subjects in 504 hours")
	views, err := rating.Views(in, hours[:500], bySubject)
	require.NoError(t, err)
	require.Len(t, views, rating.MaxViews)
}

func TestViewsKeepUnitsApart(t *testing.T) {
	w := newWorld(t)
	disk := w.usage(1, mig, start, start.Add(time.Hour))
	disk.Meter = metering.Storage
	disk.Lock = &billing.Lock{Version: w.book.Versions[0].ID, Price: money.MustPrice("0.01", usd)}
	disk.Units = 1024
	views, err := rating.Views(w.inputs(w.usage(1, mig, start, start.Add(time.Hour)), disk), []metering.Interval{period}, func(rating.Usage) string { return "" })
	require.NoError(t, err)
	require.Len(t, views, 2)
	require.Equal(t, "gpu_us", views[0].Unit)
	require.Equal(t, "mib_us", views[1].Unit)
	require.Equal(t, "0.01", views[1].Exact.Decimal(), "a GiB-hour")
	none, err := rating.Views(w.inputs(), nil, nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestInputsAreRecorded(t *testing.T) {
	w := newWorld(t)
	u := w.usage(1, whole, start, start.Add(time.Hour))
	a, _ := w.rate(t, w.inputs(u))
	require.True(t, strings.HasPrefix(a.Document, "engine 2\nperiod "))
	require.Contains(t, a.Document, "2.49")
	b, _ := w.rate(t, w.inputs(u))
	require.Equal(t, a.DocumentHash, b.DocumentHash)
	u.During.To = u.During.To.Add(time.Microsecond)
	c, _ := w.rate(t, w.inputs(u))
	require.NotEqual(t, a.DocumentHash, c.DocumentHash, "a microsecond of other usage is other input")
}
