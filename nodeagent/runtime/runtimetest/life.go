package runtimetest

import (
	"context"
	"syscall"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// lifeTests are what also a driver that executes nothing must do.
var lifeTests = []test{
	{"a container lives until it is stopped", func(b *bench) {
		s := b.spec()
		c := b.start(s)
		require.Equal(b, s.Name, c.Name)
		require.Equal(b, s.Run, c.Run)
		require.Equal(b, s.Instance, c.Instance)
		require.Equal(b, s.Slots, c.Slots)
		require.Equal(b, runtime.Running, c.State)
		require.NotEmpty(b, c.BootID)
		require.Positive(b, c.Started)
		require.Zero(b, c.Ended)
		listed, ok := b.find(s.Name)
		require.True(b, ok)
		require.Equal(b, c, listed)
		require.NoError(b, b.driver.Stop(b.Context(), s.Name))
		b.gone(s.Name, c)
		require.NoError(b, b.driver.Stop(b.Context(), s.Name), "there is none: that is what was asked for")
	}},
	{"a start is idempotent", func(b *bench) {
		s := b.spec()
		c := b.start(s)
		require.Equal(b, c, b.start(s))
		b.restart()
		require.Equal(b, c, b.start(s), "also by a new agent")
	}},
	{"a new agent adopts what runs", func(b *bench) {
		s := b.spec()
		c := b.start(s)
		b.restart()
		found, ok := b.find(s.Name)
		require.True(b, ok)
		require.Equal(b, c, found)
		require.NoError(b, b.driver.Stop(b.Context(), s.Name))
		b.gone(s.Name, c)
	}},
	{"a new run takes the place of the old one", func(b *bench) {
		s := b.spec()
		b.start(s)
		s.Run = 2
		require.Equal(b, 2, b.start(s).Run)
		list, err := b.driver.List(b.Context())
		require.NoError(b, err)
		require.Len(b, list, 1)
	}},
	{"containers are apart", func(b *bench) {
		one, two := b.spec(), b.spec()
		b.start(one)
		c := b.start(two)
		require.NoError(b, b.driver.Stop(b.Context(), one.Name))
		found, ok := b.find(two.Name)
		require.True(b, ok)
		require.Equal(b, c, found)
	}},
	{"what does not run is not found", func(b *bench) {
		_, err := b.driver.Stats(b.Context(), "asg_none")
		require.Equal(b, runtime.NotFound, runtime.KindOf(err), "%v", err)
		_, err = b.driver.Exec(b.Context(), "asg_none", runtime.Exec{Args: []string{"true"}})
		require.Equal(b, runtime.NotFound, runtime.KindOf(err), "%v", err)
	}},
	{"a cancelled start leaves nothing that runs", func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		s := b.spec()
		_, err := b.driver.Start(ctx, s)
		require.Error(b, err)
		if c, ok := b.find(s.Name); ok {
			require.Equal(b, runtime.Created, c.State)
		}
		require.NoError(b, b.driver.Stop(b.Context(), s.Name))
		b.gone(s.Name, runtime.Container{})
	}},
}

var exitTests = []test{
	{"the exit code is kept", func(b *bench) {
		s := b.spec("sh", "-c", "sleep 0.3; exit 7")
		first := b.start(s)
		c := b.exited(s.Name)
		require.Equal(b, 7, c.ExitCode)
		require.GreaterOrEqual(b, c.Ended, c.Started)
		require.Equal(b, first.Started, c.Started)
		require.Zero(b, c.PID)
		require.False(b, c.OOM)
		b.restart()
		again, ok := b.find(s.Name)
		require.True(b, ok)
		require.Equal(b, c, again, "a new agent knows it too")
		_, err := b.driver.Stats(b.Context(), s.Name)
		require.Equal(b, runtime.NotFound, runtime.KindOf(err))
		require.NoError(b, b.driver.Stop(b.Context(), s.Name))
		b.gone(s.Name, c)
	}},
	{"a program may end at once", func(b *bench) {
		s := b.spec("true")
		b.start(s)
		c := b.exited(s.Name)
		require.Zero(b, c.ExitCode)
		require.Positive(b, c.Ended)
	}},
	{"a signal counts from 128", func(b *bench) {
		s := b.spec()
		c := b.start(s)
		require.NoError(b, syscall.Kill(c.PID, syscall.SIGKILL))
		require.Equal(b, 128+9, b.exited(s.Name).ExitCode)
	}},
	{"an ended container starts again", func(b *bench) {
		s := b.spec("sh", "-c", "exit 3")
		b.start(s)
		b.exited(s.Name)
		s.Run, s.Command = 2, nil
		require.Equal(b, runtime.Running, b.start(s).State)
	}},
	{"the end is seen while no agent looks", func(b *bench) {
		s := b.spec("sh", "-c", "sleep 0.3; exit 9")
		b.start(s)
		b.logged(s, "")
		b.restart()
		require.Equal(b, 9, b.exited(s.Name).ExitCode)
	}},
}

var teardownTests = []test{
	{"what ignores SIGTERM is killed", func(b *bench) {
		s := b.spec("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
		c := b.start(s)
		b.logged(s, "ready")
		require.NoError(b, b.driver.Stop(b.Context(), s.Name))
		b.gone(s.Name, c)
	}},
	{"SIGTERM is heard", func(b *bench) {
		s := b.spec("sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
		b.start(s)
		b.logged(s, "ready")
		require.NoError(b, b.driver.Stop(b.Context(), s.Name))
		require.Contains(b, b.log(s), "bye")
	}},
	{"no process survives", func(b *bench) {
		s := b.spec("sh", "-c", "(setsid sleep 777 &) ; (setsid sh -c 'setsid sleep 778 &' &); echo ready; sleep 1000")
		c := b.start(s)
		b.logged(s, "ready")
		require.NoError(b, b.driver.Stop(b.Context(), s.Name))
		b.gone(s.Name, c)
	}},
	{"the network is attached before the program runs", func(b *bench) {
		s := b.spec("sh", "-c", "echo ran; sleep 1000")
		var early string
		var pid int
		s.Extra.Attach = func(_ context.Context, p int) error {
			pid, early = p, b.log(s)
			return nil
		}
		c := b.start(s)
		b.logged(s, "ran")
		require.Equal(b, c.PID, pid)
		require.NotContains(b, early, "ran")
	}},
	{"a failed attachment fails the start", func(b *bench) {
		s := b.spec("sh", "-c", "echo ran")
		s.Extra.Attach = func(context.Context, int) error { return errAttach }
		err := b.fails(s, runtime.KindOf(errAttach))
		require.ErrorContains(b, err, errAttach.Detail)
		require.NotContains(b, b.log(s), "ran")
	}},
}

var errAttach = runtime.Refuse(runtime.PortInUse, "attach", "", "port 80 is taken")
