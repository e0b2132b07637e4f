package market_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

func TestFleetsAreWhatAgentsRead(t *testing.T) {
	for name, c := range map[string]struct {
		fleet       market.Fleet
		hosts, gpus int
	}{
		"small":  {market.Small(3), 4, 12},
		"replay": {market.Replay(), 40, 40},
		"wide":   {market.Wide(40), 40, 320},
	} {
		read, err := sim.ParseFleet(c.fleet.YAML())
		require.NoError(t, err, name)
		require.Len(t, read.Hosts, c.hosts, name)
		devices := 0
		for _, h := range read.Hosts {
			devices += len(h.Devices())
		}
		require.Equal(t, c.gpus, devices, name)
		require.Equal(t, c.gpus, c.fleet.Count(), name)
	}
}

func TestReplayFleetHasEveryMode(t *testing.T) {
	modes := map[string]int{}
	for _, h := range market.Replay() {
		for _, g := range h.GPUs {
			modes[g.Model+" "+g.Mode] += g.Count
		}
	}
	require.Equal(t, map[string]int{"H100-80 whole": 20, "H200-141 mig": 6, "A100-80 mps:4x25": 6, "A100-80 timeslice:2": 8}, modes)
}
