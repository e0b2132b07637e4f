package rating

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
)

// firstDocument records what a result was made from: engine, period, discounts, the
// prices that were used, and a digest over every segment in a fixed order. With
// the segments, which never change once closed, it is enough to rate again.
func firstDocument(in Inputs, usage []Usage, lines []billing.Line) (text string, hash [32]byte) {
	var b strings.Builder
	fmt.Fprintf(&b, "engine 1\nperiod %d %d\ncurrency %s\n", in.Period.From.UnixMicro(), in.Period.To.UnixMicro(), in.Currency)
	for _, d := range in.Discounts {
		fmt.Fprintf(&b, "discount %q %d\n", d.Name, d.PPM)
	}
	for _, l := range lines {
		fmt.Fprintf(&b, "price %d %q %q %s %s %d\n", l.No, l.SKUCode, l.Key.Meter, l.Key.PriceVersion, l.UnitPrice.Decimal(), l.Divisor)
	}
	h, n := sha256.New(), 0
	for _, u := range usage {
		if u.During.Until(in.At).Intersect(in.Period).Micros() == 0 {
			continue
		}
		h.Write([]byte(firstFact(u)))
		n++
	}
	fmt.Fprintf(&b, "segments %d %x\n", n, h.Sum(nil))
	return b.String(), sha256.Sum256([]byte(b.String()))
}

// firstFact is a segment and all that prices it, as one line of text.
func firstFact(u Usage) string {
	end := int64(0)
	if !u.During.Open() {
		end = u.During.To.UnixMicro()
	}
	lock, ceiling := id.PriceVersion{}, ""
	if u.Lock != nil {
		lock, ceiling = u.Lock.Version, u.Lock.Price.Decimal()
	}
	return fmt.Sprintf("%s %s %q %x %q %x %d %d %d %x %q %q %q %s %s %s %q %t\n",
		u.ID, u.Project, u.Subject.Kind, u.Subject.ID, u.Meter, u.StartID, u.Units, u.During.From.UnixMicro(), end,
		u.SKU.ID, u.SKU.Code, u.SKU.IsolationGPU, u.SKU.IsolationHost, u.Book, lock, ceiling, u.Pricing, u.Simulated)
}
