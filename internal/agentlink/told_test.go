package agentlink_test

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/units"
)

// A tenant names its programs as it likes, and their names are in what its host tells.
// Whatever they are, the host's own stream carries them.
func TestWhatAHostTellsIsAlwaysTakenIn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(rt, "text"))
		e := agentlink.Event{ID: 1, Kind: "client.ended", Subject: text, Detail: text, Attributes: map[string]string{text: text}}
		gotEvent, err := agentlink.EventIn(travel(t, agentlink.EventOut(e), &agentv1.Event{}))
		require.NoError(rt, err)
		require.Len(rt, gotEvent.Attributes, 1)

		o := agentlink.Observed{Full: true, Failure: text, Slices: []agentlink.Slice{{
			Key: "asg", Assignment: id.New[id.Assignment](), State: agentlink.SlicePresent, RunState: instance.RunRunning,
			Reason: instance.Problem{Code: text, Detail: text}, Progress: text,
		}}}
		_, err = agentlink.ObservedIn(travel(t, agentlink.ObservedOut(o), &agentv1.Observed{}))
		require.NoError(rt, err)

		v := agentlink.Inventory{VCPU: 1, RAM: units.GiB, Failed: true, Failure: text, BelowFloor: []string{text}, ConditionCause: text}
		_, err = agentlink.InventoryIn(travel(t, agentlink.InventoryOut(v), &agentv1.Inventory{}))
		require.NoError(rt, err)
	})
}

// A text is cut between letters, and an event with too many attributes loses some.
func TestLongTextsAreCut(t *testing.T) {
	many := map[string]string{}
	for i := range 100 {
		many["name-"+string(rune('A'+i))] = "x"
	}
	m := agentlink.EventOut(agentlink.Event{ID: 1, Kind: "gpu.xid", Detail: strings.Repeat("é", 2000), Attributes: many})
	require.True(t, utf8.ValidString(m.GetDetail()))
	require.Len(t, m.GetDetail(), 2048)
	_, err := agentlink.EventIn(m)
	require.NoError(t, err)
}

// However long nobody measured, the readings since are taken in.
func TestAnIntervalFitsItsColumn(t *testing.T) {
	for _, interval := range []time.Duration{time.Microsecond, time.Second, 100 * 24 * time.Hour} {
		got, err := agentlink.SamplesIn(agentlink.SamplesOut(agentlink.Samples{ID: 1, Interval: interval}))
		require.NoError(t, err)
		require.Positive(t, got.Interval)
		require.LessOrEqual(t, got.Interval.Milliseconds(), int64(math.MaxInt32))
	}
}
