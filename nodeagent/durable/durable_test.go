package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/durable"
)

func TestAFileIsReplacedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	for _, text := range []string{"first, and longer than the next", "second", ""} {
		require.NoError(t, durable.Replace(path, []byte(text)))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left beside it")
}

// What cannot be written leaves the old content.
func TestAFailureLeavesTheOldContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	require.NoError(t, durable.Replace(path, []byte("old")))
	require.NoError(t, os.Mkdir(path+".new", 0o700)) // in the way
	require.Error(t, durable.Replace(path, []byte("new")))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(got))
	require.ErrorIs(t, durable.Replace(filepath.Join(t.TempDir(), "none", "x"), nil), os.ErrNotExist)
}
