package payment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/fault"
)

var due = time.Date(2026, 12, 15, 0, 0, 0, 0, time.UTC)

// day is so many days after the due date.
func day(n int) time.Time { return due.AddDate(0, 0, n) }

// walk advances a dunning each day up to a last one and returns what was done when.
func walk(s payment.Schedule, last int, facts func(n int) payment.Facts) map[int]payment.Action {
	var d payment.Dunning
	done := map[int]payment.Action{}
	for n := range last + 1 {
		f := facts(n)
		f.DueOn, f.At = due, day(n)
		var act payment.Action
		if d, act, _ = s.Advance(d, f); act != "" {
			done[n] = act
		}
	}
	return done
}

func TestDunningFollowsItsSchedule(t *testing.T) {
	t.Parallel()
	done := walk(payment.DefaultSchedule, 60, func(int) payment.Facts { return payment.Facts{} })
	require.Equal(t, map[int]payment.Action{
		3: payment.Remind, 10: payment.Remind, 20: payment.Remind, 25: payment.Suspend, 28: payment.AnnounceStop, 35: payment.Stop,
	}, done)
}

func TestADisputePausesDunning(t *testing.T) {
	t.Parallel()
	done := walk(payment.DefaultSchedule, 60, func(n int) payment.Facts { return payment.Facts{Disputed: n >= 5 && n < 12} })
	require.Equal(t, payment.Remind, done[3])
	require.NotContains(t, done, 10)
	require.Equal(t, payment.Remind, done[17], "the seven days of the dispute do not count")
	require.Equal(t, payment.Stop, done[42])
}

func TestDunningStopsOnPayment(t *testing.T) {
	t.Parallel()
	done := walk(payment.DefaultSchedule, 60, func(n int) payment.Facts { return payment.Facts{Settled: n >= 9} })
	require.Equal(t, map[int]payment.Action{3: payment.Remind}, done)
}

func TestAfterAnOutageStepsComeOneByOne(t *testing.T) {
	t.Parallel()
	var d payment.Dunning
	d, act, again := payment.DefaultSchedule.Advance(d, payment.Facts{DueOn: due, At: day(50)})
	require.Equal(t, payment.Remind, act)
	require.Equal(t, day(57), again, "the distances of the schedule stay")
	d, act, _ = payment.DefaultSchedule.Advance(d, payment.Facts{DueOn: due, At: day(50)})
	require.Empty(t, act)
	for n, want := range map[int]payment.Action{57: payment.Remind} {
		_, act, _ = payment.DefaultSchedule.Advance(d, payment.Facts{DueOn: due, At: day(n)})
		require.Equal(t, want, act)
	}
}

func TestNoStopWithoutNotice(t *testing.T) {
	t.Parallel()
	require.NoError(t, payment.DefaultSchedule.Check())
	rapid.Check(t, func(rt *rapid.T) {
		var d payment.Dunning
		announced, at := time.Time{}, due
		for range 200 {
			at = at.Add(time.Duration(rapid.IntRange(1, 20*24).Draw(rt, "hours")) * time.Hour)
			var act payment.Action
			d, act, _ = payment.DefaultSchedule.Advance(d, payment.Facts{DueOn: due, At: at, Disputed: rapid.Bool().Draw(rt, "disputed")})
			if act == payment.AnnounceStop {
				announced = at
			}
			if act == payment.Stop {
				require.False(rt, announced.IsZero())
				require.GreaterOrEqual(rt, at.Sub(announced), 6*24*time.Hour)
			}
		}
	})
	for name, bad := range map[string]payment.Schedule{
		"no notice":      {{Days: 3, Action: payment.Stop}},
		"short notice":   {{Days: 3, Action: payment.AnnounceStop}, {Days: 5, Action: payment.Stop}},
		"a day twice":    {{Days: 3, Action: payment.Remind}, {Days: 3, Action: payment.Remind}},
		"milder":         {{Days: 3, Action: payment.Suspend}, {Days: 4, Action: payment.Remind}},
		"before due":     {{Days: 0, Action: payment.Remind}},
		"unknown action": {{Days: 3, Action: "shout"}},
	} {
		require.Equal(t, "request.invalid", fault.CodeOf(bad.Check()), name)
	}
}
