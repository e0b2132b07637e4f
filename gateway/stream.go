package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"connectrpc.com/connect"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Why a stream is ended by this side.
var (
	errDraining   = errors.New("this gateway is going away")
	errSuperseded = errors.New("a newer stream of this host has taken over")
	errRevoked    = errors.New("the host is not admitted any more")
	errSilent     = errors.New("the host was silent for too long and must introduce itself again")
	errExpired    = errors.New("the host's certificate has expired")
)

// helloWithin bounds the wait for an agent's first frame.
const helloWithin = 20 * time.Second

type bidi = connect.BidiStream[agentv1.SessionRequest, agentv1.SessionResponse]

// stream is one open session. Its handler goroutine alone sends and handles
// frames; the others only wake or end it.
type stream struct {
	g        *Gateway
	session  store.Session
	timeline int64
	wake     chan struct{}
	end      context.CancelCauseFunc
	wire     *bidi
	sequence uint64
	sent     *agentlink.Desired // the last delivered set
	version  int64

	// Guarded by g.mu.
	proof    *proof // the newest not written yet
	reported bool   // a full report was taken in
}

// proof is a proof of life with the instant it was received.
type proof struct {
	at     time.Time
	uptime time.Duration
}

// frame is a received message with the instant it came.
type frame struct {
	msg *agentv1.SessionRequest
	at  time.Time
	err error
}

// agents serves the long-lived streams.
type agents struct{ g *Gateway }

// Session runs one stream from Hello to end. Whatever ends it, the agent dials
// again; so errors carry no more than a reason.
func (a *agents) Session(ctx context.Context, wire *bidi) error {
	g := a.g
	who := peerOf(ctx).host
	if who == nil {
		return connect.NewError(connect.CodeUnauthenticated, errors.New("a session needs the host's certificate"))
	}
	life := who.NotAfter.Sub(g.clock.Now())
	if life <= 0 {
		return connect.NewError(connect.CodeUnauthenticated, errExpired)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	frames := receive(ctx, g, wire)
	hello, err := g.awaitHello(ctx, frames)
	if err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	welcome, err := g.app.BeginSession(ctx, who.Host, g.name, hello)
	if err != nil {
		return g.refuse(wire, who.Host.String(), err)
	}
	s := &stream{
		g: g, session: store.Session{Host: who.Host, Number: welcome.Session}, timeline: welcome.Timeline,
		wake: make(chan struct{}, 1), end: end, wire: wire, sequence: 1,
	}
	if !g.enter(s) {
		return connect.NewError(connect.CodeAborted, errDraining)
	}
	defer g.leave(context.WithoutCancel(ctx), s)
	expiry := g.clock.NewTimer(life)
	defer expiry.Stop()
	if err := wire.Send(&agentv1.SessionResponse{Frame: &agentv1.SessionResponse_HelloAck{HelloAck: agentlink.WelcomeOut(welcome)}}); err != nil {
		return err
	}
	g.log.Info("agent connected", "host_id", who.Host.String(), "session", welcome.Session)
	err = s.serve(ctx, frames, expiry.C())
	g.log.Info("agent disconnected", "host_id", who.Host.String(), "session", welcome.Session, "reason", err)
	if err != nil {
		return connect.NewError(connect.CodeAborted, err)
	}
	return nil
}

// receive reads frames into a channel until the stream or ctx ends: the stream's
// own Receive cannot be interrupted but by returning from the handler.
func receive(ctx context.Context, g *Gateway, wire *bidi) <-chan frame {
	frames := make(chan frame, 16)
	go func() {
		for {
			msg, err := wire.Receive()
			select {
			case frames <- frame{msg: msg, at: g.clock.Now(), err: err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return frames
}

func (g *Gateway) awaitHello(ctx context.Context, frames <-chan frame) (agentlink.Hello, error) {
	timer := g.clock.NewTimer(helloWithin)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return agentlink.Hello{}, ctx.Err()
	case <-timer.C():
		return agentlink.Hello{}, errors.New("no hello came")
	case f := <-frames:
		if f.err != nil {
			return agentlink.Hello{}, f.err
		}
		return agentlink.HelloIn(f.msg.GetHello())
	}
}

// refuse tells an agent why it is not admitted.
func (g *Gateway) refuse(wire *bidi, host string, err error) error {
	f := fault.From(err)
	g.log.Warn("session refused", "host_id", host, "code", f.Code, "error", err)
	if f.Kind == fault.Unavailable || f.Kind == fault.Internal {
		return connectError(err)
	}
	return wire.Send(&agentv1.SessionResponse{Frame: &agentv1.SessionResponse_Refused{
		Refused: agentlink.RefusalOut(agentlink.Refusal{Code: f.Code, Detail: f.Detail, Retry: f.RetryAfter > 0}),
	}})
}

// serve delivers and takes in until somebody ends the stream. An error of a write
// to the database ends it too: the next session reports everything again.
func (s *stream) serve(ctx context.Context, frames <-chan frame, expired <-chan time.Time) error {
	for {
		select {
		case <-ctx.Done():
			return s.farewell(context.Cause(ctx))
		case <-expired:
			return errExpired
		case <-s.wake:
			if err := s.deliver(ctx); err != nil {
				return err
			}
		case f := <-frames:
			if errors.Is(f.err, io.EOF) {
				return nil
			}
			if f.err != nil {
				return f.err
			}
			if err := s.take(ctx, f); err != nil {
				return err
			}
		}
	}
}

// farewell tells the agent to move when this gateway goes.
func (s *stream) farewell(cause error) error {
	if !errors.Is(cause, errDraining) {
		return cause
	}
	return s.wire.Send(&agentv1.SessionResponse{Frame: &agentv1.SessionResponse_Drain{Drain: &agentv1.Drain{}}})
}

// deliver sends all that shall be on the host, unless that was sent last.
func (s *stream) deliver(ctx context.Context) error {
	d, err := s.g.app.Desired(ctx, s.session.Host)
	if err != nil {
		return err
	}
	if s.sent != nil && reflect.DeepEqual(d, *s.sent) {
		return nil
	}
	s.sent = &d
	s.version++
	out := d
	out.Version, out.Timeline = s.version, s.timeline
	return s.wire.Send(&agentv1.SessionResponse{Frame: &agentv1.SessionResponse_Desired{Desired: agentlink.DesiredOut(out)}})
}

// take handles one frame. Frames of a session are numbered without gaps.
func (s *stream) take(ctx context.Context, f frame) error {
	if f.msg.GetSession() != s.session.Number || f.msg.GetSequence() <= s.sequence {
		return fmt.Errorf("frame %d of session %d came after frame %d of session %d",
			f.msg.GetSequence(), f.msg.GetSession(), s.sequence, s.session.Number)
	}
	s.sequence = f.msg.GetSequence()
	switch m := f.msg.GetFrame().(type) {
	case *agentv1.SessionRequest_Inventory:
		in, err := agentlink.InventoryIn(m.Inventory)
		if err != nil {
			return err
		}
		return s.g.app.RecordInventory(ctx, s.session, in)
	case *agentv1.SessionRequest_Observed:
		return s.observe(ctx, f.at, m.Observed)
	case *agentv1.SessionRequest_Proof:
		s.g.prove(s, proof{at: f.at, uptime: time.Duration(m.Proof.GetUptimeMs()) * time.Millisecond})
		return nil
	case *agentv1.SessionRequest_Event:
		e, err := agentlink.EventIn(m.Event)
		if err != nil {
			return s.skip(ctx, m.Event.GetId(), err)
		}
		s.g.prove(s, proof{at: f.at}) // a long spool must not look like silence
		return s.taken(s.g.app.TakeEvent(ctx, s.session, f.at, e))
	case *agentv1.SessionRequest_Samples:
		x, err := agentlink.SamplesIn(m.Samples)
		if err != nil {
			return s.skip(ctx, m.Samples.GetId(), err)
		}
		s.g.prove(s, proof{at: f.at})
		return s.taken(s.g.app.TakeSamples(ctx, s.session, f.at, x))
	case *agentv1.SessionRequest_SecretsRequest:
		return s.secrets(ctx, m.SecretsRequest)
	}
	return fmt.Errorf("frame %d is of no known kind", s.sequence)
}

// skip passes over a spooled record that makes no sense here: the host keeps it until it
// is taken, and would bring it again on every stream.
func (s *stream) skip(ctx context.Context, spool uint64, why error) error {
	if spool == 0 {
		return why
	}
	s.g.log.Warn("spooled record passed over", "host_id", s.session.Host.String(), "record", spool, "error", why)
	return s.taken(s.g.app.SkipSpooled(ctx, s.session, spool))
}

// taken acknowledges what a host may drop from its spool.
func (s *stream) taken(through uint64, err error) error {
	if err != nil {
		return err
	}
	return s.wire.Send(&agentv1.SessionResponse{Frame: &agentv1.SessionResponse_Taken{Taken: &agentv1.Taken{Through: through}}})
}

// secrets answers at once; the answer is sent and forgotten.
func (s *stream) secrets(ctx context.Context, m *agentv1.SecretsRequest) error {
	r, err := agentlink.SecretsRequestIn(m)
	if err != nil {
		return err
	}
	out, err := s.g.app.Secrets(ctx, s.session, r)
	if err != nil {
		return err
	}
	if out.Refused != "" {
		s.g.log.Warn("secrets refused", "host_id", s.session.Host.String(), "assignment_id", r.Assignment.String(), "reason", out.Refused)
	}
	return s.wire.Send(&agentv1.SessionResponse{Frame: &agentv1.SessionResponse_Secrets{Secrets: agentlink.SecretsOut(out)}})
}

func (s *stream) observe(ctx context.Context, at time.Time, m *agentv1.Observed) error {
	o, err := agentlink.ObservedIn(m)
	if err != nil {
		return err
	}
	s.g.prove(s, proof{at: at})
	err = s.g.app.RecordObserved(ctx, app.Report{Session: s.session, Sequence: s.sequence, Received: at, Observed: o})
	if err == nil && o.Full && !o.Failed {
		s.g.mu.Lock()
		s.reported = true
		s.g.mu.Unlock()
	}
	return err
}
