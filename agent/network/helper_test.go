package network_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
)

// The test binary plays three parts: the test itself, the same test again inside a
// network namespace of its own (the host), and the machines around and inside that
// host, each in a namespace of its own and obeying orders on stdin.
const (
	roleVariable     = "TRANCHE_NETWORK_TEST_ROLE"
	isolatedVariable = "TRANCHE_NETWORK_TEST_ISOLATED"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		obey(os.Stdin, os.Stdout)
		return
	}
	os.Exit(m.Run())
}

// isolated runs the calling test in a fresh network namespace and returns false; in
// there it returns true.
func isolated(t *testing.T) bool {
	t.Helper()
	if os.Getenv(isolatedVariable) == t.Name() {
		// A new namespace takes over what the machine's own forwards.
		for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			require.NoError(t, os.WriteFile("/proc/sys/net/"+path, []byte("0"), 0))
		}
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=120s")
	cmd.Env = append(os.Environ(), isolatedVariable+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Log(string(out))
	require.NoError(t, err)
	require.Contains(t, string(out), "--- PASS: "+t.Name(), "the test must have run inside")
	return false
}

type order struct {
	Do      string // address, route, remove, mac, listen, dial, send, ping, seen
	Link    string
	Network string // tcp4, tcp6, udp4, udp6
	Address string
	Source  string
	Count   int
	Wait    time.Duration // for an answer; 0 is a patient time
}

type answer struct{ Text, Error string }

// machine is a process in a network namespace of its own.
type machine struct {
	t   *testing.T
	pid int
	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T) *machine {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=machine")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		_ = cmd.Wait()
	})
	m := &machine{t: t, pid: cmd.Process.Pid, in: in, out: bufio.NewReader(out)}
	m.must(order{Do: "up", Link: "lo"})
	return m
}

func (m *machine) try(o order) (string, error) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	text, err := json.Marshal(o)
	require.NoError(m.t, err)
	_, err = m.in.Write(append(text, '\n'))
	require.NoError(m.t, err)
	line, err := m.out.ReadBytes('\n')
	require.NoError(m.t, err)
	var a answer
	require.NoError(m.t, json.Unmarshal(line, &a))
	if a.Error != "" {
		return a.Text, errors.New(a.Error)
	}
	return a.Text, nil
}

func (m *machine) must(o order) string {
	m.t.Helper()
	text, err := m.try(o)
	require.NoError(m.t, err, "%+v", o)
	return text
}

// dial returns what the far side says it saw as the caller's address.
func (m *machine) dial(network, address string) (string, error) {
	m.t.Helper()
	text, err := m.try(order{Do: "dial", Network: network, Address: address})
	if err != nil {
		return "", err
	}
	seen, _, err := net.SplitHostPort(text)
	require.NoError(m.t, err)
	return seen, nil
}

func (m *machine) reaches(network, address string) string {
	m.t.Helper()
	seen, err := m.dial(network, address)
	require.NoError(m.t, err, "%s %s", network, address)
	return seen
}

// refused wants an error at once: a program must not hang. The kernel sends few ICMP
// errors a second, so only TCP has this promise.
func (m *machine) refused(network, address string) {
	m.t.Helper()
	if strings.HasPrefix(network, "udp") {
		m.unreachable(network, address)
		return
	}
	_, err := m.dial(network, address)
	require.Error(m.t, err, "%s %s", network, address)
	require.NotContains(m.t, err.Error(), "timeout", "%s %s", network, address)
}

// unreachable wants an error, at once or not.
func (m *machine) unreachable(network, address string) {
	m.t.Helper()
	_, err := m.try(order{Do: "dial", Network: network, Address: address, Wait: impatient})
	require.Error(m.t, err, "%s %s", network, address)
}

// Times to wait: for what shall come, and for what shall not.
const patient, impatient = 10 * time.Second, 300 * time.Millisecond

func obey(in io.Reader, out io.Writer) {
	h := &hand{seen: map[string]bool{}}
	encoder := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var o order
		err := json.Unmarshal(lines.Bytes(), &o)
		var text string
		if err == nil {
			text, err = h.do(o)
		}
		a := answer{Text: text}
		if err != nil {
			a.Error = err.Error()
		}
		if encoder.Encode(a) != nil {
			return
		}
	}
}

// hand does what a machine is told.
type hand struct {
	mu   sync.Mutex
	seen map[string]bool // sources of datagrams
}

func (h *hand) do(o order) (string, error) {
	switch o.Do {
	case "up", "address", "remove", "route", "mac":
		return "", configure(o)
	case "listen":
		if strings.HasPrefix(o.Network, "udp") {
			return "", h.listenPackets(o)
		}
		return "", h.listen(o)
	case "dial", "send":
		return dial(o)
	case "ping":
		return "", ping(o)
	case "seen":
		h.mu.Lock()
		defer h.mu.Unlock()
		var all []string
		for s := range h.seen {
			all = append(all, s)
		}
		slices.Sort(all)
		return strings.Join(all, " "), nil
	}
	return "", fmt.Errorf("unknown order %q", o.Do)
}

func configure(o order) error {
	link, err := netlink.LinkByName(o.Link)
	if err != nil {
		return err
	}
	switch o.Do {
	case "address", "remove":
		a, err := netlink.ParseAddr(o.Address)
		if err != nil {
			return err
		}
		if a.IP.To4() == nil {
			a.Flags = syscall.IFA_F_NODAD
		}
		if o.Do == "remove" {
			return netlink.AddrDel(link, a)
		}
		return errors.Join(netlink.AddrAdd(link, a), netlink.LinkSetUp(link))
	case "route":
		return netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(o.Address)})
	case "mac":
		mac, err := net.ParseMAC(o.Address)
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(link, mac)
	}
	return netlink.LinkSetUp(link)
}

// listen greets each caller with the caller's address and swallows the rest.
func (h *hand) listen(o order) error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), o.Network, o.Address)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintln(c, c.RemoteAddr())
				_, _ = io.Copy(io.Discard, c)
				fmt.Fprintln(c, "done")
			}()
		}
	}()
	return nil
}

func (h *hand) listenPackets(o order) error {
	l, err := (&net.ListenConfig{}).ListenPacket(context.Background(), o.Network, o.Address)
	if err != nil {
		return err
	}
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			_, from, err := l.ReadFrom(buffer)
			if err != nil {
				return
			}
			source, _, _ := net.SplitHostPort(from.String())
			h.mu.Lock()
			h.seen[source] = true
			h.mu.Unlock()
			_, _ = l.WriteTo([]byte(from.String()+"\n"), from)
		}
	}()
	return nil
}

// dial connects, reads the greeting and, for send, writes Count bytes and waits until
// all arrived.
func dial(o order) (string, error) {
	wait := cmp.Or(o.Wait, patient)
	d := net.Dialer{Timeout: wait}
	if o.Source != "" {
		if ip := net.ParseIP(o.Source); strings.HasPrefix(o.Network, "udp") {
			d.LocalAddr = &net.UDPAddr{IP: ip}
		} else {
			d.LocalAddr = &net.TCPAddr{IP: ip}
		}
	}
	c, err := d.Dial(o.Network, o.Address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if strings.HasPrefix(o.Network, "udp") {
		if _, err := c.Write([]byte("x")); err != nil {
			return "", err
		}
	}
	reader := bufio.NewReader(c)
	greeting, err := reader.ReadString('\n')
	if err != nil || o.Do == "dial" {
		return strings.TrimSpace(greeting), err
	}
	if _, err := c.Write(make([]byte, o.Count)); err != nil {
		return "", err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	return reader.ReadString('\n')
}

// ping sends one echo request and waits for its reply.
func ping(o order) error {
	network, request, reply, skip := "ip4:icmp", byte(8), byte(0), 20
	if strings.Contains(o.Address, ":") {
		network, request, reply, skip = "ip6:ipv6-icmp", 128, 129, 0
	}
	wait := cmp.Or(o.Wait, patient)
	c, err := net.DialTimeout(network, o.Address, wait)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	packet := []byte{request, 0, 0, 0, 0, 1, 0, 1}
	if request == 8 {
		var sum uint32
		for i := 0; i < len(packet); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(packet[i:]))
		}
		binary.BigEndian.PutUint16(packet[2:], ^uint16(sum))
	}
	if _, err := c.Write(packet); err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			return err
		}
		if n > skip && buffer[skip] == reply {
			return nil
		}
	}
}
