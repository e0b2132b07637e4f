package sshgw_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/sshgw"
)

func collect(t *testing.T, s *sshgw.Spool) []string {
	t.Helper()
	all, err := s.Collect(100)
	require.NoError(t, err)
	var lines []string
	for _, c := range all {
		lines = append(lines, fmt.Sprintf("%s %s %s", c.Session, c.Event, c.Reason))
	}
	return lines
}

func TestRecordsAreCollectedOnceInOrder(t *testing.T) {
	t.Parallel()
	spool, err := sshgw.OpenSpool(t.TempDir())
	require.NoError(t, err)
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	require.NoError(t, spool.Add(sshgw.Record{Event: sshgw.Opened, Session: "a", At: at}))
	require.NoError(t, spool.Add(sshgw.Record{Event: sshgw.Opened, Session: "b", At: at.Add(1)}))
	require.NoError(t, spool.Add(sshgw.Record{Event: sshgw.Closed, Session: "a", At: at.Add(2), Reason: "done"}))
	require.Equal(t, []string{"a opened ", "b opened ", "a closed done"}, collect(t, spool))
	two, err := spool.Collect(2)
	require.NoError(t, err)
	for _, c := range two {
		require.NoError(t, spool.Forget(c))
		require.NoError(t, spool.Forget(c))
	}
	require.Equal(t, []string{"a closed done"}, collect(t, spool))
}

// TestAKillAtAnyStepLosesAndDoublesNothing replays every state of the folder that a
// kill can leave, and checks what the next gateway makes of it.
func TestAKillAtAnyStepLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	const opening = `{"event":"opened","session":"s","at":"2026-11-30T12:00:00Z"}`
	const closing = `{"event":"closed","session":"s","at":"2026-11-30T12:00:09Z","reason":"done"}`
	both, closed := []string{"s opened ", "s closed gateway restarted"}, []string{"s closed gateway restarted"}
	for name, tc := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"nothing":                        {nil, nil},
		"while the opening is drafted":   {map[string]string{"draft/.draft-1": opening[:9]}, nil},
		"before the session counts":      {map[string]string{"draft/s.opened": opening}, nil},
		"before the opening is ready":    {map[string]string{"draft/s.opened": opening, "open/s": opening}, both},
		"while open, opening collected":  {map[string]string{"open/s": opening}, closed},
		"while the closing is drafted":   {map[string]string{"open/s": opening, "open/.draft-1": closing[:9]}, closed},
		"before the closing is in place": {map[string]string{"open/s": opening, "open/.draft-1": closing}, closed},
		"before the closing is ready":    {map[string]string{"open/s": closing}, []string{"s closed done"}},
	} {
		dir := t.TempDir()
		spool, err := sshgw.OpenSpool(dir)
		require.NoError(t, err)
		for file, text := range tc.files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
		at := time.Date(2026, 11, 30, 12, 1, 0, 0, time.UTC)
		require.NoError(t, spool.Recover(at), name)
		require.Equal(t, tc.want, collect(t, spool), name)
		require.NoError(t, spool.Recover(at.Add(time.Hour)), name)
		require.Equal(t, tc.want, collect(t, spool), "%s, and once more", name)
		left, err := filepath.Glob(filepath.Join(dir, "[do]*", "*"))
		require.NoError(t, err)
		require.Empty(t, left, name)
	}
}
