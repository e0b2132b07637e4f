package sshgw

import (
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// lastWords is how long data of a closed channel may take to be delivered.
const lastWords = 10 * time.Second

// relay passes channels and requests between the tenant and the guest until one of
// them hangs up.
func (o *session) relay(to *inner, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	var tasks sync.WaitGroup
	slots := make(chan struct{}, o.server.cfg.Limits.Channels)
	pass := func(asked <-chan ssh.NewChannel, far ssh.Conn, fromTenant bool) {
		for a := range asked {
			if why := o.mayOpen(a.ChannelType(), fromTenant); why != "" {
				_ = a.Reject(ssh.Prohibited, why)
				continue
			}
			select {
			case slots <- struct{}{}:
			default:
				_ = a.Reject(ssh.ResourceShortage, "too many channels on this connection")
				continue
			}
			tasks.Go(func() {
				defer func() { <-slots }()
				o.splice(a, far, fromTenant)
			})
		}
	}
	tasks.Go(func() { pass(to.channels, o.conn, false) })
	tasks.Go(func() { o.global(requests, to) })
	tasks.Go(func() { ssh.DiscardRequests(to.requests) })
	tasks.Go(func() {
		_ = to.Wait()
		o.note("instance hung up")
		o.close()
	})
	pass(channels, to, true)
	o.note("client hung up")
	o.close()
	tasks.Wait()
}

// mayOpen says why a channel may not be opened, or "".
func (o *session) mayOpen(kind string, fromTenant bool) string {
	switch {
	case fromTenant && kind == "session":
		return ""
	case fromTenant && kind == "direct-tcpip", !fromTenant && kind == "forwarded-tcpip":
		if !o.who.forward {
			return "this certificate does not permit port forwarding"
		}
		if fromTenant {
			o.used("forward")
		}
		return ""
	}
	return "this gateway offers sessions and TCP forwarding"
}

// global passes on requests that concern the connection: reverse forwarding alone.
func (o *session) global(requests <-chan *ssh.Request, to ssh.Conn) {
	for req := range requests {
		ok, answer := false, []byte(nil)
		switch req.Type {
		case "tcpip-forward", "cancel-tcpip-forward":
			if o.who.forward {
				o.used("reverse-forward")
				ok, answer, _ = to.SendRequest(req.Type, true, req.Payload)
			}
		case "keepalive@openssh.com":
			ok = true
		}
		if req.WantReply {
			_ = req.Reply(ok, answer)
		}
	}
}

// splice opens the same channel on the far side and passes everything on, both ways.
func (o *session) splice(asked ssh.NewChannel, far ssh.Conn, fromTenant bool) {
	there, thereRequests, err := far.OpenChannel(asked.ChannelType(), asked.ExtraData())
	if err != nil {
		reason, text := ssh.ConnectionFailed, "the other side is gone"
		if refused, ok := errors.AsType[*ssh.OpenChannelError](err); ok {
			reason, text = refused.Reason, refused.Message
		}
		_ = asked.Reject(reason, text)
		return
	}
	here, hereRequests, err := asked.Accept()
	if err != nil {
		shut(there)
		go ssh.DiscardRequests(thereRequests)
		return
	}
	tenant, tenantRequests, guest, guestRequests := here, hereRequests, there, thereRequests
	if !fromTenant {
		tenant, tenantRequests, guest, guestRequests = there, thereRequests, here, hereRequests
	}
	var up, down sync.WaitGroup
	var answering, told sync.Mutex
	sent := make(chan struct{})
	up.Go(func() {
		defer close(sent)
		_, _ = io.Copy(counter{guest, o, &o.in}, tenant)
		_ = guest.CloseWrite()
	})
	up.Go(func() {
		pass(tenantRequests, guest, o.fromTenant, &answering)
		// The tenant closed the channel; what he said before still has to arrive, at an
		// instance that takes it.
		timer := o.server.cfg.Clock.NewTimer(lastWords)
		defer timer.Stop()
		select {
		case <-sent:
		case <-timer.C():
		}
		shut(guest)
	})
	var data sync.WaitGroup
	data.Go(func() { _, _ = io.Copy(counter{tenant, o, &o.out}, guest) })
	data.Go(func() { _, _ = io.Copy(counter{tenant.Stderr(), o, &o.out}, guest.Stderr()) })
	down.Go(func() {
		data.Wait()
		_ = tenant.CloseWrite()
	})
	down.Go(func() { pass(guestRequests, tenant, fromGuest, &told) })
	// The guest closes a channel when it has said all, its exit status included.
	down.Wait()
	// A command may end before the answer to the request that began it is passed on.
	answering.Lock()
	shut(tenant)
	answering.Unlock()
	up.Wait()
}

// pass forwards the requests of a channel, with their answers; it is busy from the one
// to the other.
func pass(requests <-chan *ssh.Request, to ssh.Channel, may func(*ssh.Request) bool, busy *sync.Mutex) {
	for req := range requests {
		busy.Lock()
		ok := false
		if may(req) {
			ok, _ = to.SendRequest(req.Type, req.WantReply, req.Payload)
		}
		if req.WantReply {
			_ = req.Reply(ok, nil)
		}
		busy.Unlock()
	}
}

// fromTenant lets through what an instance offers, and notes what the session does.
func (o *session) fromTenant(req *ssh.Request) bool {
	switch req.Type {
	case "shell", "exec":
		o.used(req.Type)
		return true
	case "subsystem":
		var named struct{ Name string }
		if ssh.Unmarshal(req.Payload, &named) != nil || named.Name != "sftp" {
			return false
		}
		o.used(named.Name)
		return true
	case "pty-req":
		return o.who.terminal
	case "env", "window-change", "signal":
		return true
	}
	return false
}

func fromGuest(req *ssh.Request) bool { return req.Type == "exit-status" || req.Type == "exit-signal" }
