package mpsd_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

const device = "GPU-5ac12f0e-0000-4000-8000-000000000001"

// scene is a host with the stand-in of the control program.
type scene struct {
	mpsd.Control
	config mpsd.Config
}

func open(t *testing.T) scene {
	t.Helper()
	dir, err := os.MkdirTemp("", "mps") // short, as socket paths must be
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	for _, name := range []string{controlName, serverName} {
		require.NoError(t, os.Symlink(self, filepath.Join(dir, name)))
	}
	c := mpsd.Config{Root: filepath.Join(dir, "run"), Binary: filepath.Join(dir, controlName), Timeout: 20 * time.Second}
	ctl, err := mpsd.Open(c)
	require.NoError(t, err)
	s := scene{Control: ctl, config: c}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		s.behave(t, "stubborn")
		list, err := ctl.List(ctx)
		require.NoError(t, err)
		for _, d := range list {
			require.NoError(t, d.Process.Signal(syscall.SIGKILL))
			require.NoError(t, ctl.Stop(ctx, d.Device))
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	return s
}

func (s scene) behave(t *testing.T, words string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(s.config.Binary), "behaviour"), []byte(words), 0o600))
}

// connect makes a real process a client of the device's server.
func connect(t *testing.T, d mpsd.Daemon) process.Identity {
	t.Helper()
	cmd := exec.Command("/bin/cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, err = tell(filepath.Join(d.PipeDir, "control"), "test_connect "+strconv.Itoa(cmd.Process.Pid))
	require.NoError(t, err)
	id, err := process.Of(cmd.Process.Pid)
	require.NoError(t, err)
	return id
}

func refused(t *testing.T, want gpudrv.Kind, err error) {
	t.Helper()
	require.Equal(t, want, gpudrv.KindOf(err), "%v", err)
}

func TestADaemonIsStartedOnceAndAdopted(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	first, err := s.Ensure(ctx, device)
	require.NoError(t, err)
	require.True(t, first.Process.Alive())
	again, err := s.Ensure(ctx, device)
	require.NoError(t, err)
	require.Equal(t, first, again)

	restarted, err := mpsd.Open(s.config)
	require.NoError(t, err)
	adopted, err := restarted.Ensure(ctx, device)
	require.NoError(t, err)
	require.Equal(t, first, adopted, "an agent that starts again finds the daemon")
	list, err := restarted.List(ctx)
	require.NoError(t, err)
	require.Equal(t, []mpsd.Daemon{first}, list)

	other, err := s.Ensure(ctx, "MIG-5ac12f0e-0000-4000-8000-000000000002")
	require.NoError(t, err)
	require.NotEqual(t, first.PipeDir, other.PipeDir)
	require.NotEqual(t, first.Process, other.Process)

	st, err := os.Stat(first.PipeDir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), st.Mode().Perm(), "clients of other users reach the sockets")
}

func TestLimitsAreDefaultsAndTheServers(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	d, err := s.Ensure(ctx, device)
	require.NoError(t, err)
	got, err := s.Limits(ctx, device)
	require.NoError(t, err)
	require.Equal(t, mpsd.Limits{Percent: 100}, got)

	want := mpsd.Limits{Percent: 25, Memory: 35_942}
	got, err = s.SetLimits(ctx, device, want)
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = s.Limits(ctx, device)
	require.NoError(t, err)
	require.Equal(t, want, got)

	_, err = tell(filepath.Join(d.PipeDir, "control"), "set_device_pinned_mem_limit 0 0 20480M")
	require.NoError(t, err)
	got, err = s.Limits(ctx, device)
	require.NoError(t, err)
	require.Equal(t, mpsd.Limits{Percent: 25, Memory: 20480}, got, "somebody else's change shows")

	for _, bad := range []mpsd.Limits{{}, {Percent: 101, Memory: 1}, {Percent: 50}, {Percent: -1, Memory: 1}, {Percent: 5, Memory: -1}} {
		_, err = s.SetLimits(ctx, device, bad)
		refused(t, gpudrv.Invalid, err)
	}
	s.behave(t, "deaf")
	_, err = s.SetLimits(ctx, device, mpsd.Limits{Percent: 50, Memory: units.MiB(71_000)})
	refused(t, gpudrv.Broken, err)
	require.ErrorContains(t, err, "35840 MiB", "what the daemon shows is not what is being set")
}

// A daemon turns away who comes while somebody else talks to it.
func TestADaemonThatIsTalkingIsAskedAgain(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	d, err := s.Ensure(ctx, device)
	require.NoError(t, err)
	connect(t, d)
	list, err := s.Clients(ctx, device)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(s.config.Binary), "busy"), nil, 0o600))
	require.NoError(t, s.Terminate(ctx, device, list[0]))
	left, err := s.Clients(ctx, device)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestClientsAreListedAndCutOff(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	d, err := s.Ensure(ctx, device)
	require.NoError(t, err)
	none, err := s.Clients(ctx, device)
	require.NoError(t, err)
	require.Empty(t, none)

	a, b := connect(t, d), connect(t, d)
	list, err := s.Clients(ctx, device)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.ElementsMatch(t, []process.Identity{a, b}, []process.Identity{list[0].Process, list[1].Process})

	err = s.Stop(ctx, device)
	refused(t, gpudrv.InUse, err)
	require.Len(t, gpudrv.HoldersOf(err), 2)

	stale := list[0]
	stale.Process.Started++
	require.NoError(t, s.Terminate(ctx, device, stale), "a reused number is left alone")
	for _, c := range list {
		require.NoError(t, s.Terminate(ctx, device, c))
		require.True(t, c.Process.Alive(), "cutting off is not ending")
		require.NoError(t, s.Terminate(ctx, device, c))
	}
	refused(t, gpudrv.Invalid, s.Terminate(ctx, device, mpsd.Client{}))
	left, err := s.Clients(ctx, device)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, s.Stop(ctx, device))
	require.NoDirExists(t, filepath.Dir(d.PipeDir))
	require.False(t, d.Process.Alive())
	require.NoError(t, s.Stop(ctx, device), "twice is once")
}

func TestADaemonThatDiedIsReplaced(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	d, err := s.Ensure(ctx, device)
	require.NoError(t, err)
	_, err = s.SetLimits(ctx, device, mpsd.Limits{Percent: 50, Memory: 1000})
	require.NoError(t, err)
	before, err := os.Stat(d.PipeDir)
	require.NoError(t, err)
	server := serverOf(t, d)
	require.NoError(t, d.Process.Signal(syscall.SIGKILL))
	_, err = s.Limits(ctx, device)
	refused(t, gpudrv.NotFound, err)

	next, err := s.Ensure(ctx, device)
	require.NoError(t, err)
	require.NotEqual(t, d.Process, next.Process)
	require.False(t, server.Alive(), "a server without its daemon cannot be limited")
	after, err := os.Stat(next.PipeDir)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "containers keep the folder mounted")
}

func TestAStubbornDaemonIsEnded(t *testing.T) {
	t.Parallel()
	s := open(t)
	d, err := s.Ensure(t.Context(), device)
	require.NoError(t, err)
	_, err = s.SetLimits(t.Context(), device, mpsd.Limits{Percent: 50, Memory: 1000})
	require.NoError(t, err)
	server := serverOf(t, d)
	s.behave(t, "stubborn")
	quick := s.config
	quick.Timeout = 2 * time.Second
	ctl, err := mpsd.Open(quick)
	require.NoError(t, err)
	require.NoError(t, ctl.Stop(t.Context(), device))
	require.False(t, d.Process.Alive() || server.Alive())
}

func TestFailuresAreTyped(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	_, err := mpsd.Open(mpsd.Config{Root: s.config.Root, Binary: "/nonexistent/" + controlName})
	refused(t, gpudrv.Unsupported, err)
	for _, root := range []string{"relative", "/tmp/" + strings.Repeat("x", 90)} {
		_, err = mpsd.Open(mpsd.Config{Root: root, Binary: s.config.Binary})
		refused(t, gpudrv.Invalid, err)
	}
	for _, name := range []string{"", "GPU-", "0", "GPU-1;quit", "GPU-../../etc x", "GPU-1\nquit"} {
		_, err = s.Ensure(ctx, name)
		refused(t, gpudrv.Invalid, err)
	}
	_, err = s.Clients(ctx, device)
	refused(t, gpudrv.NotFound, err)

	s.behave(t, "no-start")
	_, err = s.Ensure(ctx, device)
	refused(t, gpudrv.Broken, err)
	require.ErrorContains(t, err, "already running")

	s.behave(t, "")
	_, err = s.Ensure(ctx, device)
	require.NoError(t, err)
	s.behave(t, "babble")
	_, err = s.Clients(ctx, device)
	refused(t, gpudrv.Broken, err)

	s.behave(t, "hang")
	quick := s.config
	quick.Timeout = 200 * time.Millisecond
	ctl, err := mpsd.Open(quick)
	require.NoError(t, err)
	_, err = ctl.Clients(ctx, device)
	refused(t, gpudrv.Hung, err)
	s.behave(t, "")
}

func serverOf(t *testing.T, d mpsd.Daemon) process.Identity {
	t.Helper()
	said, err := tell(filepath.Join(d.PipeDir, "control"), "get_server_list")
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(said))
	require.NoError(t, err)
	id, err := process.Of(pid)
	require.NoError(t, err)
	return id
}
