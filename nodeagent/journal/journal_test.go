package journal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent/journal"
)

func entry(a id.Assignment, step journal.Step) journal.Entry {
	return journal.Entry{
		Step: step, Assignment: a, Fence: 3, Timeline: 1, Instance: id.New[id.Instance](), Run: 2, BootID: "boot",
		Slots: []journal.Slot{{Slot: gpu.Slot{GPU: "GPU-1", Mode: gpu.MIGMode(), Profile: 19, Name: "1g.18gb", Start: 3, Size: 1, Compute: 1}, Device: "MIG-1"}},
	}
}

func reopen(t testing.TB, path string) (*journal.File, []journal.Entry) {
	t.Helper()
	j, entries, err := journal.Open(path)
	require.NoError(t, err)
	return j, entries
}

// The last entry of each assignment comes back, whatever order they came in, and
// wherever the file was torn the entries before the tear do.
func TestLastEntriesComeBackFromATornFile(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		path := filepath.Join(dir, "journal-"+string(rune('a'+n%26))+strings.Repeat("x", n/26))
		subjects := []id.Assignment{id.New[id.Assignment](), id.New[id.Assignment](), id.New[id.Assignment]()}
		steps := []journal.Step{journal.Carve, journal.Carved, journal.Start, journal.Running, journal.Gone}
		j, entries := reopen(t, path)
		require.Empty(t, entries)
		var sizes []int64
		var written []journal.Entry
		for range rapid.IntRange(1, 12).Draw(rt, "entries") {
			e := entry(rapid.SampledFrom(subjects).Draw(rt, "subject"), rapid.SampledFrom(steps).Draw(rt, "step"))
			require.NoError(t, j.Append(e))
			written = append(written, e)
			info, err := os.Stat(path)
			require.NoError(t, err)
			sizes = append(sizes, info.Size())
		}
		require.NoError(t, j.Close())
		cut := rapid.Int64Range(30, sizes[len(sizes)-1]).Draw(rt, "cut")
		require.NoError(t, os.Truncate(path, cut))
		want := map[id.Assignment]journal.Entry{}
		for i, e := range written {
			if sizes[i] <= cut {
				want[e.Assignment] = e
			}
		}
		j, entries = reopen(t, path)
		got := map[id.Assignment]journal.Entry{}
		for _, e := range entries {
			got[e.Assignment] = e
		}
		require.Equal(t, want, got)
		more := entry(subjects[0], journal.Ended)
		require.NoError(t, j.Append(more))
		require.NoError(t, j.Close())
		j, entries = reopen(t, path)
		require.Contains(t, entries, more, "what is appended after a tear is read")
		require.NoError(t, j.Close())
	})
}

// Damage before the end means that nobody knows what was in flight.
func TestDamageIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := reopen(t, path)
	for range 3 {
		require.NoError(t, j.Append(entry(id.New[id.Assignment](), journal.Running)))
	}
	require.NoError(t, j.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text[len(text)/2] ^= 1
	require.NoError(t, os.WriteFile(path, text, 0o600))
	_, _, err = journal.Open(path)
	require.ErrorContains(t, err, "checksum")
}

func TestAnotherFormatIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	require.NoError(t, os.WriteFile(path, []byte("843390fa {\"format\":2}\n"), 0o600))
	_, _, err := journal.Open(path)
	require.ErrorContains(t, err, "format 2")
}

// A long-lived journal stays small and keeps what lives and the fences of what is
// gone.
func TestJournalIsRewritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := reopen(t, path)
	living, gone := entry(id.New[id.Assignment](), journal.Running), entry(id.New[id.Assignment](), journal.Gone)
	require.NoError(t, j.Append(living))
	gone.Detail = strings.Repeat("x", 8<<10)
	for range 200 {
		require.NoError(t, j.Append(gone))
	}
	require.NoError(t, j.Append(gone))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(100*len(gone.Detail)))
	require.NoError(t, j.Close())
	j, entries := reopen(t, path)
	require.Equal(t, []journal.Entry{living, gone}, entries)
	require.NoError(t, j.Close())
}
