package nodeagent_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/journal"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// mishap is what happens to one call.
type mishap string

const (
	killBefore mishap = "killed before the call"
	killAfter  mishap = "killed after the call, before its answer"
	errBefore  mishap = "the call fails"
	late       mishap = "the call times out and succeeds late"
	twice      mishap = "the call is made twice"
)

var mishaps = []mishap{killBefore, killAfter, errBefore, late, twice}

// gremlin lets calls through until its turn comes.
type gremlin struct {
	mu   sync.Mutex
	left int // calls before the mishap; negative once it has happened
	do   mishap
	dead bool
	died chan struct{}
	at   string // the call that it hit
}

// call runs one call of the agent under the gremlin's eye.
func (g *gremlin) call(name string, run func() error) error {
	g.mu.Lock()
	if g.dead {
		g.mu.Unlock()
		return errKilled
	}
	hit := g.left == 0
	g.left--
	if hit {
		g.at = name
	}
	if hit && (g.do == killBefore || g.do == killAfter) {
		g.dead = true
		defer close(g.died) // the call's own effect comes first
	}
	g.mu.Unlock()
	if !hit {
		return run()
	}
	switch g.do {
	case killBefore:
		return errKilled
	case killAfter:
		return errors.Join(run(), errKilled)
	case errBefore:
		return gpudrv.Refuse(gpudrv.Broken, name, "", "injected")
	case late:
		return errors.Join(run(), gpudrv.Refuse(gpudrv.Hung, name, "", "injected: no answer in time"))
	}
	return errors.Join(run(), run())
}

func (g *gremlin) happened() (string, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.at, g.at != ""
}

// hauntedJournal loses its process as a whole: an entry that is not on disk cannot be
// told from one that failed, so only the kills apply to it.
type hauntedJournal struct {
	nodeagent.Journal
	*gremlin
}

func (h hauntedJournal) Append(e journal.Entry) error {
	return h.call("journal "+string(e.Step), func() error { return h.Journal.Append(e) })
}

type hauntedCarver struct {
	nodeagent.Carver
	*gremlin
}

func (h hauntedCarver) Ensure(ctx context.Context, s carve.Slice) (out carve.Evidence, err error) {
	err = h.call("carve.ensure", func() error { out, err = h.Carver.Ensure(ctx, s); return err })
	return out, err
}

func (h hauntedCarver) Remove(ctx context.Context, s carve.Slice) error {
	return h.call("carve.remove", func() error { return h.Carver.Remove(ctx, s) })
}

func (h hauntedCarver) Observe(ctx context.Context, uuid string) (out []carve.Found, err error) {
	err = h.call("carve.observe", func() error { out, err = h.Carver.Observe(ctx, uuid); return err })
	return out, err
}

type hauntedRuntime struct {
	runtime.Driver
	*gremlin
}

func (h hauntedRuntime) Start(ctx context.Context, s runtime.Spec) (out runtime.Container, err error) {
	err = h.call("runtime.start", func() error { out, err = h.Driver.Start(ctx, s); return err })
	return out, err
}

func (h hauntedRuntime) Stop(ctx context.Context, name string) error {
	return h.call("runtime.stop", func() error { return h.Driver.Stop(ctx, name) })
}

func (h hauntedRuntime) List(ctx context.Context) (out []runtime.Container, err error) {
	err = h.call("runtime.list", func() error { out, err = h.Driver.List(ctx); return err })
	return out, err
}

// zoo is a host with a GPU in each mode.
var zoo = sim.FleetHost{Name: "zoo", VCPU: 64, RAM: 512 * units.GiB, GPUs: []sim.FleetGPU{
	{Model: "H100-80", Mode: gpu.WholeMode(), Count: 1},
	{Model: "H200-141", Mode: gpu.MIGMode(), Count: 1},
	{Model: "A100-80", Mode: mode("mps:4x25"), Count: 1},
	{Model: "A100-80", Mode: mode("timeslice:2"), Count: 1},
}}

func mode(text string) gpu.Mode {
	m, err := gpu.ParseMode(text)
	if err != nil {
		panic(err)
	}
	return m
}

// zooOrder is an order of one slot of the GPU in a mode, and its neighbour if there
// is one, which must never feel anything.
func zooOrder(kind gpu.Kind, a id.Assignment, unit int) agentlink.Order {
	for _, d := range zoo.Devices() {
		if d.Mode.Kind != kind {
			continue
		}
		s := gpu.Slot{GPU: d.UUID, Mode: d.Mode, Start: unit, Size: 1}
		if kind == gpu.MIG {
			s.Profile = 19
		}
		return agentlink.Order{Assignment: a, Fence: 1, Instance: id.New[id.Instance](), Run: 1, Image: "img", Slots: []gpu.Slot{s}}
	}
	panic("no gpu in mode " + string(kind))
}

// tally is what the driver and the runtime show on the whole host.
func (n *node) tally(t *testing.T) (slices, containers int) {
	t.Helper()
	for _, d := range n.fleet.Devices() {
		found, err := n.Host.Host.Carve.Observe(t.Context(), d.UUID)
		require.NoError(t, err)
		slices += len(found)
	}
	list, err := n.Containers.List(t.Context())
	require.NoError(t, err)
	return slices, len(list)
}

// Whatever happens to any one call of the agent, at any journal step, and whichever
// technique carves: after the restart there is either the run as ordered, once, or a
// typed failure; after the tombstone there is nothing; the neighbour feels nothing;
// and the run that is reported begins and ends when its container did.
func TestKillAnywhere(t *testing.T) {
	for _, kind := range []gpu.Kind{gpu.Whole, gpu.MIG, gpu.MPS, gpu.TimeSlice} {
		for _, do := range mishaps {
			for _, phase := range []string{"start", "interrupt", "remove"} {
				t.Run(fmt.Sprintf("%s/%s/%s", kind, phase, do), func(t *testing.T) {
					t.Parallel()
					for at := 0; ; at++ {
						if !anywhere(t, kind, phase, do, at) {
							break
						}
					}
				})
			}
		}
	}
}

// anywhere plays one life with one mishap; it reports whether the mishap's turn came.
func anywhere(t *testing.T, kind gpu.Kind, phase string, do mishap, at int) bool {
	t.Helper()
	n := &node{fleet: zoo, dir: t.TempDir(), boot: "boot-1", down: func() {}}
	defer func() { n.down() }()
	a, neighbour := id.New[id.Assignment](), id.New[id.Assignment]()
	var beside []agentlink.Order
	if kind != gpu.Whole {
		beside = orders(zooOrder(kind, neighbour, 1))
	}
	order := append([]agentlink.Order{zooOrder(kind, a, 0)}, beside...)
	n.up(t, nil)
	n.obey(beside)
	if phase != "start" {
		n.obey(order)
	}
	felt, _ := n.slice(neighbour)

	g := &gremlin{left: at, do: do, died: make(chan struct{})}
	n.adjust = func(h *nodeagent.Host) {
		h.Carve, h.Runtime = hauntedCarver{h.Carve, g}, hauntedRuntime{h.Runtime, g}
	}
	_ = n.reopen(t, func(j nodeagent.Journal) nodeagent.Journal { // a mishap may hit the adoption
		if do == killBefore || do == killAfter {
			return hauntedJournal{j, g}
		}
		return j
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		act(n, phase, a, order, beside)
	}()
	select {
	case <-done:
	case <-g.died:
		require.NoError(t, n.Close())
		<-done
	}
	where, hit := g.happened()

	n.adjust = nil
	n.up(t, nil)
	if phase != "remove" {
		n.obey(order) // the control plane says it again
		judgeRun(t, n, phase, do, where, a, len(beside))
		n.obey(beside, agentlink.Tombstone{Assignment: a, Fence: 2})
	} else {
		act(n, phase, a, order, beside)
	}
	require.Equal(t, []agentlink.Tombstone{{Assignment: a, Fence: 2}}, n.Observe(true).Gone, "%s at %s", do, where)
	slices, containers := n.tally(t)
	if kind == gpu.Whole {
		slices += len(beside)
	}
	require.Equal(t, [2]int{len(beside), len(beside)}, [2]int{slices, containers}, "leaked: %s at %s", do, where)
	if len(beside) > 0 {
		s, ok := n.slice(neighbour)
		require.True(t, ok)
		require.Equal(t, instance.RunRunning, s.RunState, "%s at %s", do, where)
		require.Equal(t, felt.Slots, s.Slots, "the neighbour's device is the same")
		require.GreaterOrEqual(t, s.Age, felt.Age)
	}
	return hit
}

// act does to a host what the phase is about.
func act(n *node, phase string, a id.Assignment, order, beside []agentlink.Order) {
	switch phase {
	case "start":
		n.obey(order)
	case "interrupt":
		_, _ = n.Interrupt(nodeagent.Interruption{Assignment: a, Code: "XID_95", Credited: true}) // what it did shows later
		n.Settle()
	case "remove":
		n.obey(beside, agentlink.Tombstone{Assignment: a, Fence: 2})
	}
}

// judgeRun checks the run after the restart.
func judgeRun(t *testing.T, n *node, phase string, do mishap, where string, a id.Assignment, beside int) {
	t.Helper()
	s, ok := n.slice(a)
	require.True(t, ok)
	list, err := n.Containers.List(t.Context())
	require.NoError(t, err)
	mine := 0
	for _, c := range list {
		if c.Name != a.String() {
			continue
		}
		mine++
		if s.RunState == instance.RunRunning {
			now := nodeagent.Uptime()
			require.InDelta(t, (now - c.Started).Seconds(), s.Age.Seconds(), 0.5, "the run begins when its container did")
		}
	}
	require.LessOrEqual(t, mine, 1)
	require.LessOrEqual(t, len(list), beside+1, "doubly owned")
	switch s.RunState {
	case instance.RunRunning:
		require.Equal(t, 1, mine, "%s at %s", do, where)
	case instance.RunExited:
		require.Equal(t, "interrupt", phase)
		require.Equal(t, "XID_95", s.Reason.Code)
		require.True(t, s.Credited)
		require.GreaterOrEqual(t, s.EndedAge.Nanoseconds(), int64(0))
		require.GreaterOrEqual(t, s.Age, s.EndedAge)
		require.Zero(t, mine, "an interrupted run's container ends")
	case instance.RunFailed:
		require.Contains(t, []mishap{errBefore, late}, do, "%s at %s: %+v", do, where, s)
		require.NotEmpty(t, s.Reason.Code)
	default:
		require.Fail(t, "neither runs nor failed", "%s at %s: %+v", do, where, s)
	}
}
