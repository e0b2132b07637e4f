package network

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// among matches connections with an end in a set of addresses.
type among map[netip.Addr]bool

// MatchConntrackFlow looks at the side that the instance is on: it opened the
// connection, or answers it under its own address.
func (a among) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	opener, _ := netip.AddrFromSlice(f.Forward.SrcIP)
	answerer, _ := netip.AddrFromSlice(f.Reverse.SrcIP)
	return a[opener.Unmap()] || a[answerer.Unmap()]
}

// forget removes the connections of leases, so that the next holder of an address
// inherits none.
func (m *Manager) forget(leases map[string]*lease) error {
	ends := map[netlink.InetFamily]among{unix.AF_INET: {}, unix.AF_INET6: {}}
	for _, l := range leases {
		for _, a := range l.addresses() {
			if a.Is6() {
				ends[unix.AF_INET6][a] = true
			} else {
				ends[unix.AF_INET][a] = true
			}
		}
	}
	for family, addresses := range ends {
		if len(addresses) == 0 {
			continue
		}
		if _, err := m.h.ConntrackDeleteFilters(netlink.ConntrackTable, family, addresses); err != nil {
			return err
		}
	}
	return nil
}
