package network_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatInstancesReach(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	m := w.open()
	a1, a2 := w.attach(m, "org_a", "asg_a1"), w.attach(m, "org_a", "asg_a2")
	b1, b2 := w.attach(m, "org_b", "asg_b1"), w.attach(m, "org_b", "asg_b2")

	for _, pair := range [][2]*instance{{a1, a2}, {a2, a1}, {b1, b2}} {
		for _, n := range []string{"tcp4", "udp4"} {
			require.Equal(t, pair[0].IPv4.String(), pair[0].reaches(n, at(pair[1].IPv4.String())), "own organization sees the true source")
		}
		for _, n := range []string{"tcp6", "udp6"} {
			require.Equal(t, pair[0].IPv6.String(), pair[0].reaches(n, at(pair[1].IPv6.String())))
		}
		pair[0].must(order{Do: "ping", Address: pair[1].IPv4.String()})
		pair[0].must(order{Do: "ping", Address: pair[1].IPv6.String()})
	}
	for _, pair := range [][2]*instance{{a1, b1}, {b2, a2}} {
		for _, n := range []string{"tcp4", "udp4"} {
			pair[0].refused(n, at(pair[1].IPv4.String()))
		}
		for _, n := range []string{"tcp6", "udp6"} {
			pair[0].refused(n, at(pair[1].IPv6.String()))
		}
		_, err := pair[0].try(order{Do: "ping", Address: pair[1].IPv4.String(), Wait: impatient})
		require.Error(t, err)
		_, err = pair[0].try(order{Do: "ping", Address: pair[1].IPv6.String(), Wait: impatient})
		require.Error(t, err)
	}

	for _, n := range []string{"tcp4", "udp4"} {
		require.Equal(t, hostV4, a1.reaches(n, at(serverV4)), "the way out is masqueraded")
	}
	for _, n := range []string{"tcp6", "udp6"} {
		require.Equal(t, hostV6, a1.reaches(n, at(serverV6)))
	}
	a1.reaches("tcp4", at(registryV4))

	host := &hand{seen: map[string]bool{}}
	for _, n := range []string{"tcp4", "tcp6", "udp4", "udp6"} {
		_, err := host.do(order{Do: "listen", Network: n, Address: ":" + port})
		require.NoError(t, err)
	}
	for _, n := range []string{"tcp4", "udp4"} {
		for _, to := range []string{hostV4, hostManagementV4, a1.Gateway4.String(), privateV4, deniedV4, metadataV4, managementV4, "192.168.1.1", "100.64.0.1"} {
			a1.refused(n, at(to))
		}
	}
	for _, n := range []string{"tcp6", "udp6"} {
		for _, to := range []string{hostV6, privateV6, "fd54:726e::ff", "64:ff9b::a09:909"} {
			a1.refused(n, at(to))
		}
	}
	a1.unreachable("tcp6", at("fe80::1%eth0"))
	a1.unreachable("udp6", at("fe80::1%eth0"))
	require.Empty(t, host.seen, "no datagram of an instance reached the host")
}

func TestSpoofedSourcesAreDropped(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	m := w.open()
	a1, a2 := w.attach(m, "org_a", "asg_a1"), w.attach(m, "org_a", "asg_a2")
	a1.must(order{Do: "address", Link: "eth0", Address: a2.IPv4.Next().String() + "/32"})
	a1.must(order{Do: "address", Link: "eth0", Address: a2.IPv6.Next().String() + "/128"})
	spoof := func(n, source, to string) {
		_, err := a1.try(order{Do: "dial", Network: n, Source: source, Address: at(to), Wait: impatient})
		require.Error(t, err)
	}
	spoof("udp4", a2.IPv4.Next().String(), a2.IPv4.String())
	spoof("udp4", a2.IPv4.Next().String(), serverV4)
	spoof("udp6", a2.IPv6.Next().String(), a2.IPv6.String())
	spoof("udp6", a2.IPv6.Next().String(), serverV6)
	require.Empty(t, w.client.must(order{Do: "seen"}))
	require.Empty(t, a2.must(order{Do: "seen"}))

	a1.reaches("udp4", at(a2.IPv4.String()))
	a1.must(order{Do: "mac", Link: "eth0", Address: "0a:54:0a:d5:00:77"})
	a1.unreachable("udp4", at(a2.IPv4.String()))
	a1.unreachable("udp6", at(a2.IPv6.String()))
	require.Equal(t, a1.IPv4.String(), a2.must(order{Do: "seen"}), "only what it sent as itself arrived")

	w.client.must(order{Do: "address", Link: "eth0", Address: "10.213.0.99/24"})
	w.client.unreachable("udp4", at(a2.IPv4.String()))
	require.Equal(t, a1.IPv4.String(), a2.must(order{Do: "seen"}), "nobody outside plays an instance")
}

func TestPublishedPorts(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	m := w.open()
	a1 := w.attach(m, "org_a", "asg_a1", tcp(8000, 21005), udp(8000, 21005), tcp(22, 0))
	a2 := w.attach(m, "org_a", "asg_a2")
	require.Equal(t, hostV4, a1.Host.String())
	require.Equal(t, firstPort, a1.Ports[2].Host, "a port is leased from the range")

	for _, n := range []string{"tcp4", "udp4"} {
		require.Equal(t, clientV4, w.client.reaches(n, net.JoinHostPort(hostV4, "21005")), "the caller's address is kept")
	}
	for _, n := range []string{"tcp6", "udp6"} {
		require.Equal(t, clientV6, w.client.reaches(n, net.JoinHostPort(hostV6, "21005")))
	}
	seen, err := dial(order{Do: "dial", Network: "tcp4", Address: net.JoinHostPort(hostV4, "21005")})
	require.NoError(t, err, "the host itself reaches what it publishes")
	require.NotEmpty(t, seen)

	a2.refused("tcp4", net.JoinHostPort(hostV4, "21005"))
	a1.refused("tcp4", net.JoinHostPort(hostV4, "21005"))
	w.management.unreachable("tcp4", net.JoinHostPort(hostManagementV4, "21005"))
	w.client.must(order{Do: "route", Link: "eth0", Address: hostV4})
	w.client.unreachable("tcp4", at(a1.IPv4.String()))
	w.management.unreachable("tcp4", at(serverV4))

	require.NoError(t, m.Detach(t.Context(), "asg_a1"))
	w.client.unreachable("tcp4", net.JoinHostPort(hostV4, strconv.Itoa(21005)))
}
