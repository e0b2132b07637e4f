package process_test

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

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
