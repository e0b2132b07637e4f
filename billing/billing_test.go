package billing_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

var (
	usd   = money.MustCurrency("USD")
	start = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	key   = billing.PriceKey{SKU: [16]byte{1}, Meter: metering.GPU}
	other = billing.PriceKey{SKU: [16]byte{2}, Meter: metering.GPU}
)

func version(price string, from time.Time) billing.Version {
	return billing.Version{ID: id.New[id.PriceVersion](), EffectiveFrom: from, Prices: map[billing.PriceKey]money.Price{key: money.MustPrice(price, usd)}}
}

func book(t require.TestingT, versions ...billing.Version) billing.Book {
	b := billing.Book{ID: id.New[id.PriceBook](), Name: "list", Currency: usd}
	for _, v := range versions {
		next, err := b.Publish(v, v.EffectiveFrom.Add(-billing.Notice))
		require.NoError(t, err)
		b = next
	}
	return b
}

func TestPublish(t *testing.T) {
	first, err := billing.Book{Currency: usd}.Publish(version("1", time.Time{}), start)
	require.NoError(t, err)
	require.Equal(t, start, first.Versions[0].EffectiveFrom, "a first version may start now")
	require.Equal(t, 1, first.Versions[0].Number)

	second, err := first.Publish(version("2", time.Time{}), start)
	require.NoError(t, err)
	require.Equal(t, start.Add(billing.Notice), second.Versions[1].EffectiveFrom)
	require.Len(t, first.Versions, 1, "a book is a value")

	dropping := version("1", time.Time{})
	dropping.Prices = map[billing.PriceKey]money.Price{other: money.MustPrice("1", usd)}
	foreign := version("1", time.Time{})
	foreign.Prices = map[billing.PriceKey]money.Price{key: money.MustPrice("1", money.MustCurrency("JPY"))}
	refusals := map[string]struct {
		b billing.Book
		v billing.Version
	}{
		"first in the past": {billing.Book{Currency: usd}, version("1", start.Add(-time.Second))},
		"too soon":          {first, version("2", start.Add(billing.Notice-time.Microsecond))},
		"same start":        {second, version("2", start.Add(billing.Notice))},
		"no price":          {first, billing.Version{}},
		"dropped price":     {first, dropping},
		"other currency":    {first, foreign},
	}
	for name, r := range refusals {
		_, err := r.b.Publish(r.v, start)
		require.Equal(t, fault.Invalid, fault.KindOf(err), name)
		require.NotEmpty(t, fault.From(err).Fields, name)
	}
}

func TestVersionInForce(t *testing.T) {
	v1, v2 := version("1", start), version("2", start.AddDate(0, 0, 10))
	b := book(t, v1, v2)
	_, ok := b.At(start.Add(-time.Microsecond))
	require.False(t, ok)
	for at, want := range map[time.Time]id.PriceVersion{
		start: v1.ID, start.AddDate(0, 0, 10).Add(-time.Microsecond): v1.ID, start.AddDate(0, 0, 10): v2.ID, start.AddDate(9, 0, 0): v2.ID,
	} {
		got, ok := b.At(at)
		require.True(t, ok)
		require.Equal(t, want, got.ID)
	}
}

func TestLockIsACeiling(t *testing.T) {
	cheap, dear := version("1.00", start), version("3.00", start.AddDate(0, 0, 10))
	cheaper := version("0.50", start.AddDate(0, 0, 20))
	b := book(t, cheap, dear, cheaper)
	during := metering.Between(start, start.AddDate(0, 0, 30))
	lock, ok := b.Lock(cheap.ID, key)
	require.True(t, ok)
	pieces, err := b.Pieces(key, during, &lock)
	require.NoError(t, err)
	require.Len(t, pieces, 3)
	require.Equal(t, []id.PriceVersion{cheap.ID, cheap.ID, cheaper.ID}, []id.PriceVersion{pieces[0].Version, pieces[1].Version, pieces[2].Version})
	require.Equal(t, "0.50", pieces[2].Price.Decimal(), "a lower list price wins over the lock")

	unlocked, err := b.Pieces(key, during, nil)
	require.NoError(t, err)
	require.Equal(t, "3.00", unlocked[1].Price.Decimal())

	_, err = b.Pieces(other, during, nil)
	require.Equal(t, fault.Internal, fault.KindOf(err))
	alone, err := b.Pieces(other, during, &lock)
	require.NoError(t, err)
	require.Equal(t, lock.Price, alone[0].Price, "a lock without a list price still prices")
	_, err = b.Pieces(key, during, &billing.Lock{Price: money.MustPrice("1", money.MustCurrency("JPY"))})
	require.ErrorIs(t, err, money.ErrMismatch)
	_, ok = b.Lock(id.New[id.PriceVersion](), key)
	require.False(t, ok)
}

func TestPiecesTile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := book(t, version("1", start), version("2", start.AddDate(0, 0, 8)), version("3", start.AddDate(0, 0, 20)))
		from := start.Add(time.Duration(rapid.Int64Range(0, 30*86400).Draw(t, "from")) * time.Second)
		during := metering.Between(from, from.Add(time.Duration(rapid.Int64Range(1, 30*86400*1e6).Draw(t, "us"))*time.Microsecond))
		pieces, err := b.Pieces(key, during, nil)
		require.NoError(t, err)
		at := during.From
		for _, p := range pieces {
			require.Equal(t, at, p.During.From)
			v, _ := b.At(p.During.From)
			require.Equal(t, v.ID, p.Version)
			last, _ := b.At(p.During.To.Add(-time.Microsecond))
			require.Equal(t, v.ID, last.ID)
			at = p.During.To
		}
		require.Equal(t, during.To, at)
	})
}

func TestDiscountsMultiply(t *testing.T) {
	f, err := billing.Factor([]billing.Discount{{PPM: 200_000}, {PPM: 100_000}})
	require.NoError(t, err)
	require.Equal(t, big.NewRat(72, 100), f, "20 % then 10 % is 28 %")
	_, err = billing.Factor([]billing.Discount{{PPM: 1_000_001}})
	require.Equal(t, fault.Invalid, fault.KindOf(err))
}

// lineOf is a line of one subject at 0.49 an hour.
func lineOf(no int, hours int64) billing.Line {
	u, _ := metering.UnitOf(metering.GPU)
	q := new(big.Int).Mul(big.NewInt(hours), big.NewInt(u.Divisor))
	price := money.MustPrice("0.49", usd)
	exact := price.Times(q, u.Divisor)
	amount, _ := exact.Round()
	return billing.Line{
		No: no, Key: billing.LineKey{Meter: metering.GPU, SKU: [16]byte{1}, Pricing: billing.OnDemand, TaxCategory: billing.OutsideScope},
		SKUCode: "h200-mig-1g-16gib", Description: "H200-141 mig 1g.18gb", Quantity: q, QuantityUnit: u.Quantity, Divisor: u.Divisor,
		UnitPrice: price, Exact: exact, Amount: amount,
		Subjects: []billing.Share{{Quantity: q, Segments: 1, Amount: amount}},
	}
}

func draft(t *testing.T, lines ...billing.Line) billing.Invoice {
	t.Helper()
	v, err := billing.Invoice{
		ID: id.New[id.Invoice](), State: billing.Draft, Period: metering.Between(start, start.AddDate(0, 1, 0)), Currency: usd,
		Seller: billing.Party{Name: "Tranche Cloud"}, Buyer: billing.Party{Name: "Acme", Address: []string{"1 Road"}}, Lines: lines,
	}.Compose()
	require.NoError(t, err)
	return v
}

func TestInvoiceAddsUp(t *testing.T) {
	v := draft(t, lineOf(1, 10), lineOf(2, 5))
	require.NoError(t, v.Check())
	require.Equal(t, "7.35", v.Total.Decimal())
	require.Equal(t, v.Total, v.Due)
	require.Len(t, v.Taxes, 1)
	require.Equal(t, "0.00", v.Taxes[0].Amount.Decimal(), "tax of nothing is still a line")
	require.Equal(t, v.Subtotal, v.Taxes[0].Base)
	require.Len(t, draft(t).Taxes, 1, "also on an empty document")

	for name, spoil := range map[string]func(*billing.Invoice){
		"total":       func(v *billing.Invoice) { v.Total = money.NewAmount(1, usd) },
		"line amount": func(v *billing.Invoice) { v.Lines[0].Amount = money.NewAmount(1, usd) },
		"share":       func(v *billing.Invoice) { v.Lines[0].Subjects[0].Amount = money.NewAmount(1, usd) },
		"quantity":    func(v *billing.Invoice) { v.Lines[0].Quantity = big.NewInt(1) },
		"buyer":       func(v *billing.Invoice) { v.Buyer.Name = "Emca" },
	} {
		bad := draft(t, lineOf(1, 10))
		spoil(&bad)
		require.Equal(t, fault.Internal, fault.KindOf(bad.Check()), name)
	}
}

func TestFinalizeOnce(t *testing.T) {
	v := draft(t, lineOf(1, 10))
	done, err := v.Finalized("TR-2026-000001", start, time.UTC, 14)
	require.NoError(t, err)
	require.Equal(t, billing.Open, done.State)
	require.Equal(t, v.ContentHash, done.ContentHash, "number and date are not content")
	require.Equal(t, billing.Draft, v.State)
	_, err = done.Finalized("TR-2026-000002", start, time.UTC, 14)
	require.Equal(t, "state.conflict", fault.CodeOf(err))
	v.Total = money.NewAmount(9, usd)
	_, err = v.Finalized("TR-2026-000001", start, time.UTC, 14)
	require.Equal(t, fault.Internal, fault.KindOf(err))
}

func TestContentHashIsOfTheContent(t *testing.T) {
	base := draft(t, lineOf(1, 10))
	again := draft(t, lineOf(1, 10))
	require.NotEqual(t, base.ID, again.ID)
	require.Equal(t, base.ContentHash, again.ContentHash)
	changes := map[string]func(*billing.Invoice){
		"period":     func(v *billing.Invoice) { v.Period.To = v.Period.To.Add(time.Microsecond) },
		"buyer":      func(v *billing.Invoice) { v.Buyer.TaxID = "X1" },
		"isolation":  func(v *billing.Invoice) { v.Lines[0].Key.IsolationGPU = "shared" },
		"price":      func(v *billing.Invoice) { v.Lines[0].UnitPrice = money.MustPrice("0.50", usd) },
		"simulated":  func(v *billing.Invoice) { v.Lines[0].Simulated = true },
		"injection":  func(v *billing.Invoice) { v.Buyer.Name = "Acme\" [] \"\" \"\"\ntotal 0 0 0" },
		"one more":   func(v *billing.Invoice) { v.Lines = append(v.Lines, lineOf(2, 1)) },
		"unit":       func(v *billing.Invoice) { v.Lines[0].PricedUnit = "vCPU-hour" },
		"time":       func(v *billing.Invoice) { v.Lines[0].During = metering.Between(start, start.Add(time.Second)) },
		"reason":     func(v *billing.Invoice) { v.Reason = "Outage" },
		"party swap": func(v *billing.Invoice) { v.Seller, v.Buyer = v.Buyer, v.Seller },
	}
	seen := map[[32]byte]string{base.ContentHash: "base"}
	for name, change := range changes {
		v := draft(t, lineOf(1, 10))
		change(&v)
		v, err := v.Compose()
		require.NoError(t, err)
		require.Empty(t, seen[v.ContentHash], name)
		seen[v.ContentHash] = name
	}
}

func TestNumbers(t *testing.T) {
	require.Equal(t, "TR-2026-000001", billing.Series{Prefix: "TR", Year: 2026}.Number(1))
	require.Equal(t, "TR-2026-1234567", billing.Series{Prefix: "TR", Year: 2026}.Number(1234567))
	newYear := time.Date(2026, 12, 31, 23, 30, 0, 0, time.UTC)
	require.Equal(t, 2026, billing.SeriesAt("TR", billing.UsageInvoice, newYear, time.UTC).Year)
	require.Equal(t, 2027, billing.SeriesAt("TR", billing.UsageInvoice, newYear, time.FixedZone("CET", 3600)).Year)

	s, n, err := billing.ParseNumber("DE-A-2026-000042")
	require.NoError(t, err)
	require.Equal(t, billing.Series{Prefix: "DE-A", Kind: billing.UsageInvoice, Year: 2026}, s)
	require.Equal(t, 42, n)
	for _, text := range []string{"", "TR-2026-1", "TR-2026-000000", "-2026-000001", "TR-26-000001", "TR-2026-0000001", "TR-2026--00001", "2026-000001"} {
		_, _, err := billing.ParseNumber(text)
		require.Equal(t, fault.Invalid, fault.KindOf(err), "%q", text)
	}
}
