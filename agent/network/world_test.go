package network_test

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/tranche-cloud/tranche/agent/network"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Addresses of the world outside. TEST-NETs and 2001:db8::/32 play the Internet.
const (
	hostV4, hostV6       = "198.51.100.2", "2001:db8:1::2"
	clientV4, clientV6   = "198.51.100.1", "2001:db8:1::1"
	serverV4, serverV6   = "203.0.113.9", "2001:db8:9::9"
	privateV4, privateV6 = "10.9.9.9", "fd99::9"
	registryV4           = "192.168.77.7" // private, allowed by the operator
	deniedV4             = "203.0.113.66" // public, denied by the operator
	metadataV4           = "169.254.169.254"
	managementV4         = "192.0.2.10" // behind another interface of the host
	hostManagementV4     = "192.0.2.1"
	port                 = "8000"
	firstPort, lastPort  = 21000, 21009
)

// world is a host with an uplink to a client, which is also the Internet, and a
// management network.
type world struct {
	t                  *testing.T
	client, management *machine
	config             network.Config
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, client: start(t), management: start(t)}
	require.NoError(t, configure(order{Do: "up", Link: "lo"}))
	w.cable("up0", w.client)
	w.cable("mgmt0", w.management)
	for _, a := range []string{hostV4 + "/24", hostV6 + "/64"} {
		require.NoError(t, configure(order{Do: "address", Link: "up0", Address: a}))
	}
	require.NoError(t, configure(order{Do: "address", Link: "mgmt0", Address: hostManagementV4 + "/24"}))
	w.management.must(order{Do: "address", Link: "eth0", Address: managementV4 + "/24"})
	w.management.must(order{Do: "route", Link: "eth0", Address: hostManagementV4})
	for _, a := range []string{clientV4 + "/24", clientV6 + "/64"} {
		w.client.must(order{Do: "address", Link: "eth0", Address: a})
	}
	for _, a := range []string{serverV4, privateV4, registryV4, deniedV4, metadataV4} {
		w.client.must(order{Do: "address", Link: "lo", Address: a + "/32"})
	}
	for _, a := range []string{serverV6, privateV6} {
		w.client.must(order{Do: "address", Link: "lo", Address: a + "/128"})
	}
	for _, gateway := range []string{clientV4, clientV6} {
		require.NoError(t, configure(order{Do: "route", Link: "up0", Address: gateway}))
	}
	w.client.serve(clientV4, clientV6, serverV4, serverV6, privateV4, privateV6, registryV4, deniedV4, metadataV4)
	w.management.serve(managementV4)
	// The kernel may take a second to see that a cable is plugged in.
	for _, far := range []string{clientV4, clientV6, managementV4} {
		require.Eventually(t, func() bool { return ping(order{Address: far, Wait: impatient}) == nil }, 10*time.Second, time.Millisecond, far)
	}
	w.config = network.Config{
		Range: netip.MustParsePrefix("10.213.0.0/24"), Range6: netip.MustParsePrefix("fd54:726e::/64"),
		Ports:    network.PortRange{First: firstPort, Last: lastPort},
		Deny:     []netip.Prefix{netip.MustParsePrefix(deniedV4 + "/32")},
		Allow:    []netip.Prefix{netip.MustParsePrefix("192.168.77.0/24")},
		StateDir: filepath.Join(t.TempDir(), "network"),
	}
	return w
}

// cable joins a new interface of the host to eth0 of a machine.
func (w *world) cable(name string, m *machine) {
	w.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, 1400
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsPid(m.pid)
	require.NoError(w.t, netlink.LinkAdd(veth))
}

// serve answers on the machine's port, TCP and UDP. Datagrams are answered from the
// address that they were sent to, so each address has a socket of its own.
func (m *machine) serve(addresses ...string) {
	m.t.Helper()
	for _, a := range addresses {
		version := "4"
		if strings.Contains(a, ":") {
			version = "6"
		}
		for _, n := range []string{"tcp", "udp"} {
			m.must(order{Do: "listen", Network: n + version, Address: at(a)})
		}
	}
}

func (w *world) open() *network.Manager {
	w.t.Helper()
	m, err := network.Open(w.t.Context(), w.config)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = m.Close() })
	return m
}

// instance is an attached machine.
type instance struct {
	*machine
	network.Address
	attachment network.Attachment
}

func (w *world) attach(m *network.Manager, org, name string, ports ...runtime.Port) *instance {
	w.t.Helper()
	box := start(w.t)
	i := &instance{machine: box, attachment: network.Attachment{Name: name, Org: org, PID: box.pid, Ports: ports}}
	var err error
	i.Address, err = m.Attach(w.t.Context(), i.attachment)
	require.NoError(w.t, err)
	for _, a := range []netip.Addr{i.IPv4, i.IPv6} {
		if a.IsValid() {
			box.serve(a.String())
		}
	}
	return i
}

func at(host string) string { return net.JoinHostPort(host, port) }

// footprint is everything that the package leaves on the host: links, chains with
// their number of rules, objects.
func footprint(t *testing.T) []string {
	t.Helper()
	var all []string
	links, err := netlink.LinkList()
	require.NoError(t, err)
	for _, l := range links {
		all = append(all, "link "+l.Attrs().Name)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	require.NoError(t, err)
	for _, r := range routes {
		all = append(all, "route "+r.String())
	}
	conn, err := nftables.New()
	require.NoError(t, err)
	chains, err := conn.ListChains()
	require.NoError(t, err)
	for _, c := range chains {
		rules, err := conn.GetRules(c.Table, c)
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("chain %s %s %d", c.Table.Name, c.Name, len(rules)))
	}
	tables, err := conn.ListTables()
	require.NoError(t, err)
	for _, table := range tables {
		objects, err := conn.GetNamedObjects(table)
		require.NoError(t, err)
		for _, o := range objects {
			all = append(all, "object "+o.(*nftables.NamedObj).Name)
		}
		sets, err := conn.GetSets(table)
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("sets %s %d", table.Name, len(sets)))
	}
	slices.Sort(all)
	return all
}

func tcp(container, host int) runtime.Port {
	return runtime.Port{Container: container, Host: host, Protocol: "tcp"}
}

func udp(container, host int) runtime.Port {
	return runtime.Port{Container: container, Host: host, Protocol: "udp"}
}
