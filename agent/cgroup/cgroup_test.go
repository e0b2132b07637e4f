package cgroup_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

func tree(t *testing.T, files map[string]string) *cgroup.Tree {
	t.Helper()
	return treeAt(t, t.TempDir(), files)
}

func treeAt(t *testing.T, root string, files map[string]string) *cgroup.Tree {
	t.Helper()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	tr, err := cgroup.Open(root)
	require.NoError(t, err)
	return tr
}

func TestCountersOfBothHierarchies(t *testing.T) {
	want := runtime.Stats{
		CPU: 5 * time.Second, Throttled: 20 * time.Millisecond, MemoryBytes: 900, MemoryLimit: 4096, PIDs: 3, OOMKills: 2,
		ReadBytes: 30, WrittenBytes: 7,
	}
	v2 := tree(t, map[string]string{
		"cgroup.controllers":           "cpu memory",
		"tranche/a/cpu.stat":           "usage_usec 5000000\nuser_usec 1\nthrottled_usec 20000\n",
		"tranche/a/memory.current":     "1000\n",
		"tranche/a/memory.stat":        "anon 1\ninactive_file 100\n",
		"tranche/a/memory.max":         "4096\n",
		"tranche/a/memory.events":      "oom 1\noom_kill 2\n",
		"tranche/a/pids.current":       "3\n",
		"tranche/a/io.stat":            "8:0 rbytes=10 wbytes=3 rios=1\n8:16 rbytes=20 wbytes=4\n",
		"tranche/bare/cgroup.procs":    "",
		"tranche/unlimited/memory.max": "max\n",
	})
	got, err := v2.Stats("/tranche/a")
	require.NoError(t, err)
	require.Equal(t, want, got)
	bare, err := v2.Stats("/tranche/bare")
	require.NoError(t, err)
	require.Equal(t, runtime.Stats{
		CPU: -1, Throttled: -1, MemoryBytes: -1, MemoryLimit: -1, PIDs: -1, OOMKills: -1, ReadBytes: -1, WrittenBytes: -1,
	}, bare, "what is not reported is not zero")
	got, err = v2.Stats("/tranche/unlimited")
	require.NoError(t, err)
	require.EqualValues(t, -1, got.MemoryLimit)

	v1 := tree(t, map[string]string{
		"cpuacct/tranche/a/cpuacct.usage":                           "5000000000\n",
		"cpu/tranche/a/cpu.stat":                                    "nr_periods 1\nthrottled_time 20000000\n",
		"memory/tranche/a/memory.usage_in_bytes":                    "1000\n",
		"memory/tranche/a/memory.stat":                              "total_inactive_file 100\n",
		"memory/tranche/a/memory.limit_in_bytes":                    "4096\n",
		"memory/tranche/a/memory.oom_control":                       "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
		"memory/tranche/free/memory.limit_in_bytes":                 "9223372036854771712\n",
		"pids/tranche/a/pids.current":                               "3\n",
		"blkio/tranche/a/blkio.throttle.io_service_bytes_recursive": "8:0 Read 10\n8:0 Write 3\n8:16 Read 20\n8:16 Write 4\nTotal 37\n",
	})
	got, err = v1.Stats("/tranche/a")
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = v1.Stats("/tranche/free")
	require.NoError(t, err)
	require.EqualValues(t, -1, got.MemoryLimit)
	_, err = v1.Stats("/tranche/none")
	require.True(t, cgroup.Gone(err))
}

func TestControllersAreHandedDown(t *testing.T) {
	root := t.TempDir()
	tr := treeAt(t, root, map[string]string{"cgroup.controllers": "pids\n", "cgroup.subtree_control": "", "tranche/cgroup.subtree_control": ""})
	require.NoError(t, tr.Create("/tranche/a"))
	for _, dir := range []string{"", "tranche"} {
		text, err := os.ReadFile(filepath.Join(root, dir, "cgroup.subtree_control"))
		require.NoError(t, err)
		require.Equal(t, "+pids", string(text))
	}
	require.NoFileExists(t, filepath.Join(root, "tranche", "a", "cgroup.subtree_control"), "not to its own children")
}

// Groups of others are never touched, whatever is asked.
func TestForeignGroupsAreRefused(t *testing.T) {
	tr := tree(t, map[string]string{"memory/system/x": ""})
	for _, group := range []string{"/", "", "/system", "/tranche/../system", "tranche/a", "/tranche2", "/tranche/"} {
		require.ErrorIs(t, tr.Remove(group), cgroup.ErrForeign, group)
		require.ErrorIs(t, tr.Create(group), cgroup.ErrForeign, group)
		_, err := tr.PIDs(group)
		require.ErrorIs(t, err, cgroup.ErrForeign, group)
	}
}

// On this machine's own hierarchy.
func TestLifeOfAGroup(t *testing.T) {
	tr, err := cgroup.Open("")
	require.NoError(t, err)
	group := cgroup.Path("test-" + strconv.Itoa(os.Getpid()))
	require.NoError(t, tr.Create(group))
	t.Cleanup(func() { require.NoError(t, tr.Remove(group)) })
	require.NoError(t, tr.Create(group), "it may be there")

	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	kill := func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	defer kill()
	pid := strconv.Itoa(cmd.Process.Pid)
	for _, root := range []string{"/sys/fs/cgroup/devices", "/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		if procs := filepath.Join(root, group, "cgroup.procs"); exists(procs) {
			require.NoError(t, os.WriteFile(procs, []byte(pid), 0o600))
		}
	}
	pids, err := tr.PIDs(group)
	require.NoError(t, err)
	require.Equal(t, []int{cmd.Process.Pid}, pids)
	of, err := cgroup.OfPID(cmd.Process.Pid)
	require.NoError(t, err)
	require.Equal(t, group, of)
	stats, err := tr.Stats(group)
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.PIDs)
	require.Error(t, tr.Remove(group), "a process lives in it")

	kill()
	require.NoError(t, tr.Remove(group))
	require.NoError(t, tr.Remove(group), "again")
	pids, err = tr.PIDs(group)
	require.NoError(t, err)
	require.Empty(t, pids)
	_, err = cgroup.OfPID(cmd.Process.Pid)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func TestContainerOfAGroup(t *testing.T) {
	for group, want := range map[string]string{"/tranche/asg_1": "asg_1", "/tranche/asg_1/inner": "asg_1", "/tranche": "", "/other/asg_1": "", "/": ""} {
		name, ok := cgroup.Container(group)
		require.Equal(t, want != "", ok, group)
		require.Equal(t, want, name)
	}
}
