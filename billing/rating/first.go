package rating

import (
	"bytes"
	"fmt"
	"math/big"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// The first engine knows list prices, locks and discounts of the whole invoice. It
// is kept as it was: closed invoices are rated again with the engine they name.

// firstRate is the Rate of engine 1.
func firstRate(in Inputs) (Result, error) {
	usage, err := firstDistinct(in.Usage)
	if err != nil {
		return Result{}, err
	}
	charges, err := firstCharges(in, usage)
	if err != nil {
		return Result{}, err
	}
	factor, err := billing.Factor(in.Discounts)
	if err != nil {
		return Result{}, err
	}
	lines := map[billing.LineKey]*firstLine{}
	for _, c := range charges {
		l := lines[c.key]
		if l == nil {
			l = newFirstLine(c)
			lines[c.key] = l
		}
		if err := l.add(c); err != nil {
			return Result{}, err
		}
	}
	res := Result{Engine: "1", Segments: int64(len(firstSegments(charges)))}
	for _, l := range firstOrdered(lines) {
		done, err := l.finish(len(res.Lines)+1, factor)
		if err != nil {
			return Result{}, err
		}
		res.Lines = append(res.Lines, done)
	}
	res.Document, res.DocumentHash = firstDocument(in, usage, res.Lines)
	return res, nil
}

// firstCharge is a part of one segment with one price.
type firstCharge struct {
	usage    *Usage
	key      billing.LineKey
	during   metering.Interval
	quantity *big.Int
	price    money.Price
	unit     metering.Unit
}

// firstCharges cuts usage at the period and at price changes.
func firstCharges(in Inputs, usage []Usage) ([]firstCharge, error) {
	var out []firstCharge
	for i := range usage {
		u := &usage[i]
		during := u.During.Until(in.At).Intersect(in.Period)
		if during.Micros() == 0 {
			continue
		}
		unit, err := metering.UnitOf(u.Meter)
		if err != nil {
			return nil, err
		}
		if u.Pricing != billing.OnDemand {
			return nil, internal("Usage of the pricing kind %q cannot be rated.", u.Pricing)
		}
		pieces, err := in.Books[u.Book].Pieces(billing.PriceKey{SKU: u.SKU.ID, Meter: u.Meter}, during, u.Lock)
		if err != nil {
			return nil, fmt.Errorf("pricing segment %s: %w", u.ID, err)
		}
		for _, p := range pieces {
			out = append(out, firstCharge{
				usage: u, during: p.During, quantity: metering.Quantity(u.Units, p.During), price: p.Price, unit: unit,
				key: billing.LineKey{
					Component: billing.UsageCharge,
					Project:   u.Project, Meter: u.Meter, SKU: u.SKU.ID, IsolationGPU: u.SKU.IsolationGPU,
					IsolationHost: u.SKU.IsolationHost, Pricing: u.Pricing, PriceVersion: p.Version, TaxCategory: billing.OutsideScope,
				},
			})
		}
	}
	return out, nil
}

// firstDistinct returns usage without duplicates, ordered by subject, meter and start.
func firstDistinct(usage []Usage) ([]Usage, error) {
	sorted := slices.Clone(usage)
	slices.SortFunc(sorted, firstCompare)
	var out []Usage
	for _, u := range sorted {
		last := len(out) - 1
		if last < 0 || out[last].Subject != u.Subject || out[last].Meter != u.Meter {
			out = append(out, u)
			continue
		}
		if u.ID == out[last].ID {
			if firstFact(u) != firstFact(out[last]) {
				return nil, internal("The usage segment %s is given in two versions.", u.ID)
			}
			continue
		}
		if out[last].During.Overlaps(u.During) {
			return nil, internal("The usage segments %s and %s overlap.", out[last].ID, u.ID)
		}
		out = append(out, u)
	}
	return out, nil
}

func firstCompare(a, b Usage) int {
	if c := bytes.Compare(a.Subject.ID[:], b.Subject.ID[:]); c != 0 {
		return c
	}
	if c := compareText(a.Subject.Kind, b.Subject.Kind, string(a.Meter), string(b.Meter)); c != 0 {
		return c
	}
	if c := a.During.From.Compare(b.During.From); c != 0 {
		return c
	}
	return bytes.Compare(a.ID[:], b.ID[:])
}

func firstSegments(charges []firstCharge) map[id.Segment]bool {
	seen := map[id.Segment]bool{}
	for _, c := range charges {
		seen[c.usage.ID] = true
	}
	return seen
}

// internal is a failure of our own data: nobody outside can do anything about it.
func internal(format string, args ...any) error {
	return fault.New(fault.Internal, "internal", fmt.Sprintf(format, args...))
}
