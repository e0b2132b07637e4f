package guard_test

import (
	"context"
	"log/slog"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/guard"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

// bench is one GPU with real processes on it.
type bench struct {
	mu      sync.Mutex
	kind    gpu.Kind
	slices  []guard.Slice
	on      []gpudrv.Process
	slice   map[int]string
	clients []mpsd.Client
	order   []string // terminations and ends, as they came
	silent  error    // of the daemon
	compute string
	want    string
	ended   []guard.Ended
	held    []guard.Holder
	drifts  []guard.Drift
}

func (b *bench) Processes(context.Context, string) ([]gpudrv.Process, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []gpudrv.Process
	for _, p := range b.on {
		if _, err := process.Of(p.PID); err == nil {
			out = append(out, p)
		}
	}
	return out, nil
}

func (b *bench) Settings(context.Context, string) (gpudrv.Settings, error) {
	return gpudrv.Settings{ComputeMode: gpudrv.Reported(b.compute)}, nil
}

func (b *bench) Clients(context.Context, string) ([]mpsd.Client, error) { return b.clients, b.silent }

func (b *bench) Terminate(_ context.Context, _ string, c mpsd.Client) error {
	if c.Process.Alive() {
		b.order = append(b.order, "terminate")
	}
	return nil
}

func (b *bench) Ended(e guard.Ended) {
	b.order = append(b.order, "ended")
	b.ended = append(b.ended, e)
}
func (b *bench) Held(h guard.Holder)   { b.held = append(b.held, h) }
func (b *bench) Drifted(d guard.Drift) { b.drifts = append(b.drifts, d) }
func (b *bench) targets() []guard.Target {
	return []guard.Target{{GPU: "GPU-1", Kind: b.kind, Slices: b.slices, ComputeMode: b.want}}
}

// run puts a process on the GPU.
func (b *bench) run(t *testing.T, slice string, client bool) process.Identity {
	t.Helper()
	cmd := exec.Command("/bin/cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	id, err := process.Of(cmd.Process.Pid)
	require.NoError(t, err)
	b.on = append(b.on, gpudrv.Process{PID: id.PID, Name: "cat", GPUInstance: -1, UsedBytes: gpudrv.Reported(int64(1 << 20))})
	b.slice[id.PID] = slice
	if client {
		b.clients = append(b.clients, mpsd.Client{Server: 1, Process: id})
	}
	return id
}

func newBench(kind gpu.Kind) *bench {
	return &bench{kind: kind, slices: two(), slice: map[int]string{}}
}

func (b *bench) guard(c clock.Clock) *guard.Guard {
	return guard.New(guard.Config{
		Driver: b, Daemons: b, Targets: b.targets, Sink: b, Clock: c, Log: slog.New(slog.DiscardHandler),
		SliceOf: func(pid int) (string, bool) { s := b.slice[pid]; return s, s != "" },
	})
}

func TestABypassIsEndedAndTheNeighbourIsNot(t *testing.T) {
	t.Parallel()
	b, c := newBench(gpu.MPS), clock.NewFake(start)
	bad, good, foreign := b.run(t, "a", false), b.run(t, "b", true), b.run(t, "", false)
	g := b.guard(c)
	require.True(t, g.Look(t.Context()))
	require.True(t, bad.Alive(), "once is not enough")
	c.Advance(250 * time.Millisecond)
	g.Look(t.Context())
	require.Eventually(t, func() bool { return !bad.Alive() }, 5*time.Second, time.Millisecond)
	require.True(t, good.Alive() && foreign.Alive())
	c.Advance(time.Second)
	require.False(t, g.Look(t.Context()))
	require.Len(t, b.ended, 1)
	e := b.ended[0]
	require.Equal(t, guard.Bypass, e.Reason)
	require.Equal(t, "a", e.Assignment)
	require.Equal(t, bad, e.Process)
	require.Equal(t, []string{"b"}, e.Victims)
	require.Equal(t, []guard.Holder{{GPU: "GPU-1", Process: foreign, Name: "cat"}}, b.held, "told once")
}

func TestAClientIsToldOfAndCutOffBeforeItIsEnded(t *testing.T) {
	t.Parallel()
	b, c := newBench(gpu.MPS), clock.NewFake(start)
	b.run(t, "a", true)
	b.run(t, "a", true)
	g := b.guard(c)
	g.Look(t.Context())
	c.Advance(time.Second)
	g.Look(t.Context())
	require.Equal(t, []string{"ended", "terminate"}, b.order)
	require.Equal(t, guard.ProcessLimit, b.ended[0].Reason)
}

func TestWithoutADaemonEverybodyIsOutside(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		ends int
	}{
		{gpudrv.Refuse(gpudrv.NotFound, "mps_clients", "GPU-1", "no daemon"), 1},
		{gpudrv.Refuse(gpudrv.Hung, "mps_clients", "GPU-1", "silent"), 0},
	} {
		b, fake := newBench(gpu.MPS), clock.NewFake(start)
		b.silent = c.err
		b.run(t, "a", false)
		g := b.guard(fake)
		for range 3 {
			g.Look(t.Context())
			fake.Advance(time.Second)
		}
		require.Len(t, b.ended, c.ends)
	}
}

func TestAWrongComputeModeIsTold(t *testing.T) {
	t.Parallel()
	b, c := newBench(gpu.MPS), clock.NewFake(start)
	b.compute, b.want = gpudrv.ComputeDefault, gpudrv.ComputeExclusiveProcess
	g := b.guard(c)
	for range 70 {
		g.Look(t.Context())
		c.Advance(time.Second)
	}
	require.Len(t, b.drifts, 2, "each minute")
	require.Equal(t, guard.Drift{GPU: "GPU-1", Want: "exclusive_process", Got: "default"}, b.drifts[0])
}

func TestRunLooksEverySecondAndSoonerWhenInDoubt(t *testing.T) {
	t.Parallel()
	b, c := newBench(gpu.MPS), clock.NewFake(start)
	bad := b.run(t, "a", false)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.guard(c).Run(ctx) }()
	c.WaitTimers(1)
	c.Advance(250 * time.Millisecond)
	require.Eventually(t, func() bool { return !bad.Alive() }, 5*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}
