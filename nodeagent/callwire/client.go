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

// ErrLost says that the other process, or the connection to it, ended before the call
// was answered: whether it was carried out is not known.
var ErrLost = errors.New("the other process is gone")

// outbox is how many frames may wait to be written.
const outbox = 64

// Client makes calls over one connection. It is safe for concurrent use.
type Client struct {
	conn io.ReadWriteCloser
	out  chan []byte
	done chan struct{}
	once sync.Once

	mu    sync.Mutex
	last  uint64
	calls map[uint64]pending
}

type pending struct {
	note   func(json.RawMessage)
	answer chan frame
}

// NewClient greets the other side and returns when it has greeted back, or fails with
// ErrVersion, ErrMalformed, ErrLost or the context's error. It closes the connection if
// it fails, and at Close.
func NewClient(ctx context.Context, conn io.ReadWriteCloser) (*Client, error) {
	c := &Client{conn: conn, out: make(chan []byte, outbox), done: make(chan struct{}), calls: map[uint64]pending{}}
	greeting, err := encode(frame{Kind: hello, Version: Version})
	if err != nil {
		return nil, err
	}
	c.out <- greeting
	go c.write()
	greeted := make(chan error, 1)
	go c.read(greeted)
	select {
	case err = <-greeted:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("greet the other process: %w", err)
	}
	return c, nil
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the connection; calls under way fail with ErrLost.
func (c *Client) Close() {
	c.once.Do(func() {
		close(c.done)
		// A peer that is gone, or stuck, is what this is for.
		_ = c.conn.Close()
	})
}

func (c *Client) write() {
	for {
		select {
		case text := <-c.out:
			if _, err := c.conn.Write(text); err != nil {
				c.Close()
				return
			}
		case <-c.done:
			return
		}
	}
}

// read hands out what comes until the connection ends.
func (c *Client) read(greeted chan<- error) {
	defer c.Close()
	f, err := receive(c.conn)
	switch {
	case errors.Is(err, ErrMalformed):
	case err != nil:
		err = errors.Join(ErrLost, err)
	case f.Kind != hello:
		err = fmt.Errorf("%w: no hello", ErrMalformed)
	case f.Version != Version:
		err = ErrVersion
	}
	greeted <- err
	for err == nil {
		if f, err = receive(c.conn); err == nil {
			c.deliver(f)
		}
	}
}

func (c *Client) deliver(f frame) {
	c.mu.Lock()
	p, known := c.calls[f.ID]
	if f.Kind == answer {
		delete(c.calls, f.ID)
	}
	c.mu.Unlock()
	switch {
	case !known: // it was taken back
	case f.Kind == answer:
		p.answer <- f
	case f.Kind == note && p.note != nil:
		p.note(f.Body)
	}
}

// Call makes one call and returns the answer's body. The context's deadline travels
// with it; when the context ends first the call is taken back and the context's error
// returned. notes, if not nil, hears what the call tells before its answer; it must not
// block. Errors of the other side keep their type, see Failure.
func (c *Client) Call(ctx context.Context, verb string, in any, notes func(json.RawMessage)) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode call %s: %w", verb, err)
	}
	f := frame{Kind: call, Verb: verb, Body: body, WithinMS: remaining(ctx)}
	p := pending{note: notes, answer: make(chan frame, 1)}
	c.mu.Lock()
	c.last++
	f.ID = c.last
	c.calls[f.ID] = p
	c.mu.Unlock()
	defer c.drop(f.ID)
	text, err := encode(f)
	if err != nil {
		return nil, err
	}
	select {
	case c.out <- text:
	case <-c.done:
		return nil, ErrLost
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return c.await(ctx, f.ID, p)
}

func (c *Client) await(ctx context.Context, id uint64, p pending) (json.RawMessage, error) {
	select {
	case f := <-p.answer:
		return result(f)
	case <-ctx.Done():
		if text, err := encode(frame{Kind: cancel, ID: id}); err == nil {
			select {
			case c.out <- text:
			default: // a peer that takes nothing is told nothing
			}
		}
		return nil, ctx.Err()
	case <-c.done:
		select { // an answer that came just before the end counts
		case f := <-p.answer:
			return result(f)
		default:
			return nil, ErrLost
		}
	}
}

func result(f frame) (json.RawMessage, error) {
	if f.Failure != nil {
		return nil, f.Failure.err()
	}
	return f.Body, nil
}

func (c *Client) drop(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
}

// remaining is the time until the context's deadline in milliseconds, at least one; 0
// without a deadline.
func remaining(ctx context.Context) int64 {
	at, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return min(max(time.Until(at).Milliseconds(), 1), maxWithin.Milliseconds())
}
