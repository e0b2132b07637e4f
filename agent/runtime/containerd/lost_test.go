package containerd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/agent/runtime/containerd"
)

// A daemon that dies between a shim and its task leaves both, and the next one knows
// neither. They go with the container, and its name can be used again.
func TestWhatADeadDaemonBeganIsEnded(t *testing.T) {
	l := newLab(t)
	d := l.open(t, t.TempDir())
	s := spec(t, l.shell(t), "sleep", "1000")
	start(t, d, s)
	// The next daemon knows a task by its container alone.
	client := l.daemon.Client(containerd.DefaultNamespace)
	ctx := namespaces.WithNamespace(t.Context(), containerd.DefaultNamespace)
	require.NoError(t, client.ContainerService().Delete(ctx, s.Name))
	l.daemon.Kill()
	l.daemon.Run()
	listed(t, d)
	require.NotEmpty(t, shims(t, l.daemon.Address, s.Name))

	require.NoError(t, d.Stop(t.Context(), s.Name))
	require.Empty(t, shims(t, l.daemon.Address, s.Name))
	tree, err := cgroup.Open("")
	require.NoError(t, err)
	pids, err := tree.PIDs(cgroup.Path(s.Name))
	require.NoError(t, err)
	require.Empty(t, pids)
	require.Empty(t, l.leftovers(t, s.Name))
	start(t, d, s)
}

// A process in the container's group goes too when no shim leads it.
func TestALostProcessOfAContainerIsEnded(t *testing.T) {
	l := newLab(t)
	d := l.open(t, t.TempDir())
	s := spec(t, l.shell(t))
	tree, err := cgroup.Open("")
	require.NoError(t, err)
	require.NoError(t, tree.Create(cgroup.Path(s.Name)))
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	groups, err := filepath.Glob("/sys/fs/cgroup" + cgroup.Path(s.Name) + "/cgroup.procs")
	require.NoError(t, err)
	old, err := filepath.Glob("/sys/fs/cgroup/pids" + cgroup.Path(s.Name) + "/cgroup.procs")
	require.NoError(t, err)
	for _, file := range append(groups, old...) {
		require.NoError(t, os.WriteFile(file, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	require.NoError(t, d.Stop(t.Context(), s.Name))
	require.ErrorContains(t, <-ended, "killed")
}

func shims(t *testing.T, address, name string) (found []string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range lines {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), "\x00"+address+"\x00") && strings.Contains(string(text), "\x00"+name+"\x00") {
			found = append(found, path)
		}
	}
	return found
}
