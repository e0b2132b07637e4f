package metering_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/metering"
)

func utc(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }

func TestMonthsCutAtEveryBoundary(t *testing.T) {
	require.Equal(t, []metering.Interval{
		metering.Between(utc(2028, 1, 31), utc(2028, 2, 1)), metering.Between(utc(2028, 2, 1), utc(2028, 3, 1)),
		metering.Between(utc(2028, 3, 1), utc(2028, 3, 2)),
	}, metering.Months(metering.Between(utc(2028, 1, 31), utc(2028, 3, 2)), time.Time{}), "a leap year")
	require.Equal(t, []metering.Interval{metering.Between(utc(2026, 11, 1), utc(2026, 12, 1))},
		metering.Months(metering.Between(utc(2026, 11, 1), utc(2026, 12, 1)), time.Time{}), "the end is no crossing")
	require.Equal(t, []metering.Interval{metering.Between(utc(2026, 11, 30), utc(2026, 12, 1)), metering.Between(utc(2026, 12, 1), time.Time{})},
		metering.Months(metering.Between(utc(2026, 11, 30), time.Time{}), utc(2026, 12, 2)), "open")
	require.Len(t, metering.Months(metering.Between(utc(2026, 11, 30), time.Time{}), utc(2026, 12, 1)), 1, "not before it is due")
	require.Empty(t, metering.Months(span(3, 3), time.Time{}))
}

func TestMonthsConserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, i := range drawIntervals(t, "intervals") {
			parts := metering.Months(i, time.Time{})
			require.Equal(t, i.Micros(), metering.Total(parts))
			for n, p := range parts {
				require.Positive(t, p.Micros())
				require.Equal(t, metering.PeriodOf(p.From), metering.PeriodOf(p.To.Add(-time.Microsecond)))
				require.True(t, n == 0 || parts[n-1].To.Equal(p.From))
			}
		}
	})
}

func TestWithoutOfOpenIntervals(t *testing.T) {
	open := metering.Between(sec(0), time.Time{})
	require.Equal(t, []metering.Interval{span(0, 5), metering.Between(sec(9), time.Time{})}, metering.Without(open, []metering.Interval{span(5, 9)}))
	require.Equal(t, []metering.Interval{span(0, 5)}, metering.Without(open, []metering.Interval{metering.Between(sec(5), time.Time{})}))
	require.Equal(t, []metering.Interval{open}, metering.Without(open, nil))
	require.Equal(t, []metering.Interval{span(2, 5)}, metering.Without(span(0, 5), []metering.Interval{span(-3, 2)}))
	require.Empty(t, metering.Without(span(0, 5), []metering.Interval{open}))
}

func TestAStartHasOneNameInAnyOrder(t *testing.T) {
	s := metering.Subject{Kind: "instance", ID: [16]byte{7}}
	require.Equal(t, metering.StartID(s, 1), metering.StartID(s, 1))
	require.NotEqual(t, metering.StartID(s, 1), metering.StartID(s, 2))
	require.NotEqual(t, metering.StartID(s, 1), metering.StartID(metering.Subject{Kind: "instance", ID: [16]byte{8}}, 1))
}

// The rows of "when a meter runs" (60-billing §1) in words, each with its instants.
func TestRowsOfWhenAMeterRuns(t *testing.T) {
	change := func(e metering.Event, f metering.Facts) metering.Change {
		c, known := metering.Changes(e, f)
		require.True(t, known)
		require.NotEmpty(t, c)
		return c[0]
	}
	t.Run("a start opens as the agent saw it, not at the request nor at readiness", func(t *testing.T) {
		for _, e := range []metering.Event{metering.RequestAccepted, metering.GuestReady} {
			c, _ := metering.Changes(e, metering.Facts{At: sec(1)})
			require.Empty(t, c)
		}
		c, _ := metering.Changes(metering.ProcessStarted, metering.Facts{At: sec(4)})
		require.Equal(t, metering.Change{Meter: metering.GPU, Open: true, At: sec(4)}, c[1])
	})
	t.Run("a failed create is free", func(t *testing.T) {
		c, _ := metering.Changes(metering.CreateFailed, metering.Facts{At: sec(4)})
		require.Empty(t, c)
	})
	t.Run("a resize moves at the proof of the new shape, a failed one moves nothing", func(t *testing.T) {
		c := change(metering.ResizeProven, metering.Facts{At: sec(9)})
		require.True(t, c.Close && c.Open && c.KeepStart && c.At.Equal(sec(9)))
		failed, _ := metering.Changes(metering.ResizeFailed, metering.Facts{At: sec(9)})
		require.Empty(t, failed)
	})
	t.Run("a reboot is continuous with one start", func(t *testing.T) {
		c := change(metering.Rebooted, metering.Facts{At: sec(9)})
		require.True(t, c.Close && c.Open && c.KeepStart && c.At.Equal(sec(9)))
	})
	t.Run("stop release, stop retain and delete end at acceptance", func(t *testing.T) {
		for _, e := range []metering.Event{metering.StopRelease, metering.StopRetain, metering.DeleteAccepted} {
			c := change(e, metering.Facts{At: sec(9), LastProof: sec(7)})
			require.True(t, c.Close && c.Meter == metering.GPU && c.At.Equal(sec(9)))
		}
	})
	t.Run("a preemption ends at the first of the tenant's stop, the end of notice and the last proof", func(t *testing.T) {
		f := metering.Facts{TenantStop: sec(5), NoticeEnd: sec(6), LastProof: sec(7)}
		require.Equal(t, sec(5), change(metering.Preempted, f).At)
		f.TenantStop = time.Time{}
		require.Equal(t, sec(6), change(metering.Preempted, f).At)
		f.LastProof = sec(2)
		require.Equal(t, sec(2), change(metering.Preempted, f).At)
	})
	t.Run("a preemption in the first minutes is free if the offer says so", func(t *testing.T) {
		f := metering.Facts{Started: sec(0), NoticeEnd: sec(90), LastProof: sec(95), FreeFor: 2 * time.Minute}
		require.True(t, change(metering.Preempted, f).Waive)
		f.FreeFor = 90 * time.Second
		require.False(t, change(metering.Preempted, f).Waive, "the minutes are over")
		f.FreeFor = 0
		require.False(t, change(metering.Preempted, f).Waive, "no promise")
		f.FreeFor, f.TenantStop = 2*time.Minute, sec(30)
		require.False(t, change(metering.Preempted, f).Waive, "the tenant stopped it")
	})
	t.Run("disk and address are not billed while unreachable by our fault", func(t *testing.T) {
		for down, up := range map[metering.Event]metering.Event{
			metering.VolumeUnreachable: metering.VolumeReachable, metering.AddressUnreachable: metering.AddressReachable,
		} {
			c := change(down, metering.Facts{FirstSymptom: sec(3), LastProof: sec(5)})
			require.True(t, c.Close && c.At.Equal(sec(3)) && c.Party == "operator")
			require.True(t, change(up, metering.Facts{At: sec(8)}).Open)
		}
	})
}

// B30: add, remove, add on one day is the sum of its seconds.
func TestB30AddRemoveAdd(t *testing.T) {
	at := func(h int) time.Time { return time.Date(2026, 11, 2, h, 0, 0, 0, time.UTC) }
	require.Equal(t, int64(7200)*1_000_000, metering.Total(metering.Union([]metering.Interval{
		metering.Between(at(10), at(11)), metering.Between(at(12), at(13)),
	})))
}

// B33: sixty runs of a second are sixty seconds, not sixty minutes.
func TestB33ShortRunsAreNotRoundedUp(t *testing.T) {
	var runs []metering.Interval
	for i := range 60 {
		runs = append(runs, span(i*600, i*600+1))
	}
	require.Equal(t, int64(60)*1_000_000, metering.Total(metering.Union(runs)))
}

// B27: an event a fraction of a millisecond before a start belongs to it, by whole microseconds.
func TestB27SubMillisecondInstants(t *testing.T) {
	start := time.UnixMicro(1771321417_918285).UTC()
	sent := time.UnixMicro(1771321417_918000).UTC()
	require.Equal(t, start, metering.StartInstant(start.Add(time.Second), time.Second, sent))
	require.Equal(t, int64(285), metering.Between(sent, start).Micros())
	require.True(t, metering.Between(sent, start.Add(time.Second)).Overlaps(metering.Between(sent, sent.Add(time.Microsecond))))
}

// B28: the bound of a half-open interval is wrong by nothing.
func TestB28BoundsAreHalfOpen(t *testing.T) {
	require.True(t, span(0, 5).Overlaps(span(4, 9)))
	require.False(t, span(0, 5).Overlaps(span(5, 9)))
	require.Equal(t, []metering.Interval{span(0, 5)}, metering.Subtract([]metering.Interval{span(0, 9)}, []metering.Interval{span(5, 9)}))
}

// B26: the zone an instant is shown in changes nothing.
func TestB26ZonesChangeNothing(t *testing.T) {
	zone := time.FixedZone("PST", -8*3600)
	from, to := utc(2026, 10, 31).Add(20*time.Hour), utc(2026, 12, 1)
	require.Equal(t, metering.Months(metering.Between(from, to), time.Time{}), metering.Months(metering.Between(from.In(zone), to.In(zone)), time.Time{}))
	require.Equal(t, metering.PeriodOf(from), metering.PeriodOf(from.In(zone)))
}
