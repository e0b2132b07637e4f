package sshgw

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/agent/guest"
	"github.com/tranche-cloud/tranche/agent/guest/wire"
)

// maxIdle is how many unused connections of one guest are kept; guests keep fewer.
const maxIdle = 2 * wire.Pool

// errUnreachable is a guest that does not dial, or does not speak SSH.
var errUnreachable = errors.New("the instance does not answer: it may be starting, or its process 1 is stuck")

// pool holds the idle connections of one instance's guest.
type pool struct {
	entry Entry
	door  *guest.Door
	quit  context.CancelFunc
	tasks sync.WaitGroup

	mu     sync.Mutex
	closed bool
	idle   []*idle
	more   chan struct{} // one token when something came
}

// idle is a connection that waits to be used. The guest has nothing to say on it, so
// whatever comes, an end above all, takes it out.
type idle struct {
	conn net.Conn
	over chan struct{} // closed when the watch ended
	err  error         // why
}

// openPool listens for one instance's guest.
func openPool(ctx context.Context, e Entry, peer guest.Peer) (*pool, error) {
	door, err := guest.OpenDoor(e.Socket, -1, peer)
	if err != nil {
		return nil, err
	}
	own, cancel := context.WithCancel(ctx)
	p := &pool{entry: e, door: door, quit: cancel, more: make(chan struct{}, 1)}
	p.tasks.Go(func() { door.Serve(own, func(conn *net.UnixConn) { p.admit(conn) }, nil) })
	return p, nil
}

// admit keeps a connection until it is used or ends. A guest that brings too many keeps
// the first ones.
func (p *pool) admit(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxIdle {
		shut(conn)
		return
	}
	i := &idle{conn: conn, over: make(chan struct{})}
	p.idle = append(p.idle, i)
	p.tasks.Go(func() {
		_, i.err = conn.Read(make([]byte, 1))
		close(i.over)
		if !errors.Is(i.err, os.ErrDeadlineExceeded) {
			p.drop(i)
		}
	})
	p.signal()
}

func (p *pool) signal() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

func (p *pool) drop(gone *idle) {
	shut(gone.conn)
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, i := range p.idle {
		if i == gone {
			p.idle = append(p.idle[:n], p.idle[n+1:]...)
			return
		}
	}
}

// take returns a connection for use, and waits for one until the context ends.
func (p *pool) take(ctx context.Context) (net.Conn, error) {
	for {
		p.mu.Lock()
		var next *idle
		if len(p.idle) > 0 {
			next, p.idle = p.idle[0], p.idle[1:]
		}
		if len(p.idle) > 0 {
			p.signal() // for whoever else waits
		}
		p.mu.Unlock()
		if next == nil {
			select {
			case <-p.more:
				continue
			case <-ctx.Done():
				return nil, errUnreachable
			}
		}
		// End the watch; it must have seen nothing.
		err := next.conn.SetReadDeadline(time.Unix(1, 0))
		<-next.over
		if err == nil && errors.Is(next.err, os.ErrDeadlineExceeded) && next.conn.SetReadDeadline(time.Time{}) == nil {
			return next.conn, nil
		}
		shut(next.conn)
	}
}

// dial makes an SSH connection to the guest for one session.
func (p *pool) dial(ctx context.Context, opened wire.Preamble, limit time.Duration) (*inner, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	raw, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	// A guest that is silent now must not hold the tenant's connection.
	if err := raw.SetDeadline(time.Now().Add(limit)); err != nil {
		shut(raw)
		return nil, fmt.Errorf("%w: %w", errUnreachable, err)
	}
	stop := context.AfterFunc(ctx, func() { shut(raw) })
	defer stop()
	if err := wire.Write(raw, wire.MaxPreamble, opened); err != nil {
		shut(raw)
		return nil, fmt.Errorf("%w: %w", errUnreachable, err)
	}
	conn, channels, requests, err := ssh.NewClientConn(raw, "guest", &ssh.ClientConfig{
		User: "guest",
		// The socket is the instance's alone and its peer was checked by the kernel's
		// word; a key inside would prove nothing more.
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), //nolint:gosec // see above
	})
	if err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	if err != nil {
		shut(raw)
		return nil, fmt.Errorf("%w: %w", errUnreachable, err)
	}
	return &inner{Conn: conn, channels: channels, requests: requests}, nil
}

// inner is the SSH connection to a guest.
type inner struct {
	ssh.Conn
	channels <-chan ssh.NewChannel
	requests <-chan *ssh.Request
}

// close ends the pool. Connections in use are their sessions'.
func (p *pool) close() {
	p.quit()
	shut(p.door)
	p.mu.Lock()
	p.closed = true
	left := p.idle
	p.mu.Unlock()
	for _, i := range left {
		shut(i.conn)
	}
	p.tasks.Wait()
}
