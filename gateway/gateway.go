// Package gateway is the server side of the agent stream: it admits agents by
// certificate alone, delivers to each host all that shall be on it, and hands what
// agents report to internal/app. It also answers hosts that enrol or renew.
//
// It decides nothing: admission, fencing, usage and status are internal/app's, and
// what a stream knows is worth nothing after its session. Any number of gateways
// may run. It keeps proofs of life for at most five seconds before they are
// written. Times are machine time.
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1/agentv1connect"
	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/group"
	"github.com/tranche-cloud/tranche/internal/id"
)

const (
	// pingAfter and pingWithin find a dead connection; 2 s were measured to kill
	// living ones on a loaded machine.
	pingAfter  = 20 * time.Second
	pingWithin = 20 * time.Second
	// maxFrame bounds one message of an agent.
	maxFrame = 4 << 20
	// headerWithin also bounds the TLS handshake, which takes long in a storm.
	headerWithin = 30 * time.Second
	idleWithin   = 2 * time.Minute
	drainWithin  = 2 * time.Second
)

// Config is what a gateway needs. App must have Store, Clock and Authority, and Box
// to hand secrets to hosts.
type Config struct {
	App    *app.App
	Listen string   // host:port; port 0 picks a free one
	Names  []string // further DNS names and addresses of the server certificate
	Log    *slog.Logger
}

// Gateway serves agents. Make it with New.
type Gateway struct {
	app          *app.App
	clock        clock.Clock
	authority    *ca.Authority
	log          *slog.Logger
	name         string // of this gateway in host_sessions; the same after a restart
	names        []string
	installation string
	listener     net.Listener

	certMu sync.Mutex
	cert   *tls.Certificate

	mu      sync.Mutex
	streams map[id.Host]*stream
	leaving bool           // no stream enters any more
	open    sync.WaitGroup // of entered streams; added to under mu, and not once leaving
}

// New listens and reads who this installation is. It fails if the address is taken
// or the database cannot be read.
func New(ctx context.Context, cfg Config) (*Gateway, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.App.Authority == nil {
		return nil, errors.New("the gateway needs the agent CA: run `tranched admin init-keys`")
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for agents: %w", err)
	}
	g := &Gateway{
		app: cfg.App, clock: cfg.App.Clock, authority: cfg.App.Authority, log: cfg.Log, listener: listener,
		names: serverNames(listener.Addr(), cfg.Names), streams: map[id.Host]*stream{},
	}
	hostname, _ := os.Hostname() // an empty name only makes the label shorter
	g.name = hostname + "/" + listener.Addr().String()
	if g.installation, err = cfg.App.Installation(ctx); err == nil {
		// Streams that this gateway left open when it died are closed.
		err = cfg.App.EndGateway(ctx, g.name)
	}
	if err == nil && cfg.App.Box != nil {
		err = cfg.App.EnsureSSHAuthority(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the gateway: %w", err), listener.Close())
	}
	return g, nil
}

// Addr is where it listens, host:port.
func (g *Gateway) Addr() string { return g.listener.Addr().String() }

// serverNames are the names that the server certificate is good for.
func serverNames(at net.Addr, more []string) []string {
	names := append([]string{"localhost", "127.0.0.1", "::1"}, more...)
	if hostname, err := os.Hostname(); err == nil {
		names = append(names, hostname)
	}
	if tcp, ok := at.(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() && !tcp.IP.IsLoopback() {
		names = append(names, tcp.IP.String())
	}
	return names
}

// Run serves until ctx ends, then tells agents to move and returns within about
// two seconds. It returns nil then.
func (g *Gateway) Run(ctx context.Context) error {
	server := &http.Server{
		Handler:           g.handler(),
		TLSConfig:         g.tlsConfig(),
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWithin, MaxConcurrentStreams: 16},
		ReadHeaderTimeout: headerWithin,
		IdleTimeout:       idleWithin,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	server.Protocols.SetHTTP2(true)
	serve := func(context.Context) error {
		if err := server.ServeTLS(g.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve agents: %w", err)
		}
		return nil
	}
	leave := func(inner context.Context) error {
		<-inner.Done()
		g.drain(context.WithoutCancel(ctx))
		return server.Close()
	}
	g.log.Info("gateway listens", "addr", g.Addr())
	if err := group.Run(ctx, serve, g.watch, g.follow, g.keepProofs, g.checkStreams, leave); ctx.Err() == nil {
		return err
	}
	return nil
}

// drain ends every stream with a word to its agent, and waits for them a little.
func (g *Gateway) drain(ctx context.Context) {
	g.mu.Lock()
	g.leaving = true
	g.mu.Unlock()
	for _, s := range g.all() {
		s.end(errDraining)
	}
	done := make(chan struct{})
	go func() { g.open.Wait(); close(done) }()
	timer := g.clock.NewTimer(drainWithin)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C():
	}
	ctx, cancel := context.WithTimeout(ctx, drainWithin)
	defer cancel()
	if err := g.app.EndGateway(ctx, g.name); err != nil {
		g.log.Warn("open streams stay noted", "error", err)
	}
}

func (g *Gateway) handler() http.Handler {
	mux := http.NewServeMux()
	limit := connect.WithReadMaxBytes(maxFrame)
	mux.Handle(agentv1connect.NewAgentServiceHandler(&agents{g}, limit))
	mux.Handle(agentv1connect.NewEnrolServiceHandler(&enrol{g}, limit))
	return g.identify(mux)
}

// pause waits for d or the end of ctx; false means the end.
func (g *Gateway) pause(ctx context.Context, d time.Duration) bool {
	timer := g.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
