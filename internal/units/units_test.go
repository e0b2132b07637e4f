package units_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/units"
)

func TestMiBAsTheDriverReportsIt(t *testing.T) {
	t.Parallel()
	// An H200 reports 150754820096 bytes, which is 143771 MiB.
	m := units.FromBytes(150754820096)
	require.Equal(t, units.MiB(143771), m)
	require.Equal(t, int64(150754820096), m.Bytes())
	require.Equal(t, int64(141), m.CeilGiB())
	require.Equal(t, "143771 MiB", m.String())
	require.Equal(t, units.MiB(0), units.FromBytes(1<<20-1), "a part of a mebibyte does not count")
}
