package app_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/quota"
)

// A run over two ends of months, one of them of a leap February: one start, no gap, no
// overlap, every row in its month, the price lock in each.
func TestSealOverTwoMonthEnds(t *testing.T) {
	for _, year := range []int{2027, 2028} {
		t.Run(fmt.Sprint(year), func(t *testing.T) {
			b := newBilled(t)
			c := b.tenant(t, "acme", quota.Limits{})
			inst := b.instance(t, c, "long")
			from := time.Date(year, 1, 31, 12, 0, 0, 1000, time.UTC)
			to := time.Date(year, 3, 1, 0, 0, 0, 7000, time.UTC)
			b.setClock(t, from.Add(time.Minute))
			require.True(t, b.start(t, c, inst, 1, from))
			n, err := b.SealDue(t.Context())
			require.NoError(t, err)
			require.Zero(t, n, "nothing is due")

			b.setClock(t, to)
			n, err = b.SealMonth(t.Context(), fmt.Sprintf("%d-01", year))
			require.NoError(t, err)
			require.Equal(t, 1, n)
			n, err = b.SealDue(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
			n, err = b.SealDue(t.Context())
			require.NoError(t, err)
			require.Zero(t, n, "running it twice changes nothing")
			require.True(t, b.stop(t, c, inst, metering.DeleteAccepted, metering.Facts{At: to}))

			february, march := time.Date(year, 2, 1, 0, 0, 0, 0, time.UTC), time.Date(year, 3, 1, 0, 0, 0, 0, time.UTC)
			require.Equal(t, []metering.Interval{
				metering.Between(from, february), metering.Between(february, march), metering.Between(march, to),
			}, b.segments(t, c, inst))
			require.Equal(t, 1, b.count(t, `select count(distinct start_id) from usage_segments`))
			require.Equal(t, 3, b.count(t, `select count(*) from usage_segments
				where locked_price_version_id is not null and billing_period = to_char(lower(during), 'YYYY-MM')`))
			require.Equal(t, 6, b.count(t, `select sum(seq) from usage_segments`))
			require.Equal(t, int(metering.Between(from, to).Micros()),
				b.count(t, `select sum(extract(epoch from upper(during) - lower(during)) * 1000000)::bigint from usage_segments`))
		})
	}
}

// What is closed, opened or filled over a boundary is cut there without the loop.
func TestEvidenceOverABoundaryIsCut(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	end := november.AddDate(0, 1, 0)
	before, after := end.Add(-time.Hour), end.Add(time.Hour)

	closed := b.instance(t, c, "closed")
	b.setClock(t, before)
	require.True(t, b.start(t, c, closed, 1, before))
	b.setClock(t, after)
	require.True(t, b.stop(t, c, closed, metering.StopRelease, metering.Facts{At: after}))
	halves := []metering.Interval{metering.Between(before, end), metering.Between(end, after)}
	require.Equal(t, halves, b.segments(t, c, closed))

	opened := b.instance(t, c, "opened")
	require.True(t, b.start(t, c, opened, 1, before), "reported late")
	require.Equal(t, []metering.Interval{halves[0], metering.Between(end, time.Time{})}, b.segments(t, c, opened))

	silent := b.instance(t, c, "silent")
	require.True(t, b.start(t, c, silent, 1, before))
	require.True(t, b.stop(t, c, silent, metering.Silence, metering.Facts{LastProof: before.Add(time.Minute)}))
	require.Equal(t, []metering.Interval{metering.Between(before, before.Add(time.Minute))}, b.segments(t, c, silent),
		"what the seal went on with is taken back")
	b.setClock(t, after.Add(time.Hour))
	require.True(t, b.start(t, c, silent, 1, before), "the same process is back")
	require.Equal(t, []metering.Interval{halves[0], metering.Between(end, end.Add(time.Microsecond)), metering.Between(end.Add(time.Microsecond), time.Time{})},
		b.segments(t, c, silent), "and its time with it")

	require.Zero(t, b.count(t, `select count(*) from usage_segments where not upper_inf(during) and
		to_char(lower(during), 'YYYY-MM') <> to_char(upper(during) - interval '1 microsecond', 'YYYY-MM')`))
	_, err := b.owner.Exec(t.Context(), `update usage_segments set during = tstzrange(lower(during), $1) where subject_id = $2`,
		after, uuid.UUID(opened))
	require.Error(t, err, "no statement makes one that crosses")
}

// The seal is killed after each of its batches, and two run at once.
func TestSealIsIdempotentAndConcurrent(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	const running = 120
	for i := range running {
		inst := b.instance(t, c, fmt.Sprintf("i-%03d", i))
		require.True(t, b.start(t, c, inst, 1, november.Add(time.Duration(i)*time.Second)))
	}
	b.setClock(t, november.AddDate(0, 2, 1))
	counts := make(chan int, 3)
	for range cap(counts) {
		go func() {
			n, err := b.SealDue(t.Context())
			if err != nil {
				n = -1000
			}
			counts <- n
		}()
	}
	sum := 0
	for range cap(counts) {
		sum += <-counts
	}
	require.Equal(t, 2*running, sum)
	require.Equal(t, 3*running, b.count(t, `select count(*) from usage_segments`))
	require.Equal(t, running, b.count(t, `select count(distinct start_id) from usage_segments`))
	require.Zero(t, b.count(t, `select count(*) from usage_exclusions`))
}
