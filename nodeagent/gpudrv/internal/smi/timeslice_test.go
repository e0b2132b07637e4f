package smi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/internal/smi"
)

func TestTimesliceIsReadFromTheTable(t *testing.T) {
	t.Parallel()
	// As driver 580.159.04 prints it.
	const table = `+-------------------------------------+
| GPU compute policies:               |
| GPU     Name           Value        |
|=====================================|
|   0   Timeslice       Default       |
+-------------------------------------+
`
	require.Equal(t, "default", smi.ParseTimeslice(table))
	for _, none := range []string{"", "No devices were found\n", "| GPU     Name           Value        |\n", "Timeslice\n"} {
		require.Empty(t, smi.ParseTimeslice(none))
	}
}
