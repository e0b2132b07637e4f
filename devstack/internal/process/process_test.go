package process_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/devstack/internal/process"
)

func context20s(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestKilledChildIsRestartedAndStopped(t *testing.T) {
	ctx, dir := context20s(t), t.TempDir()
	mark := filepath.Join(dir, "mark")
	p, err := process.Start(ctx, process.Spec{
		Name: "child", Path: "/bin/sh", Args: []string{"-c", "echo $$ >" + mark + "; while :; do sleep 60 & wait; done"},
		Log: filepath.Join(dir, "log"),
		Ready: func(context.Context) error {
			_, err := os.ReadFile(mark)
			return err
		},
	})
	require.NoError(t, err)
	first := p.PID()
	require.NoError(t, os.Remove(mark))

	require.NoError(t, p.Signal(syscall.SIGKILL))
	require.NoError(t, p.WaitReady(ctx))
	require.NotEqual(t, first, p.PID())
	require.Equal(t, 2, p.Starts())

	pid := p.PID()
	require.NoError(t, p.Stop(ctx))
	require.NoError(t, p.Stop(ctx), "a second stop changes nothing")
	require.Zero(t, p.PID())
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
}

func TestChildThatNeverBecomesReadyTellsItsLog(t *testing.T) {
	ctx, dir := context20s(t), t.TempDir()
	_, err := process.Start(ctx, process.Spec{
		Name: "mute", Path: "/bin/sh", Args: []string{"-c", "echo because of this; exec sleep 60"},
		Log: filepath.Join(dir, "log"), ReadyIn: 500 * time.Millisecond,
		Ready: func(context.Context) error { return os.ErrNotExist },
	})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "because of this")
}

func TestChildIgnoringTheStopSignalIsKilled(t *testing.T) {
	ctx, dir := context20s(t), t.TempDir()
	mark := filepath.Join(dir, "mark")
	p, err := process.Start(ctx, process.Spec{
		Name: "stubborn", Path: "/bin/sh",
		Args:  []string{"-c", "trap '' TERM; touch " + mark + "; while :; do sleep 0.05; done"},
		Log:   filepath.Join(dir, "log"),
		Ready: func(context.Context) error { _, err := os.Stat(mark); return err },
	})
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, p.Stop(short), "was killed")
	require.Zero(t, p.PID())
}

func TestRunPassesNoSettingsOfOursOn(t *testing.T) {
	t.Setenv("TRANCHE_DATABASE_URL", "postgres://elsewhere")
	t.Setenv("PGHOST", "elsewhere")
	out, err := process.Run(context20s(t), process.Spec{
		Name: "env", Path: "/bin/sh", Args: []string{"-c", `echo "$TRANCHE_DATABASE_URL|$PGHOST|$GIVEN"`},
		Env: []string{"GIVEN=" + strconv.Itoa(7)},
	})
	require.NoError(t, err)
	require.Equal(t, "||7", strings.TrimSpace(string(out)))
}
