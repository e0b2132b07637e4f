package e2e_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// TestStackComesBackWithWhatItHad stops a whole installation and starts it again
// in its folder: credentials, instances and their runs are the same.
func TestStackComesBackWithWhatItHad(t *testing.T) {
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
	config, fleet := stack.Config{Dir: dir, BinDir: bin, Ports: ports, OneProcess: true}, market.Small(1)

	s, err := stack.Start(ctx, config)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop(ctx)) }()
	require.NoError(t, s.Enrol(ctx, fleet))
	credentials, err := s.Furnish(ctx)
	require.NoError(t, err)
	require.Len(t, credentials.Orgs, 2)
	info, err := os.Stat(filepath.Join(dir, "credentials.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	_, err = stack.Start(ctx, config)
	require.ErrorContains(t, err, "runs in "+dir+" already")
	require.ErrorContains(t, stack.Remove(dir), "already")

	owner := credentials.Orgs[0]
	c := s.Client(owner.Key)
	created, err := c.CreateInstance(ctx, owner.Project, wanted(market.MIGSmall, "kept"))
	require.NoError(t, err)
	before, err := c.WaitInstance(ctx, owner.Project, created.Id, wire.WaitStatusRunning)
	require.NoError(t, err)

	other, err := stack.Attach(ctx, stack.Config{Dir: dir, BinDir: bin})
	require.NoError(t, err)
	clock, err := other.Clock(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, clock.Scale)
	_, err = other.JumpTo(ctx, clock.Now.Add(-time.Hour))
	require.ErrorContains(t, err, "does not go back")
	_, err = other.SetScale(ctx, 100_001)
	require.Error(t, err)

	require.NoError(t, s.Stop(ctx))
	_, err = stack.Attach(ctx, stack.Config{Dir: dir, BinDir: bin})
	require.ErrorIs(t, err, stack.ErrNotRunning)
	s, err = stack.Start(ctx, config)
	require.NoError(t, err)
	require.NoError(t, s.Enrol(ctx, fleet))
	again, err := s.Furnish(ctx)
	require.NoError(t, err)
	require.Equal(t, credentials, again)

	after, err := c.WaitInstance(ctx, owner.Project, created.Id, wire.WaitStatusRunning)
	require.NoError(t, err)
	require.Equal(t, before.Gpus, after.Gpus, "the slice is the same")
	hosts, err := client.Collect(s.Admin().Hosts(ctx))
	require.NoError(t, err)
	require.Len(t, hosts, len(fleet), "no host joined twice")
	remove(t, ctx, c, owner, created.Id)
	report, err := s.Doctor(ctx)
	require.NoError(t, err, string(report))
}
