//go:build nvml && hardware

package guard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/nvml"
	"github.com/tranche-cloud/tranche/nodeagent/guard"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

// These tests need one idle NVIDIA GPU, root, the MPS control program and the
// programs of cuda/, whose folder TRANCHE_CUDA names. They leave the GPU's
// settings alone and nothing behind.

// rig is the machine under test.
type rig struct {
	drv     gpudrv.Driver
	mps     mpsd.Control
	uuid    string
	program string // folder

	mu    sync.Mutex
	slice map[int]string
	ended chan guard.Ended
}

func newRig(t *testing.T) *rig {
	t.Helper()
	folder := os.Getenv("TRANCHE_CUDA")
	require.NotEmpty(t, folder, "TRANCHE_CUDA names the folder of the CUDA programs")
	drv, err := nvml.Open(nvml.Config{LeaveSettings: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, drv.Close()) })
	refs, err := drv.GPUs(t.Context())
	require.NoError(t, err)
	root, err := os.MkdirTemp("/run", "tranche-test")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	mps, err := mpsd.Open(mpsd.Config{Root: root})
	require.NoError(t, err)
	return &rig{drv: drv, mps: mps, uuid: refs[0].UUID, program: folder, slice: map[int]string{}, ended: make(chan guard.Ended, 16)}
}

func (r *rig) Ended(e guard.Ended) { r.ended <- e }
func (r *rig) Held(guard.Holder)   {}
func (r *rig) Drifted(guard.Drift) {}
func (r *rig) sliceOf(pid int) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.slice[pid]
	return s, ok
}

// job is one CUDA program.
type job struct {
	cmd    *exec.Cmd
	id     process.Identity
	events chan map[string]any
	done   chan error
}

// run starts a program in a slice; pipe is its pipe folder, "" for none.
func (r *rig) run(t *testing.T, slice, pipe, name string, args ...string) *job {
	t.Helper()
	cmd := exec.Command(filepath.Join(r.program, name), args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LD_LIBRARY_PATH=" + os.Getenv("LD_LIBRARY_PATH")}
	if pipe != "" {
		cmd.Env = append(cmd.Env, "CUDA_MPS_PIPE_DIRECTORY="+pipe)
	}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	r.mu.Lock()
	require.NoError(t, cmd.Start())
	r.slice[cmd.Process.Pid] = slice
	r.mu.Unlock()
	id, err := process.Of(cmd.Process.Pid)
	require.NoError(t, err)
	j := &job{cmd: cmd, id: id, events: make(chan map[string]any, 1000), done: make(chan error, 1)}
	go j.read(out)
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return j
}

func (j *job) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e map[string]any
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			j.events <- e
		}
	}
	close(j.events)
	j.done <- j.cmd.Wait()
}

// await returns the first event of a name.
func (j *job) await(t *testing.T, name string) map[string]any {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case e, ok := <-j.events:
			require.True(t, ok, "the program ended without %q", name)
			if e["event"] == name {
				t.Logf("%s: %v", filepath.Base(j.cmd.Path), e)
				return e
			}
		case <-deadline:
			t.Fatalf("no %q within 20 s", name)
		}
	}
}

func (r *rig) limits(t *testing.T, want mpsd.Limits) mpsd.Daemon {
	t.Helper()
	from := time.Now()
	d, err := r.mps.Ensure(t.Context(), r.uuid)
	require.NoError(t, err)
	t.Logf("daemon %s after %s", d.Process, time.Since(from))
	r.cleanup(t, d)
	from = time.Now()
	_, err = r.mps.SetLimits(t.Context(), r.uuid, want)
	require.NoError(t, err)
	t.Logf("limits set and read back after %s", time.Since(from))
	return d
}

// cleanup stops the daemon at the end and proves that nothing is left.
func (r *rig) cleanup(t *testing.T, d mpsd.Daemon) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		require.NoError(t, r.mps.Stop(ctx, r.uuid))
		require.NoDirExists(t, d.PipeDir)
		require.False(t, d.Process.Alive())
		require.Eventually(t, func() bool {
			list, err := r.drv.Processes(ctx, r.uuid)
			return err == nil && len(list) == 0
		}, 10*time.Second, 100*time.Millisecond, "nobody is left on the GPU")
	})
}

// guard runs a guard over the two slices until the test ends.
func (r *rig) guard(t *testing.T, kind gpu.Kind, memory mpsd.Limits) {
	t.Helper()
	g := guard.New(guard.Config{
		Driver: r.drv, Daemons: r.mps, Sink: r, Clock: clock.Real(), SliceOf: r.sliceOf,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Targets: func() []guard.Target {
			return []guard.Target{{GPU: r.uuid, Kind: kind, Slices: []guard.Slice{
				{Assignment: "a", Processes: 1, Memory: memory.Memory}, {Assignment: "b", Processes: 1, Memory: memory.Memory},
			}}}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// caught waits for the guard's word about a job.
func (r *rig) caught(t *testing.T, j *job, since time.Time) guard.Ended {
	t.Helper()
	select {
	case e := <-r.ended:
		t.Logf("%s after %s: %s; victims %v", e.Reason, time.Since(since), e.Detail, e.Victims)
		require.Equal(t, j.id, e.Process)
		require.Less(t, time.Since(since), 2*time.Second)
		<-j.done
		return e
	case <-time.After(5 * time.Second):
		t.Fatal("nobody was ended within 5 s")
		return guard.Ended{}
	}
}

func TestHardwareMPSLimitsHold(t *testing.T) {
	r := newRig(t)
	// No whole number of GiB: the daemon shows 8G and should mean what was set.
	d := r.limits(t, mpsd.Limits{Percent: 25, Memory: 8700})
	got, err := r.mps.Limits(t.Context(), r.uuid)
	require.NoError(t, err)
	require.Equal(t, mpsd.Limits{Percent: 25, Memory: 8700}, got)
	j := r.run(t, "a", d.PipeDir, "allocate", "9000", "7000", "1000", "--hold", "2")
	start := j.await(t, "start")
	require.EqualValues(t, 32, start["sms"])
	require.Greater(t, start["free_mib"], 8192.0)
	require.Equal(t, false, j.await(t, "allocate")["ok"])
	require.Equal(t, true, j.await(t, "allocate")["ok"])
	j.await(t, "allocate")
	clients, err := r.mps.Clients(t.Context(), r.uuid)
	require.NoError(t, err)
	require.Len(t, clients, 1)
	require.Equal(t, j.id, clients[0].Process)
	list, err := r.drv.Processes(t.Context(), r.uuid)
	require.NoError(t, err)
	for _, p := range list {
		t.Logf("on the gpu: %d %s %s bytes, sm %s", p.PID, p.Name, p.UsedBytes, p.SMPercent)
	}
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(r.mps.Stop(t.Context(), r.uuid)))
	require.NoError(t, <-j.done)
}

func TestHardwareHostileClientsAreEnded(t *testing.T) {
	r := newRig(t)
	limits := mpsd.Limits{Percent: 50, Memory: 71885}
	d := r.limits(t, limits)
	r.guard(t, gpu.MPS, limits)
	victim := r.run(t, "b", d.PipeDir, "spin", "25")
	victim.await(t, "rate")

	since := time.Now()
	j := r.run(t, "a", "", "spin", "20")
	j.await(t, "first")
	e := r.caught(t, j, since)
	require.Equal(t, guard.Bypass, e.Reason)
	require.Equal(t, []string{"b"}, e.Victims)
	victim.await(t, "rate")

	first := r.run(t, "a", d.PipeDir, "spin", "20")
	first.await(t, "first")
	since = time.Now()
	j = r.run(t, "a", d.PipeDir, "spin", "20")
	j.await(t, "first")
	require.Equal(t, guard.ProcessLimit, r.caught(t, j, since).Reason)
	first.await(t, "rate")
	victim.await(t, "rate")
	use, err := r.drv.Usage(t.Context(), r.uuid)
	require.NoError(t, err)
	t.Logf("usage: %+v", use)
	for _, c := range []*job{first, victim} {
		clients, err := r.mps.Clients(t.Context(), r.uuid)
		require.NoError(t, err)
		for _, cl := range clients {
			if cl.Process == c.id {
				require.NoError(t, r.mps.Terminate(t.Context(), r.uuid, cl))
			}
		}
		require.NoError(t, c.id.Kill(t.Context(), clock.Real()))
	}
}

func TestHardwareTurnsAreHeldToMemory(t *testing.T) {
	r := newRig(t)
	r.guard(t, gpu.TimeSlice, mpsd.Limits{Memory: 4000})
	since := time.Now()
	j := r.run(t, "a", "", "allocate", "6000", "--hold", "20")
	j.await(t, "allocate")
	require.Equal(t, guard.MemoryLimit, r.caught(t, j, since).Reason)
}

func TestHardwareEventsAndCounters(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w, err := r.drv.Watch(ctx)
	require.NoError(t, err)
	j := r.run(t, "a", "", "spin", "2")
	j.await(t, "rate")
	for range 2 {
		use, err := r.drv.Usage(ctx, r.uuid)
		require.NoError(t, err)
		t.Logf("usage: %+v", use)
		require.Greater(t, use[0].Busy.Or(0), int64(900))
	}
	require.NoError(t, <-j.done)
	since := time.Now()
	bad := r.run(t, "a", "", "fault")
	require.Error(t, <-bad.done)
	e, err := w.Next(ctx)
	require.NoError(t, err)
	t.Logf("event after %s: %+v", time.Since(since), e)
	require.Equal(t, gpudrv.EventXID, e.Kind)
	require.Equal(t, 31, e.XID)
	require.Equal(t, r.uuid, e.GPU)
	require.NoError(t, w.Close())
	can, err := r.drv.Capabilities(ctx, r.uuid)
	require.NoError(t, err)
	t.Logf("capabilities: %+v", can)
	fabric, err := r.drv.Fabric(ctx, r.uuid)
	require.NoError(t, err)
	t.Logf("fabric: %+v", fabric)
}
