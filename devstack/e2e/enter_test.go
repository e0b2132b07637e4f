package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// ended is how a program ended and what it said.
type ended struct {
	out, err string
	code     int
}

// program runs a program to its end.
func program(t *testing.T, cmd *exec.Cmd) ended {
	t.Helper()
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return ended{out.String(), said.String(), cmd.ProcessState.ExitCode()}
}

// tranche is the command line with a credential.
func (r *region) tranche(ctx context.Context, key string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(r.BinDir, "tranche"), args...)
	cmd.Env = append(os.Environ(), "TRANCHE_API_URL="+r.URL(), "TRANCHE_API_KEY="+key)
	return cmd
}

// inside runs a command in an instance by the command line.
func (r *region) inside(t *testing.T, ctx context.Context, key, instance, stdin string, command ...string) ended {
	t.Helper()
	cmd := r.tranche(ctx, key, append([]string{"instance", "exec", instance, "--"}, command...)...)
	cmd.Stdin = strings.NewReader(stdin)
	return program(t, cmd)
}

// keyPair makes a key of OpenSSH and returns its private file and its public line.
func keyPair(t *testing.T) (file, public string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "key")
	out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", file).CombinedOutput()
	require.NoError(t, err, string(out))
	line, err := os.ReadFile(file + ".pub")
	require.NoError(t, err)
	return file, strings.TrimSpace(string(line))
}

// entrance is where an instance takes SSH.
func entrance(t *testing.T, i client.Instance) client.Endpoint {
	t.Helper()
	for _, e := range i.Endpoints {
		if e.Kind == wire.EndpointKindSsh {
			return e
		}
	}
	require.Fail(t, "no SSH endpoint", "%+v", i.Endpoints)
	return client.Endpoint{}
}

// openSSH is the ssh program towards an endpoint, which accepts that host key alone.
func openSSH(t *testing.T, ctx context.Context, e client.Endpoint, user, key string, options []string, command string) *exec.Cmd {
	t.Helper()
	hostKey, err := e.HostKey.Get()
	require.NoError(t, err)
	known := filepath.Join(t.TempDir(), "known_hosts")
	require.NoError(t, os.WriteFile(known, fmt.Appendf(nil, "[%s]:%d %s\n", e.Host, e.Port, hostKey), 0o600))
	args := append([]string{"-F", "none", "-i", key, "-p", strconv.Itoa(int(e.Port)), "-o", "UserKnownHostsFile=" + known,
		"-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "BatchMode=yes",
		"-o", "LogLevel=ERROR"}, options...)
	return exec.CommandContext(ctx, "ssh", append(args, user+"@"+e.Host, command)...)
}

// tasks are the containers that the private containerd has.
func (r *region) tasks(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.RunDir(), "state", "io.containerd.runtime.v2.task", "*", "*"))
	require.NoError(t, err)
	return found
}

// filesWith lists the files below some folders that hold a text.
func filesWith(t *testing.T, text string, dirs ...string) (found []string) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			if bytes.Contains(content, []byte(text)) {
				found = append(found, path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		require.NoError(t, err)
	}
	return found
}
