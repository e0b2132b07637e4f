package server_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tranche-cloud/tranche/devstack/internal/postgres"
	"github.com/tranche-cloud/tranche/devstack/internal/process"
	"github.com/tranche-cloud/tranche/devstack/internal/temporald"
	"github.com/tranche-cloud/tranche/devstack/internal/temporald/server"
)

// freeBlock finds n ports in a row below 32000, where membership ports must lie.
func freeBlock(t *testing.T, n int) int {
	t.Helper()
	for first := 24100; first < 32000; first += n {
		taken := false
		for port := first; port < first+n && !taken; port++ {
			l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
			if taken = err != nil; !taken {
				l.Close()
			}
		}
		if !taken {
			return first
		}
	}
	t.Fatal("no free ports")
	return 0
}

func TestServerOnPostgresServesItsNamespaceFromTheFirstMoment(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 110*time.Second)
	defer cancel()
	dir, ports := t.TempDir(), freeBlock(t, 9)
	cluster, err := postgres.Open(ctx, postgres.Config{Dir: dir, Port: ports + 8, Log: filepath.Join(dir, "log")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, postgres.Remove(dir)) })
	database, err := process.Start(ctx, cluster.Server())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Stop(context.Background())) })

	const owner = "temporal"
	require.NoError(t, cluster.EnsureRole(ctx, owner))
	for _, name := range []string{temporald.Database, temporald.VisibilityDatabase} {
		require.NoError(t, cluster.EnsureDatabase(ctx, name, owner))
	}
	main, visibility := cluster.DSN(owner, temporald.Database), cluster.DSN(owner, temporald.VisibilityDatabase)
	require.NoError(t, server.Prepare(ctx, main, visibility))
	require.NoError(t, server.Prepare(ctx, main, visibility), "again")

	config := temporald.Config{
		Host: "127.0.0.1", Port: ports + 8, User: owner, Password: cluster.Password(),
		FrontendPort: ports, MembershipPort: ports + 4, Namespace: "tranche",
	}
	serving, stop := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- server.Run(serving, config, func() { close(ready) }) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	require.NoError(t, temporald.Ping(ctx, config.Address(), config.Namespace))

	c, err := client.DialContext(ctx, client.Options{HostPort: config.Address(), Namespace: config.Namespace})
	require.NoError(t, err)
	defer c.Close()
	w := worker.New(c, "queue", worker.Options{})
	double := func(_ workflow.Context, n int) (int, error) { return 2 * n, nil }
	w.RegisterWorkflowWithOptions(double, workflow.RegisterOptions{Name: "double"})
	require.NoError(t, w.Start())
	defer w.Stop()
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "one", TaskQueue: "queue"}, "double", 21)
	require.NoError(t, err)
	var answer int
	require.NoError(t, run.Get(ctx, &answer))
	require.Equal(t, 42, answer)
}

func TestMembershipPortThatWouldBeStoredWrongIsRefused(t *testing.T) {
	err := server.Run(context.Background(), temporald.Config{MembershipPort: 32766}, nil)
	require.ErrorContains(t, err, "membership ports")
}
