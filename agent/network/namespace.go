package network

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	goruntime "runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// openNamespace opens the network namespace of a process. It refuses the host's own:
// that would give an instance's address to the host.
func openNamespace(name string, pid int) (*os.File, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, runtime.Refuse(runtime.NotFound, "attach", name, "the process %d is gone", pid).Because(err)
	}
	own, err := os.Stat("/proc/thread-self/ns/net")
	var other os.FileInfo
	if err == nil {
		other, err = f.Stat()
	}
	if err != nil {
		return nil, errors.Join(broken("attach", name, "compare network namespaces", err), f.Close())
	}
	if os.SameFile(own, other) {
		_ = f.Close()
		return nil, runtime.Refuse(runtime.Broken, "attach", name, "the process %d has no network namespace of its own: start it in one", pid)
	}
	return f, nil
}

// within runs f on a thread that is in the namespace. A thread that cannot return
// ends with its goroutine.
func within(ns *os.File, f func(*netlink.Handle) error) error {
	done := make(chan error, 1)
	go func() {
		goruntime.LockOSThread()
		own, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer own.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err == nil {
			err = f(h)
			h.Close()
		}
		if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
			goruntime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// far sets the instance's side up; h is in its namespace, and so is the thread.
func (m *Manager) far(h *netlink.Handle, l *lease) error {
	if err := setFamily(l.IPv6.IsValid()); err != nil {
		return err
	}
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	link, err := h.LinkByName(inside)
	if err != nil {
		return err
	}
	err = errors.Join(shape(h, link.Attrs().Index, m.c.MbitPerInstance),
		h.LinkSetUp(lo), h.LinkSetUp(link), h.AddrReplace(link, whole(l.IPv4)))
	if err != nil {
		return err
	}
	index, mac := link.Attrs().Index, macOf(m.c.gateway4())
	gateways := []netip.Addr{m.c.gateway4()}
	if l.IPv6.IsValid() {
		gateways = append(gateways, gateway6)
		if err := h.AddrReplace(link, whole(l.IPv6)); err != nil {
			return err
		}
	}
	for _, gw := range gateways {
		every := ipNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
		if gw.Is6() {
			every = ipNet(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
		}
		// The gateway is no member of any network here: "on link" says how to reach it.
		route := &netlink.Route{LinkIndex: index, Dst: every, Gw: gw.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
		if err := errors.Join(h.NeighSet(neighbour(index, gw, mac)), h.RouteReplace(route)); err != nil {
			return err
		}
	}
	return nil
}

// setFamily switches IPv6 of the namespace on or off.
func setFamily(v6 bool) error {
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		return nil //nolint:nilerr // a kernel without IPv6 needs no switch
	}
	if v6 {
		return setSysctl("net/ipv6/conf/"+inside+"/accept_ra", "0")
	}
	return setSysctl("net/ipv6/conf/all/disable_ipv6", "1")
}
