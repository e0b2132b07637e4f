package replay_test

import (
	"testing"
	"time"

	"github.com/oapi-codegen/nullable"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/replay"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

func money(amount string) client.Money { return client.Money{Amount: amount, Currency: "USD"} }

func invoice() client.Invoice {
	return client.Invoice{
		Lines: []client.InvoiceLine{
			{Quantity: wire.Quantity{Value: "3600000000", Unit: "gpu_us"}, Amount: money("2.99")},
			{Quantity: wire.Quantity{Value: "1", Unit: "gpu_us"}, Amount: money("0.00")},
		},
		Subtotal: money("2.99"), Taxes: []wire.InvoiceTax{{Amount: money("0.30")}}, Total: money("3.29"),
	}
}

func TestAnInvoiceMustAddUpToTheCentAndTheMicrosecond(t *testing.T) {
	require.NoError(t, replay.CheckInvoice(invoice(), 3_600_000_001))
	require.ErrorContains(t, replay.CheckInvoice(invoice(), 3_600_000_000), "3600000001 µs")

	wrong := invoice()
	wrong.Subtotal = money("3.00")
	require.ErrorContains(t, replay.CheckInvoice(wrong, 3_600_000_001), "subtotal is 3.00")
	wrong = invoice()
	wrong.Total = money("2.99")
	require.ErrorContains(t, replay.CheckInvoice(wrong, 3_600_000_001), "total is 2.99")
	wrong = invoice()
	wrong.Lines[0].Amount = money("much")
	require.ErrorContains(t, replay.CheckInvoice(wrong, 3_600_000_001), "not a decimal")
}

func TestBilledTimeIsSummedInMicroseconds(t *testing.T) {
	at := time.Date(2026, 12, 2, 9, 0, 0, 0, time.UTC)
	interval := func(from, to time.Duration) wire.Interval {
		return wire.Interval{From: wire.At(at.Add(from)), To: nullable.NewNullableWithValue(wire.At(at.Add(to)))}
	}
	n, err := replay.BilledMicros(client.Instance{Billed: []wire.Interval{
		interval(0, time.Second+time.Microsecond), interval(time.Minute, time.Minute+time.Microsecond)}})
	require.NoError(t, err)
	require.EqualValues(t, 1_000_002, n)

	_, err = replay.BilledMicros(client.Instance{Billed: []wire.Interval{{From: wire.At(at), To: nullable.NewNullNullable[wire.Instant]()}}})
	require.ErrorContains(t, err, "billed on", "an open interval has no end to sum to")
}
