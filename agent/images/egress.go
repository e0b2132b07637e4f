package images

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// egress is the HTTP transport of pulls. Redirects and token servers pass it too, so
// its rules hold wherever a registry sends us.
type egress struct {
	base  *http.Transport
	named map[string]bool // registries, host or host:port, that the operator named
}

func newEgress(named map[string]bool) *egress {
	e := &egress{named: named}
	e.base = &http.Transport{
		DialContext: e.dial, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 4,
	}
	return e
}

// RoundTrip implements http.RoundTripper.
func (e *egress) RoundTrip(req *http.Request) (*http.Response, error) {
	switch u := req.URL; {
	case u.Scheme == "http" && !(e.named[u.Host] && loopback(u.Hostname())):
		return nil, refuse(runtime.ImageRefused, "%s speaks plain HTTP, which is allowed on loopback alone: serve the registry over https", u.Host)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, refuse(runtime.ImageRefused, "%s is reached by %s: only https is allowed", u.Host, u.Scheme)
	case u.Port() != "" && u.Port() != "443" && !e.named[u.Host]:
		return nil, refuse(runtime.ImageRefused, "%s: a port other than 443 needs the registry on the list of allowed images", u.Host)
	}
	return e.base.RoundTrip(req)
}

// dial checks the address that is really connected to, after the name was looked up.
func (e *egress) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if !e.named[address] && !(port == "443" && e.named[host]) {
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			if at, err := netip.ParseAddrPort(address); err != nil || !public(at.Addr()) {
				return refuse(runtime.ImageRefused, "%s is at %s, which is not a public address: the registry must be on the list of allowed images", host, address)
			}
			return nil
		}
	}
	return dialer.DialContext(ctx, network, address)
}

func loopback(host string) bool {
	at, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && at.IsLoopback()
}

// special are blocks that are neither private nor the Internet's hosts: this network,
// carrier NAT, protocol assignments, benchmarks, reserved, and the IPv6 forms that
// hide an IPv4 address.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("2002::/16"),
}

func public(at netip.Addr) bool {
	at = at.Unmap()
	if !at.IsGlobalUnicast() || at.IsPrivate() {
		return false
	}
	for _, block := range special {
		if block.Contains(at) {
			return false
		}
	}
	return true
}
