package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const twoHosts = `hosts:
- {name: node-1, vcpu: 64, ram_mib: 524288, gpus: [{model: H100-80, mode: whole, count: 1}]}
- {name: node-2, vcpu: 64, ram_mib: 524288, gpus: [{model: H200-141, mode: mig, count: 1}]}
`

func runArgs(t *testing.T, more ...string) []string {
	t.Helper()
	dir := t.TempDir()
	fleet := filepath.Join(dir, "fleet.yaml")
	require.NoError(t, os.WriteFile(fleet, []byte(twoHosts), 0o600))
	return append([]string{
		"run", "--driver=sim", "--fleet=" + fleet, "--data-dir=" + filepath.Join(dir, "data"), "--gateway=https://127.0.0.1:1",
	}, more...)
}

func TestRunRefusesWhatItCannotDo(t *testing.T) {
	for name, args := range map[string][]string{
		"fake runtime for real GPUs": {"run", "--driver=nvml", "--data-dir=x", "--runtime=fake"},
		"real runtime, many hosts":   runArgs(t, "--hosts=all", "--runtime=containerd"),
		"unknown runtime":            runArgs(t, "--host=node-1", "--runtime=docker"),
		"no guest program":           runArgs(t, "--host=node-1", "--runtime=runc", "--guest=/nowhere"),
		"odd port range":             runArgs(t, "--host=node-1", "--runtime=fake", "--ports=9"),
		"odd deny":                   runArgs(t, "--host=node-1", "--runtime=fake", "--deny=here"),
		"no data folder":             {"run", "--driver=sim"},
		"which host":                 runArgs(t),
		"unknown host":               runArgs(t, "--host=node-9"),
		"not all":                    runArgs(t, "--hosts=some"),
	} {
		cmd := root()
		cmd.SetArgs(args)
		require.Error(t, cmd.ExecuteContext(t.Context()), name)
	}
}

// Without a gateway the agents of a whole fleet wait, each in its own folder, and
// end when they are told to.
func TestRunAllHosts(t *testing.T) {
	args := runArgs(t, "--hosts=all", "--runtime=fake")
	ctx, cancel := context.WithCancel(t.Context())
	cmd := root()
	cmd.SetArgs(args)
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	data := args[3][len("--data-dir="):]
	for _, host := range []string{"node-1", "node-2"} {
		require.Eventually(t, func() bool {
			_, err := os.Stat(filepath.Join(data, host, "identity", "key.pem"))
			return err == nil
		}, 10*time.Second, 5*time.Millisecond)
		require.FileExists(t, filepath.Join(data, host, "journal.log"))
	}
	cancel()
	require.NoError(t, <-done)
}
