package host_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func in(d time.Duration) *time.Time { t := noon.Add(d); return &t }

func TestNextMode(t *testing.T) {
	t.Parallel()
	wanted := gpu.Mode{Kind: gpu.MPS, Shares: 4, Percent: 25}
	waiting := host.ModeView{Status: host.ModeDraining, Wanted: wanted, Observed: gpu.WholeMode(), State: "settled", Present: true}
	ordered := waiting
	ordered.Status, ordered.SwitchedAt = host.ModeSwitching, noon
	with := func(v host.ModeView, change func(*host.ModeView)) host.ModeView { change(&v); return v }
	for name, c := range map[string]struct {
		view  host.ModeView
		after time.Duration
		want  host.Do
		until time.Duration
	}{
		"empty":                           {waiting, 0, host.DoSwitch, 0},
		"somebody runs there":             {with(waiting, func(v *host.ModeView) { v.Live = 1 }), 0, host.DoWait, 30 * time.Second},
		"somebody is leaving":             {with(waiting, func(v *host.ModeView) { v.Leaving = 1 }), 0, host.DoWait, 30 * time.Second},
		"before the drain":                {with(waiting, func(v *host.ModeView) { v.Live, v.DrainBy = 1, in(time.Hour) }), 0, host.DoWait, 30 * time.Second},
		"just before the drain":           {with(waiting, func(v *host.ModeView) { v.Live, v.DrainBy = 1, in(time.Second) }), 0, host.DoWait, time.Second},
		"the drain":                       {with(waiting, func(v *host.ModeView) { v.Live, v.DrainBy = 1, in(0) }), 0, host.DoDrain, 0},
		"after the drain, one is leaving": {with(waiting, func(v *host.ModeView) { v.Leaving, v.DrainBy = 1, in(0) }), time.Minute, host.DoWait, 90 * time.Second},
		"empty before the drain":          {with(waiting, func(v *host.ModeView) { v.DrainBy = in(time.Hour) }), 0, host.DoSwitch, 0},
		"not seen any more":               {with(waiting, func(v *host.ModeView) { v.Present = false }), 0, host.DoWait, 30 * time.Second},
		"ordered, not read yet":           {ordered, 0, host.DoWait, 30 * time.Second},
		"the mode, not tested":            {with(ordered, func(v *host.ModeView) { v.Observed, v.State = wanted, "verifying" }), 0, host.DoWait, 30 * time.Second},
		"the mode, tested":                {with(ordered, func(v *host.ModeView) { v.Observed = wanted }), 0, host.DoSucceed, 0},
		"an old failure":                  {with(ordered, func(v *host.ModeView) { v.State = "failed" }), 0, host.DoWait, 10 * time.Second},
		"a failure":                       {with(ordered, func(v *host.ModeView) { v.State = "failed" }), 10 * time.Second, host.DoFail, 0},
		"no answer":                       {ordered, host.ModeWithin, host.DoFail, 0},
		"over":                            {with(ordered, func(v *host.ModeView) { v.Status = host.ModeCancelled }), 0, host.DoNothing, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := host.NextMode(c.view, noon.Add(c.after))
			require.Equal(t, c.want, step.Do)
			if c.until > 0 {
				require.Equal(t, noon.Add(c.until), step.Until)
			}
			require.Equal(t, c.want == host.DoFail, step.Code != "" && step.Detail != "")
		})
	}
}

// Whatever a view says, there is a step; nothing is switched under a tenant, and
// nobody is driven out before the time.
func TestNextModeIsTotalAndHarmsNobody(t *testing.T) {
	t.Parallel()
	statuses := []host.ModeStatus{host.ModeDraining, host.ModeSwitching, host.ModeSucceeded, host.ModeFailed, host.ModeCancelled}
	rapid.Check(t, func(t *rapid.T) {
		v := host.ModeView{
			Status: rapid.SampledFrom(statuses).Draw(t, "status"),
			Wanted: gpu.MIGMode(), Observed: rapid.SampledFrom([]gpu.Mode{{}, gpu.WholeMode(), gpu.MIGMode()}).Draw(t, "observed"),
			State: rapid.SampledFrom([]string{"settled", "draining", "switching", "verifying", "failed", ""}).Draw(t, "state"),
			Live:  rapid.IntRange(0, 2).Draw(t, "live"), Leaving: rapid.IntRange(0, 2).Draw(t, "leaving"),
			Present: rapid.Bool().Draw(t, "present"), SwitchedAt: noon,
		}
		if rapid.Bool().Draw(t, "has a drain") {
			v.DrainBy = in(time.Duration(rapid.IntRange(-60, 60).Draw(t, "drain")) * time.Second)
		}
		at := noon.Add(time.Duration(rapid.IntRange(0, 7200).Draw(t, "at")) * time.Second)
		step := host.NextMode(v, at)
		switch step.Do {
		case host.DoSwitch:
			require.Zero(t, v.Live+v.Leaving)
			require.True(t, v.Present)
		case host.DoDrain:
			require.NotNil(t, v.DrainBy)
			require.False(t, at.Before(*v.DrainBy))
			require.Positive(t, v.Live)
		case host.DoSucceed:
			require.Equal(t, v.Wanted, v.Observed)
		case host.DoWait:
			require.True(t, step.Until.After(at))
		default:
		}
		require.Equal(t, !v.Status.IsOpen(), step.Do == host.DoNothing)
	})
}
