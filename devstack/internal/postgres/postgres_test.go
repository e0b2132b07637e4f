package postgres_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/devstack/internal/postgres"
	"github.com/tranche-cloud/tranche/devstack/internal/process"
)

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestClusterKeepsWhatWasCommittedWhenItsServerIsKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	dir := t.TempDir() // a folder that only we may enter: the data go elsewhere for root
	config := postgres.Config{Dir: dir, Port: freePort(t), Log: filepath.Join(dir, "log")}
	cluster, err := postgres.Open(ctx, config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, postgres.Remove(dir)) })
	server, err := process.Start(ctx, cluster.Server())
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop(ctx)) }()

	require.NoError(t, cluster.EnsureRole(ctx, "someone"))
	require.NoError(t, cluster.EnsureRole(ctx, "someone"), "again")
	require.NoError(t, cluster.EnsureDatabase(ctx, "things", "someone"))
	require.NoError(t, cluster.EnsureDatabase(ctx, "things", "someone"), "again")

	count := func() (n int, err error) {
		conn, err := pgx.Connect(ctx, cluster.DSN("someone", "things"))
		if err != nil {
			return 0, err
		}
		defer conn.Close(ctx)
		if _, err = conn.Exec(ctx, "create table if not exists t (n int); insert into t values (1)"); err != nil {
			return 0, err
		}
		err = conn.QueryRow(ctx, "select count(*) from t").Scan(&n)
		return n, err
	}
	n, err := count()
	require.NoError(t, err)
	require.Equal(t, 1, n)

	require.NoError(t, server.Signal(syscall.SIGQUIT))
	require.Eventually(t, func() bool { n, err = count(); return err == nil }, 30*time.Second, 20*time.Millisecond)
	require.Equal(t, 2, n)
	require.Equal(t, 2, server.Starts())

	_, err = pgx.Connect(ctx, "postgres://someone:wrong@127.0.0.1/things?sslmode=disable")
	require.Error(t, err)
	info, err := os.Stat(filepath.Join(dir, "pg-password"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}
