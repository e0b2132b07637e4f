package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func feed(t *testing.T, lines ...string) (summary, string) {
	t.Helper()
	var out strings.Builder
	sum, err := report(strings.NewReader(strings.Join(lines, "\n")), &out)
	require.NoError(t, err)
	return sum, out.String()
}

func TestPassedTestsAreCountedAndKeptQuiet(t *testing.T) {
	t.Parallel()
	sum, out := feed(t,
		`{"Action":"output","Package":"a","Test":"TestX","Output":"chatter\n"}`,
		`{"Action":"pass","Package":"a","Test":"TestX/sub","Elapsed":0.1}`,
		`{"Action":"pass","Package":"a","Test":"TestX","Elapsed":0.1}`,
		`{"Action":"pass","Package":"a","Elapsed":0.2}`,
	)
	require.Equal(t, summary{passed: 2}, sum)
	require.NotContains(t, out, "chatter")
	require.Contains(t, out, "ok    a")
}

func TestAFailedTestShowsItsOutput(t *testing.T) {
	t.Parallel()
	sum, out := feed(t,
		`{"Action":"output","Package":"a","Test":"TestX","Output":"want 1, got 2\n"}`,
		`{"Action":"fail","Package":"a","Test":"TestX"}`,
		`{"Action":"fail","Package":"a"}`,
	)
	require.Equal(t, summary{failed: 1}, sum)
	require.Contains(t, out, "want 1, got 2")
	require.Contains(t, out, "FAIL  a")
}

func TestASkippedTestCountsAsFailed(t *testing.T) {
	t.Parallel()
	sum, out := feed(t,
		`{"Action":"output","Package":"a","Test":"TestX","Output":"no database\n"}`,
		`{"Action":"skip","Package":"a","Test":"TestX"}`,
		`{"Action":"pass","Package":"a"}`,
	)
	require.Equal(t, summary{failed: 1}, sum)
	require.Contains(t, out, "no database")
}

func TestAPackageWithoutTestsIsNeither(t *testing.T) {
	t.Parallel()
	sum, out := feed(t, `{"Action":"skip","Package":"a","Elapsed":0}`)
	require.Equal(t, summary{}, sum)
	require.Empty(t, out)
}

func TestAPackageThatDoesNotBuildOrPanicsFails(t *testing.T) {
	t.Parallel()
	sum, out := feed(t,
		`{"ImportPath":"a [a.test]","Action":"build-output","Output":"a.go:1: syntax error\n"}`,
		`{"ImportPath":"a [a.test]","Action":"build-fail"}`,
		`{"Action":"fail","Package":"a","FailedBuild":"a [a.test]"}`,
		`{"Action":"output","Package":"b","Output":"panic: boom\n"}`,
		`{"Action":"fail","Package":"b"}`,
		`go: a complaint of the tool`,
	)
	require.Equal(t, summary{failed: 2}, sum)
	require.Contains(t, out, "syntax error")
	require.Contains(t, out, "panic: boom")
	require.Contains(t, out, "a complaint of the tool")
}

func TestATestCutOffByAPanicShowsWhereItWas(t *testing.T) {
	t.Parallel()
	_, out := feed(t,
		`{"Action":"run","Package":"a","Test":"TestX"}`,
		`{"Action":"output","Package":"a","Test":"TestX","Output":"panic: test timed out\n"}`,
		`{"Action":"output","Package":"ab","Test":"TestY","Output":"not yours\n"}`,
		`{"Action":"fail","Package":"a"}`,
	)
	require.Contains(t, out, "panic: test timed out")
	require.NotContains(t, out, "not yours")
}
