package host_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/host"
)

var states = []host.State{
	host.Pending, host.Approved, host.Validating, host.Ready, host.Cordoned,
	host.Draining, host.Maintenance, host.Lost, host.Retired,
}

// carryOut does what internal/app does for a step and reports false at rest.
func carryOut(v *host.View) bool {
	switch host.Next(*v).Do {
	case host.DoValidate:
		v.State = host.Validating
	case host.DoAdmit:
		v.State = host.Ready
	case host.DoFinish:
		v.Converged = v.Generation
	default:
		return false
	}
	return true
}

func TestEveryViewComesToRest(t *testing.T) {
	t.Parallel()
	for _, s := range states {
		for flags := range 8 {
			v := host.View{
				State: s, Connected: flags&1 != 0, InventoryComplete: flags&2 != 0, Generation: 2, Converged: 1 + int64(flags>>2),
			}
			n := 0
			for before := v.State; carryOut(&v); n++ {
				require.Less(t, n, 5, "%+v", v)
				require.True(t, before == v.State || host.CanMove(before, v.State), "%s → %s is not in the table", before, v.State)
				before = v.State
			}
			if host.Next(v).Do == host.DoNothing {
				require.Equal(t, v.Generation, v.Converged)
			}
		}
	}
}

func TestAHostIsSoldFromOnlyAfterItsInventory(t *testing.T) {
	t.Parallel()
	v := host.View{State: host.Pending, Connected: true, InventoryComplete: true}
	require.False(t, carryOut(&v), "an operator approves first")
	v.State = host.Approved
	v.Connected = false
	require.False(t, carryOut(&v))
	v.Connected, v.InventoryComplete = true, false
	require.True(t, carryOut(&v))
	require.Equal(t, host.Validating, v.State)
	require.False(t, carryOut(&v))
	v.InventoryComplete = true
	require.True(t, carryOut(&v))
	require.Equal(t, host.Ready, v.State)
}

func TestRetiredIsTheEndAndReachable(t *testing.T) {
	t.Parallel()
	for _, s := range states {
		require.False(t, host.CanMove(host.Retired, s), s)
		require.False(t, host.CanMove(s, s), s)
	}
	reach := map[host.State]bool{host.Retired: true}
	for range states {
		for _, from := range states {
			for _, to := range states {
				reach[from] = reach[from] || host.CanMove(from, to) && reach[to]
			}
		}
	}
	for _, s := range states {
		require.True(t, reach[s], "%s leads nowhere", s)
	}
}

func TestLivenessWorsensWithSilence(t *testing.T) {
	t.Parallel()
	require.Equal(t, host.Live, host.LivenessAfter(host.SuspectAfter))
	require.Equal(t, host.Suspect, host.LivenessAfter(host.SuspectAfter+1))
	require.Equal(t, host.Suspect, host.LivenessAfter(host.UnknownAfter))
	require.Equal(t, host.Unknown, host.LivenessAfter(host.UnknownAfter+1))
	rank := map[host.Liveness]int{host.Live: 0, host.Suspect: 1, host.Unknown: 2}
	rapid.Check(t, func(r *rapid.T) {
		a := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(r, "a"))
		b := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(r, "b"))
		if a <= b {
			require.LessOrEqual(r, rank[host.LivenessAfter(a)], rank[host.LivenessAfter(b)])
		}
	})
}
