package network

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

const (
	forwarding4 = "net/ipv4/ip_forward"
	forwarding6 = "net/ipv6/conf/all/forwarding"
)

func sysctl(path string) (string, error) {
	text, err := os.ReadFile("/proc/sys/" + path)
	return strings.TrimSpace(string(text)), err
}

// setSysctl writes a setting unless it stands already: a container may be refused
// even the writing of what is so.
func setSysctl(path, value string) error {
	if now, err := sysctl(path); err == nil && now == value {
		return nil
	}
	return os.WriteFile("/proc/sys/"+path, []byte(value), 0o600)
}

// findUplink returns the interface that leads to the Internet.
func findUplink(h *netlink.Handle, name string) (string, error) {
	if name != "" {
		if _, err := h.LinkByName(name); err != nil {
			return "", runtime.Refuse(runtime.Unavailable, "open", "", "the uplink %q is not there: name an interface of this host", name).Because(err)
		}
		return name, nil
	}
	for _, far := range []net.IP{net.IPv4(1, 1, 1, 1), net.ParseIP("2606:4700::1111")} {
		routes, err := h.RouteGet(far)
		if err != nil || len(routes) == 0 {
			continue
		}
		if link, err := h.LinkByIndex(routes[0].LinkIndex); err == nil && routes[0].Gw != nil {
			return link.Attrs().Name, nil
		}
	}
	return "", runtime.Refuse(runtime.Unavailable, "open", "", "the host has no default route, so the uplink is not known: name the interface that leads to the Internet")
}

// checkOverlap refuses a pool that the host uses for something else.
func checkOverlap(h *netlink.Handle, c Config) error {
	links, err := h.LinkList()
	if err != nil {
		return broken("open", "", "list the host's interfaces", err)
	}
	for _, link := range links {
		if strings.HasPrefix(link.Attrs().Name, linkPrefix) {
			continue
		}
		list, err := h.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			return broken("open", "", "list the host's addresses", err)
		}
		for _, a := range list {
			used, ok := netip.AddrFromSlice(a.IP)
			if used = used.Unmap(); ok && (c.Range.Contains(used) || c.Range6.IsValid() && c.Range6.Contains(used)) {
				return runtime.Refuse(runtime.LimitInvalid, "open", "",
					"the host's own address %s on %s lies in the range for instances: choose a range that nothing else uses", used, link.Attrs().Name)
			}
		}
	}
	return nil
}

// remember records the host's settings before the first change of this boot, and
// forgets those of an earlier boot.
func (s *state) remember(boot, uplink string, v6 bool) error {
	if s.Boot == boot {
		return nil
	}
	s.Boot, s.Before = boot, map[string]string{}
	paths := []string{forwarding4}
	if v6 {
		paths = append(paths, forwarding6, "net/ipv6/conf/"+uplink+"/accept_ra")
	}
	for _, path := range paths {
		value, err := sysctl(path)
		if err != nil {
			return broken("open", "", "read the host's setting "+path, err)
		}
		s.Before[path] = value
	}
	return nil
}

// startForwarding makes the host a router for its instances. A host that gets its own
// IPv6 route from advertisements would lose it when it forwards, unless told to go
// on listening.
func startForwarding(uplink string, v6 bool) error {
	err := setSysctl(forwarding4, "1")
	if err == nil && v6 {
		ra := "net/ipv6/conf/" + uplink + "/accept_ra"
		if now, readErr := sysctl(ra); readErr == nil && now == "1" {
			err = setSysctl(ra, "2")
		}
		err = errors.Join(err, setSysctl(forwarding6, "1"))
	}
	if err != nil {
		return runtime.Refuse(runtime.Broken, "open", "", "switch IP forwarding on: the agent needs the right to change net.* settings").Because(err)
	}
	return nil
}

// putBack restores what remember recorded.
func (s *state) putBack() error {
	var all error
	for _, path := range []string{forwarding6, forwarding4} {
		if value, ok := s.Before[path]; ok {
			all = errors.Join(all, setSysctl(path, value))
		}
	}
	for path, value := range s.Before {
		if path != forwarding4 && path != forwarding6 {
			all = errors.Join(all, setSysctl(path, value))
		}
	}
	return all
}

// bootID names this boot of the machine.
func bootID() (string, error) { return sysctl("kernel/random/boot_id") }
