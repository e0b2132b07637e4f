package boundary_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/boundary"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent/guard"
	"github.com/tranche-cloud/tranche/nodeagent/meter"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

// heard passes on what a guard says.
type heard struct {
	ended   chan guard.Ended
	held    chan guard.Holder
	drifted chan guard.Drift
}

func (h heard) Ended(e guard.Ended)   { h.ended <- e }
func (h heard) Held(x guard.Holder)   { h.held <- x }
func (h heard) Drifted(d guard.Drift) { h.drifted <- d }

// The guard works beside the GPUs and the link decides what follows: targets go one
// way, what was done the other, each once, also over a restart of the helper.
func TestTheGuardAndTheLinkHearOfEachOther(t *testing.T) {
	t.Parallel()
	type side struct {
		targets func() []guard.Target
		sink    guard.Sink
	}
	sides := make(chan side, 2)
	var cfg boundary.Config
	r := newRig(t, func(c *boundary.Config) {
		sim := c.Host.Driver
		c.ComputeMode = "exclusive_process"
		c.Traffic = func(context.Context) (map[string]meter.Traffic, error) {
			return map[string]meter.Traffic{"a": {In: 1, Out: 2}}, nil
		}
		c.Guard = func(targets func() []guard.Target, sink guard.Sink) *guard.Guard {
			sides <- side{targets, sink}
			return guard.New(guard.Config{Driver: sim, Targets: targets, Sink: sink, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
		}
		cfg = *c
	})
	offers, err := r.client.Offers(t.Context())
	require.NoError(t, err)
	require.Equal(t, boundary.Offers{Guard: true, Traffic: true, Reset: true, ComputeMode: "exclusive_process"}, offers)
	bytes, err := r.client.Traffic(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]meter.Traffic{"a": {In: 1, Out: 2}}, bytes)

	slice := guard.Slice{Assignment: id.New[id.Assignment]().String(), Processes: 1, Memory: 4096}
	want := []guard.Target{{GPU: fleet.Devices()[0].UUID, Kind: gpu.MIG, Slices: []guard.Slice{slice}}}
	h := heard{make(chan guard.Ended, 4), make(chan guard.Holder, 4), make(chan guard.Drift, 4)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.client.Guard(ctx, func() []guard.Target { return want }, h) }()

	first := <-sides
	require.Eventually(t, func() bool { return len(first.targets()) == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, want, first.targets())
	e := guard.Ended{GPU: want[0].GPU, Assignment: slice.Assignment, Process: process.Identity{PID: 9, Started: 7}, Reason: guard.Bypass, At: time.Now().UTC()}
	first.sink.Ended(e)
	first.sink.Held(guard.Holder{GPU: want[0].GPU, Name: "dcgm"})
	require.Equal(t, e, <-h.ended)
	require.Equal(t, "dcgm", (<-h.held).Name)

	r.stop()
	r.up(t, cfg)
	second := <-sides
	second.sink.Drifted(guard.Drift{GPU: want[0].GPU, Want: "exclusive_process", Got: "default"})
	require.Equal(t, "default", (<-h.drifted).Got)
	require.Eventually(t, func() bool { return len(second.targets()) == 1 }, 10*time.Second, time.Millisecond)
	require.Empty(t, h.ended, "nothing is told twice")
	cancel()
	require.NoError(t, <-done)
}
