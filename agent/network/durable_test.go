package network_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/google/nftables"

	"github.com/tranche-cloud/tranche/agent/network"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

func TestCountersGoOn(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	m := w.open()
	a1, a2 := w.attach(m, "org_a", "asg_a1", tcp(8000, 0)), w.attach(m, "org_a", "asg_a2")
	const sent = 1 << 20
	read := func() network.Bytes {
		all, err := m.Counters(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 2)
		return all["asg_a1"]
	}
	a1.must(order{Do: "send", Network: "tcp4", Address: at(a2.IPv4.String()), Count: sent})
	a1.refused("tcp4", at(privateV4))
	require.Zero(t, read(), "what stays on the host, or is refused, is not counted")

	a1.must(order{Do: "send", Network: "tcp4", Address: at(serverV4), Count: sent})
	one := read()
	require.Greater(t, one.Out, int64(sent))
	require.Less(t, one.Out, int64(sent+sent/5))
	require.Positive(t, one.In)

	require.NoError(t, m.Close())
	m = w.open()
	require.Equal(t, one, read(), "a new manager and new rules keep the sums")
	w.client.must(order{Do: "send", Network: "tcp4", Address: net.JoinHostPort(hostV4, strconv.Itoa(a1.Ports[0].Host)), Count: sent})
	two := read()
	require.Greater(t, two.In, one.In+sent)

	conn, err := nftables.New()
	require.NoError(t, err)
	conn.FlushRuleset()
	require.NoError(t, conn.Flush())
	require.Equal(t, two, read(), "rules that somebody removed are put back, and the sums go on")
	a1.refused("tcp4", at(privateV4))
	a1.must(order{Do: "send", Network: "tcp4", Address: at(serverV4), Count: sent})
	require.Greater(t, read().Out, two.Out+sent)
}

func TestDetachLeavesNothing(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	m := w.open()
	before := footprint(t)
	a1 := w.attach(m, "org_a", "asg_a1", tcp(8000, 0), udp(8000, 0))
	w.attach(m, "org_a", "asg_a2")
	a1.reaches("tcp4", at(serverV4))
	list, err := m.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, a1.Address, list[0])
	for range 2 {
		require.NoError(t, m.Detach(t.Context(), "asg_a1"))
	}
	gone, err := m.Sweep(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"asg_a2"}, gone)
	require.Equal(t, before, footprint(t))
	for _, fam := range []netlink.InetFamily{syscall.AF_INET, syscall.AF_INET6} {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, fam)
		require.NoError(t, err)
		for _, f := range flows {
			require.NotContains(t, f.String(), a1.IPv4.String())
		}
	}
	require.NoError(t, m.Uninstall(t.Context()))
	for path, was := range map[string]string{"ipv4/ip_forward": "0", "ipv6/conf/all/forwarding": "0", "ipv6/conf/up0/accept_ra": "1"} {
		now, err := os.ReadFile("/proc/sys/net/" + path)
		require.NoError(t, err)
		require.Equal(t, was, strings.TrimSpace(string(now)), path)
	}
	for _, line := range footprint(t) {
		require.NotContains(t, line, "tranche")
	}
}

// errKilled is what a step answers in a manager that is dead.
var errKilled = errors.New("killed")

// dying returns a hook that lets n steps pass and none after them.
func dying(n int) (hook func(string) error, last *string) {
	last = new(string)
	return func(step string) error {
		if n--; n < 0 {
			if *last == "" {
				*last = step
			}
			return errKilled
		}
		return nil
	}, last
}

func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	require.NoError(t, w.open().Close())
	before := footprint(t)
	box := start(t)
	box.serve("0.0.0.0")
	want := network.Attachment{Name: "asg_a1", Org: "org_a", PID: box.pid, Ports: []runtime.Port{tcp(8000, 0), udp(8000, 21003)}}
	phases := map[string]func(m *network.Manager) error{
		"attach": func(m *network.Manager) error {
			_, err := m.Attach(t.Context(), want)
			return err
		},
		"detach": func(m *network.Manager) error {
			if _, err := m.Attach(t.Context(), want); err != nil {
				return err
			}
			return m.Detach(t.Context(), want.Name)
		},
	}
	for phase, run := range phases {
		var steps []string
		for n := 0; ; n++ {
			hook, last := dying(n)
			w.config.Before = hook
			m, err := network.Open(t.Context(), w.config)
			if err == nil {
				err = run(m)
				require.NoError(t, m.Close())
			}
			w.config.Before = nil
			if err == nil {
				break
			}
			require.ErrorIs(t, err, errKilled)
			steps = append(steps, *last)

			again := w.open()
			if n%2 == 0 {
				address, err := again.Attach(t.Context(), want)
				require.NoError(t, err, "%s killed before %q is completed", phase, *last)
				require.Equal(t, hostV4, box.reaches("tcp4", at(serverV4)))
				require.Equal(t, clientV4, w.client.reaches("tcp4", net.JoinHostPort(hostV4, strconv.Itoa(address.Ports[0].Host))))
			}
			_, err = again.Sweep(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, before, footprint(t), "%s killed before %q is cleaned", phase, *last)
			require.NoError(t, again.Close())
		}
		t.Log(phase, len(steps), steps)
		again := w.open()
		_, err := again.Sweep(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, again.Close())
	}
}

func TestAFailedFirstAttachLeavesNothing(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	w.config.Before = func(step string) error {
		if strings.HasPrefix(step, "set the instance's side up") {
			return errors.New("no")
		}
		return nil
	}
	m := w.open()
	before := footprint(t)
	_, err := m.Attach(t.Context(), network.Attachment{Name: "asg_a1", Org: "org_a", PID: start(t).pid, Ports: []runtime.Port{tcp(1, 0)}})
	require.Equal(t, runtime.Broken, runtime.KindOf(err))
	require.Equal(t, before, footprint(t))
	list, err := m.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
}

func TestAttachIsIdempotentAndFollowsTheProcess(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	m := w.open()
	a1 := w.attach(m, "org_a", "asg_a1", tcp(8000, 0))
	once := footprint(t)
	again, err := m.Attach(t.Context(), a1.attachment)
	require.NoError(t, err)
	require.Equal(t, a1.Address, again)
	require.Equal(t, once, footprint(t))

	require.NoError(t, m.Close())
	m = w.open()
	next := w.attach(m, "org_a", "asg_a1", tcp(8000, 0))
	require.Equal(t, a1.Address, next.Address, "a new namespace gets the same address and ports")
	next.reaches("tcp4", at(serverV4))
	a1.unreachable("tcp4", at(serverV4))
	require.Equal(t, clientV4, w.client.reaches("tcp4", net.JoinHostPort(hostV4, strconv.Itoa(next.Ports[0].Host))))

	a1.attachment.Org = "org_b"
	_, err = m.Attach(t.Context(), a1.attachment)
	require.Equal(t, runtime.LimitInvalid, runtime.KindOf(err))
}

func TestPortsAndAddressesAreLeased(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	w.config.Range = netip.MustParsePrefix("10.213.0.0/29") // five instances
	m := w.open()
	box := start(t)
	kind := func(ports ...runtime.Port) runtime.Kind {
		_, err := m.Attach(t.Context(), network.Attachment{Name: "asg_x", Org: "org_a", PID: box.pid, Ports: ports})
		if err != nil {
			t.Log(err)
		}
		return runtime.KindOf(err)
	}
	for _, n := range []string{"tcp4", "udp6"} {
		_, err := (&hand{seen: map[string]bool{}}).do(order{Do: "listen", Network: n, Address: ":21001"})
		require.NoError(t, err)
	}
	require.Equal(t, runtime.PortInUse, kind(tcp(1, 21001)), "a program of the host listens")
	require.Equal(t, runtime.PortInUse, kind(udp(1, 21001)))
	a1 := w.attach(m, "org_a", "asg_a1", tcp(1, 0), tcp(2, 0), udp(3, 0))
	require.Equal(t, []runtime.Port{tcp(1, 21000), tcp(2, 21002), udp(3, 21000)}, a1.Ports, "taken ones are passed over")
	require.Equal(t, runtime.PortInUse, kind(tcp(1, 21002)), "another instance publishes it")
	require.Equal(t, runtime.LimitInvalid, kind(tcp(1, 80)), "outside the range")
	require.Equal(t, runtime.LimitInvalid, kind(tcp(1, 0), tcp(1, 0)), "twice")
	require.Equal(t, runtime.LimitInvalid, kind(runtime.Port{Container: 1, Protocol: "sctp"}))
	require.Equal(t, network.PortsExhausted, kind(tcp(1, 0), tcp(2, 0), tcp(3, 0), tcp(4, 0), tcp(5, 0), tcp(6, 0), tcp(7, 0), tcp(8, 0)))

	held := map[netip.Addr]bool{a1.IPv4: true}
	for _, name := range []string{"asg_a2", "asg_a3", "asg_a4", "asg_a5"} {
		i := w.attach(m, "org_a", name)
		require.False(t, held[i.IPv4])
		held[i.IPv4] = true
	}
	require.Equal(t, network.AddressesExhausted, kind())
	require.NoError(t, m.Detach(t.Context(), "asg_a3"))
	require.NoError(t, m.Detach(t.Context(), "asg_a1"))
	require.Equal(t, runtime.Kind(""), kind(tcp(1, 21002)))
	require.NoError(t, m.Detach(t.Context(), "asg_x"))

	_, err := m.Attach(t.Context(), network.Attachment{Name: "asg_x", Org: "org_a", PID: os.Getpid()})
	require.Equal(t, runtime.Broken, runtime.KindOf(err), "the host's own namespace")
	gone := exec.Command("/bin/true")
	require.NoError(t, gone.Run())
	_, err = m.Attach(t.Context(), network.Attachment{Name: "asg_x", Org: "org_a", PID: gone.Process.Pid})
	require.Equal(t, runtime.NotFound, runtime.KindOf(err))
}

func TestSettingsAreChecked(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	kind := func(change func(*network.Config)) runtime.Kind {
		c := w.config
		change(&c)
		m, err := network.Open(t.Context(), c)
		if err != nil {
			t.Log(err)
		} else {
			require.NoError(t, m.Close())
		}
		return runtime.KindOf(err)
	}
	for _, change := range []func(*network.Config){
		func(c *network.Config) { c.Range = netip.Prefix{} },
		func(c *network.Config) { c.Range = netip.MustParsePrefix("10.0.0.0/30") },
		func(c *network.Config) { c.Range = netip.MustParsePrefix("198.51.0.0/16") },
		func(c *network.Config) { c.Range6 = netip.MustParsePrefix("fd00::/120") },
		func(c *network.Config) { c.Ports = network.PortRange{First: 5, Last: 4} },
		func(c *network.Config) { c.MbitPerInstance = -1 },
		func(c *network.Config) { c.Connections = -1 },
		func(c *network.Config) { c.StateDir = "" },
		func(c *network.Config) { c.Deny = []netip.Prefix{{}} },
		func(c *network.Config) { c.Resolvers = []netip.Addr{netip.MustParseAddr("127.0.0.53")} },
		func(c *network.Config) { c.Uplink = "a-very-long-interface" },
	} {
		require.Equal(t, runtime.LimitInvalid, kind(change))
	}
	require.Equal(t, runtime.Unavailable, kind(func(c *network.Config) { c.Uplink = "none0" }))
	m := w.open()
	found, err := m.Conflicts(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
	conn, err := nftables.New()
	require.NoError(t, err)
	policy := nftables.ChainPolicyDrop
	conn.AddChain(&nftables.Chain{
		Table: conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "filter"}), Name: "FORWARD",
		Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &policy,
	})
	require.NoError(t, conn.Flush())
	found, err = m.Conflicts(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"filter FORWARD"}, found)
	w.attach(m, "org_a", "asg_a1")
	require.Equal(t, runtime.Unavailable, kind(func(*network.Config) {}), "two managers")
	require.Equal(t, runtime.LimitInvalid, runtime.KindOf(m.Uninstall(t.Context())), "still attached")
	require.NoError(t, m.Close())
	require.Equal(t, runtime.LimitInvalid, kind(func(c *network.Config) { c.Range = netip.MustParsePrefix("10.214.0.0/24") }), "an instance holds an address of the old range")
	require.NoError(t, os.WriteFile(filepath.Join(w.config.StateDir, "network.json"), []byte("{"), 0o600))
	require.Equal(t, runtime.Broken, kind(func(*network.Config) {}))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = network.Open(cancelled, w.config)
	require.ErrorIs(t, err, context.Canceled)
}

func TestIPv6CanBeOff(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	w.config.Range6 = netip.Prefix{}
	m := w.open()
	a1 := w.attach(m, "org_a", "asg_a1")
	require.False(t, a1.IPv6.IsValid())
	a1.reaches("tcp4", at(serverV4))
	a1.unreachable("tcp6", at(serverV6))
	_, err := a1.try(order{Do: "address", Link: "eth0", Address: "fd54:726e::2/64"})
	require.Error(t, err)
}

func TestTheLoopbackMayBeTheWayOut(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	w.config.Uplink = "lo" // it takes packets longer than other links may carry
	a1 := w.attach(w.open(), "org_a", "asg_a1")
	require.True(t, a1.IPv4.IsValid())
}

func TestRateAndConnectionsAreLimited(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	w.config.MbitPerInstance, w.config.Connections = 40, 3
	w.config.Resolvers = []netip.Addr{netip.MustParseAddr(privateV4)}
	m := w.open()
	a1 := w.attach(m, "org_a", "asg_a1", tcp(8000, 0))
	const sent = 8 << 20
	for name, send := range map[string]func(){
		"out": func() { a1.must(order{Do: "send", Network: "tcp4", Address: at(serverV4), Count: sent}) },
		"in": func() {
			w.client.must(order{Do: "send", Network: "tcp4", Address: net.JoinHostPort(hostV4, strconv.Itoa(a1.Ports[0].Host)), Count: sent})
		},
	} {
		begin := time.Now()
		send()
		mbit := float64(sent) * 8 / 1e6 / time.Since(begin).Seconds()
		t.Logf("%s: %.0f Mbit/s of 40", name, mbit)
		require.Less(t, mbit, 60.0)
	}
	w.client.must(order{Do: "listen", Network: "udp4", Address: privateV4 + ":53"})
	a1.reaches("udp4", net.JoinHostPort(privateV4, "53"))
	a1.refused("udp4", at(privateV4))
	var refused bool
	for range 6 {
		_, err := a1.try(order{Do: "dial", Network: "udp4", Address: at(serverV4), Wait: impatient})
		refused = refused || err != nil
	}
	require.True(t, refused, "a flood of connections is stopped")
}

func TestAttachIsFast(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t)
	w.config.Range, w.config.MbitPerInstance = netip.MustParsePrefix("10.213.0.0/16"), 10_000
	w.config.Ports = network.PortRange{First: 21000, Last: 21999}
	m := w.open()
	var took []time.Duration
	for i := range 64 {
		cmd := exec.CommandContext(t.Context(), "/bin/cat")
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
		begin := time.Now()
		_, err = m.Attach(t.Context(), network.Attachment{
			Name: "asg_" + strconv.Itoa(i), Org: "org_" + strconv.Itoa(i/8), PID: cmd.Process.Pid,
			Ports: []runtime.Port{tcp(22, 0), tcp(8888, 0)},
		})
		require.NoError(t, err)
		took = append(took, time.Since(begin))
	}
	few, all := slices.Clone(took[:8]), slices.Clone(took)
	slices.Sort(few)
	slices.Sort(all)
	t.Logf("attach: first 8 median %v, 64 median %v, slowest %v", few[4], all[32], all[63])
	begin := time.Now()
	_, err := m.Counters(t.Context())
	require.NoError(t, err)
	t.Logf("counters of 64: %v", time.Since(begin))
	begin = time.Now()
	gone, err := m.Sweep(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, gone, 64)
	t.Logf("sweep of 64: %v", time.Since(begin))
	require.Less(t, all[32], 2*time.Second)
}
