package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/health"
)

var day = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// badness orders the public states of a GPU that is not being reset.
var badness = map[nodeagent.HealthState]int{
	nodeagent.Healthy: 0, nodeagent.Degraded: 1, nodeagent.Failing: 2, nodeagent.Quarantined: 3,
}

func ailments() *rapid.Generator[health.Ailment] {
	return rapid.Custom(func(t *rapid.T) health.Ailment {
		return health.Ailment{
			Cause:    rapid.SampledFrom([]string{"XID_13", "XID_48", "XID_79", "XID_95", "GPU_LOST", "GPU_HUNG", "GPU_FABRIC"}).Draw(t, "cause"),
			Level:    rapid.SampledFrom([]health.Level{health.Suspect, health.Failed, health.Shut}).Draw(t, "level"),
			Cure:     rapid.SampledFrom([]health.Cure{health.ByItself, health.ByReset, health.ByReboot, health.ByHands}).Draw(t, "cure"),
			Credited: rapid.Bool().Draw(t, "credited"),
			Since:    time.Duration(rapid.IntRange(0, 1000).Draw(t, "since")),
		}
	})
}

// Whatever comes later, a GPU never looks better than it did, is never cured by less
// than it needed, and its runs, once ended for a cause, stay ended.
func TestALaterErrorNeverHeals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p health.Patient
		worst, need, ends := 0, health.ByItself, false
		for _, a := range rapid.SliceOfN(ailments(), 1, 12).Draw(t, "ailments") {
			p.Take(a, day)
			now := badness[p.Health().State]
			require.GreaterOrEqual(t, now, worst)
			require.GreaterOrEqual(t, p.Need(), max(need, a.Cure))
			_, e := p.Ends()
			require.True(t, e || !ends)
			require.NotEmpty(t, p.Health().Cause)
			worst, need, ends = now, p.Need(), e
		}
	})
}

// A cure takes away exactly what it cures, and a good reading only what goes by
// itself.
func TestACureCuresNoMoreThanItCan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p health.Patient
		for _, a := range rapid.SliceOfN(ailments(), 0, 8).Draw(t, "ailments") {
			p.Take(a, day)
		}
		by := rapid.SampledFrom([]health.Cure{health.ByReset, health.ByReboot}).Draw(t, "by")
		var left []string
		for _, a := range p.Ailments {
			if a.Cure > by {
				left = append(left, a.Cause)
			}
		}
		eased := p
		eased.Ailments = append([]health.Ailment(nil), p.Ailments...)
		eased.Eased(nil)
		for _, a := range eased.Ailments {
			require.NotEqual(t, health.ByItself, a.Cure)
		}
		require.Equal(t, p.Need(), max(eased.Need(), health.ByItself))
		p.Cured(by, day)
		var got []string
		for _, a := range p.Ailments {
			got = append(got, a.Cause)
		}
		require.Equal(t, left, got)
		require.Equal(t, len(left) == 0, p.Health().State == nodeagent.Healthy)
	})
}

func TestAGPUThatKeepsFallingIllIsForHands(t *testing.T) {
	var p health.Patient
	ill := health.Ailment{Cause: "XID_95", Level: health.Failed, Cure: health.ByReset, Credited: true}
	for range 2 {
		p.Take(ill, day)
		require.Equal(t, nodeagent.Failing, p.Health().State)
		p.Cured(health.ByReset, day)
		require.Equal(t, nodeagent.Healthy, p.Health().State)
	}
	once := p
	once.Take(ill, day.Add(24*time.Hour))
	require.Equal(t, nodeagent.Failing, once.Health().State, "well for a day counts anew")
	p.Take(ill, day.Add(time.Hour))
	h := p.Health()
	require.Equal(t, nodeagent.Quarantined, h.State)
	require.Equal(t, "XID_95", h.Cause, "the first cause is told")
	require.Contains(t, h.Detail, "GPU_INCURABLE")
	p.Cured(health.ByReboot, day.Add(2*time.Hour))
	require.Equal(t, nodeagent.Quarantined, p.Health().State)
	p.Cleared()
	require.Equal(t, nodeagent.Healthy, p.Health().State)
}

func TestTheFirstOfTheWorstCausesIsTold(t *testing.T) {
	var p health.Patient
	p.Take(health.Ailment{Cause: "GPU_FABRIC", Level: health.Suspect, Since: 1}, day)
	p.Take(health.Ailment{Cause: "GPU_LOST", Level: health.Failed, Cure: health.ByReboot, Since: 3}, day)
	p.Take(health.Ailment{Cause: "XID_79", Level: health.Failed, Cure: health.ByReboot, Since: 2, Credited: true}, day)
	p.Take(health.Ailment{Cause: "XID_13", Level: health.Suspect, Since: 4}, day)
	require.Equal(t, "XID_79", p.Health().Cause)
	a, ends := p.Ends()
	require.True(t, ends)
	require.Equal(t, time.Duration(2), a.Since)
	p.Recovering = true
	require.Equal(t, nodeagent.Resetting, p.Health().State)
}

// What each code asks for, by what the policy says of it.
func TestVerdicts(t *testing.T) {
	p := health.DefaultPolicy()
	for code := 1; code <= lastCode+5; code++ {
		v := p.Judge(code, 7)
		rule, known := p.Rule(code)
		require.Equal(t, rule, v.Rule)
		require.Equal(t, known, v.Known)
		a := v.Ailment
		if a.Cause != "" {
			require.Equal(t, time.Duration(7), a.Since)
			require.Equal(t, rule.Credited, a.Credited)
		}
		type short struct {
			level health.Level
			cure  health.Cure
		}
		want := map[health.Bucket]short{
			health.ResetGPU: {health.Failed, health.ByReset}, health.NVLinkGroup: {health.Failed, health.ByReset},
			health.RestartHost: {health.Failed, health.ByReboot}, health.Inspect: {health.Failed, health.ByHands},
			health.Update: {health.Suspect, health.ByReboot}, health.DoubleBit: {health.Suspect, health.ByReset},
			health.Alarm: {health.Suspect, health.ByReset},
		}
		require.Equal(t, want[rule.Do], short{a.Level, a.Cure}, code)
		require.Equal(t, rule.Do == health.RestartHost, a.Cordon)
		require.Equal(t, rule.Do == health.RestartApp, v.Tell)
		require.Equal(t, rule.Do == health.Contained || rule.Do == health.RestartVM, v.EndInstance)
		require.Equal(t, rule.Do == health.NVLinkGroup, v.Group)
	}
}
