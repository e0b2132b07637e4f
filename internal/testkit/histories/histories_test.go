package histories_test

import (
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/testkit/histories"
)

var (
	count = flag.Int("histories", 4000, "instance histories to judge; make billing-check N=1000000 sets it")
	seed  = flag.Uint64("seed", 0, "first seed; 0: the day's")
)

// figures are what a run adds up over all customers.
type figures struct {
	histories, messages, segments, lines, months atomic.Int64
	wrongLines, wrongMinor, twice, down, drift   atomic.Int64
	widest                                       sync.Mutex
	worst                                        big.Rat // |Σ rounded − Σ exact| ÷ (½ minor × lines)
}

// TestHistoriesAgainstTheOracle draws lives of instances (resizes, stops, retained
// slices, price changes, month ends, a leap day, faults, lost hosts, late, doubled
// and disordered evidence), records and rates them as the product does, and compares
// every line with what truly happened.
func TestHistoriesAgainstTheOracle(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().Unix() / 86400)
	}
	const most = 6
	var sum figures
	var next atomic.Uint64
	var wg sync.WaitGroup
	began := time.Now()
	for range 2 {
		wg.Go(func() {
			for sum.histories.Load() < int64(*count) && !t.Failed() {
				judge(t, histories.New(first+next.Add(1), most), &sum)
			}
		})
	}
	wg.Wait()
	worst, _ := sum.worst.Float64()
	fmt.Printf("oracle: seed %d: %d histories, %d messages, %d segments, %d months, %d lines in %s: "+
		"%d lines wrong, %d minor units wrong, %d µs billed twice, %d µs of downtime billed, |net − exact| at most %.3f of ½ minor × lines\n",
		first, sum.histories.Load(), sum.messages.Load(), sum.segments.Load(), sum.months.Load(), sum.lines.Load(), time.Since(began).Round(time.Millisecond),
		sum.wrongLines.Load(), sum.wrongMinor.Load(), sum.twice.Load(), sum.down.Load(), worst)
	require.Zero(t, sum.wrongLines.Load()+sum.wrongMinor.Load()+sum.twice.Load()+sum.down.Load()+sum.drift.Load())
}

func judge(t *testing.T, c *histories.Customer, sum *figures) {
	usage := c.Record()
	sum.histories.Add(int64(len(c.Instances)))
	sum.messages.Add(int64(len(c.Messages)))
	sum.segments.Add(int64(len(usage)))
	for i, inst := range c.Instances {
		for _, m := range []metering.Meter{metering.GPU, metering.GPURetained} {
			var during []metering.Interval
			for _, u := range usage {
				if u.Subject.ID == inst.ID && u.Meter == m {
					during = append(during, u.During)
				}
			}
			sum.twice.Add(histories.TwiceMicros(during))
			sum.down.Add(c.DownMicros(i, during))
		}
	}
	r := rand.New(rand.NewPCG(c.Seed, 1))
	for _, month := range c.Months {
		sum.months.Add(1)
		in := rating.Inputs{
			Period: month, At: month.To, Currency: c.Currency, Books: map[id.PriceBook]billing.Book{c.Book.ID: c.Book},
			Usage: disordered(r, usage, month),
		}
		res, err := rating.Rate(in)
		if err != nil {
			t.Errorf("seed %d, %s: %v", c.Seed, metering.PeriodOf(month.From), err)
			return
		}
		compare(t, c, month, res.Lines, sum)
	}
}

// disordered is the usage of a month as it may arrive: in any order, some of it twice.
func disordered(r *rand.Rand, usage []rating.Usage, month metering.Interval) []rating.Usage {
	var out []rating.Usage
	for _, u := range usage {
		if !u.During.Overlaps(month) {
			continue
		}
		out = append(out, u)
		if r.IntN(5) == 0 {
			out = append(out, u)
		}
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func compare(t *testing.T, c *histories.Customer, month metering.Interval, lines []billing.Line, sum *figures) {
	owed := c.Owed(month)
	exact, net := new(big.Rat), int64(0)
	for _, l := range lines {
		sum.lines.Add(1)
		name := histories.LineName(l)
		want, ok := owed[name]
		delete(owed, name)
		exact.Add(exact, l.Exact.Rat())
		net += l.Amount.Minor()
		if ok && want.Micros == l.Quantity.Int64() && want.Minor == l.Amount.Minor() && want.Exact.Cmp(l.Exact.Rat()) == 0 {
			continue
		}
		sum.wrongLines.Add(1)
		sum.wrongMinor.Add(max(want.Minor-l.Amount.Minor(), l.Amount.Minor()-want.Minor))
		t.Errorf("seed %d, %s, line %q: billed %s µs and %d minor units, owed %d µs and %d", c.Seed, metering.PeriodOf(month.From),
			name, l.Quantity, l.Amount.Minor(), want.Micros, want.Minor)
	}
	for name, want := range owed {
		sum.wrongLines.Add(1)
		sum.wrongMinor.Add(want.Minor)
		t.Errorf("seed %d, %s: no line %q of %d µs", c.Seed, metering.PeriodOf(month.From), name, want.Micros)
	}
	sum.bound(c, exact, net, len(lines))
}

// bound checks |net − exact| ≤ ½ minor unit × lines.
func (f *figures) bound(c *histories.Customer, exact *big.Rat, net int64, lines int) {
	if lines == 0 {
		return
	}
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(c.Currency.Exponent())), nil))
	diff := new(big.Rat).Mul(exact, scale)
	diff.Sub(diff, new(big.Rat).SetInt64(net)).Abs(diff)
	diff.Quo(diff, big.NewRat(int64(lines), 2))
	if diff.Cmp(big.NewRat(1, 1)) > 0 {
		f.drift.Add(1)
	}
	f.widest.Lock()
	defer f.widest.Unlock()
	if diff.Cmp(&f.worst) > 0 {
		f.worst.Set(diff)
	}
}

// TestHistoriesUnderTerms does the same for customers with contracts: every line is
// compared with time cut into pieces and rated by hand.
func TestHistoriesUnderTerms(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().Unix() / 86400)
	}
	const most = 4
	var customers, lines, wrong, lives atomic.Int64
	var next atomic.Uint64
	var wg sync.WaitGroup
	began := time.Now()
	for range 2 {
		wg.Go(func() {
			for lives.Load() < int64(*count)/4 && !t.Failed() {
				c := histories.WithTerms(first+next.Add(1), most)
				usage := c.Record()
				customers.Add(1)
				lives.Add(int64(len(c.Instances)))
				for _, month := range c.Months {
					res, err := rating.Rate(rating.Inputs{
						Period: month, At: month.To, Currency: c.Currency, Books: map[id.PriceBook]billing.Book{c.Book.ID: c.Book},
						Usage: disordered(rand.New(rand.NewPCG(c.Seed, 2)), usage, month), Terms: c.Terms,
					})
					if err != nil {
						t.Errorf("seed %d, %s: %v", c.Seed, metering.PeriodOf(month.From), err)
						return
					}
					lines.Add(int64(len(res.Lines)))
					if got, want := histories.Grouped(res.Lines), c.OwedUnder(month); !reflect.DeepEqual(want, got) {
						wrong.Add(1)
						t.Errorf("seed %d, %s:\nowed   %v\nbilled %v\nterms %+v", c.Seed, metering.PeriodOf(month.From), want, got, c.Terms)
					}
				}
			}
		})
	}
	wg.Wait()
	fmt.Printf("oracle under terms: seed %d: %d histories of %d customers, %d lines in %s: %d invoices wrong\n",
		first, lives.Load(), customers.Load(), lines.Load(), time.Since(began).Round(time.Millisecond), wrong.Load())
	require.Zero(t, wrong.Load())
}
