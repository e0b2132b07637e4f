// Package replay_test holds recorded histories of every workflow against the code
// of today.
package replay_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/workflows"
)

// recorded lists what must be there, by the first word of the file's name.
var recorded = []string{"instance-create", "instance-delete", "instance-stop", "instance-no-capacity", "host-join",
	"gpu-set-mode", "gpu-drain", "gpu-cancel"}

func TestRecordedHistoriesReplay(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	require.NoError(t, err)
	missing := strings.Join(recorded, " ")
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.NoError(t, workflows.Replay(bytes.NewReader(text)), f)
		missing = strings.Replace(missing, strings.TrimSuffix(filepath.Base(f), ".json"), "", 1)
	}
	require.Empty(t, strings.TrimSpace(missing), "no history was recorded of these")
}

func TestAChangedDecisionIsFound(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "instance-create.json"))
	require.NoError(t, err)
	changed := bytes.Replace(text, []byte(`"EVENT_TYPE_TIMER_STARTED"`), []byte(`"EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED"`), 1)
	require.NotEqual(t, text, changed, "the recorded create waits for its host")
	require.Error(t, workflows.Replay(bytes.NewReader(changed)))
}

func TestHistoriesHoldIdsAndNumbersOnly(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.Less(t, bytes.Count(text, []byte("eventId")), 500, f)
		for _, word := range []string{"trn_", "password", "ghcr.io"} {
			require.NotContains(t, string(text), word, f)
		}
	}
}
