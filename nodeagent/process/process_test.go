package process_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

// headless makes the test binary a program whose first thread ends while another
// reads standard input.
const headless = "PROCESS_TEST_HEADLESS"

func TestMain(m *testing.M) {
	if os.Getenv(headless) == "" {
		os.Exit(m.Run())
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

// init keeps TestMain on the first thread.
func init() { runtime.LockOSThread() }

func start(t *testing.T) (process.Identity, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("/bin/cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = in.Close() })
	require.NoError(t, cmd.Start())
	id, err := process.Of(cmd.Process.Pid)
	require.NoError(t, err)
	return id, cmd
}

func TestAProcessIsKnownByItsStart(t *testing.T) {
	t.Parallel()
	id, err := process.Of(os.Getpid())
	require.NoError(t, err)
	require.True(t, id.Alive())
	other := id
	other.Started++
	require.False(t, other.Alive())
	require.ErrorIs(t, other.Signal(syscall.SIGKILL), process.ErrGone, "a reused number is never hit")
}

func TestOneWhoseFirstThreadEndedStillRuns(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), headless+"=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	first := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "stat")
	require.Eventually(t, func() bool {
		raw, err := os.ReadFile(first)
		return err == nil && strings.Contains(string(raw), ") Z ")
	}, 10*time.Second, time.Millisecond)
	id, err := process.Of(cmd.Process.Pid)
	require.NoError(t, err, "a program must not hide by ending its first thread")
	require.True(t, id.Alive())
	require.False(t, id.Ending())
}

func TestKillEndsIt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	id, cmd := start(t)
	require.NoError(t, id.Kill(ctx, clock.Real()))
	require.False(t, id.Alive(), "an uncollected child counts as gone")
	require.Error(t, cmd.Wait())
	require.NoError(t, id.Kill(ctx, clock.Real()), "twice is once")
	_, err := process.Of(id.PID)
	require.ErrorIs(t, err, process.ErrGone)
}

func TestAwaitGivesUpWithTheContext(t *testing.T) {
	t.Parallel()
	id, cmd := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, id.Await(ctx, clock.Real()), context.Canceled)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
}

func TestNobodyHasNoNumber(t *testing.T) {
	t.Parallel()
	for _, pid := range []int{0, -1, 1 << 30} {
		_, err := process.Of(pid)
		require.ErrorIs(t, err, process.ErrGone)
	}
}
