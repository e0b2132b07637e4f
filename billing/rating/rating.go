// Package rating owns how usage becomes money: what 37 seconds cost. Rate makes
// the lines of an invoice, each rounded once; Views makes the exact, unrounded
// figures that people watch. Both are pure and ignore the order of their input.
//
// It does not own prices (billing.Book), documents (billing.Invoice), when a meter
// runs (internal/metering) or tax. Quantities are unit·microseconds.
package rating

import (
	"bytes"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Engine names this version of the arithmetic. It is stored with every document;
// a change that could alter a line takes a new name and keeps the old one.
const Engine = "1"

// Usage is a segment with all that prices it, as recorded with the segment.
type Usage struct {
	metering.Segment
	SubjectName string
	ProjectName string
	SKU         billing.SKU
	Book        id.PriceBook
	Lock        *billing.Lock // nil: no ceiling
	Pricing     billing.PricingKind
	Simulated   bool
}

// Inputs is everything a result depends on.
type Inputs struct {
	Period    metering.Interval // only usage inside it counts
	At        time.Time         // segments still open are rated up to here
	Currency  money.Currency
	Books     map[id.PriceBook]billing.Book
	Usage     []Usage
	Discounts []billing.Discount
}

// Result is the lines of an invoice in their fixed order, and the record of what
// they were made from.
type Result struct {
	Lines        []billing.Line
	Document     string // of the inputs, one fact a line
	DocumentHash [32]byte
	Segments     int64 // how many segments contributed
}

// Rate makes the lines: usage with one billing.LineKey is summed exactly and
// rounded once. Duplicates of a segment count once. It fails with fault.Internal
// for usage that cannot be priced, that overlaps, or of which two versions are
// given; with money.ErrRange for a line beyond 64 bits of minor units.
func Rate(in Inputs) (Result, error) {
	usage, err := distinct(in.Usage)
	if err != nil {
		return Result{}, err
	}
	charges, err := charge(in, usage)
	if err != nil {
		return Result{}, err
	}
	factor, err := billing.Factor(in.Discounts)
	if err != nil {
		return Result{}, err
	}
	lines := map[billing.LineKey]*line{}
	for _, c := range charges {
		l := lines[c.key]
		if l == nil {
			l = newLine(c)
			lines[c.key] = l
		}
		if err := l.add(c); err != nil {
			return Result{}, err
		}
	}
	res := Result{Segments: int64(len(segmentsOf(charges)))}
	for _, l := range ordered(lines) {
		done, err := l.finish(len(res.Lines)+1, factor)
		if err != nil {
			return Result{}, err
		}
		res.Lines = append(res.Lines, done)
	}
	res.Document, res.DocumentHash = document(in, usage, res.Lines)
	return res, nil
}

// chargeable is a part of one segment with one price.
type chargeable struct {
	usage    *Usage
	key      billing.LineKey
	during   metering.Interval
	quantity *big.Int
	price    money.Price
	unit     metering.Unit
}

// charge cuts usage at the period and at price changes.
func charge(in Inputs, usage []Usage) ([]chargeable, error) {
	var out []chargeable
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
			return nil, fault.New(fault.Internal, "internal", fmt.Sprintf("Usage of the pricing kind %q cannot be rated.", u.Pricing))
		}
		pieces, err := in.Books[u.Book].Pieces(billing.PriceKey{SKU: u.SKU.ID, Meter: u.Meter}, during, u.Lock)
		if err != nil {
			return nil, fmt.Errorf("pricing segment %s: %w", u.ID, err)
		}
		for _, p := range pieces {
			out = append(out, chargeable{
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

// distinct returns usage without duplicates, ordered by subject, meter and start.
func distinct(usage []Usage) ([]Usage, error) {
	sorted := slices.Clone(usage)
	slices.SortFunc(sorted, compareUsage)
	var out []Usage
	for _, u := range sorted {
		last := len(out) - 1
		if last < 0 || !sameSeries(out[last], u) {
			out = append(out, u)
			continue
		}
		if u.ID == out[last].ID {
			if fact(u) != fact(out[last]) {
				return nil, fault.New(fault.Internal, "internal", fmt.Sprintf("The usage segment %s is given in two versions.", u.ID))
			}
			continue
		}
		if out[last].During.Overlaps(u.During) {
			return nil, fault.New(fault.Internal, "internal", fmt.Sprintf("The usage segments %s and %s overlap.", out[last].ID, u.ID))
		}
		out = append(out, u)
	}
	return out, nil
}

func sameSeries(a, b Usage) bool { return a.Subject == b.Subject && a.Meter == b.Meter }

func compareUsage(a, b Usage) int {
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

func segmentsOf(charges []chargeable) map[id.Segment]bool {
	seen := map[id.Segment]bool{}
	for _, c := range charges {
		seen[c.usage.ID] = true
	}
	return seen
}
