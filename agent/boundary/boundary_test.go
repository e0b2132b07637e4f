package boundary_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/boundary"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/callwire"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/gpudrvtest"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
	"github.com/tranche-cloud/tranche/nodeagent/simhost"
)

const dialMarker = "TRANCHE_HELPER_TEST_DIAL"

// TestMain makes this binary a stranger who dials, too.
func TestMain(m *testing.M) {
	path, stranger := os.LookupEnv(dialMarker)
	if !stranger {
		os.Exit(m.Run())
	}
	var d net.Dialer
	conn, err := d.DialContext(context.Background(), "unix", path)
	if err == nil {
		_, err = callwire.NewClient(context.Background(), conn)
	}
	if err != nil {
		os.Exit(3)
	}
}

var fleet = sim.FleetHost{Name: "node", VCPU: 64, RAM: 512 * units.GiB, GPUs: []sim.FleetGPU{
	{Model: "H200-141", Mode: gpu.MIGMode(), Count: 1}, {Model: "H100-80", Mode: gpu.WholeMode(), Count: 1},
}}

// rig is a helper over a simulated host, and its client.
type rig struct {
	host   simhost.Host
	path   string
	log    *bytes.Buffer
	client *boundary.Client
	stop   func()
}

func newRig(t *testing.T, change func(*boundary.Config)) *rig {
	t.Helper()
	host, err := simhost.Open(t.Context(), simhost.Config{Dir: t.TempDir(), Host: fleet, MachineBoot: "boot", Clock: clock.Real()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = host.Sim.Close() })
	dir, err := os.MkdirTemp("", "th")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &rig{host: host, path: filepath.Join(dir, "s"), log: &bytes.Buffer{}}
	cfg := boundary.Config{
		Host: host.Host, Reset: host.Sim.Reset, Users: []uint32{uint32(os.Getuid())},
		Log: slog.New(slog.NewTextHandler(&guarded{w: r.log}, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	r.up(t, cfg)
	r.client, err = boundary.Dial(t.Context(), r.path, clock.Real())
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.client.Close(); r.stop() })
	return r
}

func (r *rig) up(t *testing.T, cfg boundary.Config) {
	t.Helper()
	l, err := boundary.Listen(r.path, os.Getgid())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- boundary.New(cfg).Serve(ctx, l) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

type guarded struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (g *guarded) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.w.Write(p)
}

func (r *rig) ports(t *testing.T) nodeagent.Host {
	t.Helper()
	h, err := r.client.Host(t.Context(), t.TempDir(), nil)
	require.NoError(t, err)
	return h
}

func TestTheDriverConformsThroughTheHelper(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	gpudrvtest.ReadOnly(t, r.client.Driver())
	uuid := fleet.Devices()[0].UUID
	gpudrvtest.Events(t, r.client.Driver(), uuid, func(code int) { r.host.Sim.XID(uuid, code, -1, -1) })
	require.NoError(t, r.client.Driver().Reset(t.Context(), uuid))
}

func TestPortsReachTheHost(t *testing.T) {
	t.Parallel()
	var opened []nodeagent.Access
	r := newRig(t, func(c *boundary.Config) {
		c.Host.Door = doorFunc(func(list []nodeagent.Access) { opened = list })
		c.Host.PIDs = func(string) ([]int, error) { return []int{7, 8}, nil }
		c.Host.Floors = func() []string { return []string{"runc"} }
		c.Host.SelfTest = func(context.Context, string) error { return errors.New("wrong sums") }
	})
	ctx, h, uuid := t.Context(), r.ports(t), fleet.Devices()[0].UUID
	require.Equal(t, "fake", h.RuntimeName)
	require.Equal(t, r.host.BootID, h.BootID)
	require.Equal(t, r.host.Modes, h.Modes)
	require.Equal(t, []string{"runc"}, h.Floors())
	require.Nil(t, h.Scrub)
	require.ErrorContains(t, h.SelfTest(ctx, uuid), "wrong sums")

	slot := gpu.Slot{GPU: uuid, Mode: gpu.MIGMode(), Profile: 19, Name: "1g.18gb", Start: 2, Size: 1, Compute: 1}
	e, err := h.Carve.Ensure(ctx, carve.Slice{ID: "a/0", Slot: slot})
	require.NoError(t, err)
	require.Equal(t, slot.Start, e.Slot.Start)
	found, err := h.Carve.Observe(ctx, uuid)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, gpudrv.InUse, gpudrv.KindOf(h.Carve.EnsureMode(ctx, uuid, gpu.WholeMode())))
	require.NoError(t, h.Carve.Quiet(ctx, carve.Slice{ID: "a/0", Slot: slot}, []int{100}))

	name, instance := id.New[id.Assignment](), id.New[id.Instance]()
	spec := runtime.Spec{Name: name.String(), Run: 1, Instance: instance.String(), Image: "img", Slots: []gpu.Slot{slot}, Devices: []string{e.UUID}}
	c, err := h.Runtime.Start(ctx, spec)
	require.NoError(t, err)
	require.Equal(t, runtime.Running, c.State)
	list, err := h.Runtime.List(ctx)
	require.NoError(t, err)
	require.Equal(t, []runtime.Container{c}, list)
	_, err = h.Runtime.Stats(ctx, name.String())
	require.NoError(t, err)
	_, err = h.Runtime.Stats(ctx, id.New[id.Assignment]().String())
	require.Equal(t, runtime.NotFound, runtime.KindOf(err))
	_, err = h.Runtime.Exec(ctx, name.String(), runtime.Exec{Args: []string{"id"}})
	require.Equal(t, runtime.Unavailable, runtime.KindOf(err))
	pids, err := h.PIDs(name.String())
	require.NoError(t, err)
	require.Equal(t, []int{7, 8}, pids)
	require.NoError(t, h.Door.Open(ctx, []string{"ssh-ed25519 AAAA"}, []nodeagent.Access{{Assignment: name, Instance: instance, Keys: []string{"k"}}}))
	require.Len(t, opened, 1)
	require.Equal(t, name, opened[0].Assignment)

	require.NoError(t, h.Runtime.Stop(ctx, name.String()))
	require.NoError(t, h.Carve.Remove(ctx, carve.Slice{ID: "a/0", Slot: slot}))
	_, err = h.Carve.Ensure(ctx, carve.Slice{ID: "a/0", Slot: gpu.Slot{GPU: "GPU-none", Mode: gpu.MIGMode(), Size: 1}})
	require.Equal(t, gpudrv.NotFound, gpudrv.KindOf(err))
}

type doorFunc func([]nodeagent.Access)

func (d doorFunc) Open(_ context.Context, _ []string, list []nodeagent.Access) error {
	d(list)
	return nil
}

// Arguments that are not legal reach no port, and what is secret reaches no log.
func TestArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *boundary.Config) {
		c.Host.Door = doorFunc(func([]nodeagent.Access) { t.Error("the door was told") })
	})
	ctx, h := t.Context(), r.ports(t)
	good := runtime.Spec{
		Name: id.New[id.Assignment]().String(), Run: 1, Image: "img", Secrets: map[string]string{"TOKEN": "canary-22"},
		Login: &runtime.Login{Registry: "r", Username: "u", Password: "canary-33"},
	}
	for name, change := range map[string]func(*runtime.Spec){
		"a path as name":     func(s *runtime.Spec) { s.Name = "../../etc/passwd" },
		"no image":           func(s *runtime.Spec) { s.Image = "" },
		"a long image":       func(s *runtime.Spec) { s.Image = strings.Repeat("i", 600) },
		"an image in lines":  func(s *runtime.Spec) { s.Image = "a\nb" },
		"a negative size":    func(s *runtime.Spec) { s.RAM = -1 },
		"no such port":       func(s *runtime.Spec) { s.Ports = []runtime.Port{{Container: 70000, Host: 1, Protocol: "tcp"}} },
		"no such protocol":   func(s *runtime.Spec) { s.Ports = []runtime.Port{{Container: 70, Host: 1, Protocol: "x"}} },
		"a device by path":   func(s *runtime.Spec) { s.Devices = []string{"/dev/sda x"} },
		"a variable's name":  func(s *runtime.Spec) { s.Env = map[string]string{"A=B": "c"} },
		"a NUL":              func(s *runtime.Spec) { s.Command = []string{"a\x00b"} },
		"too many arguments": func(s *runtime.Spec) { s.Command = make([]string, 2000) },
		"a host name":        func(s *runtime.Spec) { s.Hostname = "a b" },
		"a slot's mode":      func(s *runtime.Spec) { s.Slots = []gpu.Slot{{GPU: "GPU-1", Mode: gpu.Mode{Kind: "odd"}}} },
	} {
		s := good
		change(&s)
		_, err := h.Runtime.Start(ctx, s)
		require.Error(t, err, name)
	}
	list, err := h.Runtime.List(ctx)
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = h.Runtime.Start(ctx, good)
	require.NoError(t, err)
	require.Equal(t, gpudrv.Invalid, gpudrv.KindOf(h.Carve.Quiet(ctx, carve.Slice{Slot: gpu.Slot{GPU: "GPU-1", Mode: gpu.MIGMode()}}, []int{1})))
	require.Error(t, h.Door.Open(ctx, []string{"two\nlines"}, nil))
	r.stop()
	require.NotContains(t, r.log.String(), "canary")
}

func TestAForeignUserIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *boundary.Config) { c.Users = []uint32{65533} })
	require.NoError(t, os.Chmod(r.path, 0o666), "the mode of the file alone would let anybody in")
	self, err := os.Executable()
	require.NoError(t, err)
	program := filepath.Join(filepath.Dir(r.path), "dial")
	text, err := os.ReadFile(self)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, text, 0o755))
	dial := func(uid uint32) int {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env, cmd.Dir = []string{dialMarker + "=" + r.path}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode()
	}
	require.Equal(t, 0, dial(65533), "the link")
	require.Equal(t, 0, dial(0), "root")
	require.Equal(t, 3, dial(65534), "anybody else")
}

// slow is a runtime whose starts wait.
type slow struct {
	runtime.Driver
	gate    chan struct{}
	begun   chan struct{}
	running atomic.Int32
	most    atomic.Int32
}

func (s *slow) Start(ctx context.Context, spec runtime.Spec) (runtime.Container, error) {
	s.most.Store(max(s.most.Load(), s.running.Add(1)))
	defer s.running.Add(-1)
	spec.Extra.Progress("pulling 40 %")
	s.begun <- struct{}{}
	select {
	case <-s.gate:
	case <-ctx.Done():
		return runtime.Container{}, ctx.Err()
	}
	return s.Driver.Start(ctx, spec)
}

// A link that goes away and comes back finds the start that it asked for, not two.
func TestAStartOutlivesTheLink(t *testing.T) {
	t.Parallel()
	var s *slow
	r := newRig(t, func(c *boundary.Config) {
		s = &slow{Driver: c.Host.Runtime, gate: make(chan struct{}), begun: make(chan struct{}, 2)}
		c.Host.Runtime = s
	})
	heard := make(chan string, 1)
	spec := runtime.Spec{Name: id.New[id.Assignment]().String(), Run: 1, Image: "img", Extra: runtime.Extra{Progress: func(text string) { heard <- text }}}
	go func() { _, _ = r.ports(t).Runtime.Start(t.Context(), spec) }()
	<-s.begun
	require.Equal(t, "pulling 40 %", <-heard)
	require.NoError(t, r.client.Close())

	again, err := boundary.Dial(t.Context(), r.path, clock.Real())
	require.NoError(t, err)
	defer func() { _ = again.Close() }()
	h, err := again.Host(t.Context(), t.TempDir(), nil)
	require.NoError(t, err)
	spec.Extra.Progress = nil
	started := make(chan error, 1)
	go func() { _, err := h.Runtime.Start(t.Context(), spec); started <- err }()
	close(s.gate)
	require.NoError(t, <-started)
	require.Equal(t, int32(1), s.most.Load(), "one start of a name at a time")
	list, err := h.Runtime.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// A stop does not wait for an image that nobody wants any more.
func TestAStopEndsTheStartOfItsName(t *testing.T) {
	t.Parallel()
	var s *slow
	r := newRig(t, func(c *boundary.Config) {
		s = &slow{Driver: c.Host.Runtime, gate: make(chan struct{}), begun: make(chan struct{}, 2)}
		c.Host.Runtime = s
	})
	h := r.ports(t)
	name := id.New[id.Assignment]().String()
	started := make(chan error, 1)
	spec := runtime.Spec{Name: name, Run: 1, Image: "img", Extra: runtime.Extra{Progress: func(string) {}}}
	go func() { _, err := h.Runtime.Start(t.Context(), spec); started <- err }()
	<-s.begun
	require.NoError(t, h.Runtime.Stop(t.Context(), name))
	require.Error(t, <-started)
	list, err := h.Runtime.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
}

// A helper that is killed in the middle of a call answers it when it is back.
func TestACallOutlivesTheHelper(t *testing.T) {
	t.Parallel()
	var s *slow
	var cfg boundary.Config
	r := newRig(t, func(c *boundary.Config) {
		cfg = *c
		s = &slow{Driver: c.Host.Runtime, gate: make(chan struct{}), begun: make(chan struct{}, 2)}
		c.Host.Runtime = s
	})
	h := r.ports(t)
	w, err := h.Driver.Watch(t.Context())
	require.NoError(t, err)
	started := make(chan error, 1)
	spec := runtime.Spec{Name: id.New[id.Assignment]().String(), Run: 1, Image: "img"}
	go func() { _, err := h.Runtime.Start(t.Context(), spec); started <- err }()
	<-s.begun
	r.stop()
	r.up(t, cfg)
	require.NoError(t, <-started)
	e, err := w.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, gpudrv.EventMissed, e.Kind)
	require.NoError(t, w.Close())
}

func TestAHelperThatIsAway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := boundary.Dial(ctx, filepath.Join(t.TempDir(), "none"), clock.Real())
	require.ErrorIs(t, err, boundary.ErrAway)
}

// FuzzVerbs: for each verb, arguments are refused with a typed error or are legal, and
// then say the same again.
func FuzzVerbs(f *testing.F) {
	all := boundary.Verbs()
	slices.Sort(all)
	name := id.New[id.Assignment]().String()
	for i := range all {
		for _, seed := range []string{
			`{}`, `{"gpu":"GPU-1","mode":"mps:4x25"}`, `{"name":"` + name + `"}`, `{"op":"memory","args":{"gpu":"GPU-1"}}`,
			`{"id":"a/0","slot":{"GPU":"GPU-1","Mode":"mig","Profile":19,"Start":0,"Size":1},"pids":[9]}`,
			`{"name":"` + name + `","run":1,"instance":"","image":"img","slots":[],"vcpu":1,"ram_mib":64,"secrets":{"A":"b"},"ports":[{"Container":80,"Host":30000,"Protocol":"tcp"}]}`,
			`{"authorities":["ssh-ed25519 A"],"list":[]}`,
		} {
			f.Add(uint8(i), []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, body []byte) {
		verb := all[int(n)%len(all)]
		a, err := boundary.Check(verb, body)
		if err != nil {
			require.Equal(t, gpudrv.Invalid, gpudrv.KindOf(err), verb)
			return
		}
		text, err := json.Marshal(a)
		require.NoError(t, err, verb)
		again, err := boundary.Check(verb, text)
		require.NoError(t, err, verb)
		same, err := json.Marshal(again)
		require.NoError(t, err, verb)
		require.Equal(t, string(text), string(same), verb)
	})
}
