package scrub_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/scrub"
)

func host(t *testing.T, m gpu.Mode) (*sim.Driver, string) {
	t.Helper()
	h := sim.FleetHost{Name: "solo", VCPU: 8, RAM: 64 * units.GiB, GPUs: []sim.FleetGPU{{Model: "H200-141", Mode: m, Count: 1}}}
	d, err := sim.Open(sim.Config{Dir: t.TempDir(), Host: h})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d, h.Devices()[0].UUID
}

func slice(uuid string, m gpu.Mode, start int) carve.Slice {
	return carve.Slice{ID: "x", Slot: gpu.Slot{GPU: uuid, Mode: m, Profile: 19, Start: start, Size: 1, Compute: 1}}
}

func TestASliceWithSomebodyOnItIsNotClean(t *testing.T) {
	d, uuid := host(t, gpu.WholeMode())
	s, err := scrub.New(scrub.Config{Driver: d, Policy: scrub.TrustDriver})
	require.NoError(t, err)
	said, err := s.Scrub(t.Context(), slice(uuid, gpu.WholeMode(), 0))
	require.NoError(t, err)
	require.Contains(t, said, "trust-driver: no process")
	require.NoError(t, d.Attach(uuid, sim.Client{PID: 7, Name: "python3", UsedBytes: 1 << 30}))
	_, err = s.Scrub(t.Context(), slice(uuid, gpu.WholeMode(), 0))
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(err))
	require.Equal(t, []gpudrv.Holder{{PID: 7, Name: "python3"}}, gpudrv.HoldersOf(err))
	require.NoError(t, d.Detach(uuid, 7))
	require.NoError(t, d.Attach(uuid, sim.Client{PID: 8, Name: "leak", UsedBytes: 4 << 30, Monitor: true}))
	_, err = s.Scrub(t.Context(), slice(uuid, gpu.WholeMode(), 0))
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(err), "memory that nobody owns up to")
}

// A neighbour's process is no reason to keep a MIG slice.
func TestNeighboursDoNotCount(t *testing.T) {
	d, uuid := host(t, gpu.MIGMode())
	for _, start := range []int{2, 3} {
		gi, err := d.CreateGPUInstance(t.Context(), uuid, 19, gpudrv.Placement{Start: start, Size: 1})
		require.NoError(t, err)
		_, err = d.CreateComputeInstance(t.Context(), uuid, gi.ID)
		require.NoError(t, err)
	}
	require.NoError(t, d.Attach(uuid, sim.Client{PID: 9, Name: "neighbour", Slot: slice(uuid, gpu.MIGMode(), 3).Slot}))
	s, err := scrub.New(scrub.Config{Driver: d, Policy: scrub.TrustDriver})
	require.NoError(t, err)
	_, err = s.Scrub(t.Context(), slice(uuid, gpu.MIGMode(), 2))
	require.NoError(t, err)
	_, err = s.Scrub(t.Context(), slice(uuid, gpu.MIGMode(), 3))
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(err))
}

func TestVerifyBelievesWhatTheScanSays(t *testing.T) {
	d, uuid := host(t, gpu.WholeMode())
	for name, tc := range map[string]struct{ program, want string }{
		"clean":      {`echo '{"event":"scan","words":100,"pattern":0,"not_zero":0}'`, ""},
		"dirty":      {`echo '{"event":"scan","words":100,"pattern":3,"not_zero":3}'`, "3 of 100 words"},
		"fails":      {"exit 3", "scan failed"},
		"says none":  {"true", "said nothing"},
		"wrong card": {`[ "$CUDA_VISIBLE_DEVICES" = nowhere ]`, "scan failed"},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "scan"), []byte("#!/bin/sh\n"+tc.program+"\n"), 0o755))
		s, err := scrub.New(scrub.Config{Driver: d, Policy: scrub.Verify, Programs: dir})
		require.NoError(t, err)
		said, err := s.Scrub(t.Context(), slice(uuid, gpu.WholeMode(), 0))
		if tc.want == "" {
			require.NoError(t, err, name)
			require.Contains(t, said, "100 words, none left")
			continue
		}
		require.ErrorContains(t, err, tc.want, name)
	}
	_, err := scrub.New(scrub.Config{Driver: d, Policy: scrub.Fill, Programs: "here"})
	require.Error(t, err)
	_, err = scrub.ParsePolicy("maybe")
	require.ErrorContains(t, err, "trust-driver")
}

// tools makes programs that note how they are called.
func tools(t *testing.T) (dir, calls string) {
	t.Helper()
	dir = t.TempDir()
	calls = filepath.Join(dir, "calls")
	for name, says := range map[string]string{"pattern": "", "scan": `echo '{"event":"scan","words":7,"not_zero":0}'`} {
		text := "#!/bin/sh\necho " + name + " $1 >>" + calls + "\n" + says + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	return dir, calls
}

// Filling is looked at afterwards, and a MIG slice is as large as it is, whatever its GPU
// has free.
func TestFillLooksAtTheSliceAlone(t *testing.T) {
	d, uuid := host(t, gpu.MIGMode())
	gi, err := d.CreateGPUInstance(t.Context(), uuid, 19, gpudrv.Placement{Start: 2, Size: 1})
	require.NoError(t, err)
	_, err = d.CreateComputeInstance(t.Context(), uuid, gi.ID)
	require.NoError(t, err)
	dir, calls := tools(t)
	s, err := scrub.New(scrub.Config{Driver: d, Policy: scrub.Fill, Programs: dir})
	require.NoError(t, err)
	said, err := s.Scrub(t.Context(), slice(uuid, gpu.MIGMode(), 2))
	require.NoError(t, err)
	require.Contains(t, said, "overwritten 15360 MiB: 7 words, none left")
	text, err := os.ReadFile(calls)
	require.NoError(t, err)
	require.Equal(t, "pattern 15360\nscan 15360\n", string(text))
}

// On a shared GPU no program takes the room of the neighbours.
func TestASharedGPUIsNotScanned(t *testing.T) {
	mode, err := gpu.ParseMode("mps:4x25")
	require.NoError(t, err)
	d, uuid := host(t, mode)
	dir, calls := tools(t)
	s, err := scrub.New(scrub.Config{Driver: d, Policy: scrub.Fill, Programs: dir})
	require.NoError(t, err)
	_, err = s.Scrub(t.Context(), slice(uuid, mode, 1))
	require.NoError(t, err)
	require.NoFileExists(t, calls)
}
