package quota_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/quota"
)

func TestCheckRefusesExactlyWhatWouldExceed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 50)
		l := quota.Limits{Instances: n.Draw(t, "limit instances"), GPUs: n.Draw(t, "limit gpus")}
		held := quota.Usage{Instances: n.Draw(t, "held instances"), GPUs: n.Draw(t, "held gpus")}
		ask := quota.Usage{Instances: n.Draw(t, "ask instances"), GPUs: n.Draw(t, "ask gpus")}
		over := ask.Instances > 0 && held.Instances+ask.Instances > l.Instances ||
			ask.GPUs > 0 && held.GPUs+ask.GPUs > l.GPUs
		err := quota.Check(l, held, ask)
		if over != (err != nil) {
			t.Fatalf("over=%v err=%v", over, err)
		}
		if err != nil && (fault.KindOf(err) != fault.OverQuota || fault.CodeOf(err) != "quota.exceeded") {
			t.Fatalf("refused with %v", err)
		}
	})
}

func TestCheckWithoutQuotaRefusesEverything(t *testing.T) {
	require.Error(t, quota.Check(quota.Limits{}, quota.Usage{}, quota.Usage{Instances: 1, GPUs: 1}))
	require.NoError(t, quota.Check(quota.Limits{}, quota.Usage{Instances: 3}, quota.Usage{}), "asking for nothing is fine")
}

func TestCheckDoesNotOverflow(t *testing.T) {
	l := quota.Limits{Instances: 10, GPUs: 10}
	require.Error(t, quota.Check(l, quota.Usage{Instances: 5}, quota.Usage{Instances: math.MaxInt}))
}
