package health_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/replay"
	"github.com/tranche-cloud/tranche/nodeagent/health"
)

// recorded is a machine of which only answers are left.
type recorded struct {
	*replay.Driver
	gpudrv.Frozen
}

// watched is a keeper without slices that remembers what it was told.
type watched struct {
	uuids  []string
	health map[string]nodeagent.GPUHealth
	is     agentlink.Condition
}

func (w *watched) GPUs() []string                                            { return w.uuids }
func (w *watched) Holders(string) []string                                   { return nil }
func (w *watched) Tenancies() []nodeagent.Tenancy                            { return nil }
func (w *watched) SetHealth(u string, h nodeagent.GPUHealth)                 { w.health[u] = h }
func (w *watched) SetCondition(is agentlink.Condition, _ string)             { w.is = is }
func (w *watched) Interrupt(nodeagent.Interruption) ([]id.Assignment, error) { return nil, nil }

func (w *watched) Mend(ctx context.Context, uuids []string, reset, test func(context.Context, string) error) error {
	for _, u := range uuids {
		if err := reset(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// What a real H200 answers is no ailment. One that cannot be reset, as here, is shut
// when it needs it.
func TestARealH200IsHealthy(t *testing.T) {
	d, err := replay.Open("../gpudrv/replay/testdata/h200-141.json")
	require.NoError(t, err)
	refs, err := d.GPUs(t.Context())
	require.NoError(t, err)
	uuid := refs[0].UUID
	w := &watched{uuids: []string{uuid}, health: map[string]nodeagent.GPUHealth{}}
	m, err := health.New(health.Config{
		Driver: recorded{Driver: d, Frozen: gpudrv.Frozen{Why: "a recording"}}, Keeper: w, Clock: clock.Real(),
		Uptime: func() time.Duration { return time.Hour },
	})
	require.NoError(t, err)
	require.NoError(t, m.Watch(t.Context()), "a driver without events is read all the same")
	for range 2 {
		m.Round(t.Context())
		require.Equal(t, nodeagent.GPUHealth{State: nodeagent.Healthy}, w.health[uuid])
		require.Empty(t, w.is)
	}
	m.Take(t.Context(), gpudrv.Event{Kind: gpudrv.EventXID, GPU: uuid, XID: 119, GPUInstance: -1, ComputeInstance: -1})
	require.Equal(t, nodeagent.Failing, w.health[uuid].State)
	m.Round(t.Context())
	m.Settle()
	require.Equal(t, nodeagent.Quarantined, w.health[uuid].State)
	require.Contains(t, w.health[uuid].Detail, "host needs a reboot")
}
