// Package golden compares output with files that a person can read: invoices,
// command output, problems. `go test ./that/package -update` rewrites them.
//
// It does not decide what is worth a golden file, and it never writes outside
// the testdata folder of the package under test.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files with what the code makes now")

// Assert fails the test when got differs from testdata/name. With -update it
// writes the file instead.
func Assert(t testing.TB, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read golden file (run the test with -update to make it): %v", err)
	}
	require.Equal(t, string(want), string(got), "%s differs from what the code makes now", path)
}
