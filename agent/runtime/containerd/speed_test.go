package containerd_test

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runsVariable says how often TestCreateToRunning starts a container. The goal of
// 400 ms at the median is judged over 20 on a quiet machine of two cores.
const runsVariable = "TRANCHE_TEST_STARTS"

func TestCreateToRunning(t *testing.T) {
	runs := 3
	if text := os.Getenv(runsVariable); text != "" {
		var err error
		runs, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	l := newLab(t)
	d := l.open(t, t.TempDir())
	image := l.shell(t)
	var took []time.Duration
	for n := range runs + 1 {
		s := spec(t, image, "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.01; done")
		at := time.Now()
		_, err := d.Start(t.Context(), s)
		require.NoError(t, err)
		if n > 0 { // the first one pulls
			took = append(took, time.Since(at))
		}
		require.NoError(t, d.Stop(t.Context(), s.Name))
	}
	slices.Sort(took)
	t.Logf("create to running, image warm, %d runs: p50 %s, least %s, most %s", runs, took[len(took)/2], took[0], took[len(took)-1])
}
