package mps_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/carve/mps"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

func TestAProbeIsAClientOfTheDaemonAndNothingElse(t *testing.T) {
	t.Parallel()
	h := sim.FleetHost{Name: "solo", VCPU: 8, RAM: 65536, GPUs: []sim.FleetGPU{{Model: "H200-141", Mode: gpu.WholeMode(), Count: 1}}}
	drv, err := sim.Open(sim.Config{Dir: t.TempDir(), Host: h})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, drv.Close()) })
	uuid, daemons := h.Devices()[0].UUID, drv.MPS()
	probe := func(text string) error {
		p, err := mps.NewProgram(daemons, "/bin/sh", "-c", text, "probe", "1")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		return p.Probe(ctx, uuid)
	}
	require.NoError(t, probe(`test "$1" = 1 && test -d "$CUDA_MPS_PIPE_DIRECTORY" && test "$CUDA_VISIBLE_DEVICES" = `+uuid+` && test -z "$HOME"`))
	err = probe("echo starting; echo illegal memory access >&2; exit 3")
	require.Equal(t, gpudrv.Broken, gpudrv.KindOf(err))
	require.ErrorContains(t, err, "illegal memory access")
	require.Equal(t, gpudrv.Hung, gpudrv.KindOf(probe("exec tail -f /dev/null")))
	drv.Inject(sim.Fault{Op: sim.OpMPSEnsure, Kind: gpudrv.Broken})
	require.Equal(t, gpudrv.Broken, gpudrv.KindOf(probe("exit 0")))
}

func TestAProbeMustBeAProgramAtAnAbsolutePath(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	for _, path := range []string{"probe", plain, plain + ".gone", t.TempDir()} {
		_, err := mps.NewProgram(nil, path)
		require.Equal(t, gpudrv.Invalid, gpudrv.KindOf(err), path)
	}
}
