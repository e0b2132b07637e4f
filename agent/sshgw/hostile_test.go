package sshgw_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/agent/guest"
	"github.com/tranche-cloud/tranche/agent/guest/wire"
	"github.com/tranche-cloud/tranche/agent/sshgw"
)

// impostor dials an instance's socket again and again, as a guest does, and does with
// each connection what the test says.
func impostor(t *testing.T, b box, use func(net.Conn)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			for ctx.Err() == nil {
				conn, err := (&net.Dialer{}).DialContext(ctx, "unix", b.Socket)
				if err != nil {
					<-time.After(5 * time.Millisecond) // the gateway is not there yet
					continue
				}
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				use(conn)
				stop()
				conn.Close()
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// used waits until the connection is put to use.
func used(conn net.Conn) bool {
	var opened wire.Preamble
	return wire.Read(conn, wire.MaxPreamble, &opened, nil) == nil
}

func TestAHostileGuestCostsItsOwnTenantAMessage(t *testing.T) {
	t.Parallel()
	h, me := setup(t, func(c *sshgw.Config) { c.Limits.Reach = 300 * time.Millisecond }), newTenant(t)
	honest := h.launch(t, me.line)
	for name, use := range map[string]func(net.Conn){
		"speaks first": func(conn net.Conn) {
			_, _ = conn.Write([]byte("SSH-2.0-eager\r\n"))
			_, _ = io.Copy(io.Discard, conn)
		},
		"is silent": func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		"hangs up":  func(conn net.Conn) { used(conn) },
		"is no SSH": func(conn net.Conn) {
			if used(conn) {
				_, _ = conn.Write([]byte(strings.Repeat("HTTP/1.1 200 OK\r\n", 10_000)))
				_, _ = io.Copy(io.Discard, conn)
			}
		},
		"never ends its banner": func(conn net.Conn) {
			if used(conn) {
				for _, err := conn.Write([]byte("x")); err == nil; _, err = conn.Write([]byte("x")) {
				}
			}
		},
		"sends garbage": func(conn net.Conn) {
			if used(conn) {
				_, _ = conn.Write(append([]byte("SSH-2.0-x\r\n"), make([]byte, 1<<20)...))
				_, _ = io.Copy(io.Discard, conn)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := h.prepare(t, me.line)
			impostor(t, b, use)
			require.Eventually(t, func() bool {
				got := finish(t, h.ssh(t, me, b, "true"), nil)
				return got.code == 255 && strings.Contains(got.err, "the instance does not answer")
			}, soon, 10*time.Millisecond)
			got := finish(t, h.ssh(t, me, honest, "echo fine"), nil)
			require.Equal(t, "fine\n", got.out, "a neighbour is served: %s", got.err)
		})
	}
}

// rogue serves SSH as a guest would, and misbehaves on what is opened.
func rogue(t *testing.T, b box, opened func(ssh.Conn, ssh.NewChannel)) {
	t.Helper()
	other := newTenant(t)
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(other.signer)
	impostor(t, b, func(raw net.Conn) {
		if !used(raw) {
			return
		}
		conn, channels, requests, err := ssh.NewServerConn(raw, config)
		if err != nil {
			return
		}
		go ssh.DiscardRequests(requests)
		for asked := range channels {
			go opened(conn, asked)
		}
	})
}

func TestARogueGuestReachesNeitherHostNorClient(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.prepare(t, me.line)
	tried := make(chan error, 64)
	rogue(t, b, func(conn ssh.Conn, asked ssh.NewChannel) {
		for _, kind := range []string{"session", "direct-tcpip", "auth-agent@openssh.com", "x11"} {
			_, _, err := conn.OpenChannel(kind, nil)
			tried <- err
		}
		// A forward that the client never asked for is the client's to refuse.
		_, _, err := conn.OpenChannel("forwarded-tcpip", ssh.Marshal(struct {
			Host   string
			Port   uint32
			Origin string
			From   uint32
		}{"127.0.0.1", 22, "127.0.0.1", 1}))
		tried <- err
		channel, requests, err := asked.Accept()
		if err != nil {
			return
		}
		go func() {
			for req := range requests {
				_ = req.Reply(true, nil)
			}
		}()
		for range 1000 {
			_, _ = channel.SendRequest("eow@openssh.com", false, nil)
		}
		ok, err := channel.SendRequest("shell", true, nil)
		tried <- map[bool]error{true: nil, false: errors.Join(errors.New("refused"), err)}[ok]
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{9}))
		channel.Close()
	})
	var code int
	require.Eventually(t, func() bool {
		code = finish(t, h.ssh(t, me, b, "true"), nil).code
		return code != 255
	}, soon, 10*time.Millisecond)
	require.Equal(t, 9, code)
	for range 6 {
		require.Error(t, <-tried)
	}
}

func TestAGuestThatOpensWithoutEndIsBounded(t *testing.T) {
	t.Parallel()
	h, me := setup(t, func(c *sshgw.Config) { c.Limits.Channels = 4 }), newTenant(t)
	b := h.launch(t, me.line)
	client, err := h.client(t, b, ssh.PublicKeys(me.signer))
	require.NoError(t, err)
	defer client.Close()
	var last error
	for range 5 {
		_, _, last = client.OpenChannel("session", nil)
	}
	require.ErrorContains(t, last, "too many channels")
}

func TestNobodyIsAnotherInstance(t *testing.T) {
	t.Parallel()
	stranger := errors.New("stranger")
	h, me := setup(t, func(c *sshgw.Config) {
		c.Limits.Reach = 300 * time.Millisecond
		c.Peer = func(sshgw.Entry) guest.Peer { return func(int) error { return stranger } }
	}), newTenant(t)
	b := h.prepare(t, me.line)
	served := make(chan struct{}, 1)
	impostor(t, b, func(conn net.Conn) {
		if used(conn) {
			served <- struct{}{}
		}
	})
	require.Eventually(t, func() bool {
		return strings.Contains(finish(t, h.ssh(t, me, b, "true"), nil).err, "does not answer")
	}, soon, 10*time.Millisecond)
	require.Empty(t, served)
}

func TestThousandsOfGuestConnectionsHoldFour(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	flooded, honest := h.prepare(t, me.line), h.launch(t, me.line)
	require.Eventually(t, func() bool { _, err := os.Stat(flooded.Socket); return err == nil }, soon, 10*time.Millisecond)
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for range 2000 {
		conn, err := net.Dial("unix", flooded.Socket)
		if err != nil {
			break
		}
		held = append(held, conn)
	}
	got := finish(t, h.ssh(t, me, honest, "echo fine"), nil)
	require.Equal(t, "fine\n", got.out, got.err)
	// Of those that were accepted, all but four are closed by the host.
	open := 0
	for _, c := range held[:min(60, len(held))] {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			open++
		}
	}
	require.LessOrEqual(t, open, 4)
}

func TestStrangersAreBounded(t *testing.T) {
	t.Parallel()
	h, me := setup(t, func(c *sshgw.Config) {
		c.Limits.Handshake, c.Limits.PerAddress = 300*time.Millisecond, 5
	}), newTenant(t)
	b := h.launch(t, me.line)
	var silent []net.Conn
	for range 5 {
		conn, err := net.Dial("tcp", h.address)
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.ReadFull(conn, make([]byte, 4)) // the banner: it was taken in
		require.NoError(t, err)
		silent = append(silent, conn)
	}
	_, err := h.client(t, b, ssh.PublicKeys(me.signer))
	require.Error(t, err, "the sixth of one address")
	for _, c := range silent {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(soon)))
		_, err := io.Copy(io.Discard, c)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "who says nothing is hung up on")
	}
	require.Eventually(t, func() bool { return finish(t, h.ssh(t, me, b, "true"), nil).code == 0 }, soon, 10*time.Millisecond)
}

func TestConnectionsToAnInstanceAreBoundedAndSaySo(t *testing.T) {
	t.Parallel()
	h, me := setup(t, func(c *sshgw.Config) { c.Limits.PerInstance, c.Limits.PerMinute = 2, 4 }), newTenant(t)
	b := h.launch(t, me.line)
	for range 2 {
		client, err := h.client(t, b, ssh.PublicKeys(me.signer))
		require.NoError(t, err)
		defer client.Close()
	}
	got := finish(t, h.ssh(t, me, b, "true"), nil)
	require.Equal(t, 255, got.code)
	require.Contains(t, got.err, "too many SSH connections to this instance (at most 2)")
	require.Equal(t, 255, finish(t, h.ssh(t, me, b, "true"), nil).code)
	got = finish(t, h.ssh(t, me, b, "true"), nil)
	require.NotContains(t, got.err, "too many", "the fifth in a minute ends unsaid")
}

func TestAnIdleSessionEnds(t *testing.T) {
	t.Parallel()
	h, me := setup(t, func(c *sshgw.Config) { c.Limits.Idle = 500 * time.Millisecond }), newTenant(t)
	b := h.launch(t, me.line)
	require.Error(t, h.ssh(t, me, b, "exec sleep 60").Run())
	require.Equal(t, "idle for 500ms", h.collected(t, 2)[1].Reason)
	busy := finish(t, h.ssh(t, me, b, "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.1; done"), nil)
	require.Zero(t, busy.code, busy.err)
}

func TestTheStateIsReadAsFarAsItIsWhole(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.launch(t, me.line)
	folder := filepath.Join(h.cfg.State, "instances")
	broken := h.prepare(t, me.line)
	require.NoError(t, os.WriteFile(filepath.Join(folder, broken.Instance.String()), []byte("{"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "README"), []byte("?"), 0o600))
	swapped := h.prepare(t)
	text, err := os.ReadFile(filepath.Join(folder, b.Instance.String()))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, swapped.Instance.String()), text, 0o600))
	h.server.Refresh()
	require.Eventually(t, func() bool { return finish(t, h.ssh(t, me, broken, "true"), nil).code == 255 }, soon, 10*time.Millisecond)
	require.Equal(t, 255, finish(t, h.ssh(t, me, swapped, "true"), nil).code, "an entry under another's name")
	got := finish(t, h.ssh(t, me, b, "true"), nil)
	require.Zero(t, got.code, got.err)
}

// TestAnAnswerPrecedesTheEndOfItsChannel has commands that are over as soon as they
// have begun: each client is told that it began.
func TestAnAnswerPrecedesTheEndOfItsChannel(t *testing.T) {
	t.Parallel()
	h, me := setup(t), newTenant(t)
	b := h.prepare(t, me.line)
	rogue(t, b, func(_ ssh.Conn, asked ssh.NewChannel) {
		channel, requests, err := asked.Accept()
		if err != nil {
			return
		}
		for req := range requests {
			_ = req.Reply(true, nil)
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{5}))
			_ = channel.Close()
		}
	})
	client, err := h.client(t, b, ssh.PublicKeys(me.signer))
	require.NoError(t, err)
	defer client.Close()
	for range 500 {
		run, err := client.NewSession()
		require.NoError(t, err)
		var exit *ssh.ExitError
		require.ErrorAs(t, run.Run("true"), &exit)
		require.Equal(t, 5, exit.ExitStatus())
	}
}
