package boundary

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/callwire"
	"github.com/tranche-cloud/tranche/nodeagent/guard"
	"github.com/tranche-cloud/tranche/nodeagent/meter"
)

// maxPeers is how many connections are served at a time; a link has one.
const maxPeers = 8

// Config is what a helper works with. Host is needed, with all ports that it has; its
// own Journal, Secrets and Dir are not used.
type Config struct {
	Host nodeagent.Host
	// Reset resets an idle GPU; nil refuses.
	Reset func(ctx context.Context, uuid string) error
	// ComputeMode is the one that GPUs in mps mode are kept in; "" is left alone.
	ComputeMode string
	// Guard makes the guard of shared GPUs; nil where no container has processes.
	Guard func(targets func() []guard.Target, sink guard.Sink) *guard.Guard
	// Traffic are the network's counters by container; nil counts nothing.
	Traffic func(ctx context.Context) (map[string]meter.Traffic, error)
	// Users are the ids of those who may connect, beside root.
	Users []uint32
	Log   *slog.Logger
}

// Server carries out verbs.
type Server struct {
	cfg    Config
	queues queues
	starts starts
	watch  watchman
}

// New makes a server.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, queues: queues{tokens: map[string]chan struct{}{}}, starts: starts{running: map[string]context.CancelFunc{}}}
	// Above every number of an earlier helper, whose news the link may have taken.
	s.watch.last = uint64(time.Now().UnixNano()) //nolint:gosec // after 1970
	return s
}

// Listen makes the helper's socket, which a group may connect to; a negative group
// leaves it to root. A socket that an earlier helper left is replaced.
func Listen(path string, gid int) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listen for the link: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for the link: %w", err)
	}
	mode := os.FileMode(0o600)
	if gid >= 0 {
		mode = 0o660
		err = os.Chown(path, -1, gid)
	}
	if err = errors.Join(err, os.Chmod(path, mode)); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for the link: %w", err), l.Close())
	}
	return l, nil
}

// Serve takes connections until the context ends. It fails with the listener's error.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	ctx, cancel := context.WithCancel(ctx)
	var peers sync.WaitGroup
	defer peers.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	if s.cfg.Guard != nil {
		own := s.cfg.Guard(s.watch.current, &s.watch)
		peers.Go(func() { _ = own.Run(ctx) }) // until the context ends
	}
	room := make(chan struct{}, maxPeers)
	for {
		conn, err := l.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept the link: %w", err)
		}
		if err := s.admit(conn); err != nil {
			s.cfg.Log.Warn("connection refused", "reason", err)
			_ = conn.Close()
			continue
		}
		select {
		case room <- struct{}{}:
		default:
			s.cfg.Log.Warn("connection refused", "reason", "too many are open")
			_ = conn.Close()
			continue
		}
		peers.Go(func() {
			defer func() { <-room }()
			// Changes outlive the connection that asked for them, see settle.
			err := callwire.Serve(ctx, conn, func(call context.Context, c callwire.Call) (any, error) { return s.handle(ctx, call, c) })
			if err != nil {
				s.cfg.Log.Warn("connection ended", "reason", err)
			}
		})
	}
}

// admit checks by the kernel's word who connects.
func (s *Server) admit(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failure error
	err = raw.Control(func(fd uintptr) {
		peer, failure = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) //nolint:gosec // a descriptor
	})
	if err := errors.Join(err, failure); err != nil {
		return fmt.Errorf("ask who connects: %w", err)
	}
	if peer.Uid != 0 && !slices.Contains(s.cfg.Users, peer.Uid) {
		return fmt.Errorf("user %d (process %d) is not the link's", peer.Uid, peer.Pid)
	}
	return nil
}

func (s *Server) handle(base, call context.Context, c callwire.Call) (any, error) {
	v, ok := verbs[c.Verb]
	if !ok {
		return nil, invalid("no such verb")
	}
	began := time.Now()
	out, err := v.do(s, request{base: base, call: call, Call: c})
	if err != nil && call.Err() == nil {
		s.cfg.Log.Warn("verb failed", "verb", c.Verb, "took", time.Since(began).Round(time.Millisecond), "error", err)
	}
	return out, err
}

// queues let one at a time through for each name.
type queues struct {
	mu     sync.Mutex
	tokens map[string]chan struct{}
}

// enter waits for the turn; ctx ends the waiting.
func (q *queues) enter(ctx context.Context, name string) (leave func(), err error) {
	q.mu.Lock()
	token := q.tokens[name]
	if token == nil {
		token = make(chan struct{}, 1)
		q.tokens[name] = token
	}
	q.mu.Unlock()
	select {
	case token <- struct{}{}:
		return func() { <-token }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
