package metering_test

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func sec(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }

func span(from, to int) metering.Interval { return metering.Between(sec(from), sec(to)) }

func TestUnitsAreExact(t *testing.T) {
	for meter, divisor := range map[metering.Meter]int64{
		metering.GPU: 3_600_000_000, metering.GPURetained: 3_600_000_000, metering.IP: 3_600_000_000,
		metering.Reservation: 3_600_000_000, metering.Storage: 1024 * 3_600_000_000, metering.Egress: 1 << 30,
	} {
		u, err := metering.UnitOf(meter)
		require.NoError(t, err)
		require.Equal(t, divisor, u.Divisor, meter)
		require.NotEmpty(t, u.Quantity)
		require.NotEmpty(t, u.Priced)
	}
	_, err := metering.UnitOf("steam")
	require.Equal(t, fault.Internal, fault.KindOf(err))
}

func TestWhenAMeterRuns(t *testing.T) {
	facts := metering.Facts{At: sec(100), FirstSymptom: sec(90), LastProof: sec(80), TenantStop: sec(95), NoticeEnd: sec(85)}
	open := func(m metering.Meter, s int) metering.Change {
		return metering.Change{Meter: m, Open: true, At: sec(s)}
	}
	closed := func(m metering.Meter, s int, party string) metering.Change {
		return metering.Change{Meter: m, Close: true, At: sec(s), Party: party}
	}
	rows := []struct {
		event metering.Event
		want  []metering.Change
	}{
		{metering.RequestAccepted, nil},
		{metering.GuestReady, nil},
		{metering.CreateFailed, nil},
		{metering.ResizeFailed, nil},
		{metering.ProcessStarted, []metering.Change{closed(metering.GPURetained, 100, "tenant"), open(metering.GPU, 100)}},
		{metering.StopRelease, []metering.Change{closed(metering.GPU, 100, "tenant"), closed(metering.GPURetained, 100, "tenant")}},
		{metering.StopRetain, []metering.Change{closed(metering.GPU, 100, "tenant"), open(metering.GPURetained, 100)}},
		{metering.DeleteAccepted, []metering.Change{closed(metering.GPU, 100, "tenant"), closed(metering.GPURetained, 100, "tenant")}},
		{metering.ResizeProven, []metering.Change{{Meter: metering.GPU, Close: true, Open: true, KeepStart: true, At: sec(100), Party: "tenant"}}},
		{metering.Rebooted, []metering.Change{{Meter: metering.GPU, Close: true, Open: true, KeepStart: true, At: sec(100), Party: "tenant"}}},
		{metering.OurFault, []metering.Change{closed(metering.GPU, 80, "operator"), closed(metering.GPURetained, 80, "operator")}},
		{metering.Silence, []metering.Change{closed(metering.GPU, 80, "operator"), closed(metering.GPURetained, 80, "operator")}},
		{metering.Preempted, []metering.Change{closed(metering.GPU, 80, "operator")}},
		{metering.VolumeProvisioned, []metering.Change{open(metering.Storage, 100)}},
		{metering.VolumeDeleted, []metering.Change{closed(metering.Storage, 100, "tenant")}},
		{metering.VolumeUnreachable, []metering.Change{closed(metering.Storage, 80, "operator")}},
		{metering.VolumeReachable, []metering.Change{open(metering.Storage, 100)}},
		{metering.AddressProvisioned, []metering.Change{open(metering.IP, 100)}},
		{metering.AddressReleased, []metering.Change{closed(metering.IP, 100, "tenant")}},
		{metering.AddressUnreachable, []metering.Change{closed(metering.IP, 80, "operator")}},
		{metering.AddressReachable, []metering.Change{open(metering.IP, 100)}},
	}
	for _, r := range rows {
		t.Run(string(r.event), func(t *testing.T) {
			got, known := metering.Changes(r.event, facts)
			require.True(t, known)
			require.Equal(t, append([]metering.Change{}, r.want...), got)
		})
	}
	_, known := metering.Changes("eclipse", facts)
	require.False(t, known)
}

func TestFaultInstants(t *testing.T) {
	instant := func(e metering.Event, f metering.Facts) time.Time {
		c, _ := metering.Changes(e, f)
		return c[0].At
	}
	require.Equal(t, sec(5), instant(metering.OurFault, metering.Facts{FirstSymptom: sec(5), LastProof: sec(9)}), "the first symptom, if it came before the last proof")
	require.Equal(t, sec(9), instant(metering.OurFault, metering.Facts{FirstSymptom: sec(12), LastProof: sec(9)}))
	require.Equal(t, sec(9), instant(metering.Silence, metering.Facts{FirstSymptom: sec(5), LastProof: sec(9)}), "silence is no symptom")
	require.Equal(t, sec(3), instant(metering.Preempted, metering.Facts{TenantStop: sec(3), NoticeEnd: sec(30), LastProof: sec(29)}))
	require.Equal(t, sec(30), instant(metering.Preempted, metering.Facts{NoticeEnd: sec(30), LastProof: sec(31)}))
}

func TestStartInstantIsClipped(t *testing.T) {
	cases := []struct {
		name      string
		age       time.Duration
		orderSent int
		want      int
	}{
		{"inside", 3 * time.Second, 0, 7},
		{"older than the order", time.Hour, 4, 4},
		{"in the future", -time.Hour, 0, 10},
		{"order sent after the report", time.Second, 20, 10},
		{"at once", 0, 0, 10},
	}
	for _, c := range cases {
		require.Equal(t, sec(c.want), metering.StartInstant(sec(10), c.age, sec(c.orderSent)), c.name)
	}
	odd := metering.StartInstant(sec(10), 1500*time.Nanosecond, sec(0))
	require.Zero(t, odd.Nanosecond()%1000, "whole microseconds")
}

func TestIntervals(t *testing.T) {
	open := metering.Between(sec(5), time.Time{})
	require.True(t, open.Open())
	require.Zero(t, open.Micros())
	require.Equal(t, span(5, 9), open.Until(sec(9)))
	require.True(t, open.Until(sec(1)).Empty())
	require.Equal(t, span(5, 7), span(5, 7).Until(sec(9)))
	require.Equal(t, int64(2_000_000), span(5, 7).Micros())

	require.False(t, span(0, 5).Overlaps(span(5, 9)), "the end belongs to the next")
	require.True(t, span(0, 6).Overlaps(open))
	require.True(t, open.Overlaps(open))
	require.False(t, span(3, 3).Overlaps(span(0, 9)), "nothing overlaps nothing")
	require.Equal(t, span(5, 9), open.Intersect(span(0, 9)))
	require.Equal(t, span(5, 9), span(0, 9).Intersect(open))
	require.True(t, span(0, 2).Intersect(span(4, 6)).Empty())

	require.Equal(t, []metering.Interval{span(0, 4), span(6, 7)},
		metering.Union([]metering.Interval{span(6, 7), span(0, 2), span(2, 4), span(1, 3), span(5, 5), open}))
	require.Equal(t, []metering.Interval{span(0, 1), span(2, 3), span(5, 9)},
		metering.Subtract([]metering.Interval{span(0, 9)}, []metering.Interval{span(1, 2), span(3, 5), span(20, 30)}))
}

func TestFillGaps(t *testing.T) {
	billed := []metering.Interval{span(0, 10), span(30, 40)}
	got := metering.FillGaps([]metering.Interval{span(5, 35)}, billed, sec(0), sec(100))
	require.Equal(t, []metering.Interval{span(10, 30)}, got, "clipped at the next segment")
	require.Equal(t, []metering.Interval{span(12, 20)}, metering.FillGaps([]metering.Interval{span(-9, 20)}, billed, sec(12), sec(100)), "not before the run")
	require.Empty(t, metering.FillGaps([]metering.Interval{span(0, 5)}, nil, sec(0), sec(5).Add(metering.OldestEvidence)), "too old")
	require.Empty(t, metering.FillGaps([]metering.Interval{span(50, 60)}, nil, sec(0), sec(40)), "not from the future")
}

func TestCover(t *testing.T) {
	c := metering.Cover([]metering.Interval{span(0, 10), span(20, 25)}, []metering.Interval{span(0, 12)}, 0)
	require.Equal(t, int64(15_000_000), c.Billed)
	require.Equal(t, int64(12_000_000), c.Proven)
	require.Equal(t, []metering.Interval{span(20, 25)}, c.OverBilled)
	require.Equal(t, []metering.Interval{span(10, 12)}, c.UnderBilled)
	require.Empty(t, metering.Cover([]metering.Interval{span(0, 20)}, []metering.Interval{span(5, 15)}, 5*time.Second).OverBilled)
}

func TestSplitNamesItsRefusals(t *testing.T) {
	for _, c := range []struct {
		window metering.Interval
		size   metering.Bucket
	}{{span(0, 9), "week"}, {span(9, 0), metering.Hour}, {span(3, 3), metering.Day}, {metering.Between(noon, noon.AddDate(9, 0, 0)), metering.Hour}, {metering.Between(noon, time.Time{}), metering.Day}} {
		_, err := metering.Split(c.window, c.size)
		require.Equal(t, "request.invalid", fault.CodeOf(err))
	}
	parts, err := metering.Split(metering.Between(noon.AddDate(0, 0, -1), noon.AddDate(0, 0, 1)), metering.Month)
	require.NoError(t, err)
	require.Len(t, parts, 2)
	require.Equal(t, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), parts[1].From)
}

func TestPeriods(t *testing.T) {
	p, err := metering.ParsePeriod("2024-02")
	require.NoError(t, err)
	require.Equal(t, int64(29*86400)*1_000_000, p.Micros())
	require.Equal(t, "2024-02", metering.PeriodOf(p.To.Add(-time.Microsecond)))
	require.Equal(t, "2024-03", metering.PeriodOf(p.To))
	for _, text := range []string{"", "2026-13", "2026-1", "26-01", "2026-01-01", "2026-00", "x"} {
		_, err := metering.ParsePeriod(text)
		require.Equal(t, fault.Invalid, fault.KindOf(err), "%q", text)
	}
}

func TestQuantityOfAnOpenSegment(t *testing.T) {
	a := metering.Segment{ID: id.New[id.Segment](), Subject: metering.Subject{Kind: "instance"}, Meter: metering.GPU, Units: 2, During: span(0, 10)}
	b := a
	b.ID, b.During = id.New[id.Segment](), metering.Between(sec(10), time.Time{})
	require.Equal(t, big.NewInt(10_000_000), b.Quantity(sec(15)))
}

func drawIntervals(t *rapid.T, label string) []metering.Interval {
	micros := rapid.Int64Range(0, 40*86400*1_000_000)
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) metering.Interval {
		a, b := micros.Draw(t, "a"), micros.Draw(t, "b")
		return metering.Between(noon.Add(time.Duration(min(a, b))*time.Microsecond), noon.Add(time.Duration(max(a, b))*time.Microsecond))
	}), 0, 8).Draw(t, label)
}

// Any bucket size shows the same sum.
func TestBucketsConserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segments := metering.Union(drawIntervals(t, "segments"))
		window := metering.Between(noon.Add(-time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "before"))), noon.AddDate(0, 0, 30).Add(time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "after"))))
		want := int64(0)
		for _, s := range segments {
			want += s.Intersect(window).Micros()
		}
		for _, size := range []metering.Bucket{metering.NoBucket, metering.Hour, metering.Day, metering.Month} {
			parts, err := metering.Split(window, size)
			require.NoError(t, err)
			require.Equal(t, window.Micros(), metering.Total(parts))
			got := int64(0)
			for i, p := range parts {
				require.Positive(t, p.Micros())
				require.True(t, i == 0 || parts[i-1].To.Equal(p.From))
				for _, s := range segments {
					got += s.Intersect(p).Micros()
				}
			}
			require.Equal(t, want, got, size)
		}
	})
}

func TestSetArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawIntervals(t, "a"), drawIntervals(t, "b")
		union := metering.Total(metering.Union(slices.Concat(a, b)))
		require.Equal(t, union, metering.Total(metering.Union(b))+metering.Total(metering.Subtract(a, b)), "|a∪b| = |b| + |a−b|")
		filled := metering.FillGaps(a, b, noon, noon.AddDate(0, 0, 40))
		require.Empty(t, metering.Cover(filled, a, 0).OverBilled, "only what was proven is billed")
		for _, f := range filled {
			for _, other := range b {
				require.False(t, f.Overlaps(other))
			}
		}
	})
}
