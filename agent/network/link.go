package network

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// longestPacket is the most that the kernel lets a link of ours carry at once, in
// bytes. The loopback, which stands for the way out where nothing leads out, takes one
// more.
const longestPacket = 65535

// step is one change, with the name that errors and tests know it by.
type step struct {
	name string
	run  func() error
}

// take runs steps in order and stops at the first that fails.
func (m *Manager) take(op, name string, steps ...step) error {
	for _, s := range steps {
		err := m.c.Before(s.name)
		if err == nil {
			err = s.run()
		}
		if err != nil {
			return broken(op, name, s.name, err)
		}
	}
	return nil
}

// connect makes the link of a lease, or completes what is there of it.
func (m *Manager) connect(l *lease, ns *os.File) error {
	uplink, err := m.h.LinkByName(m.uplink)
	if err != nil {
		return runtime.Refuse(runtime.Unavailable, "attach", l.Name, "the uplink %s is gone", m.uplink).Because(err)
	}
	near, err := m.existing(l, ns)
	if err != nil {
		return err
	}
	if near == nil {
		err = m.take("attach", l.Name, step{"make the link", func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.MTU, attrs.HardwareAddr = l.link(), min(uplink.Attrs().MTU, longestPacket), macOf(m.c.gateway4())
			veth := netlink.NewVeth(attrs)
			veth.PeerName, veth.PeerHardwareAddr, veth.PeerNamespace = inside, l.mac(), netlink.NsFd(ns.Fd())
			return m.h.LinkAdd(veth)
		}})
		if err == nil {
			near, err = m.h.LinkByName(l.link())
		}
		if err != nil {
			return broken("attach", l.Name, "make the link", err)
		}
	}
	if err := m.take("attach", l.Name, m.nearSteps(l, near)...); err != nil {
		return err
	}
	return m.take("attach", l.Name, step{"set the instance's side up", func() error {
		return within(ns, func(h *netlink.Handle) error { return m.far(h, l) })
	}}, step{"wait for the link", func() error { return m.ready(near.Attrs().Index) }})
}

// ready waits until the near end sends. The kernel notices the far end coming up a
// moment later, and drops what it is given until then.
func (m *Manager) ready(index int) error {
	const tries = 5000
	for range tries {
		link, err := m.h.LinkByIndex(index)
		if err != nil || link.Attrs().OperState == netlink.OperUp {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("the kernel did not bring the link up within five seconds")
}

// existing returns the near end of the lease's link if its far end is in the
// namespace; a link that leads elsewhere is removed.
func (m *Manager) existing(l *lease, ns *os.File) (netlink.Link, error) {
	near, err := m.h.LinkByName(l.link())
	if missing(err) {
		return nil, nil //nolint:nilnil // none is an answer
	}
	if err != nil {
		return nil, broken("attach", l.Name, "look for the link", err)
	}
	ours := false
	err = within(ns, func(h *netlink.Handle) error {
		far, err := h.LinkByName(inside)
		if missing(err) {
			return nil
		}
		if err == nil {
			ours = far.Type() == "veth" && far.Attrs().ParentIndex == near.Attrs().Index &&
				near.Attrs().ParentIndex == far.Attrs().Index && far.Attrs().HardwareAddr.String() == l.mac().String()
		}
		return err
	})
	if err != nil || ours {
		return near, broken("attach", l.Name, "look at the instance's side", err)
	}
	return nil, m.take("attach", l.Name, step{"remove a stale link", func() error { return m.removeLink(l.link()) }})
}

func missing(err error) bool {
	_, not := errors.AsType[netlink.LinkNotFoundError](err)
	return not || errors.Is(err, unix.ENODEV)
}

// removeLink removes a link and with it its far end, addresses, routes, neighbours.
func (m *Manager) removeLink(name string) error {
	link, err := m.h.LinkByName(name)
	if err == nil {
		err = m.h.LinkDel(link)
	}
	if missing(err) {
		return nil
	}
	return err
}

// staleLinks are links with our kind of name that no lease has.
func (m *Manager) staleLinks() ([]string, error) {
	links, err := m.h.LinkList()
	if err != nil {
		return nil, err
	}
	held := map[string]bool{}
	for _, l := range m.state.Leases {
		held[l.link()] = true
	}
	var stale []string
	for _, link := range links {
		name := link.Attrs().Name
		if link.Type() == "veth" && strings.HasPrefix(name, linkPrefix) && len(name) == len(linkPrefix)+11 && !held[name] {
			stale = append(stale, name)
		}
	}
	return stale, nil
}

// nearSteps set the host's side of a link up.
func (m *Manager) nearSteps(l *lease, near netlink.Link) []step {
	index := near.Attrs().Index
	steps := []step{
		{"name the link's instance", func() error { return m.h.LinkSetAlias(near, l.Name) }},
		{"harden the link", func() error { return harden(l.link(), l.IPv6.IsValid()) }},
		{"switch ARP off", func() error { return m.h.LinkSetARPOff(near) }},
		{"give the link the gateway's address", func() error { return m.h.AddrReplace(near, whole(m.c.gateway4())) }},
		{"shape the link", func() error { return shape(m.h, index, m.c.MbitPerInstance) }},
		{"set the link up", func() error { return m.h.LinkSetUp(near) }},
	}
	if l.IPv6.IsValid() {
		steps = append(steps, step{"give the link the gateway's IPv6 address", func() error {
			a := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(gateway6, 64)), Flags: unix.IFA_F_NODAD}
			return m.h.AddrReplace(near, a)
		}})
	}
	for _, a := range l.addresses() {
		steps = append(steps,
			step{"fix the neighbour " + a.String(), func() error { return m.h.NeighSet(neighbour(index, a, l.mac())) }},
			step{"route " + a.String(), func() error {
				return m.h.RouteReplace(&netlink.Route{LinkIndex: index, Dst: ipNet(host(a)), Scope: netlink.SCOPE_LINK})
			}})
	}
	return steps
}

// harden sets what the kernel does with packets of the link before any rule sees them:
// no answer for addresses of other interfaces, no redirects, no advertisements.
func harden(link string, v6 bool) error {
	settings := [][2]string{
		{"net/ipv4/conf/" + link + "/rp_filter", "1"},
		{"net/ipv4/conf/" + link + "/arp_ignore", "1"},
		{"net/ipv4/conf/" + link + "/send_redirects", "0"},
		{"net/ipv4/conf/" + link + "/accept_redirects", "0"},
		{"net/ipv4/conf/" + link + "/accept_source_route", "0"},
		{"net/ipv4/conf/" + link + "/route_localnet", "0"},
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		if v6 {
			settings = append(settings,
				[2]string{"net/ipv6/conf/" + link + "/addr_gen_mode", "1"},
				[2]string{"net/ipv6/conf/" + link + "/accept_ra", "0"},
				[2]string{"net/ipv6/conf/" + link + "/accept_redirects", "0"},
				[2]string{"net/ipv6/conf/" + link + "/disable_ipv6", "0"})
		} else {
			settings = append(settings, [2]string{"net/ipv6/conf/" + link + "/disable_ipv6", "1"})
		}
	}
	for _, s := range settings {
		if err := setSysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	return nil
}

// shape makes an end of a link send no faster than the limit, so that TCP finds its
// pace. It is a courtesy: the limit itself is in the rules, and a kernel without token
// buckets has only those.
func shape(h *netlink.Handle, index, mbit int) error {
	attrs := netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	if mbit == 0 {
		if err := h.QdiscDel(&netlink.Tbf{QdiscAttrs: attrs}); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
			return err
		}
		return nil
	}
	rate := uint64(mbit) * 1_000_000 / 8
	burst := max(rate/100, 128<<10) // ten milliseconds, and at least one large segment
	err := h.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: attrs, Rate: rate, Buffer: netlink.Xmittime(rate, uint32(burst)),
		Limit: uint32(burst + rate/20),
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

// whole is an address that is a network of its own, used at once.
func whole(a netip.Addr) *netlink.Addr {
	addr := &netlink.Addr{IPNet: ipNet(host(a))}
	if a.Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	return addr
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// neighbour is an entry that no answer on the wire changes.
func neighbour(index int, a netip.Addr, mac net.HardwareAddr) *netlink.Neigh {
	fam := netlink.FAMILY_V4
	if a.Is6() {
		fam = netlink.FAMILY_V6
	}
	return &netlink.Neigh{LinkIndex: index, Family: fam, State: netlink.NUD_PERMANENT, IP: a.AsSlice(), HardwareAddr: mac}
}

// hostAddress is the address under which the uplink is known, IPv4 if it has one.
func (m *Manager) hostAddress() netip.Addr {
	link, err := m.h.LinkByName(m.uplink)
	if err != nil {
		return netip.Addr{}
	}
	for _, fam := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := m.h.AddrList(link, fam)
		if err != nil {
			continue
		}
		for _, a := range list {
			if addr, ok := netip.AddrFromSlice(a.IP); ok && a.Scope == int(netlink.SCOPE_UNIVERSE) {
				return addr.Unmap()
			}
		}
	}
	return netip.Addr{}
}
