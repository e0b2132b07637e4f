package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/testkit/pgtest"
)

// command runs tranched in this process.
func command(ctx context.Context, args ...string) (string, error) {
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// code is the exit code that an error would give, without printing it.
func code(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if err == nil {
		return 0
	}
	return exitFailed
}

func TestAFlagWinsOverItsEnvironmentVariable(t *testing.T) {
	t.Parallel()
	env := []string{"TRANCHE_KEY_DIR=/from/env", "TRANCHE_DATABASE_CONNECTIONS=7", "TRANCHE_DATABASE_URL=postgres://h/d?a=b", "TRANCHE_NONE=1", "LOG_LEVEL=WARN"}
	var s settings
	cmd := &cobra.Command{Use: "x"}
	s.bindDatabase(cmd)
	s.bindKeys(cmd)
	require.NoError(t, cmd.ParseFlags([]string{"--key-dir", "/from/flag"}))
	require.NoError(t, bindEnv(cmd, env))
	require.Equal(t, "/from/flag", s.keyDir)
	require.EqualValues(t, 7, s.connections)

	require.Equal(t, "postgres://h/d?a=b", s.databaseURL)
	require.Equal(t, slog.LevelInfo, s.logLevel)

	err := bindEnv(cmd, append(env, "TRANCHE_LOG_LEVEL=loud"))
	require.ErrorContains(t, err, "TRANCHE_LOG_LEVEL")
	require.Equal(t, exitUsage, code(err))
}

func TestKeysAreMadeOnceAndForTheOwnerAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	_, err := command(t.Context(), "admin", "init-keys", "--key-dir", dir)
	require.NoError(t, err)
	first := map[string]string{}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 6)
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		require.NoError(t, err)
		first[f.Name()] = string(text)
		info, err := f.Info()
		require.NoError(t, err)
		if !strings.HasSuffix(f.Name(), ".pem") {
			require.EqualValues(t, 0o600, info.Mode().Perm(), f.Name())
		}
	}
	_, err = command(t.Context(), "admin", "init-keys", "--key-dir", dir)
	require.NoError(t, err)
	for name, text := range first {
		now, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, text, string(now), name)
	}
}

func TestWrongUsageAndRefusalsHaveTheirExitCodes(t *testing.T) {
	t.Parallel()
	_, err := command(t.Context(), "doctor")
	require.Equal(t, exitUsage, code(err))
	_, err = command(t.Context(), "migrate")
	require.Equal(t, exitUsage, code(err))
	_, err = command(t.Context(), "api", "--no-such-flag")
	require.Equal(t, exitUsage, code(err))
	_, err = command(t.Context(), "admin", "create-operator")
	require.Equal(t, exitUsage, code(err))
	_, err = command(t.Context(), "frob")
	require.Equal(t, exitUsage, code(err))
	_, err = command(t.Context(), "admin", "frob")
	require.Equal(t, exitUsage, code(err))

	empty := pgtest.Empty(t)
	_, err = command(t.Context(), "doctor", "--database-url", empty.AppDSN)
	require.Equal(t, exitRefuse, code(err), "a database without our schema: %v", err)
	_, err = command(t.Context(), "migrate", "--owner-database-url", empty.OwnerDSN)
	require.NoError(t, err)
	_, err = command(t.Context(), "doctor", "--database-url", empty.AppDSN)
	require.NoError(t, err)
	_, err = command(t.Context(), "doctor", "--database-url", empty.SuperDSN)
	require.Equal(t, exitRefuse, code(err), "a login that bypasses row-level security")
}

func TestTheDoctorSpeaksToPeopleAndPrograms(t *testing.T) {
	t.Parallel()
	base := pgtest.New(t)
	out, err := command(t.Context(), "doctor", "--database-url", base.AppDSN)
	require.NoError(t, err)
	require.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 13, "one line an invariant")
	require.Contains(t, out, "I1   ok")
	require.Contains(t, out, "I11  not built")
	require.Contains(t, out, "I6   held by suite")

	_, err = base.OwnerPool(t).Exec(t.Context(), `insert into outbox (kind, key, created_at) values ('instance', 'inst_lost', '2020-01-01')`)
	require.NoError(t, err)
	out, err = command(t.Context(), "doctor", "--database-url", base.AppDSN)
	require.Equal(t, exitFound, code(err))
	require.Contains(t, out, "I3   FOUND 1")
	require.Contains(t, out, "inst_lost")
	out, err = command(t.Context(), "doctor", "--database-url", base.AppDSN, "-o", "json")
	require.Equal(t, exitFound, code(err))
	var got struct {
		Clean      bool
		Invariants []struct {
			ID, Status string
			Offences   []struct{ Rows []string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.False(t, got.Clean)
	require.Equal(t, "found", got.Invariants[2].Status)
	require.Len(t, got.Invariants[2].Offences[0].Rows, 1)
}

func TestAnOperatorsKeyIsPrintedAlone(t *testing.T) {
	t.Parallel()
	base, dir := pgtest.New(t), t.TempDir()
	_, err := command(t.Context(), "admin", "init-keys", "--key-dir", dir)
	require.NoError(t, err)
	out, err := command(t.Context(), "admin", "create-operator", "--name", "root", "--key-dir", dir, "--database-url", base.AppDSN)
	require.NoError(t, err)
	require.Regexp(t, `^trn_op_[0-9a-z_]+\n$`, out)
}

// freePort is a port of the range that tests use.
func freePort(t *testing.T) string {
	t.Helper()
	for port := 20000 + os.Getpid()%6000; port < 32000; port++ {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			require.NoError(t, l.Close())
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// TestAllRolesServeWithoutTemporalAndEndCleanly is a start in the middle of an
// outage: the API serves, wake-ups wait, SIGTERM ends it.
func TestAllRolesServeWithoutTemporalAndEndCleanly(t *testing.T) {
	base, dir := pgtest.New(t), t.TempDir()
	_, err := command(t.Context(), "admin", "init-keys", "--key-dir", dir)
	require.NoError(t, err)
	api := freePort(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := command(ctx, "all", "--database-url", base.AppDSN, "--key-dir", dir, "--listen", api,
			"--gateway-listen", "127.0.0.1:0", "--temporal-address", "127.0.0.1:1", "--log-level", "ERROR", "--dev")
		ended <- err
	}()
	require.Eventually(t, func() bool {
		r, err := http.Get("http://" + api + "/readyz")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	}, 20*time.Second, 20*time.Millisecond)
	stop()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(shutdownWithin + 10*time.Second):
		t.Fatal("the roles did not end")
	}
}
