package network

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/nodeagent/durable"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

const (
	stateFormat = 1
	// linkPrefix begins the name of every link on the host, and of nothing else.
	linkPrefix = "trn-"
	inside     = "eth0"
)

// lease is what one instance holds.
type lease struct {
	Name  string         `json:"name"`
	Org   string         `json:"org"`
	IPv4  netip.Addr     `json:"ipv4"`
	IPv6  netip.Addr     `json:"ipv6,omitzero"`
	Ports []runtime.Port `json:"ports,omitempty"`
	In    tally          `json:"in"`
	Out   tally          `json:"out"`
}

// tally is a counter that outlives the kernel's: Base is what earlier counters
// of the kernel reached, Last what the present one showed when it was read.
type tally struct {
	Base uint64 `json:"base"`
	Last uint64 `json:"last"`
}

// see takes a reading of the kernel's counter; a smaller one than before means that
// it began again.
func (t *tally) see(now uint64) {
	if now < t.Last {
		t.fold()
	}
	t.Last = now
}

// fold is called when the kernel's counter is gone.
func (t *tally) fold() { t.Base, t.Last = t.Base+t.Last, 0 }

func (t tally) sum() int64 { return int64(t.Base + t.Last) }

// key is the part of names that stands for the instance: 55 bits of a hash, so that a
// link's name fits into 15 characters.
func key(name string) string {
	sum := sha256.Sum256([]byte(name))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:11]
}

func (l *lease) key() string  { return key(l.Name) }
func (l *lease) link() string { return linkPrefix + l.key() }

// mac is the Ethernet address of an instance: locally administered, made of its
// IPv4 address and so unique on the host.
func (l *lease) mac() net.HardwareAddr { return macOf(l.IPv4) }

func macOf(a netip.Addr) net.HardwareAddr {
	b := a.As4()
	return net.HardwareAddr{0x0a, 0x54, b[0], b[1], b[2], b[3]}
}

// state is the file of leases.
type state struct {
	Format int               `json:"format"`
	Next   uint32            `json:"next"` // address to try first: the longest unused
	Leases map[string]*lease `json:"leases"`
	// Boot names the boot in which Before was recorded: the host's settings before
	// the first manager changed them, by path below /proc/sys.
	Boot   string            `json:"boot"`
	Before map[string]string `json:"before"`
}

// sorted returns the leases by name.
func (s *state) sorted() []*lease {
	return slices.SortedFunc(maps.Values(s.Leases), func(a, b *lease) int { return strings.Compare(a.Name, b.Name) })
}

// loadState reads the file; a missing one is an empty state.
func loadState(dir string) (*state, error) {
	s := &state{Format: stateFormat}
	text, err := os.ReadFile(filepath.Join(dir, "network.json"))
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, broken("open", "", "read the leases in "+dir+": restore or remove network.json, then drain the host", err)
	}
	if s.Format != stateFormat {
		return nil, runtime.Refuse(runtime.Broken, "open", "", "the leases in %s have format %d, this agent knows %d: run the agent that wrote them", dir, s.Format, stateFormat)
	}
	if s.Leases == nil {
		s.Leases = map[string]*lease{}
	}
	if s.Before == nil {
		s.Before = map[string]string{}
	}
	return s, nil
}

// save replaces the file as a whole; it is on the disk when save returns.
func (s *state) save(dir string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(dir, "network.json"), text)
}

// lock keeps a second manager off the folder until the file is closed.
func lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, broken("open", "", "make the folder of the leases", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, broken("open", "", "open the lock of the leases", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, runtime.Refuse(runtime.Unavailable, "open", "", "another agent manages the network from %s: stop it first", dir).Because(err)
	}
	return f, nil
}

// allocate takes the address that was not used for the longest time.
func (s *state) allocate(c Config, name string) (uint32, error) {
	held := make(map[netip.Addr]bool, len(s.Leases))
	for _, l := range s.Leases {
		held[l.IPv4] = true
	}
	const first = 2 // after the network's own address and the gateway
	usable := c.size() - first - 1
	for i := range usable {
		n := first + (max(s.Next, first)-first+i)%usable
		if !held[c.address4(n)] {
			s.Next = first + (n-first+1)%usable
			return n, nil
		}
	}
	return 0, runtime.Refuse(AddressesExhausted, "attach", name,
		"all %d addresses of %s are held: remove instances or give the host a larger range", usable, c.Range)
}

// lend sets the ports of a lease: those wanted, with host ports of 0 filled in. Ports
// that it does not hold already must be free on the host.
func (s *state) lend(ctx context.Context, c Config, l *lease, want []runtime.Port) ([]runtime.Port, error) {
	taken := map[string]string{}
	for _, other := range s.Leases {
		for _, p := range other.Ports {
			if other != l {
				taken[hostPort(p)] = other.Name
			}
		}
	}
	given := make([]runtime.Port, 0, len(want))
	for _, p := range want {
		if p.Host == 0 {
			p.Host = l.holds(p)
		}
		if p.Host != 0 {
			if err := claim(ctx, c, l, p, taken); err != nil {
				return nil, err
			}
			taken[hostPort(p)] = l.Name
		}
		given = append(given, p)
	}
	for i, p := range given {
		if p.Host != 0 {
			continue
		}
		port, err := c.Ports.free(ctx, l.Name, p, taken)
		if err != nil {
			return nil, err
		}
		given[i].Host = port
		taken[hostPort(given[i])] = l.Name
	}
	return given, nil
}

// claim refuses a named host port that is not to be had.
func claim(ctx context.Context, c Config, l *lease, p runtime.Port, taken map[string]string) error {
	if !c.Ports.none() && !c.Ports.contains(p.Host) {
		return runtime.Refuse(runtime.LimitInvalid, "attach", l.Name,
			"the host port %d is outside the leased range %d-%d: name one inside or 0", p.Host, c.Ports.First, c.Ports.Last)
	}
	if owner, ok := taken[hostPort(p)]; ok {
		return runtime.Refuse(runtime.PortInUse, "attach", l.Name,
			"the host port %s is published by %s: choose another one or 0", hostPort(p), owner)
	}
	if slices.ContainsFunc(l.Ports, func(held runtime.Port) bool { return hostPort(held) == hostPort(p) }) {
		return nil
	}
	if err := vacant(ctx, p); err != nil {
		return runtime.Refuse(runtime.PortInUse, "attach", l.Name,
			"a program of the host listens on port %s: choose another one or 0, or stop it", hostPort(p)).Because(err)
	}
	return nil
}

// free finds a host port for p that nobody has.
func (r PortRange) free(ctx context.Context, name string, p runtime.Port, taken map[string]string) (int, error) {
	if r.none() {
		return 0, runtime.Refuse(runtime.LimitInvalid, "attach", name,
			"the host leases no ports, so it cannot choose one for %d/%s: name a host port", p.Container, p.Protocol)
	}
	for p.Host = r.First; p.Host <= r.Last; p.Host++ {
		if _, ok := taken[hostPort(p)]; !ok && vacant(ctx, p) == nil {
			return p.Host, nil
		}
	}
	return 0, runtime.Refuse(PortsExhausted, "attach", name,
		"all ports %d-%d are held: remove instances or give the host a larger range", r.First, r.Last)
}

// holds returns the host port that the lease has for the same port of the
// instance, 0 if none.
func (l *lease) holds(p runtime.Port) int {
	for _, held := range l.Ports {
		if held.Container == p.Container && held.Protocol == p.Protocol {
			return held.Host
		}
	}
	return 0
}

func hostPort(p runtime.Port) string { return fmt.Sprintf("%d/%s", p.Host, p.Protocol) }

// vacant binds the port on every address of the host for a moment: an address in use
// is somebody else's listener.
func vacant(ctx context.Context, p runtime.Port) error {
	var config net.ListenConfig
	for _, version := range []string{"4", "6"} {
		var err error
		address := fmt.Sprintf(":%d", p.Host)
		if p.Protocol == "udp" {
			var c net.PacketConn
			if c, err = config.ListenPacket(ctx, "udp"+version, address); err == nil {
				err = c.Close()
			}
		} else {
			var l net.Listener
			if l, err = config.Listen(ctx, "tcp"+version, address); err == nil {
				err = l.Close()
			}
		}
		if errors.Is(err, unix.EADDRINUSE) {
			return err
		}
	}
	return nil
}
