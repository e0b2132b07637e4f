package clock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/clock"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestAFakeTimerFiresWhenTheClockReachesIt(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake(noon)
	timer := fake.NewTimer(time.Minute)
	fake.Advance(time.Minute - 1)
	require.Empty(t, timer.C())
	fake.Advance(1)
	require.Equal(t, noon.Add(time.Minute), <-timer.C())
	require.False(t, timer.Stop(), "it has fired")
}

func TestAStoppedTimerNeverFires(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake(noon)
	timer := fake.NewTimer(time.Second)
	require.True(t, timer.Stop())
	require.False(t, timer.Stop())
	fake.Advance(time.Hour)
	require.Empty(t, timer.C())
}

func TestATimerThatIsAlreadyDueFiresAtOnce(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]clock.Clock{"real": clock.Real(), "fake": clock.NewFake(noon)} {
		select {
		case <-made.NewTimer(-time.Second).C():
		case <-time.After(10 * time.Second):
			t.Errorf("the %s timer did not fire", name)
		}
	}
}

func TestAClockMayBeSetBackward(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake(noon)
	timer := fake.NewTimer(time.Second)
	fake.Set(noon.Add(-time.Hour))
	require.Equal(t, noon.Add(-time.Hour), fake.Now())
	require.Empty(t, timer.C())
}

func TestWaitTimersReturnsOnceTheCodeWaits(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake(noon)
	done := make(chan time.Time)
	go func() { done <- <-fake.NewTimer(time.Second).C() }()
	fake.WaitTimers(1)
	fake.Advance(time.Second)
	require.Equal(t, noon.Add(time.Second), <-done)
}

func TestTheRealClockSaysUTC(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.UTC, clock.Real().Now().Location())
	require.True(t, clock.Real().NewTimer(time.Hour).Stop())
}
