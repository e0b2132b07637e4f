package nodeagent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1"
	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1/agentv1connect"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent/spool"
)

// inspectEvery is how often the host is looked at for changes that nobody ordered.
const inspectEvery = 5 * time.Second

// Config is what an Agent needs beside the Keeper.
type Config struct {
	Name      string // of the host
	Dir       string // data folder; the identity is kept in it
	Gateway   string // https://host:port
	MachineID string
	Version   string
	// Token reads the join token; it is asked only while the host is not enrolled.
	Token func() (string, error)
	// Spool is what waits to be told; nil tells nothing.
	Spool *spool.Spool
	Clock clock.Clock
	Log   *slog.Logger
}

// Agent keeps one host linked to the control plane.
type Agent struct {
	cfg     Config
	keeper  *Keeper
	log     *slog.Logger
	id      *identity
	nonce   string // of this process
	counter uint64 // of its streams
	asks    chan ask
	linked  atomic.Bool
}

// Linked reports whether the control plane serves this host now.
func (a *Agent) Linked() bool { return a.linked.Load() }

// New makes an agent over a keeper. It fails if the identity cannot be read.
func New(cfg Config, k *Keeper) (*Agent, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	who, err := openIdentity(cfg.Dir)
	if err != nil {
		return nil, err
	}
	return &Agent{cfg: cfg, keeper: k, log: cfg.Log, id: who, nonce: rand.Text(), asks: make(chan ask)}, nil
}

// Run adopts what is on the host, enrols it if need be, and keeps a stream open
// until ctx ends. It returns nil then, and an error only if the agent cannot go on:
// its journal failed.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := a.keeper.Adopt(ctx); err != nil {
		a.log.Error("host not readable", "error", err)
	}
	inspected := make(chan struct{})
	go func() {
		defer close(inspected)
		for a.pause(ctx, inspectEvery) {
			if err := a.keeper.Inspect(ctx); err != nil && ctx.Err() == nil {
				a.log.Error("host not readable", "error", err)
			}
		}
	}()
	err := a.link(ctx)
	cancel()
	<-inspected
	return err
}

// link dials again for ever, with full jitter: 50 ms at least, and soon enough
// after a restart of the gateway that nobody waits for it.
func (a *Agent) link(ctx context.Context) error {
	for try := 0; ctx.Err() == nil; try++ {
		served, reason := a.attempt(ctx)
		if served {
			try = 0
		}
		a.log.Info("stream ended", "reason", reason)
		if a.keeper.Broken() != nil || !a.pause(ctx, backoff(try)) {
			break
		}
	}
	return a.keeper.Broken()
}

// attempt enrols if need be and runs one stream; it says why that ended.
func (a *Agent) attempt(ctx context.Context) (served bool, reason error) {
	if err := a.enrol(ctx); err != nil {
		return false, err
	}
	return a.session(ctx)
}

// Bounds of the wait before dialling again.
const (
	minBackoff = 50 * time.Millisecond
	firstRange = 450 * time.Millisecond
	maxRange   = 10 * time.Second
)

// backoff is a random wait that grows with the number of failures.
func backoff(try int) time.Duration {
	spread := min(firstRange<<min(try, 8), maxRange)
	return minBackoff + randomBelow(spread)
}

// randomBelow spreads agents over time; nothing secret hangs on it.
func randomBelow(d time.Duration) time.Duration {
	return time.Duration(mrand.Int64N(int64(d) + 1)) //nolint:gosec // jitter
}

func (a *Agent) pause(ctx context.Context, d time.Duration) bool {
	timer := a.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

type wire = connect.BidiStreamForClient[agentv1.SessionRequest, agentv1.SessionResponse]

// session runs one stream. served says that the control plane admitted it.
func (a *Agent) session(ctx context.Context) (served bool, err error) {
	if !a.cfg.Clock.Now().Before(a.id.cert.Leaf.NotAfter) {
		if err := a.renew(ctx); err != nil {
			return false, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := a.id.client(a.cfg.Clock.Now)
	defer client.CloseIdleConnections()
	raw := agentv1connect.NewAgentServiceClient(client, a.cfg.Gateway, connect.WithReadMaxBytes(maxFrame)).Session(ctx)
	l := &link{a: a, wire: raw, waiting: map[id.Assignment][]ask{}, taken: make(chan uint64, 1)}
	defer l.close()
	welcome, err := l.hello()
	if err != nil {
		return false, err
	}
	a.log.Info("connected", "session", welcome.Session)
	l.session = welcome.Session
	a.linked.Store(true)
	defer a.linked.Store(false)
	ended := make(chan error, 1)
	go func() { ended <- l.receive() }()
	err = l.serve(ctx, welcome, ended)
	return true, err
}

// link is one stream. One goroutine sends, one receives.
type link struct {
	a         *Agent
	wire      *wire
	session   int64
	sequence  uint64
	hash      string // of the last full set sent; "" before the first
	inventory string // the last one sent
	applied   int64
	failure   string
	told      uint64      // the highest spool id sent on this stream
	acked     uint64      // the highest one acknowledged
	taken     chan uint64 // acknowledgements of the spool, the newest only

	mu      sync.Mutex
	waiting map[id.Assignment][]ask
}

func (l *link) close() {
	l.abandon()

	// The stream is over for us; what these return says nothing new.
	_ = l.wire.CloseRequest()
	_ = l.wire.CloseResponse()
}

func (l *link) send(m *agentv1.SessionRequest) error {
	l.sequence++
	m.Sequence, m.Session = l.sequence, l.session
	return l.wire.Send(m)
}

func (l *link) hello() (agentlink.Welcome, error) {
	a := l.a
	a.counter++
	host := a.keeper.host
	err := l.send(&agentv1.SessionRequest{Frame: &agentv1.SessionRequest_Hello{Hello: agentlink.HelloOut(agentlink.Hello{
		BootID: host.BootID, Nonce: a.nonce, Counter: a.counter, AgentVersion: a.cfg.Version,
		MachineID: a.cfg.MachineID, Timeline: a.keeper.timeline(),
	})}})
	if err != nil && !errors.Is(err, io.EOF) {
		return agentlink.Welcome{}, err
	}
	// The cause of a send that met the end of the stream comes from Receive.
	m, err := l.wire.Receive()
	if err != nil {
		return agentlink.Welcome{}, err
	}
	if r := m.GetRefused(); r != nil {
		refusal := agentlink.RefusalIn(r)
		return agentlink.Welcome{}, fmt.Errorf("refused: %s: %s", refusal.Code, refusal.Detail)
	}
	return agentlink.WelcomeIn(m.GetHelloAck())
}

// receive obeys until the stream ends.
func (l *link) receive() error {
	for {
		m, err := l.wire.Receive()
		if err != nil {
			return err
		}
		switch f := m.GetFrame().(type) {
		case *agentv1.SessionResponse_Desired:
			d, err := agentlink.DesiredIn(f.Desired)
			if err != nil {
				return err
			}
			l.a.keeper.Obey(d)
		case *agentv1.SessionResponse_Secrets:
			if err := l.answer(f.Secrets); err != nil {
				return err
			}
		case *agentv1.SessionResponse_Taken:
			l.acknowledge(f.Taken.GetThrough())
		case *agentv1.SessionResponse_Drain:
			return errors.New("the gateway is going away")
		case *agentv1.SessionResponse_Refused:
			return fmt.Errorf("refused: %s", f.Refused.GetDetail())
		}
	}
}

// serve sends: inventory and the full set first, changes at once, a proof of life
// and the full set at their intervals.
func (l *link) serve(ctx context.Context, w agentlink.Welcome, ended <-chan error) error {
	c := l.a.cfg.Clock
	err := l.full(ctx)
	if errors.Is(err, io.EOF) {
		return <-ended
	}
	if err != nil {
		return err
	}
	var spooled <-chan struct{}
	if l.a.cfg.Spool != nil {
		spooled = l.a.cfg.Spool.Changed()
		if err := l.tell(); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	proof, full := c.NewTimer(w.ProofEvery), c.NewTimer(w.FullEvery)
	renewal := c.NewTimer(l.a.id.renewIn(c.Now()))
	defer func() { proof.Stop(); full.Stop(); renewal.Stop() }()
	for {
		var err error // of what was sent
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case <-l.a.keeper.Changed():
			if broken := l.a.keeper.Broken(); broken != nil {
				return broken
			}
			err = l.delta(ctx)
		case q := <-l.a.asks:
			err = l.ask(q)
		case <-spooled:
			err = l.tell()
		case through := <-l.taken:
			err = l.forget(through)
		case <-proof.C():
			proof = c.NewTimer(w.ProofEvery)
			err = l.prove()
		case <-full.C():
			full = c.NewTimer(w.FullEvery)
			err = l.full(ctx)
		case <-renewal.C():
			if err := l.a.renew(ctx); err != nil {
				l.a.log.Warn("certificate not renewed", "error", err)
				renewal = c.NewTimer(time.Minute)
				continue
			}
			return errors.New("the certificate was renewed")
		}
		if errors.Is(err, io.EOF) {
			return <-ended // the other direction knows why
		}
		if err != nil {
			return err
		}
	}
}

func (l *link) prove() error {
	p := &agentv1.Proof{UptimeMs: l.a.keeper.host.Uptime().Milliseconds(), ObservedHash: l.hash}
	return l.send(&agentv1.SessionRequest{Frame: &agentv1.SessionRequest_Proof{Proof: p}})
}

// stock sends the inventory if it changed.
func (l *link) stock(ctx context.Context) error {
	m := agentlink.InventoryOut(l.a.keeper.Inventory(ctx))
	text := m.String()
	if text == l.inventory {
		return nil
	}
	l.inventory = text
	return l.send(&agentv1.SessionRequest{Frame: &agentv1.SessionRequest_Inventory{Inventory: m}})
}

// full sends the inventory if it changed, and the full set or that it did not.
func (l *link) full(ctx context.Context) error {
	if err := l.stock(ctx); err != nil {
		return err
	}
	o := l.a.keeper.Observe(true)
	if o.Failed {
		return l.failed(o)
	}
	l.failure = ""
	if o.Hash != "" && o.Hash == l.hash {
		o.Unchanged, o.Slices, o.Gone = true, nil, nil
	}
	l.hash, l.applied = o.Hash, o.Applied
	return l.observed(o)
}

// delta sends what changed; after a host could not be read, everything.
func (l *link) delta(ctx context.Context) error {
	if l.hash == "" {
		return l.full(ctx)
	}
	if l.a.keeper.stocked() {
		if err := l.stock(ctx); err != nil {
			return err
		}
	}
	o := l.a.keeper.Observe(false)
	if o.Failed {
		return l.failed(o)
	}
	if l.failure != "" {
		l.hash = ""
		return l.full(ctx)
	}
	if len(o.Slices) == 0 && len(o.Gone) == 0 && o.Applied == l.applied {
		return nil
	}
	l.applied = o.Applied
	return l.observed(o)
}

// failed tells once why the host cannot be read.
func (l *link) failed(o agentlink.Observed) error {
	if o.Failure == l.failure {
		return nil
	}
	l.failure = o.Failure
	return l.observed(o)
}

func (l *link) observed(o agentlink.Observed) error {
	return l.send(&agentv1.SessionRequest{Frame: &agentv1.SessionRequest_Observed{Observed: agentlink.ObservedOut(o)}})
}
