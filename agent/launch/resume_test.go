package launch_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/guest"
	"github.com/tranche-cloud/tranche/agent/injection"
	"github.com/tranche-cloud/tranche/agent/launch"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// found is a runtime that holds one container, which an earlier agent made.
type found struct {
	runtime.Driver
	c     runtime.Container
	calls []string
}

var errNoMore = errors.New("no more is needed")

func (f *found) List(context.Context) ([]runtime.Container, error) {
	return []runtime.Container{f.c}, nil
}

func (f *found) Stop(_ context.Context, name string) error {
	f.calls = append(f.calls, "stop "+name)
	return nil
}

func (f *found) Start(_ context.Context, s runtime.Spec) (runtime.Container, error) {
	f.calls = append(f.calls, "start "+s.Name)
	return runtime.Container{}, errNoMore
}

// newLauncher starts containers at r, with all that it keeps below dir.
func newLauncher(t *testing.T, dir string, r runtime.Driver) *launch.Launcher {
	t.Helper()
	hub, err := guest.NewHub(guest.Config{Dir: filepath.Join(dir, "g"), Uptime: func() time.Duration { return time.Hour }, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(hub.Shutdown)
	devices, err := injection.Open(injection.Config{Dir: filepath.Join(dir, "cdi"), Mock: filepath.Join(dir, "mock")})
	require.NoError(t, err)
	ids, err := launch.OpenIDs(filepath.Join(dir, "ids.json"), 0)
	require.NoError(t, err)
	l, err := launch.New(launch.Config{
		Runtime: r, Devices: devices, Kind: injection.Simulated, Guests: hub, IDs: ids,
		Logs: filepath.Join(dir, "logs"), Uptime: func() time.Duration { return time.Hour },
	})
	require.NoError(t, err)
	return l
}

// An agent that is killed between making a container and telling its guest what to run
// as, and with which secrets, leaves a guest that waits. The next start makes the
// container anew instead of taking the waiting one for a running instance.
func TestAStartThatWasCutShortBeginsAnew(t *testing.T) {
	r := &found{c: runtime.Container{Name: "asg_1", Run: 1, State: runtime.Running, Cgroup: "/tranche/asg_1"}}
	l := newLauncher(t, t.TempDir(), r)
	require.NoError(t, l.Sweep(t.Context()))

	_, err := l.Start(t.Context(), runtime.Spec{Name: "asg_1", Run: 1})
	require.ErrorIs(t, err, errNoMore)
	require.Equal(t, []string{"stop asg_1", "start asg_1", "stop asg_1"}, r.calls)
}
