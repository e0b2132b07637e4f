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
	d, err := nvml.Open(nvml.Config{LeaveSettings: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestReadsConform(t *testing.T) {
	gpudrvtest.ReadOnly(t, open(t))
}

func TestSettingsAreLeft(t *testing.T) {
	d := open(t)
	ctx := t.Context()
	refs, err := d.GPUs(ctx)
	require.NoError(t, err)
	for _, r := range refs {
		before, err := d.Settings(ctx, r.UUID)
		require.NoError(t, err)
		mig, err := d.MIGMode(ctx, r.UUID)
		require.NoError(t, err)
		_, noPlace := d.CreateGPUInstance(ctx, r.UUID, 19, gpudrv.Placement{Start: 0, Size: 1})
		_, noShare := d.CreateShare(ctx, r.UUID, 0)
		for call, err := range map[string]error{
			"mig": d.SetMode(ctx, r.UUID, gpu.MIGMode()), "instance": noPlace, "share": noShare,
			"reset": d.Reset(ctx, r.UUID), "turns": d.SetTimeslice(ctx, r.UUID, gpudrv.TimesliceLong),
			"compute mode": d.SetComputeMode(ctx, r.UUID, gpudrv.ComputeProhibited),
		} {
			require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(err), "%s: %v", call, err)
		}
		require.NoError(t, d.SetMode(ctx, r.UUID, gpu.WholeMode()), "nothing to do")
		require.Equal(t, gpudrv.Invalid, gpudrv.KindOf(d.SetComputeMode(ctx, r.UUID, "any")))
		after, err := d.Settings(ctx, r.UUID)
		require.NoError(t, err)
		require.Equal(t, before, after)
		migAfter, err := d.MIGMode(ctx, r.UUID)
		require.NoError(t, err)
		require.Equal(t, mig, migAfter)
	}
}

func TestAWatcherWaitsAndCloses(t *testing.T) {
	d := open(t)
	w, err := d.Watch(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = w.Next(ctx)
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err))
	require.NoError(t, w.Close())
	_, err = w.Next(t.Context())
	require.Equal(t, gpudrv.Broken, gpudrv.KindOf(err))
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
