package rating_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
)

// crowd is an organization's month: segments of many instances on two SKUs.
func crowd(w *world, segments, instances int) []rating.Usage {
	usage := make([]rating.Usage, 0, segments)
	each := segments / instances
	step := 29 * 24 * time.Hour / time.Duration(each)
	for i := range instances {
		var subject [16]byte
		binary.BigEndian.PutUint64(subject[8:], uint64(i+1))
		sku := []billing.SKU{mig, whole}[i%2]
		for j := range each {
			from := start.Add(time.Duration(j)*step + time.Duration(i)*time.Second)
			u := w.usage(1, sku, from, from.Add(step*3/4))
			u.Subject.ID, u.StartID = subject, [16]byte(u.ID)
			usage = append(usage, u)
		}
	}
	return usage
}

func benchmarkRate(b *testing.B, in rating.Inputs) {
	b.ReportAllocs()
	for b.Loop() {
		_, err := rating.Rate(in)
		require.NoError(b, err)
	}
	b.ReportMetric(float64(len(in.Usage))*float64(b.N)/b.Elapsed().Seconds(), "segments/s")
}

func BenchmarkRateFlat(b *testing.B) {
	w := newWorld(b)
	benchmarkRate(b, w.inputs(crowd(w, 5000, 250)...))
}

func BenchmarkRateWithTerms(b *testing.B) {
	w := newWorld(b)
	in := w.inputs(crowd(w, 5000, 250)...)
	for i := range in.Usage {
		in.Usage[i].SKU.Family, in.Usage[i].Region = "f", "eu"
	}
	in.Terms.Reservations = []billing.ReservedCapacity{{ID: id.New[id.Reservation](), Name: "r", Family: "f", Region: "eu", Units: 40, During: metering.Between(start, time.Time{})}}
	in.Terms.Prices = []billing.ContractPrice{{
		Contract: id.New[id.Contract](), Key: billing.PriceKey{SKU: whole.ID, Meter: metering.GPU}, During: period,
		Price: price("3"), Tiers: tiers(billing.Graduated, 10_000, "3", 20_000, "2.5", 0, "2"),
	}}
	benchmarkRate(b, in)
}
