//go:build nvml && hardware

package watch_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/nvml"
	"github.com/tranche-cloud/tranche/nodeagent/health"
	"github.com/tranche-cloud/tranche/nodeagent/journal"
	"github.com/tranche-cloud/tranche/nodeagent/meter"
)

// These tests need one idle NVIDIA GPU of Hopper or later, root, and the programs of
// cuda/, whose folder TRANCHE_CUDA names. They leave the GPU's settings alone, reset
// nothing, and leave nothing behind.

// alone is a keeper of one run on a whole GPU, and a spool.
type alone struct {
	uuid string
	run  id.Assignment

	mu      sync.Mutex
	health  nodeagent.GPUHealth
	events  []agentlink.Event
	samples []agentlink.Samples
}

func (a *alone) GPUs() []string          { return []string{a.uuid} }
func (a *alone) Holders(string) []string { return []string{a.run.String()} }
func (a *alone) Tenancies() []nodeagent.Tenancy {
	return []nodeagent.Tenancy{{Assignment: a.run, Running: true, Slots: []journal.Slot{
		{Slot: gpu.Slot{GPU: a.uuid, Mode: gpu.WholeMode(), Size: 1}},
	}}}
}

func (a *alone) SetHealth(_ string, h nodeagent.GPUHealth) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.health = h
}
func (a *alone) SetCondition(agentlink.Condition, string)                  {}
func (a *alone) Interrupt(nodeagent.Interruption) ([]id.Assignment, error) { return nil, nil }
func (a *alone) Mend(context.Context, []string, test, test) error          { return nil }
func (a *alone) Event(e agentlink.Event) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, e)
	return nil
}
func (a *alone) Samples(x agentlink.Samples) error { a.samples = append(a.samples, x); return nil }

type test = func(context.Context, string) error

func open(t *testing.T) (gpudrv.Driver, *alone) {
	t.Helper()
	require.NotEmpty(t, os.Getenv("TRANCHE_CUDA"), "TRANCHE_CUDA names the folder of the CUDA programs")
	drv, err := nvml.Open(nvml.Config{LeaveSettings: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, drv.Close()) })
	refs, err := drv.GPUs(t.Context())
	require.NoError(t, err)
	return drv, &alone{uuid: refs[0].UUID, run: id.New[id.Assignment]()}
}

func program(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv("TRANCHE_CUDA"), name), args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LD_LIBRARY_PATH=" + os.Getenv("LD_LIBRARY_PATH")}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// A real GPU is well; a program that writes where it may not is told to its tenant,
// and the GPU stays well.
func TestARealXidIsTheTenants(t *testing.T) {
	drv, a := open(t)
	m, err := health.New(health.Config{
		Driver: drv, Keeper: a, Spool: a, Clock: clock.Real(), Uptime: nodeagent.Uptime, Every: 500 * time.Millisecond,
	})
	require.NoError(t, err)
	require.NoError(t, m.Watch(t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	begin := time.Now()
	program(t, "fault")
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, e := range a.events {
			if e.Kind == "gpu.xid" && e.Subject == a.run.String() && e.Attributes["code"] == "31" {
				return true
			}
		}
		return false
	}, 20*time.Second, 10*time.Millisecond)
	t.Logf("told %v after the program's start", time.Since(begin).Round(time.Millisecond))
	m.Round(ctx)
	a.mu.Lock()
	require.Equal(t, nodeagent.GPUHealth{State: nodeagent.Healthy}, a.health)
	a.mu.Unlock()
	cancel()
	require.NoError(t, <-done)
}

// What is measured is what a program of a known duty does.
func TestKnownDutiesAreMeasured(t *testing.T) {
	drv, a := open(t)
	m, err := meter.New(meter.Config{
		Driver: drv, Tenants: a.Tenancies, Spool: a, Clock: clock.Real(), Uptime: nodeagent.Uptime,
	})
	require.NoError(t, err)
	m.Away(t.Context())
	for _, duty := range []int64{100, 50} {
		cmd := program(t, "spin", "8", strconv.FormatInt(duty, 10))
		require.Eventually(t, func() bool {
			m.Tick(t.Context())
			return m.Latest()[0].Readings[meter.Busy] > 0
		}, 20*time.Second, 100*time.Millisecond)
		sum, n := int64(0), int64(0)
		for range 10 {
			m.Tick(t.Context())
			x := a.samples[len(a.samples)-1].Slices[0]
			require.Equal(t, meter.GPM, x.Source)
			require.Empty(t, x.Gap)
			require.Positive(t, x.Readings[meter.GPUMemory])
			sum, n = sum+x.Readings[meter.Busy], n+1
		}
		t.Logf("duty %d %%: busy %d millionths, %v", duty, sum/n, a.samples[len(a.samples)-1].Slices[0].Readings)
		require.InDelta(t, duty*10_000, sum/n, 150_000)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}
