// Package situations makes the documents that every rendering and export is tested
// with: one invoice a situation of billing, small enough to be checked by hand.
//
// It does not rate usage; lines are written down as rating makes them, and each
// document passes billing.Invoice.Check.
package situations

import (
	"math/big"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// T is a test, or one draw of a property test.
type T interface {
	require.TestingT
	Helper()
}

// Situation is a document and what it is an example of; the name is that of its
// golden files.
type Situation struct {
	Name    string
	Invoice billing.Invoice
}

// Start is the first instant of the month of every situation.
var Start = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// Hour is one GPU-hour in quantity units.
const Hour int64 = 3_600_000_000

// ID returns an id that is the same in every run.
func ID[I ~[16]byte](n byte) I { return I{1, 0x9c, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, n} }

// Named returns the situation of a name.
func Named(t T, name string) billing.Invoice {
	t.Helper()
	for _, s := range All(t) {
		if s.Name == name {
			return s.Invoice
		}
	}
	require.Failf(t, "no such situation", "%s", name)
	return billing.Invoice{}
}

// All returns every situation.
func All(t T) []Situation {
	t.Helper()
	out := append(usage(t), settled(t)...)
	out = append(out, corrections(t)...)
	return append(out, abroad(t)...)
}

// maker builds one document.
type maker struct {
	t T
	v billing.Invoice
	n byte // of the next resource
}

// month begins a German usage invoice of November 2026.
func month(t T, currency string) *maker {
	c := money.MustCurrency(currency)
	return &maker{t: t, v: billing.Invoice{
		ID: ID[id.Invoice](1), Kind: billing.UsageInvoice, Issuer: "main", Locale: "en", Org: ID[id.Org](1), State: billing.Draft,
		Period: metering.Between(Start, Start.AddDate(0, 1, 0)), TaxPoint: Start.AddDate(0, 1, 0), Currency: c,
		CreatedAt: Start.AddDate(0, 1, 1),
		Seller: billing.Party{
			Name: "Tranche Cloud GmbH", Address: []string{"Slicestraße 1", "10115 Berlin"}, Country: "DE", TaxID: "DE123456789",
			Bank: &billing.Bank{Holder: "Tranche Cloud GmbH", IBAN: "DE02120300000000202051", BIC: "BYLADEM1001", Name: "Musterbank"},
		},
		Buyer: billing.Party{Name: "Acme & Sons AG", Address: []string{"Ringweg 2", "80331 München"}, Country: "DE", TaxID: "DE987654321"},
	}}
}

// Use is what one resource used.
type Use struct {
	Name   string
	Micros int64 // unit·microseconds
}

// line adds a line; its exact value is quantity × price × Π(1 − discount).
func (m *maker) line(l billing.Line, price string, uses ...Use) *maker {
	l.No = len(m.v.Lines) + 1
	if l.Key.Meter == "" {
		l.Key.Meter = metering.GPU
	}
	unit, err := metering.UnitOf(l.Key.Meter)
	require.NoError(m.t, err)
	if l.Key.Component == "" {
		l.Key.Component = billing.UsageCharge
	}
	if l.Key.Pricing == "" {
		l.Key.Pricing = billing.OnDemand
	}
	l.Key.Project, l.ProjectName = ID[id.Project](1), "vision"
	if l.Key.PriceVersion.IsZero() {
		l.Key.PriceVersion = ID[id.PriceVersion](1)
	}
	if l.During.To.IsZero() {
		l.During = m.v.Period
	}
	l.QuantityUnit, l.PricedUnit, l.Divisor = unit.Quantity, unit.Priced, unit.Divisor
	l.UnitPrice = money.MustPrice(price, m.v.Currency)
	l.Quantity = new(big.Int)
	weights := make([]*big.Rat, len(uses))
	for i, u := range uses {
		l.Quantity.Add(l.Quantity, big.NewInt(u.Micros))
		weights[i] = new(big.Rat).SetInt64(max(u.Micros, -u.Micros))
	}
	factor, err := billing.Factor(l.Discounts)
	require.NoError(m.t, err)
	l.Exact = l.UnitPrice.Times(l.Quantity, l.Divisor).Scale(factor)
	l.Amount, err = l.Exact.Round()
	require.NoError(m.t, err)
	parts, err := money.Apportion(l.Amount, weights)
	require.NoError(m.t, err)
	kind := "instance"
	if l.Key.Meter == metering.Reservation {
		kind = "reservation"
	}
	for i, u := range uses {
		m.n++
		subject := metering.Subject{Kind: kind, ID: ID[[16]byte](m.n)}
		if kind == "reservation" {
			subject.ID = ID[[16]byte](200)
		}
		l.Subjects = append(l.Subjects, billing.Share{
			Subject: subject, Name: u.Name, Quantity: big.NewInt(u.Micros), Segments: 1, Amount: parts[i], Hash: [32]byte{m.n},
		})
	}
	m.v.Lines = append(m.v.Lines, l)
	return m
}

// flat adds a line that is an amount alone.
func (m *maker) flat(c billing.Component, description, amount string) *maker {
	a, err := money.ParseAmount(amount, m.v.Currency)
	require.NoError(m.t, err)
	m.v.Lines = append(m.v.Lines, billing.Line{
		No: len(m.v.Lines) + 1, Description: description, Amount: a, Exact: a.Exact(),
		Key: billing.LineKey{Component: c, Reference: "ctr_main", Variant: description},
	})
	return m
}

// corrects marks the last line as one that changes a line of another document.
func (m *maker) corrects(number string, no int) *maker {
	m.v.Lines[len(m.v.Lines)-1].Corrects = &billing.LineRef{Invoice: ID[id.Invoice](9), Number: number, No: no}
	return m
}

// taxed decides the tax of every line.
func (m *maker) taxed(category string, ppm int64, note string) *maker {
	for i := range m.v.Lines {
		m.v.Lines[i].Key.TaxCategory, m.v.Lines[i].TaxRatePPM = category, ppm
	}
	m.v.Taxes = []billing.Tax{{Category: category, RatePPM: ppm, Note: note}}
	return m
}

func (m *maker) draft() billing.Invoice {
	v, err := m.v.Compose()
	require.NoError(m.t, err)
	require.NoError(m.t, v.Check())
	return v
}

// open is the finished document.
func (m *maker) open(number string) billing.Invoice {
	v, err := m.draft().Finalized(number, Start.AddDate(0, 1, 1).Add(9*time.Hour), time.UTC, 14)
	require.NoError(m.t, err)
	return v
}

// gpu is a line of whole or partitioned GPUs.
func gpu(code string) billing.Line {
	switch code {
	case "h100-whole":
		return billing.Line{
			SKUCode: code, Description: "H100-80 whole",
			Key: billing.LineKey{SKU: [16]byte{2}, IsolationGPU: "dedicated", IsolationHost: "single_org_host"},
		}
	default:
		return billing.Line{
			SKUCode: "h200-mig-1g-16gib", Description: "H200-141 mig 1g.18gb",
			Key: billing.LineKey{SKU: [16]byte{1}, IsolationGPU: "partitioned", IsolationHost: "shared_kernel"},
		}
	}
}
