package bench_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/devstack/internal/bench"
)

func TestResultsAreATableAndAFile(t *testing.T) {
	records := []bench.Record{
		{ID: "B4", Case: "accept/ours", Metric: "rate", Unit: "1/s", Value: 300, N: 700, Peer: "pgbench -N", PeerValue: 1200, Goal: ">= 15 % of the peer"},
		{ID: "M1", Case: "tranched all", Metric: "resident", Unit: "MiB", Value: 68, N: 1},
	}
	var table bytes.Buffer
	require.NoError(t, bench.Table(&table, records))
	require.Contains(t, table.String(), "pgbench -N 1200.0  0.25", "the ratio to the peer is worked out")
	path := filepath.Join(t.TempDir(), "out.json")
	require.NoError(t, bench.Write(path, records))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.JSONEq(t, `[
		{"id":"B4","case":"accept/ours","metric":"rate","unit":"1/s","value":300,"sd":0,"n":700,"peer":"pgbench -N","peer_value":1200},
		{"id":"M1","case":"tranched all","metric":"resident","unit":"MiB","value":68,"sd":0,"n":1}]`, string(text))
}
