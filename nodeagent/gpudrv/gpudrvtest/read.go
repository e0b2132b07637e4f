// Package gpudrvtest is the conformance suite of the driver port. ReadOnly runs
// on every adapter, real hardware included, and changes nothing; Writes and Events
// run on drivers whose GPUs the test owns.
package gpudrvtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

const callTimeout = 30 * time.Second

// ReadOnly checks every promise of gpudrv.Reader on every GPU.
func ReadOnly(t *testing.T, r gpudrv.Reader) {
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	t.Run("host", func(t *testing.T) { host(ctx, t, r) })
	t.Run("unknown gpu", func(t *testing.T) { unknown(ctx, t, r) })
	t.Run("ended context", func(t *testing.T) { ended(t, r) })
	t.Run("watch", func(t *testing.T) { watch(t, r) })
	refs, err := r.GPUs(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, refs, "a driver without a GPU proves nothing")
	seen := map[string]bool{}
	for i, ref := range refs {
		require.Equal(t, i, ref.Index)
		require.True(t, strings.HasPrefix(ref.UUID, "GPU-"), ref.UUID)
		require.False(t, seen[ref.UUID] || seen[ref.PCI], "uuid and bus id are unique")
		seen[ref.UUID], seen[ref.PCI] = true, true
		t.Run(ref.UUID, func(t *testing.T) {
			t.Run("identity", func(t *testing.T) { identity(ctx, t, r, ref.UUID) })
			t.Run("memory", func(t *testing.T) { memory(ctx, t, r, ref.UUID) })
			t.Run("mode", func(t *testing.T) { mode(ctx, t, r, ref.UUID) })
			t.Run("profiles", func(t *testing.T) { profiles(ctx, t, r, ref.UUID) })
			t.Run("contents", func(t *testing.T) { contents(ctx, t, r, ref.UUID) })
			t.Run("readings", func(t *testing.T) { readings(ctx, t, r, ref.UUID) })
			t.Run("capabilities", func(t *testing.T) { capabilities(ctx, t, r, ref.UUID) })
			t.Run("usage", func(t *testing.T) { usage(ctx, t, r, ref.UUID) })
			t.Run("fabric", func(t *testing.T) { fabric(ctx, t, r, ref.UUID) })
			t.Run("memory limit", func(t *testing.T) { noLimit(ctx, t, r, ref.UUID) })
			t.Run("geometry", func(t *testing.T) { geometry(ctx, t, r, ref) })
		})
	}
}

func host(ctx context.Context, t *testing.T, r gpudrv.Reader) {
	h, err := r.Host(ctx)
	require.NoError(t, err)
	require.Contains(t, []string{"nvml", "sim", "replay"}, h.Driver)
	require.NotEmpty(t, h.BootID)
	version, ok := h.DriverVersion.Get()
	require.True(t, ok, h.DriverVersion.Reason())
	require.Regexp(t, `^\d+\.\d+`, version)
	again, err := r.Host(ctx)
	require.NoError(t, err)
	require.Equal(t, h, again)
}

// each calls every read of one GPU.
func each(ctx context.Context, r gpudrv.Reader, uuid string) map[string]error {
	out := map[string]error{}
	_, out["Identity"] = r.Identity(ctx, uuid)
	_, out["Memory"] = r.Memory(ctx, uuid)
	_, out["Mode"] = r.Mode(ctx, uuid)
	_, out["MIGMode"] = r.MIGMode(ctx, uuid)
	_, out["Profiles"] = r.Profiles(ctx, uuid)
	_, out["Placements"] = r.Placements(ctx, uuid, 0)
	_, out["GPUInstances"] = r.GPUInstances(ctx, uuid)
	_, out["Shares"] = r.Shares(ctx, uuid)
	_, out["Processes"] = r.Processes(ctx, uuid)
	_, out["Settings"] = r.Settings(ctx, uuid)
	_, out["Health"] = r.Health(ctx, uuid)
	_, out["Telemetry"] = r.Telemetry(ctx, uuid)
	_, out["Topology"] = r.Topology(ctx, uuid)
	_, out["Capabilities"] = r.Capabilities(ctx, uuid)
	_, out["Usage"] = r.Usage(ctx, uuid)
	_, out["Fabric"] = r.Fabric(ctx, uuid)
	_, out["MemoryLimit"] = r.MemoryLimit(ctx, uuid, "tranche/nobody")
	return out
}

func unknown(ctx context.Context, t *testing.T, r gpudrv.Reader) {
	for call, err := range each(ctx, r, "GPU-00000000-0000-0000-0000-000000000000") {
		require.Equal(t, gpudrv.NotFound, gpudrv.KindOf(err), "%s: %v", call, err)
	}
}

func ended(t *testing.T, r gpudrv.Reader) {
	refs, err := r.GPUs(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.GPUs(ctx)
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err))
	for call, err := range each(ctx, r, refs[0].UUID) {
		require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err), "%s: %v", call, err)
		require.ErrorIs(t, err, context.Canceled)
	}
}

func identity(ctx context.Context, t *testing.T, r gpudrv.Reader, uuid string) {
	id, err := r.Identity(ctx, uuid)
	require.NoError(t, err)
	require.NotEmpty(t, id.Name)
	sms, ok := id.SMs.Get()
	require.True(t, ok, id.SMs.Reason())
	require.Positive(t, sms)
	cc, ok := id.ComputeCapability.Get()
	require.True(t, ok, id.ComputeCapability.Reason())
	require.Regexp(t, `^\d+\.\d+$`, cc)
	again, err := r.Identity(ctx, uuid)
	require.NoError(t, err)
	require.Equal(t, id, again)
}

func memory(ctx context.Context, t *testing.T, r gpudrv.Reader, uuid string) {
	m, err := r.Memory(ctx, uuid)
	require.NoError(t, err)
	require.Positive(t, m.TotalBytes)
	require.GreaterOrEqual(t, m.UsedBytes, int64(0))
	require.GreaterOrEqual(t, m.FreeBytes, int64(0))
	require.Equal(t, m.TotalBytes, m.FreeBytes+m.UsedBytes)
}

func mode(ctx context.Context, t *testing.T, r gpudrv.Reader, uuid string) {
	m, err := r.Mode(ctx, uuid)
	require.NoError(t, err)
	require.True(t, m.Valid(), "%q", m)
	mig, err := r.MIGMode(ctx, uuid)
	require.NoError(t, err)
	require.False(t, mig.HasFailed(), mig.Reason())
	require.Equal(t, m.Kind == gpu.MIG, mig.Or(gpudrv.MIGMode{}).Current)
}

func profiles(ctx context.Context, t *testing.T, r gpudrv.Reader, uuid string) {
	list, err := r.Profiles(ctx, uuid)
	require.NoError(t, err)
	mem, err := r.Memory(ctx, uuid)
	require.NoError(t, err)
	ids, enums := map[int]bool{}, map[int]bool{}
	for _, p := range list {
		require.False(t, ids[p.ID] || enums[p.Enum], "profile %d is listed twice", p.ID)
		ids[p.ID], enums[p.Enum] = true, true
		require.Regexp(t, `^\d+g\.\d+gb([+-][a-z.]+)*$`, p.Name)
		require.Positive(t, p.Compute)
		require.Positive(t, p.SMs)
		require.Positive(t, p.MaxInstances)
		require.Positive(t, p.Memory)
		require.LessOrEqual(t, p.Memory, mem.Total())
		placements(ctx, t, r, uuid, p)
	}
	const noSuchProfile = 9999
	_, err = r.Placements(ctx, uuid, noSuchProfile)
	require.Contains(t, []gpudrv.Kind{gpudrv.Invalid, gpudrv.Unsupported}, gpudrv.KindOf(err))
}

func placements(ctx context.Context, t *testing.T, r gpudrv.Reader, uuid string, p gpudrv.Profile) {
	at, err := r.Placements(ctx, uuid, p.ID)
	require.NoError(t, err, p.Name)
	require.Contains(t, []string{gpudrv.SourceNVML, gpudrv.SourceSMI, gpudrv.SourceSim}, at.Source)
	require.GreaterOrEqual(t, len(at.List), p.MaxInstances, p.Name)
	last := -1
	for _, pl := range at.List {
		require.Greater(t, pl.Start, last, "%s: ascending starts", p.Name)
		require.Positive(t, pl.Size)
		require.Equal(t, at.List[0].Size, pl.Size, "%s: one size", p.Name)
		last = pl.Start
	}
}

func contents(ctx context.Context, t *testing.T, r gpudrv.Reader, uuid string) {
	m, err := r.Mode(ctx, uuid)
	require.NoError(t, err)
	instances, err := r.GPUInstances(ctx, uuid)
	require.NoError(t, err)
	require.NotNil(t, instances)
	if m.Kind != gpu.MIG {
		require.Empty(t, instances)
	}
	shares, err := r.Shares(ctx, uuid)
	require.NoError(t, err)
	require.NotNil(t, shares)
	if m.Shares == 0 {
		require.Empty(t, shares)
	}
	processes, err := r.Processes(ctx, uuid)
	require.NoError(t, err)
	for _, p := range processes {
		require.Positive(t, p.PID)
	}
}

// readings checks that no reading failed: each is reported, or not offered.
func readings(ctx context.Context, t *testing.T, r gpudrv.Reader, uuid string) {
	s, err := r.Settings(ctx, uuid)
	require.NoError(t, err)
	good(t, "compute mode", s.ComputeMode)
	good(t, "persistence", s.Persistence)
	good(t, "ecc", s.ECC)
	good(t, "power limit", s.PowerLimitMilli)
	good(t, "time-slice length", s.Timeslice)
	h, err := r.Health(ctx, uuid)
	require.NoError(t, err)
	good(t, "recovery action", h.RecoveryAction)
	good(t, "uncorrected errors", h.ECCUncorrected)
	good(t, "remapped rows", h.RemappedUncorrect)
	good(t, "retired pages", h.RetiredPagePending)
	tel, err := r.Telemetry(ctx, uuid)
	require.NoError(t, err)
	good(t, "power", tel.PowerMilliwatt)
	good(t, "energy", tel.EnergyMillijoule)
	good(t, "temperature", tel.TemperatureC)
	good(t, "utilisation", tel.GPUPercent)
	const absurdMilliwatt = 10_000_000
	require.Less(t, tel.PowerMilliwatt.Or(0), int64(absurdMilliwatt))
	require.LessOrEqual(t, tel.GPUPercent.Or(0), int64(100))
	top, err := r.Topology(ctx, uuid)
	require.NoError(t, err)
	good(t, "numa node", top.NUMANode)
	good(t, "cpus", top.CPUs)
	good(t, "fabric", top.FabricStatus)
}

func good[T any](t *testing.T, what string, v gpudrv.Value[T]) {
	t.Helper()
	require.False(t, v.HasFailed(), "%s: %s", what, v.Reason())
	if _, ok := v.Get(); !ok {
		require.NotEmpty(t, v.Reason(), "%s: say why it is not reported", what)
	}
}

// geometry checks that the report makes a usable table and equals the published
// facts where the model is known.
func geometry(ctx context.Context, t *testing.T, r gpudrv.Reader, ref gpudrv.Ref) {
	f, err := gpudrv.Inspect(ctx, r, ref)
	require.NoError(t, err)
	if f.Device.Model == "H200-141" {
		knownH200(t, f.Device)
	}
	if len(f.Device.Profiles) == 0 {
		return
	}
	g, err := gpu.GeometryOf(f.Device)
	require.NoError(t, err)
	for _, p := range f.Device.Profiles {
		require.Equal(t, p.MaxInstances, g.Remaining(0, p.ID), "%s on an empty gpu", p.Name)
	}
}
