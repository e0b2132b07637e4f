package carve_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

func TestVirtualMachinesGetFunctionsOrTheWholeGPU(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		technique gpu.Kind
		mode      string
		class     gpu.Isolation
	}{{carve.SRIOV, "timeslice:4", gpu.Limited}, {carve.VFIO, "whole", gpu.Dedicated}} {
		t.Run(string(tc.technique), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			b := setupHost(t, "H200-141", tc.mode, sim.FleetDriver{SRIOV: true, VFIO: true})
			s := b.slice(t, "", 0)
			s.Technique = tc.technique
			plan, err := b.set.Plan(ctx, s)
			require.NoError(t, err)
			require.Len(t, plan.Steps, 1)
			e, err := b.set.Ensure(ctx, s)
			require.NoError(t, err)
			again, err := b.set.Ensure(ctx, s)
			require.NoError(t, err)
			require.Equal(t, e, again)
			require.NotEmpty(t, e.Function)
			require.Equal(t, tc.class, e.Isolation)
			require.NoError(t, b.drv.Attach(b.uuid, sim.Client{PID: 7, Name: "qemu", Slot: s.Slot}))
			require.Equal(t, gpudrv.InUse, gpudrv.KindOf(b.set.Remove(ctx, s)))
			require.Equal(t, gpudrv.InUse, gpudrv.KindOf(b.set.EnsureMode(ctx, b.uuid, gpu.MIGMode())))
			require.NoError(t, b.drv.Detach(b.uuid, 7))
			require.NoError(t, b.set.Remove(ctx, s))
			require.NoError(t, b.set.Remove(ctx, s))
			require.NoError(t, b.set.EnsureMode(ctx, b.uuid, gpu.MIGMode()))
		})
	}
}

func TestDriversWithoutThemRefuseVirtualMachines(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t, "H200-141", "whole")
	for _, k := range []gpu.Kind{carve.SRIOV, carve.VFIO} {
		s := b.slice(t, "", 0)
		s.Technique = k
		_, err := b.set.Ensure(ctx, s)
		require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(err))
		_, err = b.set.Plan(ctx, s)
		require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(err))
		require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(b.set.Remove(ctx, s)))
	}
}
