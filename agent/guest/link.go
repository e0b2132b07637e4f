package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/agent/guest/wire"
)

// errFlood ends a connection whose guest says more than a guest has to say.
var errFlood = errors.New("too many frames")

// link is the control connection of one instance: one door, at most one connection.
type link struct {
	cfg  Config
	name string
	done chan struct{}
	door *Door
	quit context.CancelFunc
	wait sync.WaitGroup

	mu        sync.Mutex
	boot      Boot
	now       Status
	changed   chan struct{} // closed at each change of now
	complains time.Time     // when the next complaint may be logged
}

func newLink(cfg Config, name string, boot Boot) *link {
	return &link{cfg: cfg, name: name, boot: boot, done: make(chan struct{}), changed: make(chan struct{})}
}

func (l *link) start(ctx context.Context, door *Door) {
	own, cancel := context.WithCancel(ctx)
	l.door, l.quit = door, cancel
	l.wait.Go(func() { l.accept(own) })
}

func (l *link) stop() {
	l.quit()
	shut(l.door)
	l.wait.Wait()
}

func (l *link) reboot(boot Boot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.boot = boot
}

func (l *link) admits(pid int) error {
	l.mu.Lock()
	peer := l.boot.Peer
	l.mu.Unlock()
	return peer(pid)
}

// accept serves one connection at a time. A guest that dials again has given up its
// older connection, so the newest one wins.
func (l *link) accept(ctx context.Context) {
	defer close(l.done)
	hangUp := func() {}
	l.door.Serve(ctx, func(conn *net.UnixConn) {
		hangUp()
		served, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.serve(served, conn)
		}()
		hangUp = func() { cancel(); <-ended }
	}, func(err error) { l.complain(err) })
	hangUp()
}

// serve talks to one connection until it ends or the context does.
func (l *link) serve(ctx context.Context, conn *net.UnixConn) {
	defer shut(conn)
	stop := context.AfterFunc(ctx, func() { shut(conn) })
	defer stop()
	err := l.greet(ctx, conn)
	if err == nil {
		l.update(func(s *Status) { s.Connected = true })
		err = l.listen(conn)
	}
	l.update(func(s *Status) { s.Connected = false })
	if err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
		l.complain(err)
	}
}

// greet hears the hello and answers it.
func (l *link) greet(ctx context.Context, conn net.Conn) error {
	said, err := hear(conn, wire.Stay)
	if err != nil {
		return err
	}
	if said.Kind != wire.Hello {
		return fmt.Errorf("%w: a guest begins with hello", wire.ErrMalformed)
	}
	l.mu.Lock()
	boot := l.boot
	l.mu.Unlock()
	answer := wire.FromHost{Kind: wire.Welcome, Version: wire.Version}
	if said.Phase == wire.Waiting {
		answer = wire.FromHost{
			Kind: wire.Boot, Version: wire.Version, User: boot.User, Workdir: boot.Workdir, Grace: int64(boot.Grace),
		}
		if boot.Secrets != nil {
			if answer.Secrets, err = boot.Secrets(ctx); err != nil {
				return fmt.Errorf("fetch the secrets of %s: %w", l.name, err)
			}
		}
	}
	l.take(said)
	if err := conn.SetWriteDeadline(time.Now().Add(wire.Stay)); err != nil {
		return fmt.Errorf("answer the guest: %w", err)
	}
	return wire.Write(conn, wire.MaxFromHost, answer)
}

// listen takes frames until the guest hangs up, falls silent, or talks too much.
func (l *link) listen(conn net.Conn) error {
	pace := newBucket(20, wire.Beat/20)
	for {
		said, err := hear(conn, wire.Silence)
		if err != nil {
			return err
		}
		if pace.take(time.Now()) > 0 {
			return fmt.Errorf("hear the guest: %w", errFlood)
		}
		if said.Kind == wire.Hello {
			return fmt.Errorf("%w: a second hello", wire.ErrMalformed)
		}
		l.take(said)
	}
}

// hear reads one frame, whose first byte may take as long as given and whose rest may
// not take long.
func hear(conn net.Conn, first time.Duration) (wire.FromGuest, error) {
	var said wire.FromGuest
	if err := conn.SetReadDeadline(time.Now().Add(first)); err != nil {
		return said, fmt.Errorf("hear the guest: %w", err)
	}
	err := wire.Read(conn, wire.MaxFromGuest, &said, func() error {
		return conn.SetReadDeadline(time.Now().Add(wire.Stay))
	})
	if err != nil {
		return said, fmt.Errorf("hear the guest: %w", err)
	}
	return said, nil
}

// take notes what a guest said. A main process starts once and ends once.
func (l *link) take(said wire.FromGuest) {
	l.update(func(s *Status) {
		at := time.Duration(said.Uptime)
		s.Heard = max(l.cfg.Uptime(), 1)
		if said.Kind == wire.Hello {
			s.Build = said.Build
			if s.Phase == "" || s.Phase == wire.Waiting {
				s.Phase = said.Phase
			}
		}
		started := said.Kind == wire.Ready || (said.Kind == wire.Hello && said.Phase != wire.Waiting)
		if started && s.Ready == 0 && s.Exit == nil {
			s.Ready = l.within(at, s.Heard)
			if said.Kind == wire.Ready {
				s.Phase = wire.Running
				if said.Phase == wire.Idle {
					s.Phase = wire.Idle
				}
			}
		}
		if said.Kind == wire.Ended && s.Exit == nil {
			s.Exit = &Exit{Code: said.Code, Reason: said.Reason, At: l.within(at, s.Heard)}
			s.Phase = wire.Exited
		}
	})
}

// within bounds an instant that a guest claims by what the host knows: not before the
// container started, not after now.
func (l *link) within(claimed, now time.Duration) time.Duration {
	return min(max(claimed, l.boot.Since, 1), now)
}

// update changes the status and wakes whoever waits.
func (l *link) update(change func(*Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.now)
	close(l.changed)
	l.changed = make(chan struct{})
}

// look returns the status and a channel that is closed at its next change.
func (l *link) look() (Status, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, l.changed
}

// complain logs what a guest did wrong, once a minute: its tenant must not fill the
// host's log.
func (l *link) complain(err error) {
	l.mu.Lock()
	quiet := time.Now().Before(l.complains)
	if !quiet {
		l.complains = time.Now().Add(time.Minute)
	}
	l.mu.Unlock()
	if !quiet {
		l.cfg.Log.Warn("guest refused", "guest", l.name, "error", err)
	}
}
