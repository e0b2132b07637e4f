package situations

import (
	"fmt"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

const (
	standard = 190_000 // the German rate, parts per million
	second   = 1_000_000
)

// usage is what rating alone makes.
func usage(t T) []Situation {
	plain := month(t, "EUR").
		line(simulated(gpu("mig")), "0.49", Use{"train-a", 5_400*second + 1}, Use{"train-b", 7 * second}).
		line(gpu("h100-whole"), "2.49", Use{"serve", 31 * Hour})

	tiers := month(t, "EUR").
		line(tier(gpu("mig"), 1), "0.49", Use{"batch", 100 * Hour}).
		line(tier(gpu("mig"), 2), "0.39", Use{"batch", 50*Hour + Hour/2})

	reservation := month(t, "EUR").
		line(meter(gpu("mig"), metering.Reservation, "reserved: 1 × H200-141/mig"), "0.30", Use{"base load", 720 * Hour}).
		line(covered(gpu("mig")), "0", Use{"web-1", 400 * Hour}, Use{"web-2", 100*Hour + 1}).
		line(gpu("mig"), "0.49", Use{"web-3", 12 * Hour})

	discounts := month(t, "EUR").
		line(discounted(gpu("h100-whole"), 100_000, 50_000), "2.49", Use{"serve-a", 10 * Hour}, Use{"serve-b", 3*Hour + 1}).
		flat(billing.FixedDiscount, "Partner discount", "-5.00")

	minimum := gpu("mig")
	minimum.Key.Component = billing.MinimumCharge
	minimums := month(t, "EUR").
		line(gpu("mig"), "0.49", Use{"quick", 40 * second}).
		line(minimum, "0.49", Use{"quick", 20 * second})

	capped := gpu("mig")
	capped.Key.Component = billing.CapCredit
	caps := month(t, "EUR").
		line(gpu("mig"), "0.49", Use{"always on", 720 * Hour}).
		line(capped, "0.49", Use{"always on", -48 * Hour})

	commitment := month(t, "EUR").
		line(gpu("h100-whole"), "2.49", Use{"serve", 100 * Hour}).
		flat(billing.Commitment, "Commitment of 500.00 EUR a month", "251.00")

	other := month(t, "EUR").
		line(meter(gpu("mig"), metering.GPURetained, "H200-141 mig 1g.18gb (gpu_retained)"), "0.10", Use{"paused", 17 * Hour}).
		line(disk(), "0.0001", Use{"data", 100 * 1024 * 720 * Hour}).
		line(egress(), "0.08", Use{"serve", 5_368_709_120 + 12_345}).
		line(address(), "0.005", Use{"203.0.113.7", 720 * Hour})

	spot := gpu("mig")
	spot.Key.Pricing, spot.Key.Reference = billing.Spot, "spot"
	return []Situation{
		{"plain-usage", plain.taxed("S", standard, "").open("TR-2026-000001")},
		{"tiers", tiers.taxed("S", standard, "").open("TR-2026-000002")},
		{"reservation", reservation.taxed("S", standard, "").open("TR-2026-000003")},
		{"discounts", discounts.taxed("S", standard, "").open("TR-2026-000004")},
		{"minimum-charge", minimums.taxed("S", standard, "").open("TR-2026-000005")},
		{"monthly-cap", caps.taxed("S", standard, "").open("TR-2026-000006")},
		{"commitment", commitment.taxed("S", standard, "").open("TR-2026-000007")},
		{"other-meters", other.taxed("S", standard, "").open("TR-2026-000008")},
		{"packages", packages(t)},
		{"spot", month(t, "EUR").line(spot, "0.173333333333", Use{"cheap", 9 * Hour}).taxed("S", standard, "").open("TR-2026-000009")},
		{"many-lines", many(t)},
		{"preview", plain.preview()},
	}
}

func (m *maker) preview() billing.Invoice {
	m.v.State, m.v.ID, m.v.Number = billing.Preview, id.Invoice{}, ""
	return m.draft()
}

// many is a German document of several pages with long names.
func many(t T) billing.Invoice {
	m := month(t, "EUR")
	m.v.Locale = "de"
	for i := range 45 {
		l := gpu("mig")
		l.Key.PriceVersion = ID[id.PriceVersion](byte(i + 1))
		l.During = metering.Between(Start.Add(time.Duration(i)*12*time.Hour), Start.Add(time.Duration(i+1)*12*time.Hour))
		name := fmt.Sprintf("versuch-%02d", i)
		if i == 7 {
			l.Description = strings.Repeat("Eine sehr lange Bezeichnung, die über mehrere Zeilen läuft. ", 4) + strings.Repeat("x", 90)
		}
		m.line(l, "1234.5", Use{name, Hour + int64(i)*second})
	}
	return m.taxed("S", standard, "").open("TR-2026-000010")
}

// packages is 250 hours sold by the hundred: three packages.
func packages(t T) billing.Invoice {
	m := month(t, "EUR").line(gpu("mig"), "0", Use{"batch-a", 150 * Hour}, Use{"batch-b", 100 * Hour})
	l := &m.v.Lines[0]
	l.Packages, l.PricedUnit, l.UnitPrice = 3, "package of 100 GPU-hours", money.MustPrice("40", m.v.Currency)
	l.Amount = m.sum(12_000)
	l.Exact = l.Amount.Exact()
	l.Subjects[0].Amount, l.Subjects[1].Amount = m.sum(7_200), m.sum(4_800)
	return m.taxed("S", standard, "").open("TR-2026-000023")
}

func simulated(l billing.Line) billing.Line { l.Simulated = true; return l }

func tier(l billing.Line, n int) billing.Line { l.Key.Tier = n; return l }

func meter(l billing.Line, m metering.Meter, description string) billing.Line {
	l.Key.Meter, l.Description = m, description
	return l
}

func covered(l billing.Line) billing.Line {
	l.Key.Component, l.Key.Pricing, l.Key.Reference = billing.Covered, billing.Reserved, ID[id.Reservation](200).String()
	return l
}

func discounted(l billing.Line, ppm ...int64) billing.Line {
	for i, p := range ppm {
		l.Discounts = append(l.Discounts, billing.Discount{Name: fmt.Sprintf("Volume agreement %d", i+1), PPM: p})
	}
	l.Key.Variant = "d1"
	return l
}

func disk() billing.Line {
	return billing.Line{SKUCode: "disk-nvme", Description: "NVMe disk", Key: billing.LineKey{SKU: [16]byte{3}, Meter: metering.Storage, IsolationHost: "shared_kernel"}}
}

func egress() billing.Line {
	return billing.Line{SKUCode: "egress", Description: "Egress", Key: billing.LineKey{SKU: [16]byte{4}, Meter: metering.Egress}}
}

func address() billing.Line {
	return billing.Line{SKUCode: "ipv4", Description: "IPv4 address", Key: billing.LineKey{SKU: [16]byte{5}, Meter: metering.IP}}
}
