package inside

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/agent/guest/wire"
)

const (
	dialing      = 10 * time.Second
	maxListeners = 16 // reverse forwards of a connection
	lastWords    = 10 * time.Second
)

// tcpip is the payload of direct-tcpip and forwarded-tcpip (RFC 4254 §7.2).
type tcpip struct {
	Host       string
	Port       uint32
	Origin     string
	OriginPort uint32
}

// forward connects a client to a port that the instance can reach.
func forward(ctx context.Context, asked ssh.NewChannel, _ wire.Preamble) {
	var to tcpip
	if ssh.Unmarshal(asked.ExtraData(), &to) != nil || to.Port > 65535 {
		_ = asked.Reject(ssh.ConnectionFailed, "malformed address")
		return
	}
	conn, err := (&net.Dialer{Timeout: dialing}).DialContext(ctx, "tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		_ = asked.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	channel, requests, err := asked.Accept()
	if err != nil {
		shut(conn)
		return
	}
	join(channel, requests, conn.(*net.TCPConn))
}

// join copies both ways until both sides said all, and passes each side's end of data
// on by itself: a client that has sent its question still gets its answer.
func join(channel ssh.Channel, requests <-chan *ssh.Request, conn *net.TCPConn) {
	defer shut(conn)
	defer shut(channel)
	sent := make(chan struct{})
	go func() {
		// Requests end when the channel is closed, by whomever: nobody is left to
		// answer, but what was said before still has to arrive.
		ssh.DiscardRequests(requests)
		select {
		case <-sent:
		case <-time.After(lastWords):
		}
		shut(conn)
	}()
	var both sync.WaitGroup
	both.Go(func() {
		defer close(sent)
		_, _ = io.Copy(conn, channel)
		_ = conn.CloseWrite()
	})
	both.Go(func() {
		_, _ = io.Copy(channel, conn)
		_ = channel.CloseWrite()
	})
	both.Wait()
}

// reverse holds the ports on which a connection listens inside the instance
// (tcpip-forward, RFC 4254 §7.1).
type reverse struct {
	conn ssh.Conn

	mu     sync.Mutex
	closed bool
	ports  map[bind]net.Listener
	tasks  sync.WaitGroup
}

func newReverse(conn ssh.Conn) *reverse {
	return &reverse{conn: conn, ports: map[bind]net.Listener{}}
}

// bind is the payload of tcpip-forward and cancel-tcpip-forward.
type bind struct {
	Host string
	Port uint32
}

func (r *reverse) serve(ctx context.Context, requests <-chan *ssh.Request) {
	for req := range requests {
		var at bind
		ok, answer := false, []byte(nil)
		switch req.Type {
		case "tcpip-forward":
			if ssh.Unmarshal(req.Payload, &at) == nil && at.Port <= 65535 {
				var port uint32
				if port, ok = r.listen(ctx, at); ok && at.Port == 0 {
					answer = ssh.Marshal(struct{ Port uint32 }{port})
				}
			}
		case "cancel-tcpip-forward":
			ok = ssh.Unmarshal(req.Payload, &at) == nil && r.cancel(at)
		}
		if req.WantReply {
			_ = req.Reply(ok, answer)
		}
	}
}

func (r *reverse) listen(ctx context.Context, at bind) (uint32, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.ports) >= maxListeners {
		return 0, false
	}
	host := at.Host
	if host == "localhost" {
		host = "127.0.0.1"
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(at.Port))))
	if err != nil {
		return 0, false
	}
	port := uint32(listener.Addr().(*net.TCPAddr).Port)
	named := bind{at.Host, port}
	r.ports[named] = listener
	r.tasks.Go(func() { r.accept(named, listener) })
	return port, true
}

func (r *reverse) accept(at bind, listener net.Listener) {
	slots := make(chan struct{}, maxChannels)
	for {
		slots <- struct{}{}
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		r.tasks.Go(func() {
			defer func() { <-slots }()
			r.offer(at, conn.(*net.TCPConn))
		})
	}
}

// offer hands one connection to the client, who may refuse it.
func (r *reverse) offer(at bind, conn *net.TCPConn) {
	from := conn.RemoteAddr().(*net.TCPAddr)
	channel, requests, err := r.conn.OpenChannel("forwarded-tcpip", ssh.Marshal(tcpip{
		Host: at.Host, Port: at.Port, Origin: from.IP.String(), OriginPort: uint32(from.Port),
	}))
	if err != nil {
		shut(conn)
		return
	}
	join(channel, requests, conn)
}

func (r *reverse) cancel(at bind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	listener, ok := r.ports[at]
	delete(r.ports, at)
	return ok && listener.Close() == nil
}

// close ends all listening. Connections end with the SSH connection.
func (r *reverse) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for at, listener := range r.ports {
		shut(listener)
		delete(r.ports, at)
	}
}
