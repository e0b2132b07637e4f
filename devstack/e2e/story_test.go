package e2e_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/devstack/internal/stack"
	"github.com/tranche-cloud/tranche/devstack/internal/story"
)

// TestDemoEndsWithAnInvoice tells the story of `make demo` on a bare stack.
func TestDemoEndsWithAnInvoice(t *testing.T) {
	ctx := within(t, 100*time.Second)
	bin, err := binaries()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(memory(), "tranche-e2e-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { require.NoError(t, stack.Remove(dir)) })
	ports, release, err := stack.FreePorts()
	require.NoError(t, err)
	defer release()
	s, err := stack.Start(ctx, stack.Config{Dir: dir, BinDir: bin, Ports: ports})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop(ctx)) }()

	var told, listed bytes.Buffer
	require.NoError(t, story.Tell(ctx, s, &told), told.String())
	require.Regexp(t, `INVOICE TR-\d{4}-000001`, told.String())
	require.Contains(t, told.String(), "h100-whole-80gb")
	require.NoError(t, story.List(&listed))
	require.Contains(t, listed.String(), "finalize the invoice")
}
