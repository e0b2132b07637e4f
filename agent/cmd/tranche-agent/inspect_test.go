package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const fleet = `
hosts:
  - name: one
    vcpu: 8
    ram_mib: 65536
    gpus: [{model: H200-141, mode: mig, count: 1}, {model: A100-80, mode: "timeslice:2", count: 1}]
`

// agent runs the command as a shell would.
func agent(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func fleetFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	require.NoError(t, os.WriteFile(path, []byte(fleet), 0o600))
	return path
}

func TestInspectShowsWhatTheDriverReports(t *testing.T) {
	t.Parallel()
	out, err := agent(t, "inspect", "--driver=sim", "--fleet", fleetFile(t))
	require.NoError(t, err)
	require.Contains(t, out, "simulated: no real GPU answers")
	require.Regexp(t, `19 +1g\.18gb +1 +16384 +16 +7 .* 0,1,2,3,4,5,6:1`, out)
	require.Contains(t, out, "mode timeslice:2, 81920 MiB, 108 SMs")
}

func TestARecordingInspectsLikeItsSource(t *testing.T) {
	t.Parallel()
	fleet, file := fleetFile(t), filepath.Join(t.TempDir(), "rec.json")
	_, err := agent(t, "record", "--driver=sim", "--fleet", fleet, "--host", "one", "--out", file)
	require.NoError(t, err)
	read := func(args ...string) hostView {
		out, err := agent(t, append([]string{"inspect", "-o", "json"}, args...)...)
		require.NoError(t, err)
		var v hostView
		require.NoError(t, json.Unmarshal([]byte(out), &v))
		return v
	}
	want := read("--driver=sim", "--fleet", fleet)
	got := read("--driver=replay", "--recording", file)
	require.Equal(t, want.GPUs, got.GPUs)
	require.Equal(t, "replay", got.Host.Driver)
}

func TestASimulatedHostKeepsItsFolder(t *testing.T) {
	t.Parallel()
	fleet, dir := fleetFile(t), t.TempDir()
	for range 2 {
		_, err := agent(t, "inspect", "--driver=sim", "--fleet", fleet, "--data-dir", dir)
		require.NoError(t, err)
	}
	require.FileExists(t, filepath.Join(simDir(dir), "gpu-state.json"))
}

func TestWrongFlagsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"nvml, sim or replay":      {"inspect", "--driver=cuda"},
		"needs --fleet":            {"inspect", "--driver=sim"},
		"needs --recording":        {"inspect", "--driver=replay"},
		"table or json":            {"inspect", "--driver=sim", "-o", "xml"},
		"say --out":                {"record", "--driver=sim"},
		"absolute path":            {"inspect", "--driver=nvml", "--nvidia-smi", "nvidia-smi"},
		"none is \"two\"":          {"inspect", "--driver=sim", "--fleet", fleetFile(t), "--host", "two"},
		"unknown command \"sell\"": {"sell"},
	} {
		_, err := agent(t, args...)
		require.ErrorContains(t, err, want)
	}
}

func TestEveryFlagHasAnEnvironmentVariable(t *testing.T) {
	t.Parallel()
	env := map[string]string{"TRANCHE_DRIVER": "sim", "TRANCHE_DATA_DIR": "/x", "TRANCHE_OUTPUT": "json"}
	lookup := func(k string) (string, bool) { v, ok := env[k]; return v, ok }
	flags := inspectCommand().Flags()
	require.NoError(t, flags.Parse([]string{"--output", "table"}))
	require.NoError(t, bindEnv(flags, lookup))
	get := func(name string) string {
		v, err := flags.GetString(name)
		require.NoError(t, err)
		return v
	}
	require.Equal(t, "sim", get("driver"))
	require.Equal(t, "/x", get("data-dir"))
	require.Equal(t, "table", get("output"), "the command line wins")
}
