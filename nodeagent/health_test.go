package nodeagent_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// stock returns the inventory's row of a GPU.
func (n *node) stock(t *testing.T, i int) agentlink.InventoryGPU {
	t.Helper()
	inv := n.Inventory(t.Context())
	require.False(t, inv.Failed, inv.Failure)
	require.Len(t, inv.GPUs, 2, "never a shorter inventory")
	at := slices.IndexFunc(inv.GPUs, func(g agentlink.InventoryGPU) bool { return g.Device.UUID == n.gpu(i) })
	require.GreaterOrEqual(t, at, 0)
	return inv.GPUs[at]
}

// A lost GPU costs itself alone: the others are read, sold and obeyed, also by an
// agent that starts while it is lost.
func TestALostGPUCostsOnlyItself(t *testing.T) {
	n := newNode(t)
	a, b := id.New[id.Assignment](), id.New[id.Assignment]()
	n.obey(orders(n.wholeOrder(a, 1)))
	require.NoError(t, n.Sim.Lose(n.gpu(migs)))
	require.NoError(t, n.Inspect(t.Context()))
	for range 2 {
		lost := n.stock(t, migs)
		require.Equal(t, "failed", lost.Health)
		require.Equal(t, "GPU_LOST", lost.HealthCause)
		require.NotEmpty(t, lost.Device.Profiles, "it is shown as last seen")
		require.Equal(t, "healthy", n.stock(t, whole).Health)
		n.obey(orders(n.wholeOrder(a, 1), n.migOrder(b, 1, 0)))
		s, ok := n.slice(a)
		require.True(t, ok)
		require.Equal(t, instance.RunRunning, s.RunState)
		refused, _ := n.slice(b)
		require.Equal(t, instance.RunFailed, refused.RunState)
		require.Equal(t, "GPU_LOST", refused.Reason.Code)
		n.up(t, nil)
	}
	require.NoError(t, n.Sim.Reboot())
	n.up(t, nil)
	require.Equal(t, "healthy", n.stock(t, migs).Health)
}

// What a fault interrupts is over at its first symptom, its container ends, and the
// next order of the slot waits for the tombstone.
func TestInterruptedRunsEndAtTheFirstSymptom(t *testing.T) {
	n := newNode(t)
	a, b, c := id.New[id.Assignment](), id.New[id.Assignment](), id.New[id.Assignment]()
	n.obey(orders(n.wholeOrder(a, 1), n.migOrder(b, 1, 0), n.migOrder(c, 1, 3)))
	n.SetHealth(n.gpu(migs), nodeagent.GPUHealth{State: nodeagent.Failing, Cause: "XID_95", Detail: "uncontained"})
	ended, err := n.Interrupt(nodeagent.Interruption{
		GPU: n.gpu(migs), At: &gpu.Placement{Start: 3, Size: 1}, Code: "XID_95", Detail: "uncontained", Credited: true, Since: time.Millisecond,
	})
	require.NoError(t, err)
	require.Equal(t, []id.Assignment{c}, ended)
	n.Settle()
	s, _ := n.slice(c)
	require.Equal(t, instance.RunExited, s.RunState)
	require.Equal(t, "XID_95", s.Reason.Code)
	require.True(t, s.Credited)
	require.GreaterOrEqual(t, s.EndedAge, time.Millisecond)
	for _, x := range []id.Assignment{a, b} {
		s, _ := n.slice(x)
		require.Equal(t, instance.RunRunning, s.RunState)
	}
	_, containers := n.exists(t)
	require.Equal(t, 2, containers)

	ended, err = n.Interrupt(nodeagent.Interruption{GPU: n.gpu(migs), Code: "XID_79", Credited: true})
	require.NoError(t, err)
	require.Equal(t, []id.Assignment{b}, ended)
	n.Settle()
	n.up(t, nil) // the health is the watcher's to say again
	s, _ = n.slice(b)
	require.Equal(t, "XID_79", s.Reason.Code)
	require.True(t, s.Credited)
}

// A crash between the note of an interruption and the end of its container leaves
// nothing running.
func TestAnInterruptionIsFinishedAfterACrash(t *testing.T) {
	for _, after := range []bool{false, true} {
		n := newNode(t)
		a := id.New[id.Assignment]()
		n.obey(orders(n.migOrder(a, 1, 3)))
		n.up(t, func(j nodeagent.Journal) nodeagent.Journal { return &fuse{Journal: j, left: 1, after: after} })
		_, err := n.Interrupt(nodeagent.Interruption{GPU: n.gpu(migs), Code: "XID_79", Credited: true})
		require.NoError(t, err)
		n.Settle()
		require.ErrorIs(t, n.Broken(), errKilled)
		n.up(t, nil)
		s, _ := n.slice(a)
		require.Equal(t, "XID_79", s.Reason.Code)
		_, containers := n.exists(t)
		require.Zero(t, containers)
	}
}

func TestModeOrders(t *testing.T) {
	n := newNode(t)
	a := id.New[id.Assignment]()
	tested := 0
	n.adjust = func(h *nodeagent.Host) {
		h.SelfTest = func(context.Context, string) error { tested++; return nil }
	}
	n.up(t, nil)
	n.obey(orders(n.wholeOrder(a, 1)))
	mode := agentlink.ModeOrder{GPU: n.gpu(whole), Mode: gpu.MIGMode(), Epoch: 1}
	n.Obey(agentlink.Desired{Version: 2, Timeline: 1, Orders: orders(n.wholeOrder(a, 1)), Modes: []agentlink.ModeOrder{mode}})
	require.Eventually(t, func() bool { return n.stock(t, whole).ModeProblem != "" }, 10*time.Second, time.Millisecond)
	g := n.stock(t, whole)
	require.Equal(t, gpu.WholeMode(), g.Mode, "what runs is not touched")
	require.Equal(t, "draining", g.ModeState)
	require.Contains(t, g.ModeProblem, a.String())

	n.obey(nil, agentlink.Tombstone{Assignment: a, Fence: 2}) // settles: the mode follows the slice
	g = n.stock(t, whole)
	require.Equal(t, "settled", g.ModeState)
	require.Equal(t, gpu.MIGMode(), g.Mode)
	require.Equal(t, 1, tested)

	require.NoError(t, n.Sim.Reboot()) // Hopper forgets MIG
	n.up(t, nil)
	require.Equal(t, gpu.MIGMode(), n.stock(t, whole).Mode, "an ordered mode is a setting of the host")
	mode.Mode = gpu.WholeMode()
	n.Obey(agentlink.Desired{Version: 3, Timeline: 1, Modes: []agentlink.ModeOrder{mode}})
	n.Settle()
	require.Equal(t, gpu.MIGMode(), n.stock(t, whole).Mode, "an order of a known epoch is no order")
}

func TestAModeOrderThatCannotBeSaysWhy(t *testing.T) {
	n := newNode(t)
	n.adjust = func(h *nodeagent.Host) {
		h.SelfTest = func(context.Context, string) error { return errors.New("a kernel gave a wrong sum") }
	}
	n.up(t, nil)
	n.Obey(agentlink.Desired{Version: 1, Timeline: 1, Modes: []agentlink.ModeOrder{{GPU: n.gpu(whole), Mode: gpu.MIGMode(), Epoch: 1}}})
	n.Settle()
	g := n.stock(t, whole)
	require.Equal(t, "failed", g.ModeState)
	require.Contains(t, g.ModeProblem, "wrong sum")
}

// hooked is a driver that calls hook before it reads a mode.
type hooked struct {
	gpudrv.Reader
	hook func()
}

func (h *hooked) Mode(ctx context.Context, uuid string) (gpu.Mode, error) {
	h.hook()
	return h.Reader.Mode(ctx, uuid)
}

// An order that comes while the one before is being finished is carried out as well.
func TestAModeOrderIsNotLostBehindTheOneBefore(t *testing.T) {
	n := newNode(t)
	d := &hooked{hook: func() {}}
	n.adjust = func(h *nodeagent.Host) { d.Reader, h.Driver = h.Driver, d }
	n.up(t, nil)
	order := func(m gpu.Mode, epoch int64) {
		n.Obey(agentlink.Desired{Version: epoch, Timeline: 1, Modes: []agentlink.ModeOrder{{GPU: n.gpu(whole), Mode: m, Epoch: epoch}}})
	}
	var once sync.Once
	// The keeper reads the GPU once the first order is carried out.
	d.hook = func() { once.Do(func() { order(gpu.WholeMode(), 2) }) }
	order(gpu.MIGMode(), 1)
	n.Settle()
	g := n.stock(t, whole)
	require.Equal(t, "settled", g.ModeState)
	require.Equal(t, gpu.WholeMode(), g.Mode)
}

// door remembers what the SSH gateway was told last, after some failures.
type door struct {
	mu          sync.Mutex
	authorities []string
	list        []nodeagent.Access
	failures    int
}

func (d *door) Open(_ context.Context, authorities []string, list []nodeagent.Access) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failures > 0 {
		d.failures--
		return errors.New("the containers cannot be listed now")
	}
	d.authorities, d.list = authorities, list
	return nil
}

func TestKeysChangeInPlace(t *testing.T) {
	n := newNode(t)
	d := &door{}
	n.adjust = func(h *nodeagent.Host) { h.Door = d }
	n.up(t, nil)
	a := id.New[id.Assignment]()
	o := n.wholeOrder(a, 1)
	for _, keys := range [][]string{{"one"}, {"two", "three"}, nil} {
		o.SSHKeys = keys
		d.failures = 2 // a key that is withdrawn goes all the same
		n.Obey(agentlink.Desired{Version: 1, Timeline: 1, Orders: orders(o), SSHAuthorities: []string{"ca"}})
		n.Settle()
		require.Equal(t, []string{"ca"}, d.authorities)
		require.Equal(t, []nodeagent.Access{{Assignment: a, Instance: o.Instance, Keys: keys}}, d.list)
	}
	s, _ := n.slice(a)
	require.Equal(t, int64(1), s.Fence)
	n.obey(nil, agentlink.Tombstone{Assignment: a, Fence: 2})
	require.Empty(t, d.list)
}

func TestSecretsAreAskedForAndForgotten(t *testing.T) {
	n := newNode(t)
	a := id.New[id.Assignment]()
	asked := 0
	n.adjust = func(h *nodeagent.Host) {
		h.Secrets = func(_ context.Context, r agentlink.SecretsRequest) (agentlink.Secrets, error) {
			asked++
			if asked == 1 {
				return agentlink.Secrets{}, errors.New("no link")
			}
			return agentlink.Secrets{Assignment: r.Assignment, Fence: r.Fence, Env: map[string]string{"TOKEN": "canary-5f"}}, nil
		}
	}
	n.up(t, nil)
	o := n.wholeOrder(a, 1)
	o.HasSecrets = true
	n.obey(orders(o))
	s, _ := n.slice(a)
	require.Equal(t, instance.RunRunning, s.RunState)
	require.Equal(t, 2, asked, "no link is no failure")
	requireAbsent(t, n.dir, "canary-5f")

	n.adjust = func(h *nodeagent.Host) {
		h.Secrets = func(context.Context, agentlink.SecretsRequest) (agentlink.Secrets, error) {
			return agentlink.Secrets{Refused: "not this host's"}, nil
		}
	}
	n.up(t, nil)
	b := id.New[id.Assignment]()
	p := n.migOrder(b, 1, 0)
	p.HasSecrets = true
	n.obey(orders(o, p))
	s, _ = n.slice(b)
	require.Equal(t, instance.RunFailed, s.RunState)
	require.Equal(t, "SECRETS_REFUSED", s.Reason.Code)
}

// slow is a runtime whose starts take until they are given up.
type slow struct {
	runtime.Driver
	begun chan struct{}
}

func (r *slow) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	close(r.begun)
	<-ctx.Done()
	return runtime.Container{}, runtime.Refuse(runtime.ImageUnavailable, "start", s.Name, "given up")
}

// An instance that is deleted while its image is pulled does not hold its slot until the
// pull is over.
func TestATombstoneEndsAStartUnderWay(t *testing.T) {
	n := newNode(t)
	r := &slow{begun: make(chan struct{})}
	n.adjust = func(h *nodeagent.Host) { r.Driver, h.Runtime = h.Runtime, r }
	n.up(t, nil)
	a := id.New[id.Assignment]()
	n.Obey(agentlink.Desired{Version: 1, Timeline: 1, Orders: orders(n.wholeOrder(a, 1))})
	<-r.begun
	n.obey(nil, agentlink.Tombstone{Assignment: a, Fence: 2})
	require.Equal(t, []agentlink.Tombstone{{Assignment: a, Fence: 2}}, n.Observe(false).Gone)
	left, _ := n.exists(t)
	require.Zero(t, left)
}

// scrubber proves or refuses.
type scrubber struct{ err error }

func (s scrubber) Scrub(context.Context, carve.Slice) (string, error) {
	return "0 words of a pattern", s.err
}

func TestADirtySliceIsNotGivenBack(t *testing.T) {
	n := newNode(t)
	bad := &scrubber{err: errors.New("17 pages still hold data")}
	n.adjust = func(h *nodeagent.Host) { h.Scrub = bad }
	n.up(t, nil)
	a := id.New[id.Assignment]()
	n.obey(orders(n.migOrder(a, 1, 3)))
	n.Obey(agentlink.Desired{Version: 2, Timeline: 1, Tombstones: []agentlink.Tombstone{{Assignment: a, Fence: 2}}})
	require.Eventually(t, func() bool {
		s, ok := n.slice(a)
		return ok && s.Reason.Code == "SCRUB_FAILED"
	}, 10*time.Second, time.Millisecond)
	require.Empty(t, n.Observe(true).Gone)
	slicesLeft, _ := n.exists(t)
	require.Equal(t, 1, slicesLeft)
	n.adjust = func(h *nodeagent.Host) { h.Scrub = scrubber{} }
	n.up(t, nil)
	require.Len(t, n.Observe(false).Gone, 1)
}
