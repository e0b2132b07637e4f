package sshgw

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/agent/guest"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/id"
)

// refresh is how often the desired state is looked at; half a second of it, and the
// closing of sessions, are the time that a withdrawn key still works.
const refresh = 500 * time.Millisecond

// Limits bound what strangers and tenants can occupy. Zero fields take the default.
type Limits struct {
	Handshake   time.Duration // from connect to let in; 15 s
	AuthTries   int           // of a connection; 6
	Knocking    int           // connections that are not let in yet; 256
	Connections int           // that are let in; 1,024
	PerAddress  int           // connections of an IPv4 address or IPv6 /64; 32
	PerInstance int           // 32, below the guest's own 64
	PerMinute   int           // new connections to an instance, each two audit records; 240
	Channels    int           // of a connection; 64
	Idle        time.Duration // without a byte; 12 h
	Reach       time.Duration // until an instance has answered; 10 s
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Handshake: cmp.Or(l.Handshake, 15*time.Second), AuthTries: cmp.Or(l.AuthTries, 6),
		Knocking: cmp.Or(l.Knocking, 256), Connections: cmp.Or(l.Connections, 1024),
		PerAddress: cmp.Or(l.PerAddress, 32), PerInstance: cmp.Or(l.PerInstance, 32), PerMinute: cmp.Or(l.PerMinute, 240),
		Channels: cmp.Or(l.Channels, 64), Idle: cmp.Or(l.Idle, 12*time.Hour), Reach: cmp.Or(l.Reach, 10*time.Second),
	}
}

// Config says what a gateway serves. State, HostKey, Audit, Clock and Log are needed.
type Config struct {
	State   string // folder of the desired state; see State
	HostKey string // file of the host's key, made (0600) when missing
	Logs    string // host-only folder of the instances' log files; "" serves none
	// Audit takes every record, as Spool.Add does. A session whose opening cannot be
	// recorded is refused.
	Audit func(Record) error
	// Peer judges who dials an instance's socket; nil is guest.First of its group.
	Peer   func(Entry) guest.Peer
	Limits Limits
	Clock  clock.Clock
	Log    *slog.Logger
}

// Server is the gateway of a host.
type Server struct {
	cfg     Config
	state   *State
	hostKey ssh.Signer
	ssh     *ssh.ServerConfig
	tasks   sync.WaitGroup
	kick    chan struct{}

	mu       sync.Mutex
	view     *view
	pools    map[id.Instance]*pool
	sessions map[*session]struct{}
	knocking int
	sources  map[netip.Prefix]int
	recent   map[id.Instance]int // connections let in since minute began
	minute   time.Time
}

// New prepares a gateway and reads its state; Serve starts it.
func New(cfg Config) (*Server, error) {
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Peer == nil {
		cfg.Peer = func(e Entry) guest.Peer { return guest.First(e.Cgroup) }
	}
	key, err := hostKey(cfg.HostKey)
	if err != nil {
		return nil, err
	}
	state, err := OpenState(cfg.State)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, state: state, hostKey: key, kick: make(chan struct{}, 1), view: &view{},
		pools: map[id.Instance]*pool{}, sessions: map[*session]struct{}{}, sources: map[netip.Prefix]int{},
	}
	s.ssh = &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-Tranche", MaxAuthTries: cfg.Limits.AuthTries, PublicKeyCallback: s.authenticate,
		PublicKeyAuthAlgorithms: ssh.SupportedAlgorithms().PublicKeyAuths,
	}
	s.ssh.AddHostKey(key)
	return s, nil
}

// HostKey returns the line of the authorized_keys form by which clients know the host.
func (s *Server) HostKey() string { return publicLine(s.hostKey) }

// Refresh makes the gateway look at its state now instead of soon.
func (s *Server) Refresh() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Serve accepts tenants until the context ends, then closes every session and returns
// when all of them are recorded. It fails with the listener's error.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.tasks.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { shut(listener) })
	defer stop()
	s.look(ctx)
	s.tasks.Go(func() { s.watch(ctx) })
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept SSH: %w", err)
		case err != nil:
			// Out of descriptors, most likely; connections end and give some back.
			s.cfg.Log.Warn("ssh connection not accepted", "error", err)
			s.rest(ctx, 100*time.Millisecond)
			continue
		}
		leave, ok := s.enter(conn.RemoteAddr())
		if !ok {
			shut(conn)
			continue
		}
		s.tasks.Go(func() {
			defer shut(conn)
			s.welcome(ctx, conn, leave)
		})
	}
}

// watch follows the desired state.
func (s *Server) watch(ctx context.Context) {
	for s.rest(ctx, refresh) {
		s.look(ctx)
	}
	s.mu.Lock()
	open := s.pools
	s.pools = map[id.Instance]*pool{}
	s.mu.Unlock()
	for _, p := range open {
		p.close()
	}
}

// rest waits, and reports false when the context ended.
func (s *Server) rest(ctx context.Context, d time.Duration) bool {
	timer := s.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
	case <-s.kick:
	}
	return true
}

// look reads the state and makes it so: listens for new guests, and ends what is no
// longer allowed.
func (s *Server) look(ctx context.Context) {
	next, err := s.state.load(s.view)
	if err != nil {
		s.cfg.Log.Warn("gateway state not read", "error", err)
	}
	s.mu.Lock()
	s.view = next
	var gone []*pool
	for instance, p := range s.pools {
		if e, ok := next.instances[instance]; !ok || e.Socket != p.entry.Socket || e.Cgroup != p.entry.Cgroup || e.Assignment != p.entry.Assignment {
			gone = append(gone, p)
			delete(s.pools, instance)
		}
	}
	var ended []*session
	for open := range s.sessions {
		if why := open.stands(next); why != "" {
			ended = append(ended, open)
			open.note(why)
		}
	}
	s.mu.Unlock()
	for _, p := range gone {
		p.close()
	}
	for _, open := range ended {
		open.close()
	}
	for instance, e := range next.instances {
		s.listen(ctx, instance, e.Entry)
	}
}

// listen opens an instance's pool if it has none. Its folder may come later.
func (s *Server) listen(ctx context.Context, instance id.Instance, e Entry) {
	s.mu.Lock()
	_, open := s.pools[instance]
	s.mu.Unlock()
	if open || e.Socket == "" {
		return
	}
	p, err := openPool(ctx, e, s.cfg.Peer(e))
	if err != nil {
		s.cfg.Log.Debug("guest socket not open", "instance_id", instance.String(), "error", err)
		return
	}
	s.mu.Lock()
	s.pools[instance] = p
	s.mu.Unlock()
}

// enter counts a connection that knocks. It returns what moves it on: it is let in, or
// it is over; and false when there are too many.
func (s *Server) enter(from net.Addr) (leave func(over bool), ok bool) {
	source := sourceOf(from)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.knocking >= s.cfg.Limits.Knocking || s.sources[source] >= s.cfg.Limits.PerAddress {
		return nil, false
	}
	s.knocking++
	s.sources[source]++
	inside := false
	return func(over bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !inside {
			s.knocking--
			inside = true
		}
		if !over {
			return
		}
		if s.sources[source]--; s.sources[source] <= 0 {
			delete(s.sources, source)
		}
	}, true
}

// sourceOf is what a client can hardly have many of.
func sourceOf(from net.Addr) netip.Prefix {
	addr := addressOf(from)
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

func addressOf(from net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// welcome is the life of one connection: handshake, session, record.
func (s *Server) welcome(ctx context.Context, raw net.Conn, leave func(over bool)) {
	defer leave(true)
	stop := context.AfterFunc(ctx, func() { shut(raw) })
	defer stop()
	if raw.SetDeadline(time.Now().Add(s.cfg.Limits.Handshake)) != nil {
		return
	}
	conn, channels, requests, err := ssh.NewServerConn(raw, s.ssh)
	if err != nil || raw.SetDeadline(time.Time{}) != nil {
		return
	}
	leave(false)
	who, ok := conn.Permissions.ExtraData[credential{}].(grant)
	if !ok {
		return
	}
	if !s.pace(who.entry.Instance) {
		return
	}
	open, err := s.open(conn, who)
	if err != nil {
		s.cfg.Log.Error("ssh session refused", "instance_id", who.entry.Instance.String(), "error", err)
		return
	}
	stop()
	end := context.AfterFunc(ctx, func() {
		open.note("gateway stopped")
		open.close()
	})
	defer end()
	s.serve(ctx, open, channels, requests)
	s.close(open)
}

// pace reports whether an instance may have one more connection in this minute. Beyond
// that they end unsaid and unrecorded, for the audit must not fill the disk.
func (s *Server) pace(instance id.Instance) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.cfg.Clock.Now(); now.Sub(s.minute) >= time.Minute {
		s.minute, s.recent = now, map[id.Instance]int{}
	}
	s.recent[instance]++
	return s.recent[instance] <= s.cfg.Limits.PerMinute
}

// open registers a session and records it.
func (s *Server) open(conn *ssh.ServerConn, who grant) (*session, error) {
	var number [16]byte
	if _, err := rand.Read(number[:]); err != nil {
		return nil, fmt.Errorf("name the session: %w", err)
	}
	open := &session{
		server: s, conn: conn, who: who, name: hex.EncodeToString(number[:]), opened: s.cfg.Clock.Now(), kinds: map[string]bool{},
	}
	open.touch()
	if err := s.cfg.Audit(open.record(Opened)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.sessions[open] = struct{}{}
	s.mu.Unlock()
	return open, nil
}

// close ends a session and records that.
func (s *Server) close(open *session) {
	open.close()
	s.mu.Lock()
	delete(s.sessions, open)
	s.mu.Unlock()
	if err := s.cfg.Audit(open.record(Closed)); err != nil {
		s.cfg.Log.Error("end of ssh session not recorded", "session", open.name, "error", err)
	}
}

// room says why a session may not go on for want of room, or "". The session is
// counted already.
func (s *Server) room(open *session) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := 0
	for other := range s.sessions {
		if other.who.entry.Instance == open.who.entry.Instance {
			same++
		}
	}
	switch {
	case same > s.cfg.Limits.PerInstance:
		return fmt.Sprintf("too many SSH connections to this instance (at most %d): close one", s.cfg.Limits.PerInstance)
	case len(s.sessions) > s.cfg.Limits.Connections:
		return "too many SSH connections to this host: try again later"
	}
	return ""
}

// serve connects a session to its guest, or to the log, and returns at its end.
func (s *Server) serve(ctx context.Context, open *session, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	if why := s.room(open); why != "" {
		open.explain(channels, requests, why)
		return
	}
	// A key may have been withdrawn between the handshake and the registration.
	s.mu.Lock()
	why := open.stands(s.view)
	p := s.pools[open.who.entry.Instance]
	s.mu.Unlock()
	if why != "" {
		open.note(why)
		return
	}
	s.tasks.Go(func() { open.watchIdle(s.cfg.Limits.Idle) })
	if open.who.logsOnly {
		open.serveLogs(ctx, channels, requests)
		return
	}
	if p == nil {
		open.explain(channels, requests, errUnreachable.Error())
		return
	}
	to, err := p.dial(ctx, open.preamble(), s.cfg.Limits.Reach)
	if err != nil {
		open.explain(channels, requests, errUnreachable.Error())
		return
	}
	open.attach(to)
	open.relay(to, channels, requests)
}
