package nodeagent_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// daemon is a runtime whose daemon can be away.
type daemon struct {
	runtime.Driver
	left   atomic.Int64 // calls that it does not answer; negative is all
	missed atomic.Int64
}

func (d *daemon) gone(op, name string) error {
	left := d.left.Load()
	if left == 0 {
		return nil
	}
	if left > 0 {
		d.left.Add(-1)
	}
	d.missed.Add(1)
	return runtime.Refuse(runtime.Unavailable, op, name, "connection refused")
}

func (d *daemon) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	if err := d.gone("start", s.Name); err != nil {
		return runtime.Container{}, err
	}
	return d.Driver.Start(ctx, s)
}

func (d *daemon) Stop(ctx context.Context, name string) error {
	if err := d.gone("stop", name); err != nil {
		return err
	}
	return d.Driver.Stop(ctx, name)
}

func (d *daemon) List(ctx context.Context) ([]runtime.Container, error) {
	if err := d.gone("list", ""); err != nil {
		return nil, err
	}
	return d.Driver.List(ctx)
}

// withDaemon is a node whose runtime can go away; adjust may change more of its host.
func withDaemon(t *testing.T, adjust func(*nodeagent.Host)) (*node, *daemon) {
	t.Helper()
	n := newNode(t)
	d := &daemon{}
	n.adjust = func(h *nodeagent.Host) {
		d.Driver, h.Runtime = h.Runtime, d
		adjust(h)
	}
	n.up(t, nil)
	return n, d
}

// A runtime that restarts under a start or a removal only delays it.
func TestARuntimeThatRestartsFailsNothing(t *testing.T) {
	n, d := withDaemon(t, func(*nodeagent.Host) {})
	a := id.New[id.Assignment]()
	d.left.Store(3)
	n.obey(orders(n.migOrder(a, 1, 3)))
	require.EqualValues(t, 3, d.missed.Load())
	s, ok := n.slice(a)
	require.True(t, ok)
	require.Equal(t, instance.RunRunning, s.RunState, "%+v", s)
	require.Empty(t, s.Reason)

	d.left.Store(3)
	n.obey(nil, agentlink.Tombstone{Assignment: a, Fence: 2})
	require.Equal(t, []agentlink.Tombstone{{Assignment: a, Fence: 2}}, n.Observe(true).Gone)
	slices, containers := n.exists(t)
	require.Equal(t, [2]int{0, 0}, [2]int{slices, containers})
}

// A start waits for its runtime only so long; what it made goes with its tombstone,
// once the runtime is back.
func TestARuntimeThatStaysAwayFailsTheStart(t *testing.T) {
	var ahead atomic.Int64
	n, d := withDaemon(t, func(h *nodeagent.Host) {
		uptime := h.Uptime
		h.Uptime = func() time.Duration { return uptime() + time.Duration(ahead.Load()) }
	})
	a := id.New[id.Assignment]()
	d.left.Store(-1)
	n.Obey(agentlink.Desired{Version: 1, Timeline: 1, Orders: orders(n.migOrder(a, 1, 3))})
	require.Eventually(t, func() bool { return d.missed.Load() > 1 }, 10*time.Second, 5*time.Millisecond)
	s, _ := n.slice(a)
	require.Equal(t, instance.RunPreparing, s.RunState, "%+v", s)
	ahead.Store(int64(3 * time.Minute))
	n.Settle()
	s, _ = n.slice(a)
	require.Equal(t, instance.RunFailed, s.RunState, "%+v", s)
	require.Equal(t, "RUNTIME_UNAVAILABLE", s.Reason.Code)

	n.Obey(agentlink.Desired{Version: 2, Timeline: 1, Tombstones: []agentlink.Tombstone{{Assignment: a, Fence: 2}}})
	require.Eventually(t, func() bool {
		s, ok := n.slice(a)
		return ok && s.State == agentlink.SliceReclaiming && s.Reason.Code == "RUNTIME_UNAVAILABLE"
	}, 10*time.Second, 5*time.Millisecond)
	require.Empty(t, n.Observe(true).Gone, "nothing is proven without the runtime")
	d.left.Store(0)
	n.Settle()
	require.Equal(t, []agentlink.Tombstone{{Assignment: a, Fence: 2}}, n.Observe(true).Gone)
	slices, containers := n.exists(t)
	require.Equal(t, [2]int{0, 0}, [2]int{slices, containers})
}

// A tombstone does not wait out the pause of a start.
func TestATombstoneCutsAPauseShort(t *testing.T) {
	still := clock.NewFake(time.Now()) // a pause on it has no end of its own
	n, d := withDaemon(t, func(h *nodeagent.Host) { h.Clock = still })
	a := id.New[id.Assignment]()
	d.left.Store(1)
	n.Obey(agentlink.Desired{Version: 1, Timeline: 1, Orders: orders(n.migOrder(a, 1, 3))})
	still.WaitTimers(1)
	n.obey(nil, agentlink.Tombstone{Assignment: a, Fence: 2})
	require.Equal(t, []agentlink.Tombstone{{Assignment: a, Fence: 2}}, n.Observe(true).Gone)
}
