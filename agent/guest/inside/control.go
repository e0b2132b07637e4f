package inside

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/agent/guest/wire"
)

// control is the guest's end of the control connection. It keeps the state that the
// host shall know, and tells it again to each host that comes.
type control struct {
	path, build string
	boot        chan wire.FromHost // filled once

	mu     sync.Mutex
	phase  wire.Phase
	ready  int64 // uptime; 0 not yet
	ended  *wire.FromGuest
	change chan struct{} // closed when the state changes
	told   chan struct{} // closed when the end was told
	once   sync.Once
}

func newControl(path, build string) *control {
	return &control{
		path: path, build: build, boot: make(chan wire.FromHost, 1), phase: wire.Waiting,
		change: make(chan struct{}), told: make(chan struct{}),
	}
}

// started notes that the main process runs, or that there is none.
func (c *control) started(phase wire.Phase) {
	c.set(func() { c.phase, c.ready = phase, uptime() })
}

// end notes that the main process is over, and waits briefly until the host knows.
func (c *control) end(code int, reason string, patience time.Duration) {
	c.set(func() {
		c.phase = wire.Exited
		c.ended = &wire.FromGuest{Kind: wire.Ended, Code: code, Reason: reason, Uptime: uptime()}
	})
	select {
	case <-c.told:
	case <-time.After(patience):
	}
}

func (c *control) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.change)
	c.change = make(chan struct{})
}

func (c *control) state() (wire.Phase, int64, *wire.FromGuest, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase, c.ready, c.ended, c.change
}

// run keeps a connection to the host until the context ends.
func (c *control) run(ctx context.Context) {
	redial(ctx, c.path, func(conn net.Conn) bool {
		if c.greet(conn) {
			c.tell(ctx, conn)
		}
		return false
	})
}

// greet says hello and hears the answer. The host may fetch secrets before it answers,
// so only the connection's end ends the wait.
func (c *control) greet(conn net.Conn) bool {
	phase, ready, _, _ := c.state()
	hello := wire.FromGuest{Kind: wire.Hello, Version: wire.Version, Build: c.build, Phase: phase, Uptime: ready}
	if wire.Write(conn, wire.MaxFromGuest, hello) != nil {
		return false
	}
	var answer wire.FromHost
	if wire.Read(conn, wire.MaxFromHost, &answer, nil) != nil {
		return false
	}
	if answer.Kind == wire.Boot && phase == wire.Waiting {
		select {
		case c.boot <- answer:
		default:
		}
	}
	return true
}

// tell reports changes and beats until the host hangs up.
func (c *control) tell(ctx context.Context, conn net.Conn) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = conn.Read(make([]byte, 1)) // the host has nothing more to say
	}()
	beat := time.NewTicker(wire.Beat)
	defer beat.Stop()
	readied, ended := false, false
	for {
		phase, ready, end, changed := c.state()
		var err error
		if !readied && ready > 0 {
			readied = true
			err = wire.Write(conn, wire.MaxFromGuest, wire.FromGuest{Kind: wire.Ready, Phase: phase, Uptime: ready})
		}
		if err == nil && !ended && end != nil {
			ended = true
			if err = wire.Write(conn, wire.MaxFromGuest, *end); err == nil {
				c.once.Do(func() { close(c.told) })
			}
		}
		if err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-gone:
			return
		case <-changed:
		case <-beat.C:
			if wire.Write(conn, wire.MaxFromGuest, wire.FromGuest{Kind: wire.Pulse}) != nil {
				return
			}
		}
	}
}

// redial connects to a socket of the host, again and again, until the context ends or
// use returns true, which makes the connection the caller's. The host may be away for
// hours and must be found soon after.
func redial(ctx context.Context, path string, use func(net.Conn) bool) {
	const first, last = 20 * time.Millisecond, time.Second
	wait := first
	for ctx.Err() == nil {
		began := time.Now()
		conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "unix", path)
		if err == nil {
			stop := context.AfterFunc(ctx, func() { shut(conn) })
			kept := use(conn)
			stop()
			if kept {
				return
			}
			shut(conn)
		}
		if time.Since(began) > last {
			wait = first
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, last)
	}
}

// uptime is the host's, for namespaces of time are not used.
func uptime() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return t.Nano()
}

// shut closes what nobody needs any more; how that goes changes nothing.
func shut(c io.Closer) { c.Close() }
