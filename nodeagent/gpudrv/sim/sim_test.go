package sim_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/gpudrvtest"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

// mixed is a host with one GPU of each model and mode.
func mixed() sim.FleetHost {
	mps, _ := gpu.MPSMode(4, 25)
	slice, _ := gpu.TimeSliceMode(2)
	return sim.FleetHost{Name: "host-1", VCPU: 64, RAM: 1 << 20, GPUs: []sim.FleetGPU{
		{Model: "H200-141", Mode: gpu.MIGMode(), Count: 1},
		{Model: "H100-80", Mode: gpu.WholeMode(), Count: 1},
		{Model: "A100-80", Mode: mps, Count: 1},
		{Model: "A100-80", Mode: slice, Count: 1},
		{Model: "A100-80", Mode: gpu.MIGMode(), Count: 1},
	}}
}

func one(model string, m gpu.Mode) sim.FleetHost {
	return sim.FleetHost{Name: "solo", VCPU: 8, RAM: 65536, GPUs: []sim.FleetGPU{{Model: model, Mode: m, Count: 1}}}
}

func open(t testing.TB, dir string, h sim.FleetHost) *sim.Driver {
	t.Helper()
	d, err := sim.Open(sim.Config{Dir: dir, Host: h})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestReadsConform(t *testing.T) {
	t.Parallel()
	gpudrvtest.ReadOnly(t, open(t, t.TempDir(), mixed()))
}

func TestEveryModelConforms(t *testing.T) {
	t.Parallel()
	for _, model := range sim.Models() {
		for _, variant := range append(sim.Variants(model), "") {
			h := one(model, gpu.WholeMode())
			h.GPUs[0].Variant = variant
			gpudrvtest.ReadOnly(t, open(t, "", h))
		}
	}
}

func TestWritesConform(t *testing.T) {
	t.Parallel()
	for _, offers := range []sim.FleetDriver{{}, {Version: "615.10", MPS: 3, MemoryLimits: true}} {
		for _, model := range []string{"H100-80", "H200-141", "B200-180"} {
			h := one(model, gpu.WholeMode())
			h.Driver = offers
			gpudrvtest.Writes(t, open(t, t.TempDir(), h), h.Devices()[0].UUID)
		}
	}
}

func TestEventsConform(t *testing.T) {
	t.Parallel()
	h := one("H200-141", gpu.WholeMode())
	d, uuid := open(t, "", h), h.Devices()[0].UUID
	gpudrvtest.Events(t, d, uuid, func(code int) { d.XID(uuid, code, -1, -1) })
}

func TestGPUsStartInTheFleetsModes(t *testing.T) {
	t.Parallel()
	h := mixed()
	found, err := gpudrv.Inventory(t.Context(), open(t, t.TempDir(), h))
	require.NoError(t, err)
	for i, want := range h.Devices() {
		require.Equal(t, want.UUID, found[i].Device.UUID)
		require.Equal(t, want.Model, found[i].Device.Model, "the slug is derived from what the driver reports")
		require.Equal(t, want.Mode, found[i].Mode)
		require.True(t, found[i].Device.Simulated)
		require.Equal(t, "sim", found[i].PlacementsSource)
	}
}

func TestSlicesOutliveTheAgentButNotAReboot(t *testing.T) {
	t.Parallel()
	ctx, dir, h := t.Context(), t.TempDir(), mixed()
	mig, mps := h.Devices()[0].UUID, h.Devices()[2].UUID
	ampere := h.Devices()[4].UUID
	d := open(t, dir, h)
	gi, err := d.CreateGPUInstance(ctx, mig, 19, gpudrv.Placement{Start: 6, Size: 1})
	require.NoError(t, err)
	_, err = d.CreateShare(ctx, mps, 3)
	require.NoError(t, err)
	boot, err := d.Host(ctx)
	require.NoError(t, err)

	_, err = sim.Open(sim.Config{Dir: dir, Host: h})
	require.ErrorContains(t, err, "used by another process")
	require.NoError(t, d.Close())

	d = open(t, dir, h)
	after, err := d.Host(ctx)
	require.NoError(t, err)
	require.Equal(t, boot.BootID, after.BootID)
	list, err := d.GPUInstances(ctx, mig)
	require.NoError(t, err)
	require.Equal(t, []gpudrv.GPUInstance{gi}, list)
	shares, err := d.Shares(ctx, mps)
	require.NoError(t, err)
	require.Len(t, shares, 1)
	require.NoError(t, d.Close())

	require.NoError(t, sim.Reboot(dir))
	d = open(t, dir, h)
	after, err = d.Host(ctx)
	require.NoError(t, err)
	require.NotEqual(t, boot.BootID, after.BootID)
	for uuid, want := range map[string]gpu.Mode{mig: gpu.WholeMode(), mps: gpu.WholeMode(), ampere: gpu.MIGMode()} {
		m, err := d.Mode(ctx, uuid)
		require.NoError(t, err)
		require.Equal(t, want, m, "Hopper forgets MIG, Ampere keeps it, mps is the agent's")
		list, err := d.GPUInstances(ctx, uuid)
		require.NoError(t, err)
		require.Empty(t, list)
	}
	refs, err := d.GPUs(ctx)
	require.NoError(t, err)
	require.NotEqual(t, h.Devices()[0].UUID, refs[0].UUID, "indices are shuffled")
}

func TestAStateOfAnotherFleetIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, open(t, dir, one("H100-80", gpu.WholeMode())).Close())
	_, err := sim.Open(sim.Config{Dir: dir, Host: one("H200-141", gpu.WholeMode())})
	require.ErrorContains(t, err, "fleet")
}

func TestAmpereSwitchesMIGOnlyByReset(t *testing.T) {
	t.Parallel()
	ctx, h := t.Context(), one("A100-80", gpu.WholeMode())
	uuid := h.Devices()[0].UUID
	d := open(t, t.TempDir(), h)
	err := d.SetMode(ctx, uuid, gpu.MIGMode())
	require.Equal(t, gpudrv.NeedsReset, gpudrv.KindOf(err))
	v, err := d.MIGMode(ctx, uuid)
	require.NoError(t, err)
	require.Equal(t, gpudrv.MIGMode{Pending: true}, v.Or(gpudrv.MIGMode{}))
	require.NoError(t, d.HardReset(uuid))
	m, err := d.Mode(ctx, uuid)
	require.NoError(t, err)
	require.Equal(t, gpu.MIGMode(), m)
}

func TestInjectedFaultsHitTheNamedCallsOnly(t *testing.T) {
	t.Parallel()
	ctx, h := t.Context(), one("H200-141", gpu.MIGMode())
	uuid := h.Devices()[0].UUID
	d := open(t, t.TempDir(), h)
	d.Inject(sim.Fault{Op: sim.OpCreateComputeInstance, Kind: gpudrv.NoRoom, Times: 1})
	gi, err := d.CreateGPUInstance(ctx, uuid, 19, gpudrv.Placement{Start: 0, Size: 1})
	require.NoError(t, err)
	_, err = d.CreateComputeInstance(ctx, uuid, gi.ID)
	require.Equal(t, gpudrv.NoRoom, gpudrv.KindOf(err))
	_, err = d.CreateComputeInstance(ctx, uuid, gi.ID)
	require.NoError(t, err)

	holder := gpudrv.Holder{PID: 7, Name: "nv-hostengine"}
	d.Inject(sim.Fault{Op: sim.OpDestroyComputeInstance, Kind: gpudrv.InUse, Times: 2, Holders: []gpudrv.Holder{holder}})
	for range 2 {
		err := d.DestroyComputeInstance(ctx, uuid, gi.ID, 0)
		require.Equal(t, []gpudrv.Holder{holder}, gpudrv.HoldersOf(err))
		require.True(t, gpudrv.IsTransient(err))
	}
	require.NoError(t, d.DestroyComputeInstance(ctx, uuid, gi.ID, 0))
}

func TestAHungCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	h := one("H200-141", gpu.MIGMode())
	uuid := h.Devices()[0].UUID
	d := open(t, t.TempDir(), h)
	synctest.Test(t, func(t *testing.T) {
		d.Inject(sim.Fault{Op: sim.OpCreateGPUInstance, Hang: true, Times: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := d.CreateGPUInstance(ctx, uuid, 19, gpudrv.Placement{Start: 0, Size: 1})
		require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	list, err := d.GPUInstances(t.Context(), uuid)
	require.NoError(t, err)
	require.Empty(t, list)
}

func TestALostGPUAnswersNothingUntilTheReboot(t *testing.T) {
	t.Parallel()
	ctx, h := t.Context(), mixed()
	uuid := h.Devices()[0].UUID
	d := open(t, t.TempDir(), h)
	require.NoError(t, d.Lose(uuid))
	_, err := d.Memory(ctx, uuid)
	require.Equal(t, gpudrv.GPULost, gpudrv.KindOf(err))
	_, err = d.CreateGPUInstance(ctx, uuid, 19, gpudrv.Placement{Start: 0, Size: 1})
	require.Equal(t, gpudrv.GPULost, gpudrv.KindOf(err))
	_, err = gpudrv.Inventory(ctx, d)
	require.Equal(t, gpudrv.GPULost, gpudrv.KindOf(err), "never a shorter inventory")
	require.NoError(t, d.Reboot())
	_, err = d.Memory(ctx, uuid)
	require.NoError(t, err)
}

func TestClientsKeepASliceInUse(t *testing.T) {
	t.Parallel()
	ctx, h := t.Context(), one("H200-141", gpu.MIGMode())
	uuid := h.Devices()[0].UUID
	d := open(t, t.TempDir(), h)
	gi, err := d.CreateGPUInstance(ctx, uuid, 9, gpudrv.Placement{Start: 4, Size: 4})
	require.NoError(t, err)
	_, err = d.CreateComputeInstance(ctx, uuid, gi.ID)
	require.NoError(t, err)
	idle, err := d.Telemetry(ctx, uuid)
	require.NoError(t, err)

	slot := gpu.Slot{GPU: uuid, Mode: gpu.MIGMode(), Profile: 9, Start: 4, Size: 4, Compute: 3}
	require.NoError(t, d.Attach(uuid, sim.Client{PID: 41, Name: "python3", Slot: slot, UsedBytes: 1 << 30}))
	require.NoError(t, d.Attach(uuid, sim.Client{PID: 42, Name: "monitor", Slot: slot, Monitor: true}))
	err = d.DestroyComputeInstance(ctx, uuid, gi.ID, 0)
	require.Equal(t, []gpudrv.Holder{{PID: 41, Name: "python3"}}, gpudrv.HoldersOf(err))
	busy, err := d.Telemetry(ctx, uuid)
	require.NoError(t, err)
	require.Greater(t, busy.PowerMilliwatt.Or(0), idle.PowerMilliwatt.Or(0))
	procs, err := d.Processes(ctx, uuid)
	require.NoError(t, err)
	require.Len(t, procs, 1)

	require.NoError(t, d.Detach(uuid, 41))
	err = d.DestroyComputeInstance(ctx, uuid, gi.ID, 0)
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(err))
	require.Empty(t, gpudrv.HoldersOf(err), "a monitor is not seen")
	require.NoError(t, d.Detach(uuid, 42))
	require.NoError(t, d.DestroyComputeInstance(ctx, uuid, gi.ID, 0))
	other := slot
	other.Start = 0
	require.Equal(t, gpudrv.NotFound, gpudrv.KindOf(d.Attach(uuid, sim.Client{PID: 43, Slot: other})))
}
