package launch_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/agent/launch"
)

// Whoever holds a range has it alone, keeps it across restarts, and gives it back.
func TestRangesOfIdsNeverOverlap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ids.json")
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		file := path + string(rune('a'+n%26)) + filepath.Base(t.TempDir())
		ids, err := launch.OpenIDs(file, 1<<21)
		require.NoError(rt, err)
		held := map[string]uint32{}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(rt, "name")
			switch rapid.IntRange(0, 3).Draw(rt, "do") {
			case 0, 1:
				base, err := ids.Take(name)
				require.NoError(rt, err)
				if had, ok := held[name]; ok {
					require.Equal(rt, had, base)
				}
				held[name] = base
			case 2:
				require.NoError(rt, ids.Give(name))
				delete(held, name)
			case 3:
				ids, err = launch.OpenIDs(file, 1<<21)
				require.NoError(rt, err)
			}
			seen := map[uint32]string{}
			for name, base := range held {
				require.Zero(rt, base%65536)
				require.GreaterOrEqual(rt, base, uint32(1<<21))
				require.NotContains(rt, seen, base, name)
				seen[base] = name
			}
		}
	})
}

// A damaged file must not map an instance to the host's own ids, nor two to the same.
func TestDamagedRangesAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON": "{", "empty": "", "null": "null", "no number": `{"asg_1":"0"}`, "the host's root": `{"asg_1":-16}`,
		"beyond the last": `{"asg_1":32752}`, "held twice": `{"asg_1":3,"asg_2":3}`,
	} {
		path := filepath.Join(t.TempDir(), "ids.json")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := launch.OpenIDs(path, 0)
		require.ErrorContains(t, err, "restore the file", name)
	}
}
