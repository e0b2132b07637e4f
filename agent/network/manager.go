package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Manager gives instances their network. It is safe for concurrent use; one at a time
// has a folder of leases. It works in the network namespace of the thread that calls
// it. Errors are *runtime.Error.
type Manager struct {
	c      Config
	h      *netlink.Handle
	held   *os.File
	uplink string
	mu     sync.Mutex
	state  *state
}

// Open checks the settings, switches forwarding on and brings the rules up, so that
// nothing is open from here on. What an earlier manager attached stays attached.
func Open(ctx context.Context, c Config) (*Manager, error) {
	c, err := c.check()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, broken("open", "", "begin", err)
	}
	held, err := lock(c.StateDir)
	if err != nil {
		return nil, err
	}
	m := &Manager{c: c, held: held}
	if err := m.open(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Manager) open() error {
	var err error
	if m.h, err = netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER); err != nil {
		return broken("open", "", "talk to the kernel", err)
	}
	if m.uplink, err = findUplink(m.h, m.c.Uplink); err != nil {
		return err
	}
	if err := checkOverlap(m.h, m.c); err != nil {
		return err
	}
	if m.state, err = loadState(m.c.StateDir); err != nil {
		return err
	}
	for _, l := range m.state.sorted() {
		if !m.c.Range.Contains(l.IPv4) || l.IPv6.IsValid() && !m.c.Range6.Contains(l.IPv6) {
			return runtime.Refuse(runtime.LimitInvalid, "open", l.Name,
				"it holds %s, which is not in %s: set the old range, or remove the instances first", l.IPv4, m.c.Range)
		}
	}
	boot, err := bootID()
	if err == nil {
		err = m.state.remember(boot, m.uplink, m.c.Range6.IsValid())
	}
	if err != nil {
		return broken("open", "", "record the host's settings", err)
	}
	return m.apply("open", "")
}

// Close lets go of the folder of leases. Instances keep their network.
func (m *Manager) Close() error {
	if m.h != nil {
		m.h.Close()
	}
	return m.held.Close()
}

// apply writes the leases down and then makes the kernel's rules theirs. Forwarding
// comes last, so that nothing is forwarded without rules.
func (m *Manager) apply(op, name string) error {
	old, err := readTable()
	if err != nil {
		return broken(op, name, "read the rules", err)
	}
	for _, l := range m.state.Leases {
		in, out := l.counters()
		if now, ok := old.counters[in]; ok {
			l.In.see(now)
		} else {
			l.In.fold()
		}
		if now, ok := old.counters[out]; ok {
			l.Out.see(now)
		} else {
			l.Out.fold()
		}
	}
	r := &ruleset{
		Config: m.c, uplink: m.uplink, leases: m.state.sorted(),
		alone4: m.state.Before[forwarding4] == "0", alone6: m.state.Before[forwarding6] == "0",
	}
	return m.take(op, name,
		step{"write the leases", func() error { return m.state.save(m.c.StateDir) }},
		step{"replace the rules", func() error { return r.replace(old) }},
		step{"switch forwarding on", func() error { return startForwarding(m.uplink, m.c.Range6.IsValid()) }},
	)
}

// Attach gives the network namespace of a process an address, a way out and its
// published ports. Attached already, it completes what is missing, follows the
// process into a new namespace and takes the ports as they are wanted now; the address
// stays. A first attachment that fails leaves nothing.
func (m *Manager) Attach(ctx context.Context, a Attachment) (Address, error) {
	if err := a.check(); err != nil {
		return Address{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return Address{}, broken("attach", a.Name, "begin", err)
	}
	ns, err := openNamespace(a.Name, a.PID)
	if err != nil {
		return Address{}, err
	}
	defer ns.Close()
	l, fresh, err := m.hold(ctx, a)
	if err != nil {
		return Address{}, err
	}
	if err = m.apply("attach", a.Name); err == nil {
		err = m.connect(l, ns)
	}
	if err != nil {
		if fresh {
			_, undo := m.release("attach", a.Name)
			err = errors.Join(err, undo)
		}
		return Address{}, err
	}
	return m.address(l), nil
}

// hold returns the lease of an attachment with the ports it wants, and whether it is
// a new one.
func (m *Manager) hold(ctx context.Context, a Attachment) (*lease, bool, error) {
	l, ok := m.state.Leases[a.Name]
	if ok && l.Org != a.Org {
		return nil, false, runtime.Refuse(runtime.LimitInvalid, "attach", a.Name, "it is attached for organization %s already: detach it first", l.Org)
	}
	if !ok {
		l = &lease{Name: a.Name, Org: a.Org}
		for name := range m.state.Leases {
			if key(name) == key(a.Name) {
				return nil, false, runtime.Refuse(runtime.Broken, "attach", a.Name, "its link would have the name of that of %s", name)
			}
		}
	}
	ports, err := m.state.lend(ctx, m.c, l, a.Ports)
	if err != nil {
		return nil, false, err
	}
	if !ok {
		n, err := m.state.allocate(m.c, a.Name)
		if err != nil {
			return nil, false, err
		}
		l.IPv4, l.IPv6 = m.c.address4(n), m.c.address6(n)
		m.state.Leases[a.Name] = l
	}
	l.Ports = ports
	return l, !ok, nil
}

func (m *Manager) address(l *lease) Address {
	a := Address{
		Name: l.Name, Org: l.Org, Interface: inside, IPv4: l.IPv4, IPv6: l.IPv6, Gateway4: m.c.gateway4(),
		Host: m.hostAddress(), Ports: slices.Clone(l.Ports), Resolvers: slices.Clone(m.c.Resolvers),
	}
	if l.IPv6.IsValid() {
		a.Gateway6 = gateway6
	}
	return a
}

// Detach takes everything away that Attach gave: link, rules, connections, counters,
// lease. It succeeds if there is nothing. Read Counters before.
func (m *Manager) Detach(ctx context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return broken("detach", name, "begin", err)
	}
	_, err := m.release("detach", name)
	return err
}

// release removes links first: from then on nothing comes or goes. Leases go
// last, so that a release that stops half way is repeated from the start. It returns
// the names that are gone; one that resists does not stop the others.
func (m *Manager) release(op string, names ...string) ([]string, error) {
	var all error
	gone := map[string]*lease{}
	for _, name := range names {
		l, held := m.state.Leases[name]
		err := m.take(op, name, step{"remove the link", func() error { return m.removeLink(linkPrefix + key(name)) }})
		if err == nil && held {
			gone[name] = l
		}
		all = errors.Join(all, err)
	}
	if len(gone) == 0 {
		return nil, all
	}
	if err := m.take(op, "", step{"forget the connections", func() error { return m.forget(gone) }}); err != nil {
		return nil, errors.Join(all, err)
	}
	for name := range gone {
		delete(m.state.Leases, name)
	}
	if err := m.apply(op, ""); err != nil {
		maps.Copy(m.state.Leases, gone)
		return nil, errors.Join(all, err)
	}
	return slices.Sorted(maps.Keys(gone)), all
}

// List returns what is attached, by name.
func (m *Manager) List(ctx context.Context) ([]Address, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, broken("list", "", "begin", err)
	}
	var list []Address
	for _, l := range m.state.sorted() {
		list = append(list, m.address(l))
	}
	return list, nil
}

// Sweep detaches everything that is not in keep, removes links of nobody and
// brings the rules back to what the leases say. It returns the names that it
// detached. One that resists does not stop the others.
func (m *Manager) Sweep(ctx context.Context, keep []string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, broken("sweep", "", "begin", err)
	}
	var names []string
	for _, l := range m.state.sorted() {
		if !slices.Contains(keep, l.Name) {
			names = append(names, l.Name)
		}
	}
	gone, all := m.release("sweep", names...)
	stale, err := m.staleLinks()
	all = errors.Join(all, broken("sweep", "", "list links", err))
	for _, link := range stale {
		all = errors.Join(all, m.take("sweep", "", step{"remove the stale link " + link, func() error { return m.removeLink(link) }}))
	}
	return gone, errors.Join(all, m.apply("sweep", ""))
}

// Counters returns the bytes of each attached instance since it was first
// attached. They go on over restarts of the agent and of the host; what passed
// between the last reading and a crash of the host is lost. Rules that
// somebody removed are put back: call it every few seconds.
func (m *Manager) Counters(ctx context.Context) (map[string]Bytes, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, broken("counters", "", "begin", err)
	}
	table, err := readTable()
	if err != nil {
		return nil, broken("counters", "", "read the rules", err)
	}
	whole := true
	for _, l := range m.state.Leases {
		in, out := l.counters()
		nowIn, okIn := table.counters[in]
		nowOut, okOut := table.counters[out]
		if whole = whole && okIn && okOut; okIn && okOut {
			l.In.see(nowIn)
			l.Out.see(nowOut)
		}
	}
	if !whole || len(table.chains) == 0 {
		err = m.apply("counters", "")
	} else {
		err = m.take("counters", "", step{"write the counters", func() error { return m.state.save(m.c.StateDir) }})
	}
	if err != nil {
		return nil, err
	}
	sums := make(map[string]Bytes, len(m.state.Leases))
	for name, l := range m.state.Leases {
		sums[name] = Bytes{In: l.In.sum(), Out: l.Out.sum()}
	}
	return sums, nil
}

// Conflicts names the chains of other programs that drop what the host forwards, such
// as Docker's: a packet has to pass every chain, so instances would reach nothing.
// It is for a preflight check; the operator decides about foreign rules.
func (m *Manager) Conflicts(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, broken("conflicts", "", "begin", err)
	}
	conn, err := dial()
	if err != nil {
		return nil, broken("conflicts", "", "talk to the kernel", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return nil, broken("conflicts", "", "list the host's chains", err)
	}
	var found []string
	for _, c := range chains {
		if c.Table.Name != tableName && c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
			found = append(found, c.Table.Name+" "+c.Name)
		}
	}
	return found, nil
}

// Uninstall takes the table away and puts the host's settings back as they were
// before the first manager of this boot. It refuses while anything is attached. The
// manager is of no use afterwards but to Close.
func (m *Manager) Uninstall(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return broken("uninstall", "", "begin", err)
	}
	if n := len(m.state.Leases); n > 0 {
		first := slices.Sorted(maps.Keys(m.state.Leases))[0]
		return runtime.Refuse(runtime.LimitInvalid, "uninstall", first, "%s still attached: detach or sweep first", plural(n))
	}
	return m.take("uninstall", "",
		step{"put the host's settings back", m.state.putBack},
		step{"remove the rules", removeTable},
		step{"forget the host's settings", func() error {
			m.state.Boot, m.state.Before = "", map[string]string{}
			return m.state.save(m.c.StateDir)
		}},
	)
}

func plural(n int) string {
	if n == 1 {
		return "1 instance is"
	}
	return fmt.Sprintf("%d instances are", n)
}

// removeTable removes our table; none is well.
func removeTable() error {
	conn, err := dial()
	if err != nil {
		return err
	}
	conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
	conn.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
	return conn.Flush()
}
