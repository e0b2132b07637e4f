package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/gpudrvtest"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/remote"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

// three is a host with three GPUs in MIG mode.
func three() sim.FleetHost {
	return sim.FleetHost{Name: "host", VCPU: 8, RAM: 65536, GPUs: []sim.FleetGPU{{Model: "H200-141", Mode: gpu.MIGMode(), Count: 3}}}
}

func simulated(t *testing.T, h sim.FleetHost) *sim.Driver {
	t.Helper()
	d, err := sim.Open(sim.Config{Host: h})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// kept is a driver that outlives its workers.
type kept struct{ gpudrv.Driver }

func (kept) Close() error { return nil }

// crew starts workers as goroutines over one simulated driver. Stuck ones ignore their
// kill until they are freed.
type crew struct {
	t        *testing.T
	driver   gpudrv.Driver
	stubborn atomic.Bool

	mu       sync.Mutex
	workers  []*hand
	excluded [][]string
}

type hand struct {
	net.Conn
	far  net.Conn
	pid  int
	crew *crew
	gone chan struct{}
	free func()
}

func (h *hand) PID() int    { return h.pid }
func (h *hand) Wait() error { <-h.gone; return nil }

// Kill ends a worker unless it is stuck.
func (h *hand) Kill() error {
	if !h.crew.stubborn.Load() {
		h.free()
	}
	return nil
}

func (c *crew) start(excluded []string) (remote.Process, error) {
	near, far := net.Pipe()
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &hand{Conn: near, far: far, pid: len(c.workers) + 1, crew: c, gone: make(chan struct{})}
	h.free = sync.OnceFunc(func() { _ = far.Close(); close(h.gone) })
	c.workers = append(c.workers, h)
	c.excluded = append(c.excluded, excluded)
	w := remote.Worker{Open: func(context.Context) (gpudrv.Driver, error) { return kept{c.driver}, nil }, Excluded: excluded}
	ctx := context.WithoutCancel(c.t.Context())
	go func() {
		_ = w.Serve(ctx, far)
		if !c.stubborn.Load() {
			h.free()
		}
	}()
	return h, nil
}

func (c *crew) started() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.workers)
}

func (c *crew) last() *hand {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.workers[len(c.workers)-1]
}

// supervise starts a Supervisor with the usual patience.
func supervise(t *testing.T, c *crew) *remote.Supervisor { return within(t, c, 0, nil) }

// within starts a Supervisor with a patience of its own.
func within(t *testing.T, c *crew, patience time.Duration, hung func(string, []string)) *remote.Supervisor {
	t.Helper()
	s, err := remote.Supervise(t.Context(), remote.Config{
		Start: c.start, ReadWithin: patience, WriteWithin: patience, ResetWithin: patience,
		Hung: hung, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestASupervisorConforms(t *testing.T) {
	t.Parallel()
	mps, err := gpu.MPSMode(4, 25)
	require.NoError(t, err)
	h := three()
	h.GPUs = append(h.GPUs, sim.FleetGPU{Model: "A100-80", Mode: mps, Count: 1})
	gpudrvtest.ReadOnly(t, supervise(t, &crew{t: t, driver: simulated(t, h)}))
}

func TestASupervisorChangesThings(t *testing.T) {
	t.Parallel()
	h := sim.FleetHost{Name: "host", VCPU: 8, RAM: 65536, Driver: sim.FleetDriver{Version: "615.10", MPS: 3, MemoryLimits: true}, GPUs: []sim.FleetGPU{
		{Model: "H200-141", Mode: gpu.WholeMode(), Count: 1},
	}}
	gpudrvtest.Writes(t, supervise(t, &crew{t: t, driver: simulated(t, h)}), h.Devices()[0].UUID)
}

func TestEventsComeThrough(t *testing.T) {
	t.Parallel()
	d, uuid := simulated(t, three()), three().Devices()[0].UUID
	gpudrvtest.Events(t, supervise(t, &crew{t: t, driver: d}), uuid, func(code int) { d.XID(uuid, code, -1, -1) })
}

func TestErrorsKeepKindAndHolders(t *testing.T) {
	t.Parallel()
	d, uuid := simulated(t, three()), three().Devices()[0].UUID
	s := supervise(t, &crew{t: t, driver: d})
	d.Inject(sim.Fault{GPU: uuid, Op: sim.OpSetMode, Kind: gpudrv.InUse, Holders: []gpudrv.Holder{{PID: 9, Name: "dcgm"}}})
	err := s.SetMode(t.Context(), uuid, gpu.WholeMode())
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(err))
	require.Equal(t, []gpudrv.Holder{{PID: 9, Name: "dcgm"}}, gpudrv.HoldersOf(err))
	_, err = s.Memory(t.Context(), "GPU-none")
	require.Equal(t, gpudrv.NotFound, gpudrv.KindOf(err))
	_, err = s.Memory(t.Context(), "no name\n")
	require.Equal(t, gpudrv.Invalid, gpudrv.KindOf(err))
}

// A GPU that hangs costs one worker, which may stay stuck for ever; the other GPUs are
// served by the next, and the hung one is not touched again.
func TestAHungWorkerIsAbandonedAndReplaced(t *testing.T) {
	t.Parallel()
	d, h := simulated(t, three()), three().Devices()
	bad, good := h[0].UUID, h[1].UUID
	c := &crew{t: t, driver: d}
	c.stubborn.Store(true)
	heard := make(chan []string, 8)
	s := within(t, c, 500*time.Millisecond, func(_ string, all []string) { heard <- all })
	_, err := s.GPUs(t.Context())
	require.NoError(t, err)
	d.Inject(sim.Fault{GPU: bad, Op: sim.OpRead, Times: 1000, Hang: true})

	var all sync.WaitGroup
	for range 5 { // however many ask at once
		all.Go(func() {
			_, err := s.Health(t.Context(), bad)
			require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err))
		})
	}
	all.Wait()
	require.Equal(t, []string{bad}, <-heard)
	_, err = s.Health(t.Context(), good)
	require.NoError(t, err)
	require.Equal(t, 2, c.started())
	require.Equal(t, []string{bad}, c.excluded[1])
	require.Equal(t, map[string]int{bad: 1}, s.Status().Stuck)

	before := d.Calls()
	for range 50 {
		_, err := s.Mode(t.Context(), bad)
		require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err))
		require.Equal(t, gpudrv.Hung, gpudrv.KindOf(s.SetMode(t.Context(), bad, gpu.WholeMode())))
		refs, err := s.GPUs(t.Context())
		require.NoError(t, err)
		require.Len(t, refs, 3, "a hung GPU stays in the list")
	}
	require.Equal(t, before, d.Calls(), "nothing of it reaches the driver")
	require.Equal(t, 2, c.started())

	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(s.Readmit(bad)), "its process is still stuck")
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(s.Reset(t.Context(), bad)))
	require.Equal(t, 2, c.started())

	d.Inject(sim.Fault{GPU: good, Op: sim.OpRead, Times: 1000, Hang: true})
	_, err = s.Telemetry(t.Context(), good)
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err))
	require.ElementsMatch(t, []string{bad, good}, <-heard, "the host is to be cordoned")
	_, err = s.Health(t.Context(), h[2].UUID)
	require.NoError(t, err)

	d.Heal()
	c.stubborn.Store(false)
	for _, w := range c.workers {
		w.free()
	}
	require.Eventually(t, func() bool { return len(s.Status().Stuck) == 0 }, 5*time.Second, time.Millisecond)
	_, err = s.Health(t.Context(), bad)
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err), "only a readmission brings it back")
	require.NoError(t, s.Readmit(bad))
	_, err = s.Health(t.Context(), bad)
	require.NoError(t, err)
	require.NoError(t, s.Reset(t.Context(), good), "a reset is one, too")
	_, err = s.Health(t.Context(), good)
	require.NoError(t, err)
	require.Empty(t, s.Status().Hung)
}

// A caller without patience learns nothing about the GPU's health, and ends nothing.
func TestAnImpatientCallerIsNoHang(t *testing.T) {
	t.Parallel()
	d, err := sim.Open(sim.Config{Host: three(), Latency: sim.Latency{Read: 30 * time.Millisecond}})
	require.NoError(t, err)
	c := &crew{t: t, driver: d}
	s := supervise(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = s.Health(ctx, three().Devices()[0].UUID)
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err))
	_, err = s.Health(t.Context(), three().Devices()[0].UUID)
	require.NoError(t, err)
	require.Equal(t, 1, c.started())
}

func TestAKilledWorkerIsReplaced(t *testing.T) {
	t.Parallel()
	d, uuid := simulated(t, three()), three().Devices()[0].UUID
	c := &crew{t: t, driver: d}
	s := supervise(t, c)
	w, err := s.Watch(t.Context())
	require.NoError(t, err)
	c.last().free()
	require.Eventually(t, func() bool { return c.started() == 2 }, 5*time.Second, time.Millisecond, "the watcher needs one")
	e, err := w.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, gpudrv.EventMissed, e.Kind)
	d.XID(uuid, 79, -1, -1)
	e, err = w.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, 79, e.XID)
	require.NoError(t, w.Close())
	_, err = w.Next(t.Context())
	require.Equal(t, gpudrv.Broken, gpudrv.KindOf(err))

	c.last().free()
	_, err = s.Health(t.Context(), uuid)
	require.NoError(t, err, "a read is asked again")

	d.Inject(sim.Fault{GPU: uuid, Op: sim.OpCreateGPUInstance, Hang: true})
	before := d.Calls()
	done := make(chan error, 1)
	go func() {
		_, err := s.CreateGPUInstance(t.Context(), uuid, 19, gpudrv.Placement{Size: 1})
		done <- err
	}()
	require.Eventually(t, func() bool { return d.Calls() > before }, 5*time.Second, time.Millisecond)
	c.last().free()
	err = <-done
	require.Equal(t, gpudrv.Broken, gpudrv.KindOf(err))
	require.ErrorIs(t, err, remote.ErrLost)
	_, err = s.CreateGPUInstance(t.Context(), uuid, 19, gpudrv.Placement{Size: 1})
	require.NoError(t, err, "it is safe to repeat")
}

// What a worker does for other GPUs is not cut short when one of its GPUs hangs.
func TestAHungGPUCutsNoOtherShort(t *testing.T) {
	t.Parallel()
	d, err := sim.Open(sim.Config{Host: three(), Latency: sim.Latency{Create: time.Second, CreateMax: time.Second}})
	require.NoError(t, err)
	h := three().Devices()
	c := &crew{t: t, driver: d}
	s, err := remote.Supervise(t.Context(), remote.Config{Start: c.start, ReadWithin: 100 * time.Millisecond, Clock: clock.Real()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	done := make(chan error, 1)
	go func() {
		_, err := s.CreateGPUInstance(t.Context(), h[1].UUID, 19, gpudrv.Placement{Size: 1})
		done <- err
	}()
	d.Inject(sim.Fault{GPU: h[0].UUID, Op: sim.OpRead, Hang: true})
	_, err = s.Health(t.Context(), h[0].UUID)
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err))
	require.NoError(t, <-done)
	require.Eventually(t, func() bool { return len(s.Status().Stuck) == 0 }, 5*time.Second, time.Millisecond)
}

func TestADriverThatDoesNotOpen(t *testing.T) {
	t.Parallel()
	start := func(open func(context.Context) (gpudrv.Driver, error)) remote.Start {
		return func([]string) (remote.Process, error) {
			near, far := net.Pipe()
			h := &hand{Conn: near, far: far, crew: &crew{t: t}, gone: make(chan struct{})}
			h.free = sync.OnceFunc(func() { _ = far.Close(); close(h.gone) })
			go func() { _ = (remote.Worker{Open: open}).Serve(t.Context(), far) }()
			return h, nil
		}
	}
	_, err := remote.Supervise(t.Context(), remote.Config{Clock: clock.Real(), Start: start(func(context.Context) (gpudrv.Driver, error) {
		return nil, gpudrv.Refuse(gpudrv.Mismatch, "open", "", "after an upgrade")
	})})
	require.Equal(t, gpudrv.Mismatch, gpudrv.KindOf(err))
	_, err = remote.Supervise(t.Context(), remote.Config{Clock: clock.Real(), StartWithin: 30 * time.Millisecond, Start: start(func(ctx context.Context) (gpudrv.Driver, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})})
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err))
	_, err = remote.Supervise(t.Context(), remote.Config{Clock: clock.Real(), Start: func([]string) (remote.Process, error) {
		return nil, errors.New("no such program")
	}})
	require.ErrorContains(t, err, "no such program")
}

// FuzzParseArgs: whatever is said, the driver hears what it may, or nothing.
func FuzzParseArgs(f *testing.F) {
	f.Add([]byte(`{"gpu":"GPU-1","profile":19,"at":{"start":0,"size":1},"mode":"mps:4x25"}`))
	f.Add([]byte(`{"gi":-2}`))
	d, err := sim.Open(sim.Config{Host: three()})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := remote.ParseArgs(body)
		if err != nil {
			require.Equal(t, gpudrv.Invalid, gpudrv.KindOf(err))
			return
		}
		text, err := json.Marshal(a)
		require.NoError(t, err)
		again, err := remote.ParseArgs(text)
		require.NoError(t, err)
		require.Equal(t, a, again)
		for _, op := range []string{"memory", "placements", "memory_limit", "odd"} {
			_, _ = remote.Read(t.Context(), d, op, a)
		}
	})
}

var _ io.ReadWriteCloser = (*hand)(nil)
