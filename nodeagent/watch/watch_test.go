package watch_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/guard"
	"github.com/tranche-cloud/tranche/nodeagent/simhost"
	"github.com/tranche-cloud/tranche/nodeagent/spool"
	"github.com/tranche-cloud/tranche/nodeagent/watch"
)

// Everything runs together on one host: what the driver reports is in the spool.
func TestAHostIsWatched(t *testing.T) {
	fleet := sim.FleetHost{Name: "one", VCPU: 8, RAM: 65536, GPUs: []sim.FleetGPU{{Model: "H100-80", Mode: gpu.WholeMode(), Count: 1}}}
	dir := t.TempDir()
	h, err := simhost.Open(t.Context(), simhost.Config{Dir: dir, Host: fleet, Clock: clock.Real()})
	require.NoError(t, err)
	defer func() { require.NoError(t, h.Sim.Close()) }()
	k, err := nodeagent.NewKeeper(t.Context(), h.Host)
	require.NoError(t, err)
	defer func() { require.NoError(t, k.Close()) }()
	s, err := spool.Open(spool.Config{Path: filepath.Join(dir, "spool"), Uptime: nodeagent.Uptime, Now: time.Now})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	cfg := watch.Config{
		Host: h.Host, Keeper: k, Driver: h.Sim, Spool: s, MetricsListen: "127.0.0.1:0",
		Guard: func(sink guard.Sink) *guard.Guard {
			return guard.New(guard.Config{Driver: h.Sim, Targets: func() []guard.Target { return nil }, Sink: sink, Clock: clock.Real()})
		},
	}
	cfg.Policy = filepath.Join(dir, "policy.yaml")
	_, err = watch.New(cfg)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(cfg.Policy, []byte("version: 1\nrules: [{codes: [13], do: alarm}]\n"), 0o600))
	w, err := watch.New(cfg)
	require.NoError(t, err)
	require.NoError(t, w.Register(t.Context()))
	require.NoError(t, k.Adopt(t.Context()))
	a := id.New[id.Assignment]()
	uuid := fleet.Devices()[0].UUID
	k.Obey(agentlink.Desired{Version: 1, Timeline: 1, Orders: []agentlink.Order{{
		Assignment: a, Fence: 1, Instance: id.New[id.Instance](), Run: 1, Image: "img",
		Slots: []gpu.Slot{{GPU: uuid, Mode: gpu.WholeMode(), Size: 1}},
	}}})
	k.Settle()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	h.Sim.XID(uuid, 13, -1, -1) // before or after Run: it was registered for
	require.Eventually(t, func() bool { return k.Healths()[uuid].Cause == "XID_13" }, 20*time.Second, 5*time.Millisecond)
	kinds := map[string]bool{}
	for _, r := range s.Pending(0, 100) {
		kinds[r.Event.Kind] = true
	}
	require.True(t, kinds["gpu.xid"] && kinds["gpu.unhealthy"])
	w.Meter.Tick(ctx)
	require.Len(t, w.Meter.Latest(), 1)
	cancel()
	require.NoError(t, <-done)
}
