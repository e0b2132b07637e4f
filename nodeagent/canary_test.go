package nodeagent_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireAbsent fails if a text is in any file below a folder.
func requireAbsent(t *testing.T, dir, text string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotContains(t, string(content), text, path)
		return nil
	}))
}
