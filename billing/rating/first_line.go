package rating

import (
	"bytes"
	"cmp"
	"crypto/sha256"
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

// firstLine gathers the charges of one key.
type firstLine struct {
	first    firstCharge
	begins   time.Time // of its earliest usage
	quantity *big.Int
	simul    bool
	shares   map[metering.Subject]*firstShare
}

type firstShare struct {
	name     string
	quantity *big.Int
	segments map[id.Segment]bool
	facts    []string
}

func newFirstLine(c firstCharge) *firstLine {
	return &firstLine{first: c, begins: c.during.From, quantity: new(big.Int), shares: map[metering.Subject]*firstShare{}}
}

func (l *firstLine) add(c firstCharge) error {
	if c.price != l.first.price {
		return fault.New(fault.Internal, "internal",
			fmt.Sprintf("One price version gives %s and %s for one SKU.", l.first.price, c.price))
	}
	if c.during.From.Before(l.begins) {
		l.begins = c.during.From
	}
	l.quantity.Add(l.quantity, c.quantity)
	l.simul = l.simul || c.usage.Simulated
	s := l.shares[c.usage.Subject]
	if s == nil {
		s = &firstShare{quantity: new(big.Int), segments: map[id.Segment]bool{}}
		l.shares[c.usage.Subject] = s
	}
	s.name = c.usage.SubjectName // charges come in order of time: the newest name stays
	s.quantity.Add(s.quantity, c.quantity)
	s.segments[c.usage.ID] = true
	s.facts = append(s.facts, fmt.Sprintf("%s %d %d %d\n", c.usage.ID, c.during.From.UnixMicro(), c.during.To.UnixMicro(), c.usage.Units))
	return nil
}

// finish does the one division and the one rounding of the line.
func (l *firstLine) finish(no int, factor *big.Rat) (billing.Line, error) {
	u := l.first.usage
	exact := l.first.price.Times(l.quantity, l.first.unit.Divisor).Scale(factor)
	amount, err := exact.Round()
	if err != nil {
		return billing.Line{}, fmt.Errorf("rounding line %d: %w", no, err)
	}
	subjects, err := l.subjects(amount)
	if err != nil {
		return billing.Line{}, fmt.Errorf("sharing line %d: %w", no, err)
	}
	return billing.Line{
		No: no, Key: l.first.key, SKUCode: u.SKU.Code, Description: firstDescription(u), ProjectName: u.ProjectName,
		Quantity: l.quantity, QuantityUnit: l.first.unit.Quantity, PricedUnit: l.first.unit.Priced, Divisor: l.first.unit.Divisor,
		UnitPrice: l.first.price, Exact: exact, Amount: amount, Simulated: l.simul, Subjects: subjects,
	}, nil
}

func firstDescription(u *Usage) string {
	if u.Meter == metering.GPU {
		return u.SKU.Name
	}
	return u.SKU.Name + " (" + string(u.Meter) + ")"
}

// subjects splits the rounded line by largest remainder, ties to the lower id.
func (l *firstLine) subjects(amount money.Amount) ([]billing.Share, error) {
	out := make([]billing.Share, 0, len(l.shares))
	for subject, s := range l.shares {
		slices.Sort(s.facts)
		h := sha256.New()
		for _, f := range s.facts {
			h.Write([]byte(f))
		}
		out = append(out, billing.Share{
			Subject: subject, Name: s.name, Quantity: s.quantity, Segments: int64(len(s.segments)), Hash: [32]byte(h.Sum(nil)),
		})
	}
	slices.SortFunc(out, func(a, b billing.Share) int {
		return cmp.Or(bytes.Compare(a.Subject.ID[:], b.Subject.ID[:]), cmp.Compare(a.Subject.Kind, b.Subject.Kind))
	})
	weights := make([]*big.Rat, len(out))
	for i, s := range out {
		weights[i] = new(big.Rat).SetInt(s.Quantity)
	}
	parts, err := money.Apportion(amount, weights)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Amount = parts[i]
	}
	return out, nil
}

// firstOrdered returns lines in the order of the document: by project, SKU code, meter,
// isolation, pricing kind, then as their prices followed each other.
func firstOrdered(lines map[billing.LineKey]*firstLine) []*firstLine {
	out := make([]*firstLine, 0, len(lines))
	for _, l := range lines {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *firstLine) int {
		x, y := a.first.key, b.first.key
		return cmp.Or(
			bytes.Compare(x.Project[:], y.Project[:]),
			compareText(a.first.usage.SKU.Code, b.first.usage.SKU.Code, string(x.Meter), string(y.Meter),
				x.IsolationGPU, y.IsolationGPU, x.IsolationHost, y.IsolationHost, string(x.Pricing), string(y.Pricing)),
			bytes.Compare(x.SKU[:], y.SKU[:]),
			a.begins.Compare(b.begins),
			bytes.Compare(x.PriceVersion[:], y.PriceVersion[:]),
			cmp.Compare(x.Tier, y.Tier),
			cmp.Compare(x.TaxCategory, y.TaxCategory),
		)
	})
	return out
}

// compareText compares pairs of texts, the first difference decides.
func compareText(pairs ...string) int {
	for i := 0; i < len(pairs); i += 2 {
		if c := cmp.Compare(pairs[i], pairs[i+1]); c != 0 {
			return c
		}
	}
	return 0
}
