package kept_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/gpudrvtest"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/kept"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/replay"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

func card(t *testing.T, dir string) *sim.Driver {
	t.Helper()
	d, err := sim.Open(sim.Config{Dir: dir, Host: sim.FleetHost{Name: "h", VCPU: 8, RAM: 65536, GPUs: []sim.FleetGPU{
		{Model: "H200-141", Mode: gpu.WholeMode(), Count: 1},
	}}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func uuidOf(t *testing.T, d gpudrv.Driver) string {
	t.Helper()
	refs, err := d.GPUs(t.Context())
	require.NoError(t, err)
	return refs[0].UUID
}

func open(t *testing.T, inner gpudrv.Driver, path string) *kept.Driver {
	t.Helper()
	d, err := kept.Open(t.Context(), inner, path)
	require.NoError(t, err)
	return d
}

func mode(t *testing.T, text string) gpu.Mode {
	t.Helper()
	m, err := gpu.ParseMode(text)
	require.NoError(t, err)
	return m
}

func TestItConforms(t *testing.T) {
	t.Parallel()
	d := open(t, card(t, t.TempDir()), filepath.Join(t.TempDir(), "modes.json"))
	gpudrvtest.ReadOnly(t, d)
	gpudrvtest.Writes(t, d, uuidOf(t, d))
}

func TestARecordedGPUTakesModesAndShares(t *testing.T) {
	t.Parallel()
	inner, err := replay.Open("../replay/testdata/h200-141.json")
	require.NoError(t, err)
	d := open(t, inner, filepath.Join(t.TempDir(), "modes.json"))
	id, ctx := uuidOf(t, d), t.Context()
	require.NoError(t, d.SetMode(ctx, id, mode(t, "mps:4x25")))
	s, err := d.CreateShare(ctx, id, 3)
	require.NoError(t, err)
	require.Equal(t, gpudrv.Share{Unit: 3, Memory: 35942, SMs: 32, SMPercent: 25}, s)
	gpudrvtest.ReadOnly(t, d)
	require.NoError(t, d.DestroyShare(ctx, id, 3))
	require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(d.SetMode(ctx, id, gpu.MIGMode())), "MIG is the hardware's")
	require.Equal(t, gpudrv.NotFound, gpudrv.KindOf(d.SetMode(ctx, "GPU-none", gpu.WholeMode())))
}

func TestModesAndSharesLastOneBoot(t *testing.T) {
	t.Parallel()
	path, ctx := filepath.Join(t.TempDir(), "state", "modes.json"), t.Context()
	inner := card(t, t.TempDir())
	d := open(t, inner, path)
	id := uuidOf(t, d)
	require.NoError(t, d.SetMode(ctx, id, mode(t, "timeslice:2")))
	_, err := d.CreateShare(ctx, id, 1)
	require.NoError(t, err)

	again := open(t, inner, path)
	m, err := again.Mode(ctx, id)
	require.NoError(t, err)
	require.Equal(t, mode(t, "timeslice:2"), m)
	shares, err := again.Shares(ctx, id)
	require.NoError(t, err)
	require.Equal(t, []gpudrv.Share{{Unit: 1, Memory: units.MiB(71885), SMs: 132, SMPercent: 50}}, shares)
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(again.SetMode(ctx, id, gpu.WholeMode())))

	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	host, err := inner.Host(ctx)
	require.NoError(t, err)
	require.Contains(t, string(raw), host.BootID)
	other := open(t, card(t, t.TempDir()), path) // another boot id
	m, err = other.Mode(ctx, uuidOf(t, other))
	require.NoError(t, err)
	require.Equal(t, gpu.WholeMode(), m)
}

func TestAResetTakesTheShares(t *testing.T) {
	t.Parallel()
	d := open(t, card(t, t.TempDir()), filepath.Join(t.TempDir(), "modes.json"))
	id, ctx := uuidOf(t, d), t.Context()
	require.NoError(t, d.SetMode(ctx, id, mode(t, "mps:2x50")))
	_, err := d.CreateShare(ctx, id, 0)
	require.NoError(t, err)
	require.NoError(t, d.Reset(ctx, id))
	shares, err := d.Shares(ctx, id)
	require.NoError(t, err)
	require.Empty(t, shares)
}

func TestAForeignFileIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "{", `{"format":2,"boot_id":"","gpus":{}}`, `{"format":1,"boot_id":"","gpus":{},"more":1}`,
		`{"format":1,"boot_id":"b","gpus":{"GPU-1":{"mode":"whole","shares":[]}}}`,
		`{"format":1,"boot_id":"b","gpus":{"GPU-1":{"mode":"mps:2x50","shares":[1,0]}}}`,
		`{"format":1,"boot_id":"b","gpus":{"GPU-1":{"mode":"mps:2x50","shares":[2]}}}`,
	} {
		path := filepath.Join(t.TempDir(), "modes.json")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := kept.Open(t.Context(), card(t, t.TempDir()), path)
		require.Error(t, err, text)
	}
}
