package fake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
	"github.com/tranche-cloud/tranche/nodeagent/runtime/fake"
	"github.com/tranche-cloud/tranche/nodeagent/runtime/runtimetest"
)

func open(t *testing.T, dir, boot string, c clock.Clock, readBack func(context.Context, string, gpu.Slot) error) *fake.Runtime {
	t.Helper()
	r, err := fake.Open(fake.Config{
		Dir: dir, BootID: boot, Clock: c, ReadBack: readBack,
		Uptime: func() time.Duration { return 7 * time.Second },
	})
	require.NoError(t, err)
	return r
}

func only(t *testing.T, r *fake.Runtime) runtime.Container {
	t.Helper()
	list, err := r.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func TestIsADriver(t *testing.T) {
	runtimetest.Run(t, runtimetest.Harness{Open: func(t *testing.T, dir string) runtime.Driver {
		return open(t, dir, "boot", clock.Real(), nil)
	}})
}

var spec = runtime.Spec{
	Name: "asg_1", Run: 2, Image: "img", Devices: []string{"GPU-1"},
	Slots: []gpu.Slot{{GPU: "GPU-1", Mode: gpu.WholeMode(), Size: 1}},
}

// A container runs only when its time has passed; a process that dies before then
// leaves it created.
func TestStartTakesItsTime(t *testing.T) {
	dir, c := t.TempDir(), clock.NewFake(time.Unix(0, 0))
	r := open(t, dir, "boot", c, nil)
	started := make(chan runtime.Container, 1)
	go func() {
		got, err := r.Start(context.WithoutCancel(t.Context()), spec)
		if err == nil {
			started <- got
		}
		close(started)
	}()
	c.WaitTimers(1)
	require.Equal(t, runtime.Created, only(t, open(t, dir, "boot", c, nil)).State)
	c.Advance(50 * time.Millisecond)
	got, ok := <-started
	require.True(t, ok)
	require.Equal(t, runtime.Running, got.State)
	require.Equal(t, 7*time.Second, got.Started)
}

func TestContainerSurvivesItsAgent(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, "boot", clock.Real(), nil)
	first, err := r.Start(t.Context(), spec)
	require.NoError(t, err)
	r = open(t, dir, "boot", clock.Real(), nil)
	require.Equal(t, first, only(t, r))
	again, err := r.Start(t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, first, again, "starting it again finds it running")
	require.NoError(t, r.Stop(t.Context(), spec.Name))
	require.NoError(t, r.Stop(t.Context(), spec.Name), "again")
	list, err := r.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
}

// Its file survives a reboot; what it stands for would not.
func TestContainerDiesWithTheBoot(t *testing.T) {
	dir := t.TempDir()
	_, err := open(t, dir, "boot", clock.Real(), nil).Start(t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, runtime.Exited, only(t, open(t, dir, "next boot", clock.Real(), nil)).State)
}

// No slice, no container.
func TestSliceIsReadBack(t *testing.T) {
	gone := errors.New("not there")
	r := open(t, t.TempDir(), "boot", clock.Real(), func(context.Context, string, gpu.Slot) error { return gone })
	_, err := r.Start(t.Context(), spec)
	require.ErrorIs(t, err, gone)
	require.Equal(t, runtime.Created, only(t, r).State)
}
