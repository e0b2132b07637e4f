package smi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/internal/smi"
)

const h200 = `GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1
GPU  0 Profile ID 20 Placements: {0,1,2,3,4,5,6}:1
GPU  0 Profile ID 15 Placements: {0,2,4,6}:2
GPU  0 Profile ID 14 Placements: {0,2,4}:2
GPU  0 Profile ID  9 Placements: {0,4}:4
GPU  0 Profile ID  5 Placement : {0}:4
GPU  0 Profile ID  0 Placement : {0}:8
`

func TestBothFormsAreRead(t *testing.T) {
	t.Parallel()
	got, err := smi.ParsePlacements(h200)
	require.NoError(t, err)
	require.Len(t, got[0], 7)
	require.Equal(t, []smi.Placement{{Start: 0, Size: 2}, {Start: 2, Size: 2}, {Start: 4, Size: 2}, {Start: 6, Size: 2}}, got[0][15])
	require.Equal(t, []smi.Placement{{Start: 0, Size: 4}}, got[0][5])
	require.Equal(t, []smi.Placement{{Start: 0, Size: 8}}, got[0][0])
}

func TestSeveralGPUsAreKeptApart(t *testing.T) {
	t.Parallel()
	got, err := smi.ParsePlacements("GPU  0 Profile ID  0 Placement : {0}:8\r\nGPU  1 Profile ID  0 Placement : {0}:4\n")
	require.NoError(t, err)
	require.Equal(t, 8, got[0][0][0].Size)
	require.Equal(t, 4, got[1][0][0].Size)
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "No MIG-supported devices found.\n",
		"GPU  0 Profile ID 19 Placements: {}:1",
		"GPU  0 Profile ID 19 Placements: {0,,1}:1",
		"GPU  0 Profile ID 19 Placements: {0}:0",
		"GPU  0 Profile ID 19 Placements: {0}:65",
		"GPU  0 Profile ID 19 Placements: {0,0}:1",
		"GPU  0 Profile ID 19 Placements: {-1}:1",
		"GPU  0 Profile ID 19",
		"GPU  0 Profile ID 19 Placements: {0}:1 and more",
		"GPU  0 Profile ID 0 Placement : {0}:8\nGPU  0 Profile ID 0 Placement : {0}:8",
	} {
		_, err := smi.ParsePlacements(text)
		require.Error(t, err, "%q", text)
	}
}

func FuzzParsePlacements(f *testing.F) {
	f.Add(h200)
	f.Add("GPU  0 Profile ID  5 Placement : {0}:4")
	f.Add("| GPU 1 Profile ID 19 Placements: { 0 , 1 }:1 |")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := smi.ParsePlacements(text)
		if err != nil {
			return
		}
		if len(got) == 0 {
			t.Fatal("an empty answer without an error")
		}
		for _, profiles := range got {
			for id, list := range profiles {
				for i, p := range list {
					if p.Start < 0 || p.Size < 1 || p.Start+p.Size > 64 || (i > 0 && p.Start <= list[i-1].Start) {
						t.Fatalf("profile %d: %v", id, list)
					}
				}
			}
		}
	})
}
