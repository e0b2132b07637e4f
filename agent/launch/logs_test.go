package launch_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// What a tenant's program wrote goes with its container: at its stop, and at the start
// of an agent whose predecessor died in between.
func TestLogsGoWithTheirContainer(t *testing.T) {
	dir := t.TempDir()
	l := newLauncher(t, dir, &found{c: runtime.Container{Name: "asg_1", State: runtime.Exited}})
	for _, name := range []string{"asg_1.log", "asg_1.log.1", "asg_2.log", "asg_2.log.1", "asg_3.log.1", "other"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "logs", name), []byte("secret\n"), 0o600))
	}
	left := func() (out []string) {
		entries, err := os.ReadDir(filepath.Join(dir, "logs"))
		require.NoError(t, err)
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	require.NoError(t, l.Stop(t.Context(), "asg_2"))
	require.Equal(t, []string{"asg_1.log", "asg_1.log.1", "asg_3.log.1", "other"}, left())
	require.NoError(t, l.Sweep(t.Context()))
	require.Equal(t, []string{"asg_1.log", "asg_1.log.1", "other"}, left())
	require.NoError(t, l.Stop(t.Context(), "asg_1"))
	require.NoError(t, l.Stop(t.Context(), "asg_1"))
	require.Equal(t, []string{"other"}, left())
}
