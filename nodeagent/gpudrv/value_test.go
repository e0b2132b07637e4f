package gpudrv_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

func TestAValueKeepsItsThreeStates(t *testing.T) {
	t.Parallel()
	for _, v := range []gpudrv.Value[int]{
		gpudrv.Reported(0), gpudrv.Reported(7), gpudrv.NotReported[int]("MIG is on"), gpudrv.Failed[int]("timeout"), {},
	} {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		var back gpudrv.Value[int]
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, v, back, string(text))
	}
	_, ok := gpudrv.NotReported[int]("x").Get()
	require.False(t, ok, "a missing reading is not a zero")
	require.Equal(t, 9, gpudrv.Failed[int]("x").Or(9))
	for _, text := range []string{`{}`, `{"reported":1,"failed":"x"}`, `{"reported":"text"}`, `7`} {
		require.Error(t, json.Unmarshal([]byte(text), new(gpudrv.Value[int])), text)
	}
}

func TestErrorsCarryKindAndHolders(t *testing.T) {
	t.Parallel()
	cause := errors.New("ioctl")
	err := fmt.Errorf("carve: %w", gpudrv.Refuse(gpudrv.InUse, "destroy_gpu_instance", "GPU-1", "gpu instance %d", 7).
		HeldBy(gpudrv.Holder{PID: 12, Name: "dcgm"}).Because(cause))
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(err))
	require.Equal(t, []gpudrv.Holder{{PID: 12, Name: "dcgm"}}, gpudrv.HoldersOf(err))
	require.ErrorIs(t, err, cause)
	require.Equal(t, "carve: destroy_gpu_instance on GPU-1: IN_USE: gpu instance 7; held by dcgm(12): ioctl", err.Error())
	require.Equal(t, gpudrv.Broken, gpudrv.KindOf(cause))
	require.Empty(t, gpudrv.KindOf(nil))
	require.True(t, gpudrv.IsTransient(err))
	require.False(t, gpudrv.IsTransient(gpudrv.Refuse(gpudrv.NoRoom, "x", "", "")))
}
