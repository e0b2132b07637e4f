package golden_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/testkit/golden"
)

// recorder notes failures instead of failing.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

func (r *recorder) FailNow() { panic(r) }

func TestAGoldenFileIsComparedLineByLine(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("testdata/sub", 0o755))
	require.NoError(t, os.WriteFile("testdata/sub/a.txt", []byte("one\ntwo\n"), 0o600))
	r := &recorder{TB: t}
	golden.Assert(r, "sub/a.txt", []byte("one\ntwo\n"))
	require.Empty(t, r.failures)
	require.Panics(t, func() { golden.Assert(r, "sub/a.txt", []byte("one\nthree\n")) })
	require.Len(t, r.failures, 1)
	for _, line := range []string{"-two", "+three", "a.txt differs"} {
		require.Contains(t, r.failures[0], line)
	}
}

func TestAMissingGoldenFileSaysHowToMakeIt(t *testing.T) {
	t.Chdir(t.TempDir())
	r := &recorder{TB: t}
	require.Panics(t, func() { golden.Assert(r, "none.txt", nil) })
	require.Contains(t, r.failures[0], "-update")
}
