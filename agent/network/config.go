package network

import (
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// defaultConnections is how many connections an instance may have open when the
// settings do not say.
const defaultConnections = 16384

// PortRange is the inclusive range of host ports that may be published; the zero
// value leases none, and lets a caller publish any port that it names.
type PortRange struct{ First, Last int }

func (r PortRange) none() bool { return r == PortRange{} }

func (r PortRange) contains(port int) bool { return port >= r.First && port <= r.Last }

// Config is what a Manager works with.
type Config struct {
	// Range is the host's pool of IPv4 addresses, /8 to /29. The first address is the
	// gateway of every instance.
	Range netip.Prefix
	// Range6 is the pool of IPv6 addresses, at most /96, best a unique local one. The
	// zero value switches IPv6 off in every instance; so does a kernel without it.
	Range6 netip.Prefix
	// Uplink is the interface that leads to the Internet; "" is that of the default
	// route.
	Uplink string
	Ports  PortRange
	// Deny are the operator's own networks beyond those that are always denied:
	// management, baseboard controllers, storage. They win over Allow and Resolvers.
	Deny []netip.Prefix
	// Allow are private networks that instances may reach, such as a registry's.
	Allow []netip.Prefix
	// Resolvers may be asked for names (port 53) even in a private network.
	Resolvers []netip.Addr
	// MbitPerInstance limits each direction; 0 is no limit.
	MbitPerInstance int
	// Connections is how many connections an instance may have open at a time, so that
	// it cannot fill the host's table; 0 is 16384.
	Connections int
	// StateDir holds the leases.
	StateDir string
	// Before is called with its name before each step that changes the kernel or the
	// disk; an error stops there. Tests use it; nil is none.
	Before func(step string) error
}

// check refuses settings that cannot work and fills in the defaults.
func (c Config) check() (Config, error) {
	bad := func(format string, args ...any) (Config, error) {
		return c, runtime.Refuse(runtime.LimitInvalid, "open", "", format, args...)
	}
	c.Range, c.Range6 = c.Range.Masked(), c.Range6.Masked()
	switch {
	case !c.Range.IsValid() || !c.Range.Addr().Is4() || c.Range.Bits() < 8 || c.Range.Bits() > 29:
		return bad("the address range %q is not an IPv4 network of /8 to /29: give one that nothing else uses, for example 10.213.0.0/16", c.Range)
	case c.Range6.IsValid() && (!c.Range6.Addr().Is6() || c.Range6.Addr().Is4In6() || c.Range6.Bits() > 96):
		return bad("the address range %q is not an IPv6 network of at most /96: give a unique local one, for example fd54:726e::/64, or none to switch IPv6 off", c.Range6)
	case !c.Ports.none() && (c.Ports.First < 1 || c.Ports.Last > 65535 || c.Ports.First > c.Ports.Last):
		return bad("the port range %d-%d is empty or outside 1-65535: give first and last", c.Ports.First, c.Ports.Last)
	case c.MbitPerInstance < 0 || c.MbitPerInstance > 100_000:
		return bad("a limit of %d Mbit/s is outside 1-100000: give 0 for none", c.MbitPerInstance)
	case c.Connections < 0 || c.Connections > 10_000_000:
		return bad("a limit of %d connections is outside 1-10000000: give 0 for %d", c.Connections, defaultConnections)
	case c.StateDir == "":
		return bad("no folder for the leases: name one that survives a reboot")
	case len(c.Uplink) > 15:
		return bad("the uplink %q is no interface name: they have at most 15 characters", c.Uplink)
	}
	for _, list := range [][]netip.Prefix{c.Deny, c.Allow} {
		if i := slices.IndexFunc(list, func(p netip.Prefix) bool { return !p.IsValid() || p.Addr().Is4In6() }); i >= 0 {
			return bad("%q is no network: write it as 10.0.0.0/8 or fd00::/8", list[i])
		}
	}
	if i := slices.IndexFunc(c.Resolvers, func(a netip.Addr) bool { return !a.IsValid() || a.IsLoopback() || a.Zone() != "" }); i >= 0 {
		return bad("instances cannot reach the resolver %q: name one that answers on the network", c.Resolvers[i])
	}
	if c.Connections == 0 {
		c.Connections = defaultConnections
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		c.Range6 = netip.Prefix{}
	}
	if c.Before == nil {
		c.Before = func(string) error { return nil }
	}
	return c, nil
}

// gateway4 is the first address of the pool, which every link has on the host.
func (c Config) gateway4() netip.Addr { return c.Range.Addr().Next() }

// gateway6 is the address of the host on every link.
var gateway6 = netip.MustParseAddr("fe80::1")

// address4 is the nth address of the pool.
func (c Config) address4(n uint32) netip.Addr {
	b := c.Range.Addr().As4()
	v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	v += n
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// address6 is the nth address of the IPv6 pool, the zero value if IPv6 is off.
func (c Config) address6(n uint32) netip.Addr {
	if !c.Range6.IsValid() {
		return netip.Addr{}
	}
	b := c.Range6.Addr().As16()
	b[12], b[13], b[14], b[15] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return netip.AddrFrom16(b)
}

// size is the number of addresses in the IPv4 pool, those at its ends included.
func (c Config) size() uint32 { return 1 << (32 - c.Range.Bits()) }

// Attachment asks for a network for one instance.
type Attachment struct {
	Name string // assignment id
	Org  string // organization id
	PID  int    // a process in the network namespace to attach
	// Ports to publish; a host port of 0 is leased from the range and kept for as
	// long as the attachment.
	Ports []runtime.Port
}

func (a Attachment) check() error {
	bad := func(format string, args ...any) error {
		return runtime.Refuse(runtime.LimitInvalid, "attach", a.Name, format, args...)
	}
	if a.Name == "" || a.Org == "" || a.PID <= 0 {
		return bad("an attachment needs a name, an organization and a process; got %q, %q, %d", a.Name, a.Org, a.PID)
	}
	seen := map[string]bool{}
	for _, p := range a.Ports {
		if p.Protocol != "tcp" && p.Protocol != "udp" {
			return bad("a port's protocol is tcp or udp, not %q", p.Protocol)
		}
		if p.Container < 1 || p.Container > 65535 || p.Host < 0 || p.Host > 65535 {
			return bad("a port is 1 to 65535, not %d on %d", p.Container, p.Host)
		}
		for _, key := range []string{fmt.Sprintf("c%d/%s", p.Container, p.Protocol), fmt.Sprintf("h%d/%s", p.Host, p.Protocol)} {
			if seen[key] && (key[0] == 'c' || p.Host != 0) {
				return bad("the port %d/%s is named twice: publish each once", p.Container, p.Protocol)
			}
			seen[key] = true
		}
	}
	return nil
}

// Address is what an instance got.
type Address struct {
	Name, Org string
	Interface string // inside the instance
	IPv4      netip.Addr
	IPv6      netip.Addr // invalid if IPv6 is off
	Gateway4  netip.Addr
	Gateway6  netip.Addr // invalid if IPv6 is off
	// Host is the address under which the published ports are reached: the uplink's
	// first global one. Invalid if it has none.
	Host      netip.Addr
	Ports     []runtime.Port // host ports filled in
	Resolvers []netip.Addr
}

// Bytes are IP bytes between an instance and the uplink since it was first
// attached. What was dropped, refused, or stayed on the host is not in them.
type Bytes struct{ In, Out int64 }
