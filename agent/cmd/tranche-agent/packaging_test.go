package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const packaging = "../../../packaging"

// unitsOf reads the service files: each section's directives, in order.
func unitsOf(t *testing.T) map[string]map[string][]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(packaging, "systemd", "*.service"))
	require.NoError(t, err)
	require.Len(t, paths, 3)
	out := map[string]map[string][]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		section, unit := "", map[string][]string{}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if strings.HasPrefix(line, "[") {
				section = line
				continue
			}
			key, value, ok := strings.Cut(line, "=")
			require.True(t, ok, "%s: %s", path, line)
			unit[section+key] = append(unit[section+key], value)
		}
		out[strings.TrimSuffix(filepath.Base(path), ".service")] = unit
	}
	return out
}

func TestUnitsStartWhatExists(t *testing.T) {
	for name, u := range unitsOf(t) {
		require.Len(t, u["[Service]ExecStart"], 1, name)
		args := strings.Fields(u["[Service]ExecStart"][0])
		require.Equal(t, "/usr/lib/tranche/tranche-agent", args[0], name)
		cmd, rest, err := root().Find(args[1:])
		require.NoError(t, err, name)
		require.NotEqual(t, "tranche-agent", cmd.Name(), name)
		require.NoError(t, cmd.ParseFlags(rest), name)
		require.Empty(t, cmd.Flags().Args(), name)
	}
}

func TestUnitsAreHardened(t *testing.T) {
	units := unitsOf(t)
	for name, u := range units {
		for _, key := range []string{"NoNewPrivileges", "CapabilityBoundingSet", "RestrictAddressFamilies", "SystemCallFilter", "MemoryMax"} {
			require.NotEmpty(t, u["[Service]"+key], "%s: %s", name, key)
		}
		require.Equal(t, []string{"always"}, u["[Service]Restart"], name)
		require.Equal(t, []string{"0"}, u["[Unit]StartLimitIntervalSec"], "%s: it is started again for ever", name)
		require.Empty(t, u["[Service]WatchdogSec"], "%s: nothing answers a watchdog", name)
	}
	for _, name := range []string{"tranche-agent-link", "tranche-sshgw"} {
		u := units[name]
		require.NotEmpty(t, u["[Service]User"], name)
		require.Equal(t, []string{""}, u["[Service]CapabilityBoundingSet"], "%s: no rights", name)
		require.Equal(t, []string{"strict"}, u["[Service]ProtectSystem"], name)
		require.Equal(t, []string{"closed"}, u["[Service]DevicePolicy"], name)
		require.NotEmpty(t, u["[Service]ReadWritePaths"], name)
	}
	h := units["tranche-agent-helper"]
	require.Equal(t, []string{"process"}, h["[Service]KillMode"], "containers and shims outlive it")
	for _, key := range []string{"ProtectSystem", "PrivateTmp", "PrivateMounts", "ProtectClock", "PrivateDevices", "DeviceAllow"} {
		require.Empty(t, h["[Service]"+key], "%s would hide mounts or GPUs", key)
	}
}

// Where systemd is, it reads the units without a complaint.
func TestSystemdReadsTheUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return // the two tests above read them
	}
	dir := t.TempDir()
	for name := range unitsOf(t) {
		text, err := os.ReadFile(filepath.Join(packaging, "systemd", name+".service"))
		require.NoError(t, err)
		// The program is not installed on the machine that tests.
		there := strings.ReplaceAll(string(text), "/usr/lib/tranche/tranche-agent", "/bin/true")
		path := filepath.Join(dir, name+".service")
		require.NoError(t, os.WriteFile(path, []byte(there), 0o600))
	}
	for name := range unitsOf(t) {
		out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "--recursive-errors=no", filepath.Join(dir, name+".service")).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Empty(t, string(out), name)
	}
}

// tree lists the files below a folder with mode, size and time.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		out[strings.TrimPrefix(path, dir)] = info.Mode().String() + info.ModTime().String()
		return err
	}))
	return out
}

func TestInstallingTwiceIsInstallingOnce(t *testing.T) {
	bin, host := t.TempDir(), t.TempDir()
	for _, program := range []string{"tranche-agent", "tranche-guest"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\n"), 0o755))
	}
	install := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(packaging, "install"), append([]string{"--root", host}, args...)...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := install("--from", t.TempDir())
	require.Error(t, err)
	require.Contains(t, out, "scripts/build")
	_, err = install("--odd")
	require.Error(t, err)

	out, err = install("--from", bin)
	require.NoError(t, err, out)
	settings := filepath.Join(host, "etc/tranche/link.env")
	require.NoError(t, os.WriteFile(settings, []byte("TRANCHE_NAME=mine\n"), 0o600))
	before := tree(t, host)
	require.Contains(t, before, "/usr/lib/tranche/tranche-guest")
	require.Contains(t, before, "/etc/systemd/system/tranche-agent-link.service")
	require.True(t, strings.HasPrefix(before["/etc/tranche/agent.env"], "-rw-------"))
	out, err = install("--from", bin)
	require.NoError(t, err, out)
	require.Equal(t, before, tree(t, host), "an upgrade to the same changes nothing, nor what an operator wrote")

	out, err = install("--uninstall")
	require.NoError(t, err, out)
	left := tree(t, host)
	require.Len(t, left, 3, "settings stay: %v", left)
}

// The environment files set flags that exist.
func TestSettingsAreFlags(t *testing.T) {
	for file, command := range map[string]string{"agent": "helper", "link": "link", "sshgw": "sshgw"} {
		text, err := os.ReadFile(filepath.Join(packaging, "env", file+".env"))
		require.NoError(t, err)
		cmd, _, err := root().Find([]string{command})
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			name, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "#"), "=")
			if !ok || !strings.HasPrefix(name, "TRANCHE_") {
				continue
			}
			flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "TRANCHE_"), "_", "-"))
			require.NotNil(t, cmd.Flags().Lookup(flag), "%s: %s", file, name)
		}
	}
}
