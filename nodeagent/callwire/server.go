package callwire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// maxCalls is how many calls of one connection may be under way.
const maxCalls = 256

// Call is one call as its handler sees it.
type Call struct {
	Verb string
	Body json.RawMessage
	// Note tells the caller something before the answer.
	Note func(v any) error
}

// Handler carries calls out; it is used by many goroutines at once. Its context ends
// with the call's deadline, when the call is taken back and when the connection ends.
type Handler func(ctx context.Context, c Call) (any, error)

// Serve answers the calls of one connection until it or the context ends, and closes
// it. It returns nil when the peer hung up. Handlers that go on are not waited for:
// one that never returns costs its goroutine.
func Serve(ctx context.Context, conn io.ReadWriteCloser, h Handler) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &server{ctx: ctx, conn: conn, handle: h, out: make(chan []byte, outbox), calls: map[uint64]context.CancelFunc{}}
	shut := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() { shut(); _ = conn.Close() }()
	go s.write(stop)
	err := s.greet()
	for err == nil {
		var f frame
		if f, err = receive(conn); err == nil {
			err = s.take(f)
		}
	}
	if errors.Is(err, ErrMalformed) || errors.Is(err, ErrVersion) {
		return err
	}
	return nil // the connection ended, whoever ended it
}

type server struct {
	ctx    context.Context
	conn   io.ReadWriteCloser
	handle Handler
	out    chan []byte

	mu    sync.Mutex
	calls map[uint64]context.CancelFunc
}

func (s *server) write(stop func()) {
	for {
		select {
		case text := <-s.out:
			if _, err := s.conn.Write(text); err != nil {
				stop()
				return
			}
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *server) send(f frame) error {
	text, err := encode(f)
	if err != nil {
		return err
	}
	select {
	case s.out <- text:
		return nil
	case <-s.ctx.Done():
		return ErrLost
	}
}

// greet tells the version first, so that a peer of another one learns of it.
func (s *server) greet() error {
	if err := s.send(frame{Kind: hello, Version: Version}); err != nil {
		return err
	}
	f, err := receive(s.conn)
	switch {
	case err != nil:
		return err
	case f.Kind != hello:
		return fmt.Errorf("%w: no hello", ErrMalformed)
	case f.Version != Version:
		return ErrVersion
	}
	return nil
}

func (s *server) take(f frame) error {
	switch f.Kind {
	case cancel:
		s.mu.Lock()
		if end, ok := s.calls[f.ID]; ok {
			end()
		}
		s.mu.Unlock()
		return nil
	case call:
	default:
		return fmt.Errorf("%w: a client calls and cancels", ErrMalformed)
	}
	within := time.Duration(f.WithinMS) * time.Millisecond
	if within == 0 {
		within = maxWithin
	}
	ctx, end := context.WithTimeout(s.ctx, within)
	s.mu.Lock()
	_, twice := s.calls[f.ID]
	full := len(s.calls) >= maxCalls
	if !twice && !full {
		s.calls[f.ID] = end
	}
	s.mu.Unlock()
	switch {
	case twice:
		end()
		return fmt.Errorf("%w: a number twice", ErrMalformed)
	case full:
		end()
		return s.send(frame{Kind: answer, ID: f.ID, Failure: failureOf(fmt.Errorf("%d calls are under way, no more are taken", maxCalls))})
	}
	go s.serve(ctx, end, f)
	return nil
}

// serve carries one call out and answers it.
func (s *server) serve(ctx context.Context, end context.CancelFunc, f frame) {
	defer func() {
		end()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, f.ID)
	}()
	tell := func(v any) error {
		body, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode note of %s: %w", f.Verb, err)
		}
		return s.send(frame{Kind: note, ID: f.ID, Body: body})
	}
	out, err := s.handle(ctx, Call{Verb: f.Verb, Body: f.Body, Note: tell})
	reply := frame{Kind: answer, ID: f.ID}
	if err == nil {
		reply.Body, err = json.Marshal(out)
	}
	if err != nil {
		reply.Body, reply.Failure = nil, failureOf(err)
	}
	if err := s.send(reply); err != nil && !errors.Is(err, ErrLost) {
		// Too long a frame: the caller still gets an answer.
		_ = s.send(frame{Kind: answer, ID: f.ID, Failure: failureOf(err)})
	}
}
