package carve_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/carve/mig"
	"github.com/tranche-cloud/tranche/nodeagent/carve/mps"
	"github.com/tranche-cloud/tranche/nodeagent/carve/sriov"
	"github.com/tranche-cloud/tranche/nodeagent/carve/timeslice"
	"github.com/tranche-cloud/tranche/nodeagent/carve/vfio"
	"github.com/tranche-cloud/tranche/nodeagent/carve/whole"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

// bench is one simulated GPU with all techniques.
type bench struct {
	drv  *sim.Driver
	set  *carve.Set
	uuid string
	dev  gpu.Device
	mode gpu.Mode
}

func setup(t testing.TB, model, mode string) bench {
	t.Helper()
	return setupHost(t, model, mode, sim.FleetDriver{})
}

// setupHost is setup under a driver that offers more.
func setupHost(t testing.TB, model, mode string, offers sim.FleetDriver) bench {
	t.Helper()
	m, err := gpu.ParseMode(mode)
	require.NoError(t, err)
	h := sim.FleetHost{
		Name: "solo", VCPU: 8, RAM: 65536, Driver: offers,
		GPUs: []sim.FleetGPU{{Model: model, Mode: m, Count: 1}},
	}
	drv, err := sim.Open(sim.Config{Host: h})
	require.NoError(t, err)
	t.Cleanup(func() { _ = drv.Close() })
	uuid := h.Devices()[0].UUID
	dev, err := gpudrv.Device(t.Context(), drv, uuid)
	require.NoError(t, err)
	set := carve.NewSet(drv, map[gpu.Kind]carve.Carver{
		gpu.Whole: whole.New(drv), gpu.MIG: mps.NewInside(mig.New(drv), drv.MPS()),
		gpu.MPS: mps.New(drv, mps.Config{Daemons: drv.MPS(), Probe: drv}), gpu.TimeSlice: timeslice.New(drv, ""),
		carve.SRIOV: sriov.New(drv), carve.VFIO: vfio.New(drv),
	})
	return bench{drv: drv, set: set, uuid: uuid, dev: dev, mode: m}
}

// slice is a slice of the bench: a MIG profile by name, or a unit.
func (b bench) slice(t testing.TB, profile string, start int) carve.Slice {
	t.Helper()
	if profile == "" {
		return carve.Slice{ID: "asg_1", Slot: gpu.Slot{GPU: b.uuid, Mode: b.mode, Start: start, Size: 1}}
	}
	p, ok := b.dev.ProfileNamed(profile)
	require.True(t, ok, profile)
	return carve.Slice{ID: "asg_1", Slot: gpu.MIGSlot(b.uuid, p, gpu.Placement{Start: start, Size: p.MemoryUnits})}
}

func TestEveryTechniqueMakesShowsAndRemovesASlice(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		model, mode, profile string
		start                int
		memory               units.MiB
		sms, percent         int
		visible              bool
	}{
		{"H100-80", "whole", "", 0, 81559, 132, 100, false},
		{"H200-141", "mig", "3g.71gb", 4, 71424, 60, 100, true},
		{"A100-80", "mps:4x25", "", 3, 20480, 26, 25, true},
		{"A100-80", "timeslice:2", "", 1, 40960, 108, 50, true},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			ctx, b := t.Context(), setup(t, tc.model, tc.mode)
			s := b.slice(t, tc.profile, tc.start)
			plan, err := b.set.Plan(ctx, s)
			require.NoError(t, err)
			require.Equal(t, !tc.visible, plan.Present)
			e, err := b.set.Ensure(ctx, s)
			require.NoError(t, err)
			require.Equal(t, s.Slot, e.Slot)
			require.Equal(t, tc.memory, e.Memory)
			require.Equal(t, tc.sms, e.SMs)
			require.Equal(t, tc.percent, e.SMPercent)
			require.NotEmpty(t, e.UUID)
			require.NotEmpty(t, e.BootID)
			again, err := b.set.Ensure(ctx, s)
			require.NoError(t, err)
			require.Equal(t, e, again, "idempotent")
			r, err := gpu.ResourcesOf(b.dev, s.Slot)
			require.NoError(t, err)
			require.Equal(t, gpu.Resources{Memory: e.Memory, SMs: e.SMs, SMPercent: e.SMPercent}, r, "what was sold is what the driver shows")

			found, err := b.set.Observe(ctx, b.uuid)
			require.NoError(t, err)
			if tc.visible {
				require.Equal(t, []carve.Found{{Evidence: e}}, found)
			}
			require.NoError(t, b.set.Remove(ctx, s))
			require.NoError(t, b.set.Remove(ctx, s), "idempotent")
			found, err = b.set.Observe(ctx, b.uuid)
			require.NoError(t, err)
			require.Empty(t, found)
		})
	}
}

func TestRefusalsAreTypedAndChangeNothing(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t, "H200-141", "mig")
	_, err := b.set.Ensure(ctx, b.slice(t, "4g.71gb", 0))
	require.NoError(t, err)
	refused := func(want gpudrv.Kind, s carve.Slice) {
		t.Helper()
		_, err := b.set.Ensure(ctx, s)
		require.Equal(t, want, gpudrv.KindOf(err), "%v", err)
		_, err = b.set.Plan(ctx, s)
		require.Equal(t, want, gpudrv.KindOf(err), "%v", err)
		found, err := b.set.Observe(ctx, b.uuid)
		require.NoError(t, err)
		require.Len(t, found, 1)
	}
	refused(gpudrv.NoRoom, b.slice(t, "1g.18gb", 2))
	refused(gpudrv.NoRoom, b.slice(t, "7g.141gb", 0))
	refused(gpudrv.Invalid, b.slice(t, "3g.71gb", 2))
	unknown := b.slice(t, "1g.18gb", 6)
	unknown.Slot.Profile = 77
	refused(gpudrv.Unsupported, unknown)
	whole := carve.Slice{ID: "asg_2", Slot: gpu.Slot{GPU: b.uuid, Mode: gpu.WholeMode(), Size: 1}}
	refused(gpudrv.Unsupported, whole)
	none := whole
	none.Slot.Mode = gpu.Mode{}
	refused(gpudrv.Unsupported, none)
	foreign := b.slice(t, "1g.18gb", 6)
	foreign.Slot.GPU = "GPU-else"
	refused(gpudrv.NotFound, foreign)
}

func TestAHalfMadeSliceIsTakenBack(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t, "H200-141", "mig")
	b.drv.Inject(sim.Fault{Op: sim.OpCreateComputeInstance, Kind: gpudrv.NoRoom, Times: 1})
	s := b.slice(t, "2g.35gb", 4)
	_, err := b.set.Ensure(ctx, s)
	require.Equal(t, gpudrv.NoRoom, gpudrv.KindOf(err))
	found, err := b.set.Observe(ctx, b.uuid)
	require.NoError(t, err)
	require.Empty(t, found)
	_, err = b.set.Ensure(ctx, s)
	require.NoError(t, err)
}

func TestWhatACrashLeftIsFinishedOrRemoved(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t, "H200-141", "mig")
	s := b.slice(t, "1g.18gb", 6)
	crash := func() {
		_, err := b.drv.CreateGPUInstance(ctx, b.uuid, s.Slot.Profile, gpudrv.Placement(s.Slot.Placement()))
		require.NoError(t, err)
		found, err := b.set.Observe(ctx, b.uuid)
		require.NoError(t, err)
		require.True(t, found[0].Incomplete)
	}
	crash()
	plan, err := b.set.Plan(ctx, s)
	require.NoError(t, err)
	require.Equal(t, []string{"create its compute instance"}, plan.Steps)
	_, err = b.set.Ensure(ctx, s)
	require.NoError(t, err)
	require.NoError(t, b.set.Remove(ctx, s))
	crash()
	require.NoError(t, b.set.Remove(ctx, s))
	found, err := b.set.Observe(ctx, b.uuid)
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestRemoveNamesWhoHoldsTheSlice(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ mode, profile string }{{"whole", ""}, {"mig", "1g.18gb"}, {"mps:4x25", ""}} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			ctx, b := t.Context(), setup(t, "H200-141", tc.mode)
			s := b.slice(t, tc.profile, 0)
			_, err := b.set.Ensure(ctx, s)
			require.NoError(t, err)
			require.NoError(t, b.drv.Attach(b.uuid, sim.Client{PID: 9, Name: "python3", Slot: s.Slot}))
			_, err = b.set.Ensure(ctx, s)
			require.NoError(t, err, "a running tenant does not disturb re-adoption")
			err = b.set.Remove(ctx, s)
			require.Equal(t, gpudrv.InUse, gpudrv.KindOf(err))
			require.Equal(t, []gpudrv.Holder{{PID: 9, Name: "python3"}}, gpudrv.HoldersOf(err))
			require.NoError(t, b.drv.Detach(b.uuid, 9))
			require.NoError(t, b.set.Remove(ctx, s))
		})
	}
}

func TestALostGPUIsReportedAsLost(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"whole", "mig", "mps:4x25", "timeslice:2"} {
		ctx, b := t.Context(), setup(t, "H200-141", mode)
		profile := ""
		if mode == "mig" {
			profile = "1g.18gb"
		}
		s := b.slice(t, profile, 0)
		require.NoError(t, b.drv.Lose(b.uuid))
		_, err := b.set.Ensure(ctx, s)
		require.Equal(t, gpudrv.GPULost, gpudrv.KindOf(err), mode)
		require.Equal(t, gpudrv.GPULost, gpudrv.KindOf(b.set.Remove(ctx, s)), mode)
		_, err = b.set.Observe(ctx, b.uuid)
		require.Equal(t, gpudrv.GPULost, gpudrv.KindOf(err), mode)
	}
}

func TestAGPUThatWantsARepairTakesNothingNewAndKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t, "H200-141", "mig")
	old := b.slice(t, "1g.18gb", 0)
	_, err := b.set.Ensure(ctx, old)
	require.NoError(t, err)
	require.NoError(t, b.drv.Advise(b.uuid, "drain_reset"))
	_, err = b.set.Ensure(ctx, b.slice(t, "1g.18gb", 1))
	require.Equal(t, gpudrv.NeedsReset, gpudrv.KindOf(err))
	_, err = b.set.Ensure(ctx, old)
	require.NoError(t, err)
	require.NoError(t, b.set.Remove(ctx, old))
	require.NoError(t, b.drv.HardReset(b.uuid))
	_, err = b.set.Ensure(ctx, old)
	require.NoError(t, err)
}

func TestModesAreEnsuredAfterAReboot(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t, "H200-141", "mps:4x25")
	require.NoError(t, b.drv.Reboot())
	s := b.slice(t, "", 0)
	_, err := b.set.Ensure(ctx, s)
	require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(err))
	require.NoError(t, b.set.Remove(ctx, s), "nothing is left of it")
	require.NoError(t, b.set.EnsureMode(ctx, b.uuid, b.mode))
	require.NoError(t, b.set.EnsureMode(ctx, b.uuid, b.mode))
	_, err = b.set.Ensure(ctx, s)
	require.NoError(t, err)
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(b.set.EnsureMode(ctx, b.uuid, gpu.MIGMode())))
}

// TestUndoOutlivesTheCaller: the time of the order is up when the second driver
// call hangs, and the first is undone all the same.
func TestUndoOutlivesTheCaller(t *testing.T) {
	t.Parallel()
	b := setup(t, "H200-141", "mig")
	ctx, cancel := context.WithCancel(t.Context())
	b.drv.Inject(sim.Fault{Op: sim.OpCreateComputeInstance, Hang: true, Times: 1})
	done := make(chan error)
	go func() {
		_, err := b.set.Ensure(ctx, b.slice(t, "1g.18gb", 0))
		done <- err
	}()
	require.Eventually(t, func() bool {
		list, err := b.drv.GPUInstances(t.Context(), b.uuid)
		return err == nil && len(list) == 1
	}, testDeadline, poll)
	cancel()
	err := <-done
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err))
	require.True(t, errors.Is(err, context.Canceled))
	list, err := b.drv.GPUInstances(t.Context(), b.uuid)
	require.NoError(t, err)
	require.Empty(t, list)
}

// TestWhatEnsureConfirmedIsThereWhateverFailsAfterwards drives random orders with
// random faults: a failing order never harms a confirmed neighbour.
func TestWhatEnsureConfirmedIsThereWhateverFailsAfterwards(t *testing.T) {
	t.Parallel()
	ops := []string{
		sim.OpCreateGPUInstance, sim.OpCreateComputeInstance, sim.OpDestroyComputeInstance,
		sim.OpDestroyGPUInstance,
	}
	kinds := []gpudrv.Kind{gpudrv.InUse, gpudrv.NoRoom, gpudrv.Broken}
	rapid.Check(t, func(rt *rapid.T) {
		b := setup(t, "H200-141", "mig")
		ctx := t.Context()
		confirmed := map[gpu.Slot]bool{}
		for range rapid.IntRange(1, 12).Draw(rt, "orders") {
			p := rapid.SampledFrom(b.dev.Profiles).Draw(rt, "profile")
			at := rapid.SampledFrom(p.Placements).Draw(rt, "place")
			s := carve.Slice{ID: "asg_x", Slot: gpu.MIGSlot(b.uuid, p, at)}
			if rapid.Bool().Draw(rt, "fault") {
				b.drv.Inject(sim.Fault{
					Op: rapid.SampledFrom(ops).Draw(rt, "op"), Times: 1,
					Kind: rapid.SampledFrom(kinds).Draw(rt, "kind"),
				})
			}
			if rapid.Bool().Draw(rt, "remove") {
				if b.set.Remove(ctx, s) == nil {
					delete(confirmed, s.Slot)
				}
			} else if _, err := b.set.Ensure(ctx, s); err == nil {
				confirmed[s.Slot] = true
			}
			found, err := b.set.Observe(ctx, b.uuid)
			require.NoError(rt, err)
			seen := map[gpu.Slot]bool{}
			for _, f := range found {
				seen[f.Evidence.Slot] = true
			}
			for slot := range confirmed {
				require.True(rt, seen[slot], "%s was confirmed", slot)
			}
		}
	})
}

const (
	testDeadline = 10 * time.Second
	poll         = time.Millisecond
)
