package gpudrvtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Writes checks every promise of gpudrv.Writer on one empty GPU of the
// eight-unit family that switches MIG without a reset. It leaves the GPU empty,
// in whole mode.
func Writes(t *testing.T, d gpudrv.Driver, uuid string) {
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	t.Run("whole", func(t *testing.T) { wholeRefuses(ctx, t, d, uuid) })
	t.Run("mig", func(t *testing.T) { migLife(ctx, t, d, uuid) })
	t.Run("mig constraints", func(t *testing.T) { migRefuses(ctx, t, d, uuid) })
	t.Run("shares", func(t *testing.T) { shareLife(ctx, t, d, uuid) })
	t.Run("settings", func(t *testing.T) { tunes(ctx, t, d, uuid) })
}

// Profile ids of the family.
const (
	full, four, three, one = 0, 5, 9, 19
)

func at(start, size int) gpudrv.Placement { return gpudrv.Placement{Start: start, Size: size} }

func kind(t *testing.T, want gpudrv.Kind, err error) {
	t.Helper()
	require.Equal(t, want, gpudrv.KindOf(err), "%v", err)
}

func setMode(ctx context.Context, t *testing.T, d gpudrv.Driver, uuid string, m gpu.Mode) {
	t.Helper()
	require.NoError(t, d.SetMode(ctx, uuid, m))
	now, err := d.Mode(ctx, uuid)
	require.NoError(t, err)
	require.Equal(t, m, now)
}

func wholeRefuses(ctx context.Context, t *testing.T, d gpudrv.Driver, uuid string) {
	setMode(ctx, t, d, uuid, gpu.WholeMode())
	_, err := d.CreateGPUInstance(ctx, uuid, one, at(0, 1))
	kind(t, gpudrv.Unsupported, err)
	_, err = d.CreateShare(ctx, uuid, 0)
	kind(t, gpudrv.Unsupported, err)
	kind(t, gpudrv.Invalid, d.SetMode(ctx, uuid, gpu.Mode{}))
	kind(t, gpudrv.NotFound, d.DestroyGPUInstance(ctx, uuid, 1))
	kind(t, gpudrv.NotFound, d.DestroyShare(ctx, uuid, 0))
}

func migLife(ctx context.Context, t *testing.T, d gpudrv.Driver, uuid string) {
	setMode(ctx, t, d, uuid, gpu.MIGMode())
	gi, err := d.CreateGPUInstance(ctx, uuid, three, at(4, 4))
	require.NoError(t, err)
	require.Equal(t, at(4, 4), gi.Placement)
	require.Empty(t, gi.Compute)
	kind(t, gpudrv.InUse, d.SetMode(ctx, uuid, gpu.WholeMode()))
	ci, err := d.CreateComputeInstance(ctx, uuid, gi.ID)
	require.NoError(t, err)
	require.NotEmpty(t, ci.UUID)
	require.NotEqual(t, uuid, ci.UUID)
	_, err = d.CreateComputeInstance(ctx, uuid, gi.ID)
	kind(t, gpudrv.NoRoom, err)
	kind(t, gpudrv.InUse, d.DestroyGPUInstance(ctx, uuid, gi.ID))

	list, err := d.GPUInstances(ctx, uuid)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, []gpudrv.ComputeInstance{ci}, list[0].Compute)

	neighbour, err := d.CreateGPUInstance(ctx, uuid, one, at(0, 1))
	require.NoError(t, err)
	require.NoError(t, d.DestroyGPUInstance(ctx, uuid, neighbour.ID))
	after, err := d.GPUInstances(ctx, uuid)
	require.NoError(t, err)
	require.Equal(t, list, after, "a neighbour's life leaves no trace")

	require.NoError(t, d.DestroyComputeInstance(ctx, uuid, gi.ID, ci.ID))
	kind(t, gpudrv.NotFound, d.DestroyComputeInstance(ctx, uuid, gi.ID, ci.ID))
	require.NoError(t, d.DestroyGPUInstance(ctx, uuid, gi.ID))
	kind(t, gpudrv.NotFound, d.DestroyGPUInstance(ctx, uuid, gi.ID))
	again, err := d.CreateGPUInstance(ctx, uuid, three, at(4, 4))
	require.NoError(t, err)
	require.Equal(t, gi.ID, again.ID, "ids are positional and reused")
	require.NoError(t, d.DestroyGPUInstance(ctx, uuid, again.ID))
	setMode(ctx, t, d, uuid, gpu.WholeMode())
}

func migRefuses(ctx context.Context, t *testing.T, d gpudrv.Driver, uuid string) {
	setMode(ctx, t, d, uuid, gpu.MIGMode())
	for _, bad := range []gpudrv.Placement{at(5, 3), at(2, 4), at(-1, 4), at(0, 8), at(8, 4), {}} {
		_, err := d.CreateGPUInstance(ctx, uuid, three, bad)
		kind(t, gpudrv.Invalid, err)
	}
	const noSuchProfile = 9999
	_, err := d.CreateGPUInstance(ctx, uuid, noSuchProfile, at(0, 1))
	kind(t, gpudrv.Invalid, err)
	_, err = d.CreateComputeInstance(ctx, uuid, 1)
	kind(t, gpudrv.NotFound, err)

	a, err := d.CreateGPUInstance(ctx, uuid, four, at(0, 4))
	require.NoError(t, err)
	_, err = d.CreateGPUInstance(ctx, uuid, full, at(0, 8))
	kind(t, gpudrv.NoRoom, err)
	_, err = d.CreateGPUInstance(ctx, uuid, three, at(0, 4))
	kind(t, gpudrv.NoRoom, err)
	b, err := d.CreateGPUInstance(ctx, uuid, three, at(4, 4))
	require.NoError(t, err)
	_, err = d.CreateGPUInstance(ctx, uuid, one, at(6, 1))
	kind(t, gpudrv.NoRoom, err)
	for _, gi := range []int{a.ID, b.ID} {
		require.NoError(t, d.DestroyGPUInstance(ctx, uuid, gi))
	}
	setMode(ctx, t, d, uuid, gpu.WholeMode())
}

func shareLife(ctx context.Context, t *testing.T, d gpudrv.Driver, uuid string) {
	for _, text := range []string{"mps:4x25", "timeslice:2"} {
		m, err := gpu.ParseMode(text)
		require.NoError(t, err)
		setMode(ctx, t, d, uuid, m)
		for u := range m.Shares {
			s, err := d.CreateShare(ctx, uuid, u)
			require.NoError(t, err)
			require.Equal(t, 100/m.Shares, s.SMPercent)
			_, err = d.CreateShare(ctx, uuid, u)
			kind(t, gpudrv.NoRoom, err)
		}
		_, err = d.CreateShare(ctx, uuid, m.Shares)
		kind(t, gpudrv.Invalid, err)
		kind(t, gpudrv.InUse, d.SetMode(ctx, uuid, gpu.WholeMode()))
		list, err := d.Shares(ctx, uuid)
		require.NoError(t, err)
		require.Len(t, list, m.Shares)
		for u := range m.Shares {
			require.NoError(t, d.DestroyShare(ctx, uuid, u))
			kind(t, gpudrv.NotFound, d.DestroyShare(ctx, uuid, u))
		}
		setMode(ctx, t, d, uuid, gpu.WholeMode())
	}
}
