package nodeagent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent"
)

// Without its journal an agent would not know its own slices: each order would fail on
// them, and its run would be ended. It does not start, and what runs goes on.
func TestALostJournalEndsNothing(t *testing.T) {
	for name, harm := range map[string]func(string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"torn":    func(path string) error { return os.WriteFile(path, []byte("af1ec339 {"), 0o600) },
		"damaged": func(path string) error { return os.WriteFile(path, []byte("what?\nmore\n"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.obey(orders(n.wholeOrder(id.New[id.Assignment](), 1)))
			path := filepath.Join(n.dir, "journal.log")
			kept, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, harm(path))
			for range 2 { // a refusal must not look like a journal the next time
				_, err = nodeagent.NewKeeper(t.Context(), n.Host.Host)
				require.ErrorContains(t, err, "restore it from a copy")
			}
			list, err := n.Host.Runtime.List(t.Context())
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.NoError(t, os.WriteFile(path, kept, 0o600))
		})
	}
}
