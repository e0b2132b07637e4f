package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/postgres"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
)

// unlimited lets a test ask as often and for as much as it likes.
var unlimited = market.Terms{
	Quota:  client.Quota{Instances: 100_000, Gpus: 100_000},
	Limits: client.RateLimits{Read: 1_000_000, Write: 1_000_000, Launch: 1_000_000},
}

// binaries returns the folder of the programs under test.
var binaries = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("TRANCHE_BIN"); dir != "" {
		return dir, nil
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	build := exec.Command(filepath.Join(root, "scripts", "build"), "tranched", "tranche",
		"tranche-agent", "tranche-guest", "tranche-registry", "tranche-dev", "terraform-provider-tranche")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return filepath.Join(root, "bin"), nil
})

// memory is where test stacks live: a database in memory starts in a second.
func memory() string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err == nil && info.IsDir() {
		return shm
	}
	return os.TempDir()
}

// region is a running installation with hosts and offers.
type region struct {
	*stack.Stack
	fleet market.Fleet
}

// open starts an installation that ends with the test. It is audited before it
// ends, and must be clean.
func open(t *testing.T, fleet market.Fleet) *region {
	t.Helper()
	return openAs(t, fleet, stack.Config{})
}

// openAs starts an installation of a kind, with more products than the usual ones;
// folder, binaries and ports are chosen here.
func openAs(t *testing.T, fleet market.Fleet, config stack.Config, more ...market.Product) *region {
	t.Helper()
	bin, err := binaries()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp(memory(), "tranche-e2e-")
	require.NoError(t, err)
	// The user that runs Postgres must get in.
	require.NoError(t, os.Chmod(dir, 0o711))
	ports, release, err := stack.FreePorts()
	require.NoError(t, err)
	config.Dir, config.BinDir, config.Ports = dir, bin, ports
	s, err := stack.Start(ctx, config)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the folder of the stack is kept:", dir)
		}
		require.NoError(t, s.Stop(context.Background()))
		release()
		if !t.Failed() {
			require.NoError(t, stack.Remove(dir))
		}
	})
	require.NoError(t, s.Enrol(ctx, fleet))
	require.NoError(t, market.Stock(ctx, s.Admin(), more...))
	return &region{s, fleet}
}

// clean has the installation audited.
func (r *region) clean(t *testing.T, ctx context.Context) {
	t.Helper()
	report, err := r.Doctor(ctx)
	require.NoError(t, err, string(report))
}

// buyer makes an organization with a client of its own.
func (r *region) buyer(t *testing.T, ctx context.Context, name string) (market.Buyer, *client.Client) {
	t.Helper()
	b, err := market.Enlist(ctx, r.Admin(), name, unlimited)
	require.NoError(t, err)
	return b, r.Client(b.Key)
}

// value reads one value from the database, past the tenants' walls.
func value[T any](t *testing.T, ctx context.Context, r *region, query string, args ...any) (v T) {
	t.Helper()
	conn, err := pgx.Connect(ctx, r.Postgres.DSN(postgres.Superuser, "tranche"))
	require.NoError(t, err)
	defer conn.Close(ctx)
	require.NoError(t, conn.QueryRow(ctx, query, args...).Scan(&v))
	return v
}

// within bounds a test; what it waits for takes seconds.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func wanted(p market.Product, name string) client.InstanceCreate {
	return client.InstanceCreate{Name: &name, Offer: p.Offer, Image: "registry.example/test:1"}
}

// parallel runs n calls at once and returns what they returned.
func parallel[T any](n int, call func(i int) (T, error)) ([]T, error) {
	out, errs := make([]T, n), make([]error, n)
	var ready, all sync.WaitGroup
	ready.Add(n)
	for i := range n {
		all.Go(func() {
			ready.Done()
			ready.Wait()
			out[i], errs[i] = call(i)
		})
	}
	all.Wait()
	return out, errors.Join(errs...)
}
