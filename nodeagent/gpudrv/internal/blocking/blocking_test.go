package blocking_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/internal/blocking"
)

const soon = 20 * time.Millisecond

func TestACallReturnsItsAnswer(t *testing.T) {
	t.Parallel()
	var c blocking.Calls
	got, err := blocking.Do(t.Context(), &c, "read", "GPU-1", func() (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, got)
	want := errors.New("no")
	_, err = blocking.Do(t.Context(), &c, "read", "GPU-1", func() (int, error) { return 0, want })
	require.ErrorIs(t, err, want)
}

func TestAHungGPUCostsFewThreadsAndNoOther(t *testing.T) {
	t.Parallel()
	var c blocking.Calls
	release := make(chan struct{})
	var started atomic.Int32
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		_, err := blocking.Do(ctx, &c, "read", "GPU-1", func() (int, error) { started.Add(1); <-release; return 0, nil })
		cancel()
		require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err))
	}
	require.EqualValues(t, blocking.MaxHung, started.Load(), "a GPU that hangs is not asked for ever")
	_, err := blocking.Do(t.Context(), &c, "read", "GPU-2", func() (int, error) { return 0, nil })
	require.NoError(t, err, "its neighbour answers")
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(c.Alone(ctx, "reset", "GPU-2", func() error { return nil })))
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(c.Finish(soon, "close", func() error { return nil })))

	close(release)
	require.Eventually(t, func() bool {
		_, err := blocking.Do(t.Context(), &c, "read", "GPU-1", func() (int, error) { return 0, nil })
		return err == nil
	}, 10*time.Second, time.Millisecond, "it is asked again once the calls are back")
}

func TestAloneMeansAlone(t *testing.T) {
	t.Parallel()
	var c blocking.Calls
	before := c.Generation()
	inside := make(chan struct{})
	other := make(chan error, 1)
	err := c.Alone(t.Context(), "reset", "GPU-1", func() error {
		go func() {
			close(inside)
			_, err := blocking.Do(context.WithoutCancel(t.Context()), &c, "read", "GPU-1", func() (int, error) { return 0, nil })
			other <- err
		}()
		<-inside
		select {
		case <-other:
			return errors.New("a call came in between")
		case <-time.After(soon):
			return nil
		}
	})
	require.NoError(t, err)
	require.NoError(t, <-other)
	require.Equal(t, before+1, c.Generation())
	require.False(t, c.Wanted())
	require.NoError(t, c.Finish(time.Second, "close", func() error { return nil }))
}
