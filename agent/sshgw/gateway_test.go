package sshgw_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/agent/guest"
	"github.com/tranche-cloud/tranche/agent/guest/inside"
	"github.com/tranche-cloud/tranche/agent/sshgw"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/id"
)

const soon = 20 * time.Second

// TestMain lets this program be the guest as well, with the race detector in it.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "guest":
		os.Exit(inside.Run(context.Background(), inside.Config{Dir: os.Args[2], Self: os.Args[0], Log: os.Stderr}))
	case len(os.Args) == 4 && os.Args[1] == "gateway":
		fmt.Fprintln(os.Stderr, gateway(os.Args[2], os.Args[3]))
		os.Exit(1)
	case len(os.Args) == 2 && os.Args[1] == "sftp":
		if inside.ServeFiles(os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// gateway is a gateway in a process of its own, as a host has it.
func gateway(dir, address string) error {
	spool, err := sshgw.OpenSpool(filepath.Join(dir, "spool"))
	if err != nil {
		return err
	}
	if err := spool.Recover(time.Now()); err != nil {
		return err
	}
	server, err := sshgw.New(config(dir, spool))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return server.Serve(context.Background(), listener)
}

func config(dir string, spool *sshgw.Spool) sshgw.Config {
	return sshgw.Config{
		State: filepath.Join(dir, "state"), HostKey: filepath.Join(dir, "host_key"), Logs: filepath.Join(dir, "logs"),
		Audit: spool.Add, Peer: func(sshgw.Entry) guest.Peer { return func(int) error { return nil } },
		Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
	}
}

// host is a hub with a gateway.
type host struct {
	dir     string
	hub     *guest.Hub
	state   *sshgw.State
	spool   *sshgw.Spool
	cfg     sshgw.Config
	server  *sshgw.Server
	address string
	stop    func()
}

func setup(t *testing.T, change ...func(*sshgw.Config)) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "gw") //nolint:usetesting // a socket's address holds 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Mkdir(filepath.Join(dir, "logs"), 0o755))
	h := &host{dir: dir}
	h.hub, err = guest.NewHub(guest.Config{
		Dir: filepath.Join(dir, "run"), Uptime: func() time.Duration { return time.Hour }, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(h.hub.Shutdown)
	h.state, err = sshgw.OpenState(filepath.Join(dir, "state"))
	require.NoError(t, err)
	h.spool, err = sshgw.OpenSpool(filepath.Join(dir, "spool"))
	require.NoError(t, err)
	h.cfg = config(dir, h.spool)
	for _, c := range change {
		c(&h.cfg)
	}
	h.start(t)
	return h
}

// listen takes a free port of the range that tests use.
func listen(t *testing.T) net.Listener {
	t.Helper()
	for range 100 {
		offset, err := rand.Int(rand.Reader, big.NewInt(12000))
		require.NoError(t, err)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+offset.Int64())); err == nil {
			return l
		}
	}
	require.Fail(t, "no free port")
	return nil
}

func (h *host) start(t *testing.T) {
	t.Helper()
	server, err := sshgw.New(h.cfg)
	require.NoError(t, err)
	listener := listen(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	h.server, h.address = server, listener.Addr().String()
	h.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(h.stop)
}

// tenant is a user's key on disk, as ssh wants it.
type tenant struct {
	path   string
	signer ssh.Signer
	line   string
}

func newTenant(t *testing.T) tenant {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(key, "")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "id")
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	signer, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	return tenant{path: path, signer: signer, line: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))}
}

// box is one instance.
type box struct {
	sshgw.Entry
	boot guest.Boot
}

// prepare makes an instance's folder and entry without starting its guest.
func (h *host) prepare(t *testing.T, keys ...string) box {
	t.Helper()
	b := box{boot: guest.Boot{Peer: func(int) error { return nil }}}
	assignment := id.New[id.Assignment]().String()
	folder, err := h.hub.Open(t.Context(), assignment, b.boot)
	require.NoError(t, err)
	b.Entry = sshgw.Entry{
		Instance: id.New[id.Instance](), Assignment: assignment, Socket: folder.Shell(), Keys: keys, Log: assignment + ".log",
	}
	require.NoError(t, h.state.Put(b.Entry))
	h.server.Refresh()
	return b
}

// launch starts an instance that is used by SSH only.
func (h *host) launch(t *testing.T, keys ...string) box {
	t.Helper()
	b := h.prepare(t, keys...)
	h.run(t, b)
	return b
}

func (h *host) run(t *testing.T, b box) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "guest", filepath.Dir(filepath.Dir(b.Socket)))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	require.NoError(t, cmd.Start(), "tests of the gateway need root")
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err := h.hub.Wait(ctx, b.Assignment)
	require.NoError(t, err)
}

// options are those of every OpenSSH client here.
func (h *host) options(t *testing.T, who tenant) []string {
	t.Helper()
	hosts := filepath.Join(t.TempDir(), "known_hosts")
	name, port, err := net.SplitHostPort(h.address)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(hosts, []byte(fmt.Sprintf("[%s]:%s %s\n", name, port, h.server.HostKey())), 0o600))
	return []string{
		"-F", "none", "-i", who.path, "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "BatchMode=yes",
		"-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=" + hosts, "-o", "ConnectTimeout=20", "-o", "Port=" + port,
		"-o", "LogLevel=ERROR",
	}
}

// ssh returns an OpenSSH client's command; the instance follows the options.
func (h *host) ssh(t *testing.T, who tenant, b box, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	var before, after []string
	for i, a := range args {
		if a == "--" {
			before, after = args[:i], args[i+1:]
			break
		}
		after = args
	}
	all := append(h.options(t, who), before...)
	return exec.CommandContext(ctx, "ssh", append(append(all, b.Instance.String()+"@127.0.0.1"), after...)...)
}

// result is how a client ended.
type result struct {
	out, err string
	code     int
}

func finish(t *testing.T, cmd *exec.Cmd, stdin io.Reader) result {
	t.Helper()
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &complaint
	err := cmd.Run()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code, err = exit.ExitCode(), nil
	}
	require.NoError(t, err)
	return result{out.String(), complaint.String(), code}
}

// client connects with a Go client, for what OpenSSH does not do.
func (h *host) client(t *testing.T, b box, auth ...ssh.AuthMethod) (*ssh.Client, error) {
	t.Helper()
	return ssh.Dial("tcp", h.address, &ssh.ClientConfig{
		User: b.Instance.String(), Auth: auth, HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: soon,
	})
}

// collected waits for n records.
func (h *host) collected(t *testing.T, n int) []sshgw.Record {
	t.Helper()
	var records []sshgw.Record
	require.Eventually(t, func() bool {
		all, err := h.spool.Collect(1000)
		require.NoError(t, err)
		records = nil
		for _, c := range all {
			records = append(records, c.Record)
		}
		return len(records) >= n
	}, soon, 5*time.Millisecond)
	require.Len(t, records, n)
	return records
}
