package logfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/runtime/logfile"
)

func TestAFullFileMakesWay(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "log")
	f, err := logfile.Open(name, 10)
	require.NoError(t, err)
	for _, text := range []string{"123456\n", "abcdef\n", strings.Repeat("x", 25)} {
		n, err := f.Write([]byte(text))
		require.NoError(t, err)
		require.Equal(t, len(text), n, "everything is taken")
	}
	require.NoError(t, f.Close())
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, "abcdef\n", read(name+".1"))
	require.Equal(t, strings.Repeat("x", 10), read(name), "of one long piece, the end")
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.EqualValues(t, 0o640, info.Mode().Perm())
}

func TestAnEarlierFileGoesOn(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "log")
	for range 2 {
		f, err := logfile.Open(name, 100)
		require.NoError(t, err)
		_, err = f.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		_, err = f.Write([]byte("lost"))
		require.NoError(t, err, "after the end, everything is dropped")
	}
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "xx", string(text))
}
