package sshgw

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/agent/guest/wire"
)

// session is one connection that was let in.
type session struct {
	server *Server
	conn   *ssh.ServerConn
	who    grant
	name   string
	opened time.Time

	in, out atomic.Int64
	active  atomic.Int64 // when the last byte passed, in Unix nanoseconds

	mu     sync.Mutex
	inner  *inner
	closed bool
	reason string
	kinds  map[string]bool
}

// note says why the session ends; the first reason is the one that is recorded.
func (o *session) note(reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reason == "" {
		o.reason = reason
	}
}

// close ends both connections.
func (o *session) close() {
	o.mu.Lock()
	o.closed = true
	to := o.inner
	o.mu.Unlock()
	shut(o.conn)
	if to != nil {
		shut(to)
	}
}

// attach gives the session its guest.
func (o *session) attach(to *inner) {
	o.mu.Lock()
	o.inner = to
	closed := o.closed
	o.mu.Unlock()
	if closed {
		shut(to)
	}
}

// used notes what the session did, for the audit.
func (o *session) used(kind string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kinds[kind] = true
}

func (o *session) touch() { o.active.Store(o.server.cfg.Clock.Now().UnixNano()) }

func (o *session) preamble() wire.Preamble {
	principal := o.who.holder
	if principal == "" {
		principal = o.who.fingerprint
	}
	return wire.Preamble{Version: wire.Version, Session: o.name, Principal: principal, Remote: o.conn.RemoteAddr().String()}
}

func (o *session) record(event string) Record {
	r := Record{
		Event: event, Session: o.name, At: o.opened,
		Instance: o.who.entry.Instance.String(), Assignment: o.who.entry.Assignment,
		Principal: o.who.holder, Serial: o.who.serial, Fingerprint: o.who.fingerprint, Remote: o.conn.RemoteAddr().String(),
	}
	if event == Closed {
		o.mu.Lock()
		defer o.mu.Unlock()
		r.At = o.server.cfg.Clock.Now()
		r.Duration = max(0, r.At.Sub(o.opened))
		r.Kinds = slices.Sorted(maps.Keys(o.kinds))
		r.In, r.Out, r.Reason = o.in.Load(), o.out.Load(), o.reason
	}
	return r
}

// watchIdle ends a session through which nothing passed for too long.
func (o *session) watchIdle(limit time.Duration) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = o.conn.Wait()
	}()
	for wait := limit; ; {
		timer := o.server.cfg.Clock.NewTimer(wait)
		select {
		case <-gone:
			timer.Stop()
			return
		case <-timer.C():
		}
		wait = limit - o.server.cfg.Clock.Now().Sub(time.Unix(0, o.active.Load()))
		if wait <= 0 {
			o.note(fmt.Sprintf("idle for %v", limit))
			o.close()
			return
		}
	}
}

// explain tells a client that was let in why it cannot go on: on its first session
// channel, for SSH has no other place that clients show.
func (o *session) explain(channels <-chan ssh.NewChannel, requests <-chan *ssh.Request, why string) {
	o.note(why)
	go ssh.DiscardRequests(requests)
	timer := o.server.cfg.Clock.NewTimer(10 * time.Second)
	defer timer.Stop()
	for {
		select {
		case <-timer.C():
			return
		case asked, more := <-channels:
			if !more {
				return
			}
			if asked.ChannelType() != "session" {
				_ = asked.Reject(ssh.ConnectionFailed, why)
				continue
			}
			channel, asks, err := asked.Accept()
			if err != nil {
				return
			}
			o.sayOnStart(channel, asks, why, timer.C())
			o.linger(channels)
			return
		}
	}
}

// linger lets the client read what was said and hang up by itself; closing at once
// could reset the connection under its eyes.
func (o *session) linger(channels <-chan ssh.NewChannel) {
	timer := o.server.cfg.Clock.NewTimer(2 * time.Second)
	defer timer.Stop()
	for {
		select {
		case <-timer.C():
			return
		case asked, more := <-channels:
			if !more {
				return
			}
			_ = asked.Reject(ssh.ConnectionFailed, "closing")
		}
	}
}

// sayOnStart waits until the client starts something, and fails that with a message.
func (o *session) sayOnStart(channel ssh.Channel, asks <-chan *ssh.Request, why string, late <-chan time.Time) {
	defer shut(channel)
	for {
		select {
		case <-late:
			return
		case ask, more := <-asks:
			if !more {
				return
			}
			start := ask.Type == "shell" || ask.Type == "exec" || ask.Type == "subsystem"
			if ask.WantReply {
				_ = ask.Reply(start || ask.Type == "pty-req" || ask.Type == "env", nil)
			}
			if start {
				fail(channel, why, 255)
				return
			}
		}
	}
}

// fail ends a started channel with a message and a code.
func fail(channel ssh.Channel, why string, code uint32) {
	fmt.Fprintf(channel.Stderr(), "tranche: %s\r\n", why)
	_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
	_ = channel.CloseWrite()
}

// counter counts what passes through a writer, and keeps the session from being idle.
type counter struct {
	io.Writer
	open  *session
	total *atomic.Int64
}

func (c counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.total.Add(int64(n))
	c.open.touch()
	return n, err
}

// shut closes what nobody needs any more; how that goes changes nothing.
func shut(c io.Closer) { c.Close() }
