package replay_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/gpudrvtest"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/replay"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

// simulated is a host to record, with something carved and one GPU lost.
func simulated(t *testing.T) *sim.Driver {
	t.Helper()
	h := sim.FleetHost{Name: "solo", VCPU: 8, RAM: 65536, GPUs: []sim.FleetGPU{{Model: "H200-141", Mode: gpu.MIGMode(), Count: 2}}}
	d, err := sim.Open(sim.Config{Dir: t.TempDir(), Host: h})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	_, err = d.CreateGPUInstance(t.Context(), h.Devices()[0].UUID, 9, gpudrv.Placement{Start: 4, Size: 4})
	require.NoError(t, err)
	return d
}

func record(t *testing.T, r gpudrv.Reader) gpudrv.Recording {
	t.Helper()
	rec, err := gpudrv.Record(t.Context(), r, time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	require.NoError(t, err)
	text, err := json.Marshal(rec)
	require.NoError(t, err)
	back, err := gpudrv.ParseRecording(text)
	require.NoError(t, err)
	require.Equal(t, rec, back)
	return back
}

func TestARecordingRepeatsEveryAnswer(t *testing.T) {
	t.Parallel()
	d := simulated(t)
	r := replay.New(record(t, d))
	gpudrvtest.ReadOnly(t, r)
	want, err := gpudrv.Inventory(t.Context(), d)
	require.NoError(t, err)
	got, err := gpudrv.Inventory(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, want, got)
	for _, f := range want {
		uuid := f.Ref.UUID
		same(t, d.Capabilities, r.Capabilities, uuid)
		same(t, d.Usage, r.Usage, uuid)
		same(t, d.Fabric, r.Fabric, uuid)
		same(t, d.Settings, r.Settings, uuid)
	}
}

// same compares one answer of two drivers.
func same[T any](t *testing.T, a, b func(context.Context, string) (T, error), uuid string) {
	t.Helper()
	want, err := a(t.Context(), uuid)
	require.NoError(t, err)
	got, err := b(t.Context(), uuid)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestOldRecordingsSayThatTheyWereNotAsked: what a recording's version did not ask
// for is not reported, never zero.
func TestOldRecordingsSayThatTheyWereNotAsked(t *testing.T) {
	t.Parallel()
	r, err := replay.Open("testdata/h200-141.json")
	require.NoError(t, err)
	refs, err := r.GPUs(t.Context())
	require.NoError(t, err)
	use, err := r.Usage(t.Context(), refs[0].UUID)
	require.NoError(t, err)
	require.Len(t, use, 1)
	_, reported := use[0].Busy.Get()
	require.False(t, reported)
	require.Equal(t, "not in the recording", use[0].Busy.Reason())
	c, err := r.Capabilities(t.Context(), refs[0].UUID)
	require.NoError(t, err)
	require.False(t, c.MemoryLimits.Or(false))
	_, err = r.Watch(t.Context())
	require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(err))
}

func TestErrorsAreRecordedAsAnswers(t *testing.T) {
	t.Parallel()
	d := simulated(t)
	refs, err := d.GPUs(t.Context())
	require.NoError(t, err)
	require.NoError(t, d.Lose(refs[1].UUID))
	r := replay.New(record(t, d))
	_, err = r.Memory(t.Context(), refs[1].UUID)
	require.Equal(t, gpudrv.GPULost, gpudrv.KindOf(err))
	_, err = r.Memory(t.Context(), refs[0].UUID)
	require.NoError(t, err)
}

func TestARecordingCannotChange(t *testing.T) {
	t.Parallel()
	r := replay.New(gpudrv.Recording{})
	_, err := r.CreateGPUInstance(t.Context(), "GPU-1", 19, gpudrv.Placement{Size: 1})
	require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(err))
	require.Equal(t, gpudrv.Unsupported, gpudrv.KindOf(r.SetMode(t.Context(), "GPU-1", gpu.MIGMode())))
}

func TestBadRecordingsAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `{}`, `{"format":2}`, `{"format":1,"extra":1}`, `{"format":1} {}`, `[]`} {
		_, err := gpudrv.ParseRecording([]byte(text))
		require.Error(t, err, text)
	}
	_, err := replay.Open(filepath.Join(t.TempDir(), "none.json"))
	require.Error(t, err)
}

// TestRecordingsOfRealMachinesConform runs the suite on what real drivers said.
func TestRecordingsOfRealMachinesConform(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			r, err := replay.Open(f)
			require.NoError(t, err)
			gpudrvtest.ReadOnly(t, r)
		})
	}
}
