package sim_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

// TestTheManualIsTrue reads the examples of the manual as the program does, and
// looks for every model, variant and action in it.
func TestTheManualIsTrue(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../../docs/operations/simulator.md")
	require.NoError(t, err)
	manual := string(raw)
	var fleet sim.Fleet
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(manual, -1) {
		if strings.HasPrefix(block[1], "hosts:") {
			fleet, err = sim.ParseFleet([]byte(block[1]))
			require.NoError(t, err)
			continue
		}
		s, err := sim.ParseScript([]byte(block[1]))
		require.NoError(t, err)
		require.NoError(t, s.Check(fleet))
	}
	for _, do := range sim.Actions() {
		require.Contains(t, manual, "`"+do+"`")
	}
	for _, m := range sim.Models() {
		require.Contains(t, manual, "| "+m+" |")
		for _, v := range sim.Variants(m) {
			require.Contains(t, manual, v)
		}
	}
	for _, op := range sim.Calls() {
		require.Contains(t, manual, "`"+op+"`")
	}
}
