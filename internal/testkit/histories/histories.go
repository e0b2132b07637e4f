// Package histories makes random lives of instances and says, by arithmetic of its
// own, what they must cost. It is the judge of the metering table and of the rating
// engine: nothing here calls billing/rating, and its sums are big rationals over
// what truly happened, not over what was recorded.
//
// A life is drawn first, as what was true (Truth); from it come the messages that a
// control plane would see: in time, late, twice, in pieces, out of order or never.
// Recorder turns messages into usage segments by the product's own rules. Only tests
// use this package. Instants are business time, UTC, whole microseconds.
package histories

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Truth is time that must be charged, as it happened.
type Truth struct {
	Instance int // index into Customer.Instances
	Meter    metering.Meter
	SKU      int // index into Customer.SKUs
	Start    int // which start of the instance, 0…
	From, To int64
}

// Message is what the control plane gets to know. Messages of one instance carry a
// sequence, so that a second copy is known as one.
type Message struct {
	Instance int
	Seq      int
	Event    metering.Event // "" for evidence
	Facts    metering.Facts
	SKU      int                 // of the shape that an opening event proves
	Run      int                 // of evidence: the run that was alive
	Evidence []metering.Interval // that the run was alive
	Received int64
}

// Instance is one machine of a customer.
type Instance struct {
	ID      id.Instance
	Project int
	Name    string
	Locked  int // index of the price version that is its ceiling, −1 none
}

// Customer is an organization with all that happened to it.
type Customer struct {
	Seed      uint64
	Org       id.Org
	Currency  money.Currency
	Projects  []id.Project
	SKUs      []billing.SKU
	Book      billing.Book
	Terms     billing.Terms // agreed beside the book; New agrees nothing
	Instances []Instance
	Truths    []Truth
	Down      []Truth // the platform was down: never charged
	Messages  []Message
	Months    []metering.Interval // every month that any of it touches
}

// epoch is the first instant of any life: lives cross a year's end and a leap day.
var epoch = time.Date(2027, 11, 3, 0, 0, 0, 0, time.UTC).UnixMicro()

const (
	second = int64(1_000_000)
	hour   = 3600 * second
	day    = 24 * hour
)

// New draws a customer of 1 to most instances. Equal seeds give equal customers.
func New(seed uint64, most int) *Customer {
	c := &Customer{Seed: seed}
	r := rand.New(rand.NewPCG(seed, 0x7472616e636865))
	c.Org = id.Org(uuid(r))
	c.Currency = money.MustCurrency([]string{"USD", "USD", "EUR", "JPY", "KWD"}[r.IntN(5)])
	for range 1 + r.IntN(2) {
		c.Projects = append(c.Projects, id.Project(uuid(r)))
	}
	shapes := []string{"h200-whole", "h200-mig-1g", "a100-mps-4x25"}
	for i := range 1 + r.IntN(len(shapes)) {
		c.SKUs = append(c.SKUs, billing.SKU{
			ID: uuid(r), Code: shapes[i], Name: shapes[i], Family: []string{"h200", "h200", "a100"}[i],
			IsolationGPU: []string{"dedicated", "partitioned", "shared"}[i], IsolationHost: "shared_kernel",
		})
	}
	c.book(r)
	for i := range 1 + r.IntN(most) {
		inst := Instance{ID: id.Instance(uuid(r)), Project: r.IntN(len(c.Projects)), Name: fmt.Sprintf("i%d", i), Locked: -1}
		if r.IntN(2) == 0 {
			inst.Locked = r.IntN(len(c.Book.Versions))
		}
		c.Instances = append(c.Instances, inst)
		(&life{c: c, r: r, instance: i, at: epoch + r.Int64N(40*day)}).live()
	}
	c.months()
	return c
}

func uuid(r *rand.Rand) (b [16]byte) {
	for i := range b {
		b[i] = byte(r.UintN(256))
	}
	return b
}

// book draws versions whose starts fall anywhere, microseconds included.
func (c *Customer) book(r *rand.Rand) {
	c.Book = billing.Book{ID: id.PriceBook(uuid(r)), Name: "list", Currency: c.Currency}
	from := epoch - day
	for n := range 1 + r.IntN(4) {
		v := billing.Version{
			ID: id.PriceVersion(uuid(r)), Number: n + 1, EffectiveFrom: time.UnixMicro(from).UTC(), Prices: map[billing.PriceKey]money.Price{},
		}
		for _, sku := range c.SKUs {
			v.Prices[billing.PriceKey{SKU: sku.ID, Meter: metering.GPU}] = price(r, c.Currency)
			v.Prices[billing.PriceKey{SKU: sku.ID, Meter: metering.GPURetained}] = price(r, c.Currency)
		}
		c.Book.Versions = append(c.Book.Versions, v)
		from += 7*day + r.Int64N(40*day)
	}
}

// price draws round prices, odd ones and such of twelve decimals.
func price(r *rand.Rand, currency money.Currency) money.Price {
	switch r.IntN(3) {
	case 0:
		return money.MustPrice(fmt.Sprintf("%d.%02d", r.IntN(12), r.IntN(100)), currency)
	case 1:
		return money.MustPrice(fmt.Sprintf("0.%06d", 1+r.IntN(999_999)), currency)
	}
	return money.MustPrice(fmt.Sprintf("%d.%012d", r.IntN(4), r.Int64N(1_000_000_000_000)), currency)
}

// months lists the calendar months that the truth and the recording touch.
func (c *Customer) months() {
	first, last := epoch, epoch+1
	for _, t := range c.Truths {
		last = max(last, t.To)
	}
	for at := time.UnixMicro(first).UTC(); at.UnixMicro() < last; {
		m, err := metering.ParsePeriod(metering.PeriodOf(at))
		if err != nil {
			panic(err)
		}
		c.Months = append(c.Months, m)
		at = m.To
	}
}
