package network

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableName is the table that is ours alone.
const tableName = "tranche"

// batchBytes is the size of a netlink buffer that takes a whole rule set, and an
// acknowledgement for each message of it, for more instances than a host can hold.
const batchBytes = 64 << 20

// rejectsPerSecond limits the answers to refused packets of all instances together:
// they are the host's work.
const rejectsPerSecond = 500

// never are networks that no setting opens to instances.
var never = prefixes("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4",
	"::/127", "::ffff:0:0/96", "fe80::/10", "ff00::/8")

// private are networks that are refused unless the operator allows them. The last
// two carry IPv4 addresses inside: they would be a way around.
var private = prefixes("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"fc00::/7", "fec0::/10", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(list))
	for _, text := range list {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// ruleset is the table in one transaction.
type ruleset struct {
	Config
	uplink string
	// alone says for each family that the host forwarded nothing before us.
	alone4, alone6 bool
	leases         []*lease

	conn   *nftables.Conn
	table  *nftables.Table
	chains map[string]*nftables.Chain
	err    error
}

// dial opens a connection whose buffers hold a whole transaction.
func dial() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		if err := c.SetWriteBuffer(batchBytes); err != nil {
			return err
		}
		return c.SetReadBuffer(batchBytes)
	}))
}

// kernelTable is what lies in the kernel under our name.
type kernelTable struct {
	chains   []*nftables.Chain
	counters map[string]uint64 // bytes by name
}

// readTable reads our table; a missing one is empty.
func readTable() (kernelTable, error) {
	t := kernelTable{counters: map[string]uint64{}}
	conn, err := dial()
	if err != nil {
		return t, err
	}
	all, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return t, err
	}
	for _, c := range all {
		if c.Table.Name == tableName {
			t.chains = append(t.chains, c)
		}
	}
	if len(t.chains) == 0 {
		return t, nil
	}
	objects, err := conn.GetNamedObjects(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
	if err != nil {
		return t, err
	}
	for _, o := range objects {
		named, ok := o.(*nftables.NamedObj)
		if !ok {
			continue
		}
		if c, ok := named.Obj.(*expr.Counter); ok {
			t.counters[named.Name] = c.Bytes
		}
	}
	return t, nil
}

func (l *lease) counters() (in, out string) { return "in_" + l.key(), "out_" + l.key() }

// replace makes the kernel's table what the leases say. Counters that exist keep their
// values.
func (r *ruleset) replace(old kernelTable) error {
	conn, err := dial()
	if err != nil {
		return err
	}
	r.conn, r.chains = conn, map[string]*nftables.Chain{}
	r.table = conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
	conn.FlushTable(r.table)
	r.addCounters(old)
	r.addChains()
	r.antispoof()
	r.nat()
	r.hooks()
	r.outbound()
	r.instances()
	if r.err != nil {
		return r.err
	}
	for _, c := range old.chains {
		if r.chains[c.Name] == nil {
			conn.DelChain(c)
		}
	}
	return conn.Flush()
}

// addCounters makes missing counters and removes those of nobody.
func (r *ruleset) addCounters(old kernelTable) {
	stale := maps.Clone(old.counters)
	for _, l := range r.leases {
		in, out := l.counters()
		for _, name := range []string{in, out} {
			if _, ok := stale[name]; !ok {
				r.conn.AddObj(&nftables.NamedObj{Table: r.table, Name: name, Type: nftables.ObjTypeCounter, Obj: &expr.Counter{}})
			}
			delete(stale, name)
		}
	}
	for name := range stale {
		r.conn.DeleteObject(&nftables.NamedObj{Table: r.table, Name: name, Type: nftables.ObjTypeCounter, Obj: &expr.Counter{}})
	}
}

// addChains makes the chains, before any rule names one.
func (r *ruleset) addChains() {
	policy := nftables.ChainPolicyAccept
	base := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) {
		r.chains[name] = r.conn.AddChain(&nftables.Chain{Table: r.table, Name: name, Type: kind, Hooknum: hook, Priority: priority, Policy: &policy})
	}
	base("antispoof", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw)
	base("publish_in", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	base("publish_out", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	base("masquerading", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	base("arriving", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter)
	base("passing", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter)
	for _, name := range []string{"publish", "to_host", "from_instance", "to_instance", "between", "opened", "passed", "refuse"} {
		r.chain(name)
	}
	for _, l := range r.leases {
		for _, prefix := range []string{"src_", "new_", "in_", "out_"} {
			r.chain(prefix + l.key())
		}
	}
}

func (r *ruleset) chain(name string) {
	r.chains[name] = r.conn.AddChain(&nftables.Chain{Table: r.table, Name: name})
}

func (r *ruleset) add(chain string, parts ...match) {
	r.conn.AddRule(&nftables.Rule{Table: r.table, Chain: r.chains[chain], Exprs: rule(parts...)})
}

// dispatch sends each instance's packets to its own chain, by the link on which they
// come or leave.
func (r *ruleset) dispatch(chain string, side expr.MetaKey, prefix string) {
	if len(r.leases) == 0 {
		return
	}
	set := &nftables.Set{Table: r.table, Anonymous: true, Constant: true, IsMap: true, KeyType: nftables.TypeIFName, DataType: nftables.TypeVerdict}
	var elements []nftables.SetElement
	for _, l := range r.leases {
		elements = append(elements, nftables.SetElement{Key: interfaceName(l.link()), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: prefix + l.key()}})
	}
	if err := r.conn.AddSet(set, elements); err != nil && r.err == nil {
		r.err = err
	}
	r.add(chain, match{
		&expr.Meta{Key: side, Register: 1},
		&expr.Lookup{SourceRegister: 1, IsDestRegSet: true, SetName: set.Name, SetID: set.ID},
	})
}

// member matches the links of some instances.
func (r *ruleset) member(side expr.MetaKey, leases []*lease) match {
	set := &nftables.Set{Table: r.table, Anonymous: true, Constant: true, KeyType: nftables.TypeIFName}
	var elements []nftables.SetElement
	for _, l := range leases {
		elements = append(elements, nftables.SetElement{Key: interfaceName(l.link())})
	}
	if err := r.conn.AddSet(set, elements); err != nil && r.err == nil {
		r.err = err
	}
	return match{&expr.Meta{Key: side, Register: 1}, &expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID}}
}

// antispoof lets in what carries the instance's own addresses, before connections
// are tracked, and keeps the pools' addresses off the uplink.
func (r *ruleset) antispoof() {
	r.dispatch("antispoof", expr.MetaKeyIIFNAME, "src_")
	r.add("antispoof", iifOurs(), drop())
	for _, pool := range r.pools() {
		r.add("antispoof", iif(r.uplink), from(pool), drop())
	}
}

// pools are the ranges that are in use.
func (r *ruleset) pools() []netip.Prefix {
	if r.Range6.IsValid() {
		return []netip.Prefix{r.Range, r.Range6}
	}
	return []netip.Prefix{r.Range}
}

// nat publishes ports and hides instances behind the uplink's address.
func (r *ruleset) nat() {
	r.add("publish_in", iif(r.uplink), local(), follow("publish"))
	for _, v6 := range []bool{false, true} {
		r.add("publish_out", notLoopback(v6), local(), follow("publish"))
	}
	for _, l := range r.leases {
		for _, p := range l.Ports {
			for _, a := range l.addresses() {
				r.add("publish", family(a.Is6()), port(p.Protocol, p.Host), forwardTo(a, p.Container))
			}
		}
	}
	for _, pool := range r.pools() {
		r.add("masquerading", from(pool), oif(r.uplink), masquerade())
	}
}

// addresses are those that the lease has.
func (l *lease) addresses() []netip.Addr {
	if l.IPv6.IsValid() {
		return []netip.Addr{l.IPv4, l.IPv6}
	}
	return []netip.Addr{l.IPv4}
}

// hooks hold what reaches the host or passes through it.
func (r *ruleset) hooks() {
	known := connection(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED)
	r.add("arriving", iifOurs(), follow("to_host"))
	r.add("to_host", known, accept())
	r.add("to_host", follow("refuse"))

	r.add("passing", iifOurs(), follow("from_instance"))
	r.add("passing", oifOurs(), follow("to_instance"))
	if r.alone4 {
		r.add("passing", family(false), drop())
	}
	if r.alone6 {
		r.add("passing", family(true), drop())
	}
	r.add("to_instance", known, follow("passed"))
	r.add("to_instance", iif(r.uplink), published(), follow("passed"))
	r.add("to_instance", drop())

	r.dispatch("passed", expr.MetaKeyOIFNAME, "in_")
	r.dispatch("passed", expr.MetaKeyIIFNAME, "out_")
	r.add("passed", drop())
	r.add("refuse", moreThan(rejectsPerSecond), drop())
	r.add("refuse", protocol(unix.IPPROTO_TCP), reset())
	r.add("refuse", prohibited())
}

// outbound decides about connections that instances open.
func (r *ruleset) outbound() {
	r.add("from_instance", connection(expr.CtStateBitINVALID), drop())
	r.add("from_instance", connection(expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED), follow("passed"))
	r.add("from_instance", oifOurs(), follow("between"))
	r.add("from_instance", oifNot(r.uplink), follow("refuse"))
	for _, p := range slices.Concat(never, r.pools(), r.Deny) {
		r.add("from_instance", to(p), follow("refuse"))
	}
	for _, a := range r.Resolvers {
		r.add("from_instance", to(host(a)), port("udp", 53), follow("opened"))
		r.add("from_instance", to(host(a)), port("tcp", 53), follow("opened"))
	}
	for _, p := range r.Allow {
		r.add("from_instance", to(p), follow("opened"))
	}
	for _, p := range private {
		r.add("from_instance", to(p), follow("refuse"))
	}
	r.add("from_instance", follow("opened"))

	byOrg := map[string][]*lease{}
	for _, l := range r.leases {
		byOrg[l.Org] = append(byOrg[l.Org], l)
	}
	for _, org := range slices.SortedFunc(maps.Keys(byOrg), strings.Compare) {
		if members := byOrg[org]; len(members) > 1 {
			r.add("between", r.member(expr.MetaKeyIIFNAME, members), r.member(expr.MetaKeyOIFNAME, members), follow("opened"))
		}
	}
	r.add("between", follow("refuse"))
	r.dispatch("opened", expr.MetaKeyIIFNAME, "new_")
	r.add("opened", drop())
}

// instances are the chains of each instance: what it may send at all (src), open
// (new), get (in) and send out (out).
func (r *ruleset) instances() {
	rate := uint64(r.MbitPerInstance) * 1_000_000 / 8
	for _, l := range r.leases {
		src, fresh, in, out := "src_"+l.key(), "new_"+l.key(), "in_"+l.key(), "out_"+l.key()
		if rate > 0 {
			r.add(src, faster(rate), drop())
			r.add(in, faster(rate), drop())
		}
		r.add(src, strangeMAC(l.mac()), drop())
		for _, a := range l.addresses() {
			r.add(src, from(host(a)), accept())
		}
		r.add(src, drop())
		r.add(fresh, moreConnections(r.Connections), follow("refuse"))
		r.add(fresh, follow("passed"))
		inCounter, outCounter := l.counters()
		r.add(in, iif(r.uplink), count(inCounter))
		r.add(in, accept())
		r.add(out, count(outCounter), accept())
	}
}
