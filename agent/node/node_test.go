package node_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/agent/images"
	"github.com/tranche-cloud/tranche/agent/images/imagestest"
	"github.com/tranche-cloud/tranche/agent/network"
	"github.com/tranche-cloud/tranche/agent/node"
	"github.com/tranche-cloud/tranche/agent/runtime/containerd"
	"github.com/tranche-cloud/tranche/agent/runtime/containerd/containerdtest"
	"github.com/tranche-cloud/tranche/agent/runtime/runc"
	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/simhost"
)

const (
	shimArgument = "container-shim"
	insideMarker = "TRANCHE_NODE_TEST_INSIDE"
)

// TestMain makes this binary the shim and the logger of its own containers, too.
func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == shimArgument:
		err = runc.Shim(context.Background(), os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == containerd.LogCommand:
		err = containerd.Log(os.Args[2:])
	default:
		code := m.Run()
		_ = os.RemoveAll(guestDir)
		os.Exit(code)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// inside runs the calling test in a network namespace of its own, with an uplink that
// leads nowhere, and returns true in there.
func inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideMarker) == t.Name() {
		up(t)
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=200s")
	cmd.Env = append(os.Environ(), insideMarker+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Log(string(out))
	require.NoError(t, err)
	require.Contains(t, string(out), "--- PASS: "+t.Name(), "the test must have run inside")
	return false
}

func up(t *testing.T) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	require.NoError(t, err)
	require.NoError(t, netlink.LinkSetUp(lo))
	require.NoError(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "up0"}}))
	link, err := netlink.LinkByName("up0")
	require.NoError(t, err)
	at, err := netlink.ParseAddr("198.18.0.1/24")
	require.NoError(t, err)
	require.NoError(t, netlink.AddrAdd(link, at))
	require.NoError(t, netlink.LinkSetUp(link))
	require.NoError(t, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(198, 18, 0, 2)}))
}

// guestDir holds the guest's program while the tests run; "" before.
var guestDir string

// guestProgram builds the static guest once.
var guestProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tranche-guest-")
	if err != nil {
		return "", err
	}
	guestDir = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "tranche-guest")
	build := exec.Command("go", "build", "-o", path, "../cmd/tranche-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

// host is a simulated host with real containers.
type host struct {
	t        *testing.T
	cfg      simhost.Config
	options  node.Options
	node     *node.Node
	keeper   *nodeagent.Keeper
	registry *imagestest.Registry
	stop     func()
}

var fleet = sim.FleetHost{Name: "box", VCPU: 2, RAM: 4 * units.GiB, GPUs: []sim.FleetGPU{
	{Model: "H200-141", Mode: gpu.MIGMode(), Count: 1},
}}

func newHost(t *testing.T, runtime string) *host {
	t.Helper()
	guest, err := guestProgram()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	// Short, for sockets live below it, and passable for the ids of containers.
	dir, err := os.MkdirTemp("/tmp", "tn")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	h := &host{t: t, registry: imagestest.Serve(t), stop: func() {}}
	h.cfg = simhost.Config{Dir: filepath.Join(dir, "a"), Host: fleet, MachineBoot: "boot", Clock: clock.Real()}
	h.options = node.Options{
		Dir: h.cfg.Dir, RunDir: filepath.Join(dir, "r"), Runtime: runtime, Shim: []string{self, shimArgument}, GuestPath: guest,
		Network: "10.99.0.0/24", Ports: network.PortRange{First: 30000, Last: 30009}, SSHListen: "127.0.0.1:0",
		Images: images.Policy{Allow: h.registry.Allow()}, CDIDir: filepath.Join(dir, "cdi"), MockDir: "/dev/" + filepath.Base(dir),
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(h.options.MockDir)) })
	if runtime == node.Containerd {
		h.options.ContainerdAddress = containerdtest.Start(t).Address
	}
	h.up()
	t.Cleanup(func() { h.stop() })
	return h
}

// up starts the agent's parts over what is there.
func (h *host) up() {
	h.t.Helper()
	n, err := node.Simulated(h.t.Context(), h.cfg, h.options)
	require.NoError(h.t, err)
	n.Host.Secrets = func(_ context.Context, r agentlink.SecretsRequest) (agentlink.Secrets, error) {
		return agentlink.Secrets{Assignment: r.Assignment, Fence: r.Fence, Env: map[string]string{"TOKEN": "canary-71"}}, nil
	}
	k, err := nodeagent.NewKeeper(h.t.Context(), n.Host)
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(h.t.Context())
	beside, err := n.Loops(h.t.Context(), k, func() bool { return false })
	require.NoError(h.t, err)
	require.NoError(h.t, k.Adopt(h.t.Context()))
	var loops sync.WaitGroup
	for _, run := range beside {
		loops.Go(func() { _ = run(ctx) }) // the SSH gateway ends with its listener
	}
	h.node, h.keeper = n, k
	h.stop = func() {
		cancel()
		loops.Wait()
		require.NoError(h.t, k.Close())
		require.NoError(h.t, n.Close())
		h.stop = func() {}
	}
}

func (h *host) order(a id.Assignment, image, key string, command ...string) agentlink.Order {
	return agentlink.Order{
		Assignment: a, Fence: 1, Instance: id.New[id.Instance](), Run: 1, Image: image, Command: command, VCPU: 1, RAM: 128,
		Org: id.New[id.Org](), Name: "box", SSHKeys: []string{key}, HasSecrets: true,
		Ports: []agentlink.Port{{Container: 8080, Host: 30003, Protocol: "tcp"}},
		Slots: []gpu.Slot{{GPU: fleet.Devices()[0].UUID, Mode: gpu.MIGMode(), Profile: 19, Start: 2, Size: 1}},
	}
}

func (h *host) obey(d agentlink.Desired) {
	d.Version, d.Timeline = 1, 1
	h.keeper.Obey(d)
	h.keeper.Settle()
}

func (h *host) slice(a id.Assignment) agentlink.Slice {
	h.t.Helper()
	for _, s := range h.keeper.Observe(true).Slices {
		if s.Assignment == a {
			return s
		}
	}
	h.t.Fatalf("no slice %s", a)
	return agentlink.Slice{}
}

// shell runs a command in the instance by SSH.
func (h *host) shell(user string, signer ssh.Signer, command string) (string, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(h.node.Reach.SSHHostKey))
	require.NoError(h.t, err)
	c, err := ssh.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(h.node.Reach.SSHPort)), &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.FixedHostKey(key), Timeout: 10 * time.Second,
	})
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	s, err := c.NewSession()
	if err != nil {
		return "", err
	}
	out, err := s.CombinedOutput(command)
	return string(out), err
}

func newKey(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	return signer, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
}

func TestAnInstanceOnContainerd(t *testing.T) {
	if inside(t) {
		life(t, node.Containerd)
	}
}

func TestAnInstanceOnRunc(t *testing.T) {
	if inside(t) {
		life(t, node.Runc)
	}
}

// life is that of one instance: ordered, entered by SSH, surviving its agent, gone
// without a trace.
func life(t *testing.T, runtime string) {
	h := newHost(t, runtime)
	image := h.registry.Push(t, h.registry.Public, "ok/shell:latest", imagestest.Busybox(t))
	signer, key := newKey(t)
	a := id.New[id.Assignment]()
	o := h.order(a, image, key, "sh", "-c", "echo hello from the program; exec httpd -f -p 8080 -h /bin")
	began := time.Now()
	h.obey(agentlink.Desired{Orders: []agentlink.Order{o}})
	s := h.slice(a)
	require.Equal(t, instance.RunRunning, s.RunState, "%+v", s)
	t.Logf("order to running with the image pulled cold: %s", time.Since(began).Round(time.Millisecond))

	out, err := h.shell(o.Instance.String(), signer, "hostname; echo $TOKEN; id -u; ls /dev | grep -c tn; cat /proc/self/uid_map; cat /etc/hosts")
	require.NoError(t, err, out)
	require.Contains(t, out, "127.0.0.1 localhost\n")
	require.Contains(t, out, "127.0.1.1 box\n")
	require.Contains(t, out, "box\ncanary-71\n0\n")
	_, err = h.shell(o.Instance.String(), signer, "exit 7")
	var status *ssh.ExitError
	require.ErrorAs(t, err, &status)
	require.Equal(t, 7, status.ExitStatus())

	stranger, other := newKey(t)
	_, err = h.shell(o.Instance.String(), stranger, "id")
	require.Error(t, err)
	o.SSHKeys = []string{other}
	h.obey(agentlink.Desired{Orders: []agentlink.Order{o}})
	require.Eventually(t, func() bool {
		_, err := h.shell(o.Instance.String(), stranger, "true")
		return err == nil
	}, 10*time.Second, 50*time.Millisecond, "keys change in place")
	_, err = h.shell(o.Instance.String(), signer, "id")
	require.Error(t, err)

	started := s.Age
	h.stop()
	h.up()
	h.obey(agentlink.Desired{Orders: []agentlink.Order{o}})
	s = h.slice(a)
	require.Equal(t, instance.RunRunning, s.RunState, "%+v", s)
	require.Greater(t, s.Age, started, "the same run goes on")
	out, err = h.shell(o.Instance.String(), stranger, "echo $TOKEN")
	require.NoError(t, err)
	require.Equal(t, "canary-71\n", out, "the guest still knows what the host does not")
	stats, err := h.node.Runtime.Stats(t.Context(), a.String())
	require.NoError(t, err)
	require.Positive(t, stats.MemoryBytes)

	log, err := os.ReadFile(filepath.Join(h.options.Dir, "logs", a.String()+".log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "hello from the program")
	records := h.node.Spool.Pending(0, 100)
	kinds := map[string]int{}
	for _, r := range records {
		if r.Event != nil {
			kinds[r.Event.Kind]++
		}
	}
	require.Equal(t, kinds["session.opened"], kinds["session.closed"])
	require.GreaterOrEqual(t, kinds["session.opened"], 3)
	h.searchDisk("canary-71")

	h.obey(agentlink.Desired{Tombstones: []agentlink.Tombstone{{Assignment: a, Fence: 2}}})
	require.Equal(t, []agentlink.Tombstone{{Assignment: a, Fence: 2}}, h.keeper.Observe(true).Gone)
	h.requireNothingLeft(a.String())
}

// searchDisk fails if the host keeps a secret anywhere below its folders.
func (h *host) searchDisk(secret string) {
	h.t.Helper()
	for _, dir := range []string{h.options.Dir, h.options.RunDir, h.options.CDIDir} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || strings.Contains(path, "/roots/") {
				return err
			}
			// The instance's own disk is sparse and its tenant's.
			if info, err := e.Info(); err != nil || info.Size() > 16<<20 {
				return err
			}
			text, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(text), secret) {
				return fmt.Errorf("%s holds a secret", path)
			}
			return err
		})
		require.NoError(h.t, err)
	}
}

// requireNothingLeft looks for traces of a run: processes, mounts, groups, links,
// device files and folders.
func (h *host) requireNothingLeft(name string) {
	h.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(h.t, err)
	require.NotContains(h.t, string(mounts), name)
	groups, err := filepath.Glob("/sys/fs/cgroup/*/tranche/" + name)
	require.NoError(h.t, err)
	require.Empty(h.t, groups)
	links, err := netlink.LinkList()
	require.NoError(h.t, err)
	for _, l := range links {
		require.NotEqual(h.t, "veth", l.Type(), l.Attrs().Name)
	}
	for _, dir := range []string{h.options.CDIDir, filepath.Join(h.options.RunDir, "guests"), filepath.Join(h.options.Dir, "containers")} {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		require.NoError(h.t, err)
		for _, e := range entries {
			require.NotContains(h.t, e.Name(), name, dir)
		}
	}
}

// What a tenant got wrong is said in words of its own, and leaves nothing behind.
func TestBadOrdersSayWhatIsWrong(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newHost(t, node.Runc)
	image := h.registry.Push(t, h.registry.Public, "ok/shell:latest", imagestest.Busybox(t))
	_, key := newKey(t)
	for name, tc := range map[string]struct {
		image   string
		command []string
		change  func(*agentlink.Order)
		want    string
	}{
		"no such image":   {image: h.registry.Public + "/ok/none:latest", want: "IMAGE_NOT_FOUND"},
		"not allowed":     {image: h.registry.Public + "/other/shell:latest", want: "IMAGE_REFUSED"},
		"no reference":    {image: "Not A Reference", want: "IMAGE_INVALID"},
		"no such program": {image: image, command: []string{"/bin/nothing"}, want: "COMMAND_FAILED"},
		"too small":       {image: image, command: []string{"sleep", "9"}, change: func(o *agentlink.Order) { o.RAM = 4 }, want: "LIMIT_INVALID"},
	} {
		a := id.New[id.Assignment]()
		o := h.order(a, tc.image, key, tc.command...)
		if tc.change != nil {
			tc.change(&o)
		}
		h.obey(agentlink.Desired{Orders: []agentlink.Order{o}})
		s := h.slice(a)
		require.Equal(t, instance.RunFailed, s.RunState, "%s: %+v", name, s)
		require.Equal(t, tc.want, s.Reason.Code, "%s: %+v", name, s)
		h.obey(agentlink.Desired{Tombstones: []agentlink.Tombstone{{Assignment: a, Fence: 2}}})
		h.requireNothingLeft(a.String())
	}
}
