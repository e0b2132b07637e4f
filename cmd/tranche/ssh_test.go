package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

// gate is the API with an SSH gateway behind it: certificates are signed by an
// authority, as the product does, and the gateway checks them.
type gate struct {
	authority, host ssh.Signer
	address         string // that the API names
	claims          string // host key line that the API names
	purposes        []string
	answer          func(command string, c ssh.Channel) (status int)
}

func signer(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	s, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	return s
}

func line(key ssh.PublicKey) string { return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) }

func newGate(t *testing.T, answer func(string, ssh.Channel) int) (*gate, *terminal) {
	t.Helper()
	g := &gate{authority: signer(t), host: signer(t), answer: answer}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	g.address, g.claims = listener.Addr().String(), line(g.host.PublicKey())
	go g.serve(listener)
	return g, setup(t, g.api())
}

func (g *gate) api() http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/instances/inst_1/ssh-certificates") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		var in struct {
			PublicKey string `json:"public_key"`
			Purpose   string `json:"purpose"`
		}
		if json.NewDecoder(r.Body).Decode(&in) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		g.purposes = append(g.purposes, in.Purpose)
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(in.PublicKey))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c := &ssh.Certificate{
			Key: key, CertType: ssh.UserCert, ValidPrincipals: []string{"inst_1"}, Serial: 1,
			ValidAfter: uint64(time.Now().Add(-time.Minute).Unix()), ValidBefore: uint64(time.Now().Add(time.Minute).Unix()),
		}
		if c.SignCert(rand.Reader, g.authority) != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		host, port, _ := net.SplitHostPort(g.address)
		n, _ := strconv.Atoi(port)
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"certificate": line(c), "valid_until": "2026-11-30T12:05:00.000000Z", "host": host, "port": n,
			"user": "inst_1", "host_key": g.claims,
		})
	}
}

func (g *gate) serve(listener net.Listener) {
	checker := ssh.CertChecker{IsUserAuthority: func(k ssh.PublicKey) bool {
		return string(k.Marshal()) == string(g.authority.PublicKey().Marshal())
	}}
	config := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if c.User() != "inst_1" {
			return nil, fmt.Errorf("no %s here", c.User())
		}
		return checker.Authenticate(c, k)
	}}
	config.AddHostKey(g.host)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			c, channels, requests, err := ssh.NewServerConn(conn, config)
			if err != nil {
				return
			}
			defer c.Close()
			go ssh.DiscardRequests(requests)
			for asked := range channels {
				if asked.ChannelType() == "direct-tcpip" {
					ch, reqs, err := asked.Accept()
					if err == nil {
						go ssh.DiscardRequests(reqs)
						_, _ = io.WriteString(ch, "hello from inside")
						_ = ch.Close()
					}
					continue
				}
				ch, reqs, err := asked.Accept()
				if err == nil {
					go g.session(ch, reqs)
				}
			}
		}()
	}
}

func (g *gate) session(ch ssh.Channel, requests <-chan *ssh.Request) {
	for r := range requests {
		if r.Type != "exec" && r.Type != "shell" {
			_ = r.Reply(r.Type == "pty-req", nil)
			continue
		}
		var command struct{ Text string }
		_ = ssh.Unmarshal(r.Payload, &command)
		_ = r.Reply(true, nil)
		status := g.answer(command.Text, ch)
		if status >= 0 {
			_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(status)}))
		}
		_ = ch.Close()
		return
	}
}

func TestExecPassesInputOutputAndTheExitCode(t *testing.T) {
	t.Parallel()
	g, term := newGate(t, func(command string, c ssh.Channel) int {
		in, _ := io.ReadAll(c)
		fmt.Fprintf(c, "%s <%s>", command, in)
		fmt.Fprint(c.Stderr(), "careful")
		return 42
	})
	term.stdin = "data"
	code := term.run(t.Context(), "instance", "exec", "inst_1", "--", "sh", "-c", "echo 'it''s'; exit 42", "", "a b")
	require.Equal(t, 42, code, term.err.String())
	require.Equal(t, `sh -c 'echo '\''it'\'''\''s'\''; exit 42' '' 'a b' <data>`, term.out.String())
	require.Equal(t, "careful", term.err.String())
	require.Equal(t, []string{"shell"}, g.purposes)
}

func TestSSHRunsACommandWithoutATerminalToo(t *testing.T) {
	t.Parallel()
	_, term := newGate(t, func(command string, c ssh.Channel) int {
		fmt.Fprint(c, "ran ", command)
		return 0
	})
	require.Equal(t, exitOK, term.run(t.Context(), "instance", "ssh", "inst_1", "--", "nvidia-smi", "-L"), term.err.String())
	require.Equal(t, "ran nvidia-smi -L", term.out.String())
}

func TestLogsAskForNothingElse(t *testing.T) {
	t.Parallel()
	g, term := newGate(t, func(command string, c ssh.Channel) int {
		fmt.Fprint(c, command)
		return 0
	})
	require.Equal(t, exitOK, term.run(t.Context(), "instance", "logs", "inst_1"), term.err.String())
	require.Equal(t, "logs --tail 100", term.out.String())
	require.Equal(t, []string{"logs"}, g.purposes)

	term.out.Reset()
	require.Equal(t, exitOK, term.run(t.Context(), "instance", "logs", "inst_1", "-f", "--tail", "all"))
	require.Equal(t, "logs --tail all --follow", term.out.String())
	require.Equal(t, exitUsage, term.run(t.Context(), "instance", "logs", "inst_1", "--tail", "many"))
}

func TestAnotherHostIsNotTalkedTo(t *testing.T) {
	t.Parallel()
	g, term := newGate(t, func(string, ssh.Channel) int { return 0 })
	g.claims = line(signer(t).PublicKey())
	require.Equal(t, exitError, term.run(t.Context(), "instance", "exec", "inst_1", "--", "true"))
	require.Contains(t, term.err.String(), "its host key differs")
}

func TestASessionThatBreaksOffIsNoSuccess(t *testing.T) {
	t.Parallel()
	_, term := newGate(t, func(string, ssh.Channel) int { return -1 })
	require.Equal(t, exitLost, term.run(t.Context(), "instance", "exec", "inst_1", "--", "true"))
	require.Contains(t, term.err.String(), "tranche instance get")
}

func TestAGatewayThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	g, term := newGate(t, func(string, ssh.Channel) int { return 0 })
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g.address = silent.Addr().String()
	require.NoError(t, silent.Close())
	require.Equal(t, exitError, term.run(t.Context(), "instance", "logs", "inst_1"))
	require.Contains(t, term.err.String(), g.address)
	require.Contains(t, term.err.String(), "firewall")
}

func TestKeysAndPortsOfACreate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good := write("id.pub", "# mine\nssh-ed25519 AAAA me\n\nssh-ed25519 BBBB other\n")
	private := write("id", "-----BEGIN OPENSSH PRIVATE KEY-----\n")
	empty := write("empty.pub", "\n")
	var sent map[string]any
	term := setup(t, func(w http.ResponseWriter, r *http.Request) {
		if json.NewDecoder(r.Body).Decode(&sent) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(`{"id":"inst_1"}`))
	})
	create := func(more ...string) int {
		return term.run(t.Context(), append([]string{"instance", "create", "--offer", "o", "--image", "i", "--no-wait"}, more...)...)
	}
	require.Equal(t, exitOK, create("--ssh-key", good, "--port", "8888", "--port", "53/udp", "--shm", "1024", "--recovery", "restart"), term.err.String())
	require.Equal(t, []any{"ssh-ed25519 AAAA me", "ssh-ed25519 BBBB other"}, sent["ssh_keys"])
	require.Equal(t, []any{map[string]any{"container_port": 8888.0}, map[string]any{"container_port": 53.0, "protocol": "udp"}}, sent["ports"])
	require.Equal(t, 1024.0, sent["shm_mib"])
	require.Equal(t, "restart", sent["recovery"])
	for name, bad := range map[string][]string{
		"no key": {"--ssh-key", empty}, "no file": {"--ssh-key", filepath.Join(dir, "none")},
		"port 0": {"--port", "0"}, "port 65536": {"--port", "65536"}, "no protocol": {"--port", "80/sctp"}, "not a port": {"--port", "http"},
	} {
		require.Equal(t, exitUsage, create(bad...), name)
	}
	require.Equal(t, exitUsage, create("--ssh-key", private))
	require.Contains(t, term.err.String(), "private key, which stays with you")
}

func TestForwardsAreReadWhole(t *testing.T) {
	t.Parallel()
	ways, err := parseForwards([]string{"8888:localhost:80"})
	require.NoError(t, err)
	require.Equal(t, []way{{"127.0.0.1:8888", "localhost:80"}}, ways)
	for _, bad := range []string{"8888", "x:localhost:80", "0:localhost:80", "8888:localhost", "70000:localhost:80"} {
		_, err := parseForwards([]string{bad})
		require.Error(t, err, bad)
	}
}
