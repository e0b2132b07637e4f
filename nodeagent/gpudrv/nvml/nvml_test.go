//go:build nvml

package nvml_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/gpudrvtest"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/nvml"
)

// The tests need a machine with an NVIDIA GPU; they change nothing on it.
func open(t *testing.T) gpudrv.Driver {
	t.Helper()
	d, err := nvml.Open(nvml.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestReadsConform(t *testing.T) {
	gpudrvtest.ReadOnly(t, open(t))
}

func TestNothingCanBeChanged(t *testing.T) {
	d := open(t)
	refs, err := d.GPUs(t.Context())
	require.NoError(t, err)
	for _, r := range refs {
		before, err := d.MIGMode(t.Context(), r.UUID)
		require.NoError(t, err)
		require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(d.SetMode(t.Context(), r.UUID, gpu.MIGMode())))
		_, err = d.CreateShare(t.Context(), r.UUID, 0)
		require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(err))
		after, err := d.MIGMode(t.Context(), r.UUID)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
}

func TestAnInventoryIsQuick(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := open(t)
	start := time.Now()
	found, err := gpudrv.Inventory(ctx, d)
	require.NoError(t, err)
	t.Logf("%d gpus in %s", len(found), time.Since(start))
	for _, f := range found {
		t.Logf("%s %s placements from %s", f.Device.Model, f.Device.UUID, f.PlacementsSource)
	}
}
