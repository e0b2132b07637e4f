package e2e_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// modeWhenEmpty has an operator change the mode of an occupied GPU by the command line:
// it waits for the tenant, takes nobody new, and sells in the new mode afterwards.
func modeWhenEmpty(t *testing.T, r *region) {
	ctx := within(t, time.Minute)
	b, c := r.buyer(t, ctx, "Occupant")
	up := running(t, ctx, c, b, wanted(market.TimeSlice, "occupant"))
	uuid, err := up.Gpus[0].Uuid.Get()
	require.NoError(t, err)
	look := func() client.GPU {
		for g, err := range r.Admin().GPUs(ctx) {
			require.NoError(t, err)
			if g.Uuid == uuid {
				return g
			}
		}
		require.Fail(t, "the GPU is not listed")
		return client.GPU{}
	}
	free := func(p market.Product) int32 {
		for o, err := range c.Offers(ctx) {
			require.NoError(t, err)
			if o.Id == p.Offer {
				return o.Available
			}
		}
		return 0
	}
	g, shares := look(), free(market.MPS)
	require.Equal(t, "timeslice:2", g.Mode)

	dry := program(t, r.tranche(ctx, r.AdminToken(), "gpu", "set-mode", g.Id, "mps:4x25", "--when-empty", "--dry-run", "-o", "json"))
	require.Zero(t, dry.code, dry.err)
	require.Contains(t, dry.out, up.Id, "whom it concerns")
	accepted := program(t, r.tranche(ctx, r.AdminToken(), "gpu", "set-mode", g.Id, "mps:4x25", "--when-empty", "-o", "json"))
	require.Zero(t, accepted.code, accepted.err)
	var op client.AdminOperation
	require.NoError(t, json.Unmarshal([]byte(accepted.out), &op), accepted.out)

	other, err := c.CreateInstance(ctx, b.Project, wanted(market.TimeSlice, "latecomer"))
	require.NoError(t, err)
	late, err := other.Operation.Get()
	require.NoError(t, err)
	_, err = c.WaitOperation(ctx, late.Id)
	require.Equal(t, "capacity.none", client.CodeOf(err), "nothing new is placed there: %v", err)
	waiting := look()
	require.Equal(t, "timeslice:2", waiting.Mode)
	change, err := waiting.ModeChange.Get()
	require.NoError(t, err)
	require.Equal(t, op.Id, change, "it waits")
	still, err := c.GetInstance(ctx, b.Project, up.Id)
	require.NoError(t, err)
	require.Equal(t, wire.InstanceStatusRunning, still.Status)
	require.Equal(t, up.Billed, still.Billed)

	remove(t, ctx, c, b, up.Id)
	done := program(t, r.tranche(ctx, r.AdminToken(), "gpu", "wait", op.Id))
	require.Zero(t, done.code, done.err)
	switched := look()
	require.Equal(t, "mps:4x25", switched.Mode)
	require.EqualValues(t, 4, switched.UnitsTotal)
	require.Eventually(t, func() bool { return free(market.MPS) == shares+4 }, settle, glance, "four more shares are on sale")

	back := program(t, r.tranche(ctx, r.AdminToken(), "gpu", "set-mode", g.Id, "timeslice:2", "--when-empty", "--wait"))
	require.Zero(t, back.code, back.err)
	again := running(t, ctx, c, b, wanted(market.TimeSlice, "successor"))
	require.Equal(t, up.Gpus[0].Model, again.Gpus[0].Model)
	remove(t, ctx, c, b, again.Id)
}
