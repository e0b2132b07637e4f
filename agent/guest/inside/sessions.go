package inside

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/agent/guest/wire"
)

const (
	maxConnections = 64 // SSH connections of an instance
	maxChannels    = 64 // channels of a connection
	handshake      = 10 * time.Second
)

// sessions is the SSH server of an instance. It listens nowhere: it keeps a few idle
// connections open to the host's gateway, each of which becomes one SSH connection.
type sessions struct {
	life   *life
	server *ssh.ServerConfig
	slots  chan struct{}
}

func newSessions(g *life) (*sessions, error) {
	// The key only completes the protocol: the socket is the host's alone, and the
	// gateway is who vouches for the instance.
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the session key: %w", err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return nil, fmt.Errorf("make the session key: %w", err)
	}
	server := &ssh.ServerConfig{NoClientAuth: true, ServerVersion: "SSH-2.0-tranche_guest"}
	server.AddHostKey(signer)
	return &sessions{life: g, server: server, slots: make(chan struct{}, maxConnections)}, nil
}

// run keeps the pool of idle connections until the context ends.
func (s *sessions) run(ctx context.Context) {
	var pool sync.WaitGroup
	for range wire.Pool {
		pool.Go(func() { s.keep(ctx, &pool) })
	}
	pool.Wait()
}

// keep dials one connection after the other: when one is put to use, the next takes
// its place.
func (s *sessions) keep(ctx context.Context, pool *sync.WaitGroup) {
	path := filepath.Join(s.life.cfg.Dir, wire.Shell)
	for ctx.Err() == nil {
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, opened, ok := await(ctx, path)
		if !ok {
			<-s.slots
			return
		}
		pool.Go(func() {
			defer func() { <-s.slots }()
			stop := context.AfterFunc(ctx, func() { shut(conn) })
			defer stop()
			s.serve(ctx, conn, opened)
		})
	}
}

// await dials until a connection is put to use, and returns it with its preamble. It
// reports false when the context ended.
func await(ctx context.Context, path string) (used net.Conn, opened wire.Preamble, ok bool) {
	redial(ctx, path, func(conn net.Conn) bool {
		if wire.Read(conn, wire.MaxPreamble, &opened, nil) != nil {
			return false
		}
		used = conn
		return true
	})
	return used, opened, used != nil
}

// serve is one SSH connection, from the gateway's handshake to its end.
func (s *sessions) serve(ctx context.Context, raw net.Conn, opened wire.Preamble) {
	defer shut(raw)
	if raw.SetDeadline(time.Now().Add(handshake)) != nil {
		return
	}
	conn, channels, requests, err := ssh.NewServerConn(raw, s.server)
	if err != nil || raw.SetDeadline(time.Time{}) != nil {
		return
	}
	defer shut(conn)
	reverse := newReverse(conn)
	defer reverse.close()
	var open sync.WaitGroup
	open.Go(func() { reverse.serve(ctx, requests) })
	slots := make(chan struct{}, maxChannels)
	for asked := range channels {
		handle := s.handler(asked.ChannelType())
		if handle == nil {
			_ = asked.Reject(ssh.UnknownChannelType, "this instance offers sessions and TCP forwarding")
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = asked.Reject(ssh.ResourceShortage, "too many channels on this connection")
			continue
		}
		open.Go(func() {
			defer func() { <-slots }()
			handle(ctx, asked, opened)
		})
	}
	reverse.close()
	open.Wait()
}

func (s *sessions) handler(kind string) func(context.Context, ssh.NewChannel, wire.Preamble) {
	switch kind {
	case "session":
		return s.session
	case "direct-tcpip":
		return forward
	}
	return nil
}
