package gpudrvtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// capabilities checks that each is reported or says why not, twice the same.
func capabilities(ctx context.Context, t *testing.T, r gpudrv.Reader, uuid string) {
	c, err := r.Capabilities(ctx, uuid)
	require.NoError(t, err)
	good(t, "mps version", c.MPSVersion)
	require.Contains(t, []int{0, 2, 3}, c.MPSVersion.Or(0))
	for what, v := range map[string]gpudrv.Value[bool]{
		"sm partitions": c.SMPartitions, "memory limits": c.MemoryLimits, "timeslice": c.Timeslice,
		"compute mode": c.ComputeMode, "reset": c.Reset, "gpm": c.GPM, "sriov": c.SRIOV, "vfio": c.VFIO,
	} {
		good(t, what, v)
	}
	again, err := r.Capabilities(ctx, uuid)
	require.NoError(t, err)
	require.Equal(t, c, again)
}

// usage checks the samples' form: one for each GPU instance with MIG on, else one
// for the GPU, and never a share above the whole.
func usage(ctx context.Context, t *testing.T, r gpudrv.Reader, uuid string) {
	m, err := r.Mode(ctx, uuid)
	require.NoError(t, err)
	list, err := r.Usage(ctx, uuid)
	require.NoError(t, err)
	want := []int{-1}
	if m.Kind == gpu.MIG {
		instances, err := r.GPUInstances(ctx, uuid)
		require.NoError(t, err)
		want = nil
		for _, in := range instances {
			want = append(want, in.ID)
		}
	}
	var got []int
	for _, u := range list {
		got = append(got, u.GPUInstance)
		sample(t, u)
	}
	require.Equal(t, want, got)
	c, err := r.Capabilities(ctx, uuid)
	require.NoError(t, err)
	if c.GPM.Or(false) {
		for _, u := range list {
			require.Equal(t, gpudrv.UsageGPM, u.Source)
		}
	}
}

func sample(t *testing.T, u gpudrv.SliceUsage) {
	require.Contains(t, []string{"", gpudrv.UsageGPM, gpudrv.UsageNVML}, u.Source)
	const whole = 1000
	for what, v := range map[string]gpudrv.Value[int64]{"busy": u.Busy, "sm": u.SM, "occupancy": u.Occupancy, "dram": u.DRAM} {
		good(t, what, v)
		require.GreaterOrEqual(t, v.Or(0), int64(0), what)
		require.LessOrEqual(t, v.Or(0), int64(whole), what)
		if _, ok := v.Get(); ok {
			require.NotEmpty(t, u.Source, "%s comes from somewhere", what)
			require.GreaterOrEqual(t, u.Window, 100*time.Millisecond)
		}
	}
	good(t, "used bytes", u.UsedBytes)
	require.GreaterOrEqual(t, u.UsedBytes.Or(0), int64(0))
}

func fabric(ctx context.Context, t *testing.T, r gpudrv.Reader, uuid string) {
	f, err := r.Fabric(ctx, uuid)
	require.NoError(t, err)
	good(t, "fabric state", f.State)
	good(t, "fabric health", f.Healthy)
	good(t, "cluster", f.Cluster)
	good(t, "clique", f.Clique)
	require.NotNil(t, f.Links)
	require.True(t, slices.IsSortedFunc(f.Links, func(a, b gpudrv.Link) int { return a.Number - b.Number }))
	for _, l := range f.Links {
		good(t, "link", l.Up)
	}
}

// noLimit checks that a cgroup that nobody limited has no limit.
func noLimit(ctx context.Context, t *testing.T, r gpudrv.Reader, uuid string) {
	v, err := r.MemoryLimit(ctx, uuid, "tranche/nobody")
	require.NoError(t, err)
	good(t, "memory limit", v)
	require.Zero(t, v.Or(gpudrv.MemoryLimit{}).HardBytes)
	c, err := r.Capabilities(ctx, uuid)
	require.NoError(t, err)
	if !c.MemoryLimits.Or(false) {
		_, reported := v.Get()
		require.False(t, reported, "a limit without a control")
	}
}

// watch checks a registration that nothing happens to.
func watch(t *testing.T, r gpudrv.Reader) {
	w, err := r.Watch(t.Context())
	if gpudrv.KindOf(err) == gpudrv.Unsupported {
		return
	}
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.Next(ended)
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(err))
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	_, err = w.Next(ctx)
	require.Equal(t, gpudrv.Broken, gpudrv.KindOf(err))
}

// Events checks registrations of a driver whose GPUs the test can hurt: cause makes
// an XID of the code on the GPU.
func Events(t *testing.T, r gpudrv.Reader, uuid string, cause func(code int)) {
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	cause(13)
	first, err := r.Watch(ctx)
	require.NoError(t, err)
	second, err := r.Watch(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, second.Close()) }()
	cause(48)
	cause(94)
	for _, w := range []gpudrv.Watcher{first, second} {
		for _, code := range []int{48, 94} {
			e, err := w.Next(ctx)
			require.NoError(t, err)
			require.Equal(t, gpudrv.EventXID, e.Kind)
			require.Equal(t, code, e.XID, "in order, and nothing from before the registration")
			require.Equal(t, uuid, e.GPU)
			require.False(t, e.At.IsZero())
		}
	}
	require.NoError(t, first.Close())
	const flood = 5000
	for range flood {
		cause(31)
	}
	n := 0
	for {
		e, err := second.Next(ctx)
		require.NoError(t, err)
		if e.Kind == gpudrv.EventMissed {
			break
		}
		n++
		require.Less(t, n, flood, "nobody said that events were dropped")
	}
	cause(79)
	for {
		e, err := second.Next(ctx)
		require.NoError(t, err, "events go on after some were missed")
		if e.XID == 79 {
			return
		}
		// What was on its way between two processes when the flood ended; the new one may
		// be among what was dropped.
		require.True(t, e.Kind == gpudrv.EventMissed || e.XID == 31, e)
		if e.Kind == gpudrv.EventMissed {
			cause(79)
		}
	}
}

// tunes checks gpudrv.Tuner on an empty GPU.
func tunes(ctx context.Context, t *testing.T, d gpudrv.Driver, uuid string) {
	setMode(ctx, t, d, uuid, gpu.WholeMode())
	c, err := d.Capabilities(ctx, uuid)
	require.NoError(t, err)
	settings := func() gpudrv.Settings {
		s, err := d.Settings(ctx, uuid)
		require.NoError(t, err)
		return s
	}
	if c.Timeslice.Or(false) {
		kind(t, gpudrv.Invalid, d.SetTimeslice(ctx, uuid, "forever"))
		require.NoError(t, d.SetTimeslice(ctx, uuid, gpudrv.TimesliceLong))
		require.Contains(t, []string{gpudrv.TimesliceLong, "n/a"}, settings().Timeslice.String())
		require.NoError(t, d.SetTimeslice(ctx, uuid, gpudrv.TimesliceDefault))
	}
	if c.ComputeMode.Or(false) {
		kind(t, gpudrv.Invalid, d.SetComputeMode(ctx, uuid, "shared"))
		require.NoError(t, d.SetComputeMode(ctx, uuid, gpudrv.ComputeExclusiveProcess))
		require.Equal(t, gpudrv.ComputeExclusiveProcess, settings().ComputeMode.String())
		require.NoError(t, d.SetComputeMode(ctx, uuid, gpudrv.ComputeDefault))
	}
	limits(ctx, t, d, uuid, c.MemoryLimits.Or(false))
	if c.Reset.Or(false) {
		require.NoError(t, d.Reset(ctx, uuid))
	}
	kind(t, gpudrv.NotFound, d.Reset(ctx, "GPU-00000000-0000-0000-0000-000000000000"))
}

func limits(ctx context.Context, t *testing.T, d gpudrv.Driver, uuid string, offered bool) {
	const cgroup, limit = "tranche/one", 1 << 30
	err := d.SetMemoryLimit(ctx, uuid, cgroup, limit)
	if !offered {
		kind(t, gpudrv.Unsupported, err)
		return
	}
	require.NoError(t, err)
	v, err := d.MemoryLimit(ctx, uuid, cgroup)
	require.NoError(t, err)
	require.Equal(t, int64(limit), v.Or(gpudrv.MemoryLimit{}).HardBytes)
	kind(t, gpudrv.Invalid, d.SetMemoryLimit(ctx, uuid, cgroup, -1))
	kind(t, gpudrv.Invalid, d.SetMemoryLimit(ctx, uuid, "", limit))
	require.NoError(t, d.SetMemoryLimit(ctx, uuid, cgroup, 0))
	noLimit(ctx, t, d, uuid)
}
