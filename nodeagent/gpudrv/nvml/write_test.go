//go:build nvml

package nvml_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/nvml"
)

// These tests need no GPU: they play the library's return codes.

const card = "GPU-1"

// played is a GPU whose library answers as the test says.
type played struct {
	current, pending int
	ret, activation  lib.Return
	after            func(*played) // of a switch
	processes        []lib.ProcessInfo
	gi               *mock.GpuInstance
	giRet            lib.Return
	smi              string
	shutdowns        int
	compute          lib.ComputeMode
	computeRet       lib.Return
}

func (p *played) device() lib.Device {
	return &mock.Device{
		GetMigModeFunc: func() (int, int, lib.Return) { return p.current, p.pending, lib.SUCCESS },
		SetMigModeFunc: func(m int) (lib.Return, lib.Return) {
			if p.after != nil {
				p.pending = m
				p.after(p)
			}
			return p.activation, p.ret
		},
		GetComputeRunningProcessesFunc: func() ([]lib.ProcessInfo, lib.Return) { return p.processes, lib.SUCCESS },
		GetMPSComputeRunningProcessesFunc: func() ([]lib.ProcessInfo, lib.Return) {
			return nil, lib.ERROR_NOT_SUPPORTED
		},
		GetProcessUtilizationFunc: func(uint64) ([]lib.ProcessUtilizationSample, lib.Return) {
			return nil, lib.ERROR_NOT_FOUND
		},
		GetGpuInstanceByIdFunc: func(int) (lib.GpuInstance, lib.Return) { return p.gi, p.giRet },
		GetPciInfoFunc: func() (lib.PciInfo, lib.Return) {
			var info lib.PciInfo
			for i, c := range "0000:06" {
				info.BusId[i] = int8(c)
			}
			return info, lib.SUCCESS
		},
		GetComputeModeFunc: func() (lib.ComputeMode, lib.Return) { return p.compute, lib.SUCCESS },
		SetComputeModeFunc: func(m lib.ComputeMode) lib.Return {
			if p.computeRet == lib.SUCCESS {
				p.compute = m
			}
			return p.computeRet
		},
		GetFieldValuesFunc: func([]lib.FieldValue) lib.Return { return lib.ERROR_NOT_SUPPORTED },
		GetTotalEccErrorsFunc: func(lib.MemoryErrorType, lib.EccCounterType) (uint64, lib.Return) {
			return 0, lib.SUCCESS
		},
		GetRemappedRowsFunc: func() (int, int, bool, bool, lib.Return) { return 0, 0, false, false, lib.SUCCESS },
		GetRetiredPagesPendingStatusFunc: func() (lib.EnableState, lib.Return) {
			return 0, lib.ERROR_NOT_SUPPORTED
		},
	}
}

func (p *played) open() gpudrv.Driver {
	return nvml.Over(&mock.Interface{
		DeviceGetHandleByUUIDFunc: func(uuid string) (lib.Device, lib.Return) {
			if uuid != card {
				return nil, lib.ERROR_NOT_FOUND
			}
			return p.device(), lib.SUCCESS
		},
		ShutdownFunc: func() lib.Return { p.shutdowns++; return lib.SUCCESS },
		InitFunc:     func() lib.Return { return lib.SUCCESS },
	}, nvml.Config{SMI: p.smi})
}

func TestTheMIGSwitchHasTwoAnswersAndIsReadBack(t *testing.T) {
	t.Parallel()
	done := func(p *played) { p.current = p.pending }
	waits := func(*played) {}
	for name, c := range map[string]struct {
		played played
		want   gpudrv.Kind
	}{
		"switched":             {played{after: done}, ""},
		"waits for a reset":    {played{after: waits, activation: lib.ERROR_RESET_REQUIRED}, gpudrv.NeedsReset},
		"says done, is not":    {played{after: waits}, gpudrv.NeedsReset},
		"nothing happens":      {played{}, gpudrv.Broken},
		"held":                 {played{after: waits, activation: lib.ERROR_IN_USE}, gpudrv.InUse},
		"held by a process":    {played{after: done, processes: []lib.ProcessInfo{{Pid: 1 << 30}}}, gpudrv.InUse},
		"no MIG":               {played{ret: lib.ERROR_NOT_SUPPORTED}, gpudrv.Unsupported},
		"forbidden":            {played{ret: lib.ERROR_NO_PERMISSION}, gpudrv.Broken},
		"lost":                 {played{ret: lib.ERROR_GPU_IS_LOST}, gpudrv.GPULost},
		"library and module":   {played{ret: lib.ERROR_LIB_RM_VERSION_MISMATCH}, gpudrv.Mismatch},
		"activation forbidden": {played{after: waits, activation: lib.ERROR_NOT_SUPPORTED}, gpudrv.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.played.open().SetMode(t.Context(), card, gpu.MIGMode())
			require.Equal(t, c.want, gpudrv.KindOf(err), "%v", err)
			if c.want == gpudrv.InUse && len(c.played.processes) > 0 {
				require.Len(t, gpudrv.HoldersOf(err), 1)
			}
		})
	}
}

func TestModesOfTheAgentAreNotTheHardwares(t *testing.T) {
	t.Parallel()
	d := (&played{}).open()
	mps, err := gpu.ParseMode("mps:2x50")
	require.NoError(t, err)
	require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(d.SetMode(t.Context(), card, mps)))
	require.Equal(t, gpudrv.Invalid, gpudrv.KindOf(d.SetMode(t.Context(), card, gpu.Mode{})))
	require.NoError(t, d.SetMode(t.Context(), card, gpu.WholeMode()))
	_, err = d.CreateGPUInstance(t.Context(), card, 19, gpudrv.Placement{Size: 1})
	require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(err), "MIG is off")
}

// instance plays a GPU instance with as many compute instances as said.
func instance(computes int, create, destroy lib.Return) *mock.GpuInstance {
	ci := func(id uint32) lib.ComputeInstance {
		return &mock.ComputeInstance{
			GetInfoFunc: func() (lib.ComputeInstanceInfo, lib.Return) {
				return lib.ComputeInstanceInfo{Id: id, Device: &mock.Device{
					GetUUIDFunc: func() (string, lib.Return) { return "MIG-1", lib.SUCCESS },
					GetAttributesFunc: func() (lib.DeviceAttributes, lib.Return) {
						return lib.DeviceAttributes{MemorySizeMB: 16384, MultiprocessorCount: 16}, lib.SUCCESS
					},
				}}, lib.SUCCESS
			},
			DestroyFunc: func() lib.Return { return destroy },
		}
	}
	return &mock.GpuInstance{
		GetInfoFunc: func() (lib.GpuInstanceInfo, lib.Return) {
			return lib.GpuInstanceInfo{Id: 7, ProfileId: 19, Placement: lib.GpuInstancePlacement{Size: 1}}, lib.SUCCESS
		},
		GetComputeInstanceProfileInfoFunc: func(profile, _ int) (lib.ComputeInstanceProfileInfo, lib.Return) {
			if profile > 1 {
				return lib.ComputeInstanceProfileInfo{}, lib.ERROR_NOT_SUPPORTED
			}
			return lib.ComputeInstanceProfileInfo{Id: uint32(profile), SliceCount: uint32(profile + 1), InstanceCount: 1}, lib.SUCCESS
		},
		GetComputeInstancesFunc: func(p *lib.ComputeInstanceProfileInfo) ([]lib.ComputeInstance, lib.Return) {
			if p.Id == 1 && computes > 0 {
				return []lib.ComputeInstance{ci(0)}, lib.SUCCESS
			}
			return nil, lib.SUCCESS
		},
		CreateComputeInstanceFunc: func(p *lib.ComputeInstanceProfileInfo) (lib.ComputeInstance, lib.Return) {
			if p.Id != 1 {
				return nil, lib.ERROR_INVALID_ARGUMENT // not the widest
			}
			return ci(0), create
		},
		GetComputeInstanceByIdFunc: func(int) (lib.ComputeInstance, lib.Return) { return ci(0), lib.SUCCESS },
		DestroyFunc:                func() lib.Return { return destroy },
	}
}

func TestInstancesAreMadeAndDestroyedByTheTable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	open := func(gi *mock.GpuInstance, ret lib.Return) gpudrv.Driver { return (&played{gi: gi, giRet: ret}).open() }
	busy := []lib.ProcessInfo{{Pid: 1 << 30, GpuInstanceId: 7}, {Pid: 1<<30 + 1, GpuInstanceId: 9}}

	ci, err := open(instance(0, lib.SUCCESS, 0), lib.SUCCESS).CreateComputeInstance(ctx, card, 7)
	require.NoError(t, err)
	require.Equal(t, gpudrv.ComputeInstance{ID: 0, UUID: "MIG-1", Memory: 16384, SMs: 16}, ci)
	for name, c := range map[string]struct {
		err  error
		want gpudrv.Kind
	}{
		"ci: twice":         {second(open(instance(1, 0, 0), 0).CreateComputeInstance(ctx, card, 7)), gpudrv.NoRoom},
		"ci: short":         {second(open(instance(0, lib.ERROR_INSUFFICIENT_RESOURCES, 0), 0).CreateComputeInstance(ctx, card, 7)), gpudrv.NoRoom},
		"ci: no instance":   {second(open(nil, lib.ERROR_NOT_FOUND).CreateComputeInstance(ctx, card, 7)), gpudrv.NotFound},
		"gi: a ci inside":   {open(instance(1, 0, 0), 0).DestroyGPUInstance(ctx, card, 7), gpudrv.InUse},
		"gi: held":          {open(instance(0, 0, lib.ERROR_IN_USE), 0).DestroyGPUInstance(ctx, card, 7), gpudrv.InUse},
		"gi: gone":          {open(nil, lib.ERROR_NOT_FOUND).DestroyGPUInstance(ctx, card, 7), gpudrv.NotFound},
		"gi: MIG off":       {open(nil, lib.ERROR_NOT_SUPPORTED).DestroyGPUInstance(ctx, card, 7), gpudrv.NotFound},
		"gi: lost":          {open(nil, lib.ERROR_GPU_IS_LOST).DestroyGPUInstance(ctx, card, 7), gpudrv.GPULost},
		"gi: no number":     {open(nil, 0).DestroyGPUInstance(ctx, card, -1), gpudrv.NotFound},
		"gi: destroyed":     {open(instance(0, 0, 0), 0).DestroyGPUInstance(ctx, card, 7), ""},
		"ci: destroyed":     {open(instance(1, 0, 0), 0).DestroyComputeInstance(ctx, card, 7, 0), ""},
		"ci: gone":          {open(instance(0, 0, 0), 0).DestroyComputeInstance(ctx, card, 7, 0), gpudrv.NotFound},
		"ci: wants a reset": {open(instance(1, 0, lib.ERROR_RESET_REQUIRED), 0).DestroyComputeInstance(ctx, card, 7, 0), gpudrv.NeedsReset},
		"ci: cgroup denies": {open(instance(1, 0, lib.ERROR_OPERATING_SYSTEM), 0).DestroyComputeInstance(ctx, card, 7, 0), gpudrv.Broken},
	} {
		require.Equal(t, c.want, gpudrv.KindOf(c.err), "%s: %v", name, c.err)
	}
	held := (&played{gi: instance(1, 0, lib.ERROR_IN_USE), processes: busy}).open().DestroyComputeInstance(ctx, card, 7, 0)
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(held))
	require.Equal(t, 1<<30, gpudrv.HoldersOf(held)[0].PID)
	require.Len(t, gpudrv.HoldersOf(held), 1, "only who is on this instance")
}

func second[T any](_ T, err error) error { return err }

func TestComputeModeIsReadBack(t *testing.T) {
	t.Parallel()
	p := &played{}
	require.NoError(t, p.open().SetComputeMode(t.Context(), card, gpudrv.ComputeExclusiveProcess))
	require.Equal(t, lib.ComputeMode(lib.COMPUTEMODE_EXCLUSIVE_PROCESS), p.compute)
	p.computeRet = lib.ERROR_NO_PERMISSION
	require.Equal(t, gpudrv.Broken, gpudrv.KindOf(p.open().SetComputeMode(t.Context(), card, gpudrv.ComputeDefault)))
}

// smi writes a stand-in of nvidia-smi that notes its arguments.
func smi(t *testing.T, body string) (path, notes string) {
	t.Helper()
	dir := t.TempDir()
	path, notes = filepath.Join(dir, "nvidia-smi"), filepath.Join(dir, "notes")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho \"$@\" >>"+notes+"\n"+body+"\n"), 0o700))
	return path, notes
}

func TestAResetClosesTheLibraryMeanwhile(t *testing.T) {
	t.Parallel()
	path, notes := smi(t, "")
	p := &played{smi: path}
	d := p.open()
	require.NoError(t, d.Reset(t.Context(), card))
	require.Equal(t, 1, p.shutdowns)
	said, err := os.ReadFile(notes)
	require.NoError(t, err)
	require.Equal(t, "--gpu-reset -i 0000:06\n", string(said))

	p.processes = []lib.ProcessInfo{{Pid: 1 << 30}}
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(d.Reset(t.Context(), card)))
	require.Equal(t, 1, p.shutdowns, "a GPU in use is not touched")

	path, _ = smi(t, "echo GPU 0 is currently in use by another client; exit 1")
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf((&played{smi: path}).open().Reset(t.Context(), card)))
	path, _ = smi(t, "echo Resetting GPU is not supported.; exit 1")
	require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf((&played{smi: path}).open().Reset(t.Context(), card)))
}

func TestTurnsAreSetByName(t *testing.T) {
	t.Parallel()
	path, notes := smi(t, "echo '|   0   Timeslice       Long          |'")
	d := (&played{smi: path}).open()
	require.NoError(t, d.SetTimeslice(t.Context(), card, gpudrv.TimesliceLong))
	said, err := os.ReadFile(notes)
	require.NoError(t, err)
	require.Equal(t, "compute-policy --set-timeslice=3 -i 0000:06\ncompute-policy --list -i 0000:06\n", string(said))
	require.Equal(t, gpudrv.Broken, gpudrv.KindOf(d.SetTimeslice(t.Context(), card, gpudrv.TimesliceShort)), "read back")
	require.Equal(t, gpudrv.Invalid, gpudrv.KindOf(d.SetTimeslice(t.Context(), card, "eternal")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(d.SetTimeslice(ctx, card, gpudrv.TimesliceLong)))
}
