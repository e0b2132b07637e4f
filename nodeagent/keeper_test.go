package nodeagent_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/journal"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
	"github.com/tranche-cloud/tranche/nodeagent/simhost"
)

const whole, migs = 0, 1 // GPUs of the test host

var fleet = sim.FleetHost{Name: "node-1", VCPU: 64, RAM: 512 * units.GiB, GPUs: []sim.FleetGPU{
	{Model: "H100-80", Mode: gpu.WholeMode(), Count: 1},
	{Model: "H200-141", Mode: gpu.MIGMode(), Count: 1},
}}

// node is one host with its agent's keeper, which may die and be born again.
type node struct {
	simhost.Host
	*nodeagent.Keeper
	dir, boot string
	fleet     sim.FleetHost
	adjust    func(*nodeagent.Host) // before each keeper
	down      func()
	closed    bool // the keeper is; its host is not
}

// Close ends the keeper as a killed process ends: its host stays as it is.
func (n *node) Close() error {
	n.closed = true
	return n.Keeper.Close()
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{fleet: fleet, dir: t.TempDir(), boot: "boot-1", down: func() {}}
	t.Cleanup(func() { n.down() })
	n.up(t, nil)
	return n
}

// up starts a new keeper on what is there; wrap may stop it at a journal entry. It
// adopts, unless that fails because the journal was stopped.
func (n *node) up(t *testing.T, wrap func(nodeagent.Journal) nodeagent.Journal) {
	t.Helper()
	if err := n.reopen(t, wrap); err != nil {
		require.ErrorIs(t, err, errKilled)
	}
}

// reopen is up that returns how the adoption went.
func (n *node) reopen(t *testing.T, wrap func(nodeagent.Journal) nodeagent.Journal) error {
	t.Helper()
	n.down()
	var err error
	n.Host, err = simhost.Open(t.Context(), simhost.Config{
		Dir: n.dir, Host: n.fleet, MachineBoot: n.boot, Clock: clock.Real(),
	})
	require.NoError(t, err)
	n.Host.Journal = wrap
	if n.adjust != nil {
		n.adjust(&n.Host.Host)
	}
	n.Keeper, err = nodeagent.NewKeeper(t.Context(), n.Host.Host)
	require.NoError(t, err)
	n.down = func() {
		if !n.closed {
			require.NoError(t, n.Keeper.Close())
		}
		n.closed = false
		require.NoError(t, n.Sim.Close())
		n.down = func() {}
	}
	err = n.Adopt(t.Context())
	n.Settle()
	return err
}

func (n *node) gpu(i int) string { return fleet.Devices()[i].UUID }

// wholeOrder is an order of the whole GPU, migOrder of 1g.18gb at a start.
func (n *node) wholeOrder(a id.Assignment, fence int64) agentlink.Order {
	return agentlink.Order{
		Assignment: a, Fence: fence, Instance: id.New[id.Instance](), Run: 1, Image: "img",
		Slots: []gpu.Slot{{GPU: n.gpu(whole), Mode: gpu.WholeMode(), Size: 1}},
	}
}

func (n *node) migOrder(a id.Assignment, fence int64, start int) agentlink.Order {
	o := n.wholeOrder(a, fence)
	o.Slots = []gpu.Slot{{GPU: n.gpu(migs), Mode: gpu.MIGMode(), Profile: 19, Start: start, Size: 1}}
	return o
}

// obey gives a desired set of timeline 1 and waits until it is carried out.
func (n *node) obey(orders []agentlink.Order, tombstones ...agentlink.Tombstone) {
	n.Obey(agentlink.Desired{Version: 1, Timeline: 1, Orders: orders, Tombstones: tombstones})
	n.Settle()
}

// slice returns the report of an assignment, or false.
func (n *node) slice(a id.Assignment) (agentlink.Slice, bool) {
	for _, s := range n.Observe(true).Slices {
		if s.Assignment == a {
			return s, true
		}
	}
	return agentlink.Slice{}, false
}

// exists counts what is on the host by driver and runtime.
func (n *node) exists(t *testing.T) (slices, containers int) {
	t.Helper()
	found, err := n.Carve.Observe(t.Context(), n.gpu(migs))
	require.NoError(t, err)
	list, err := n.Containers.List(t.Context())
	require.NoError(t, err)
	return len(found), len(list)
}

func orders(o ...agentlink.Order) []agentlink.Order { return o }

// errKilled is what the journal answers after the agent was "killed".
var errKilled = errors.New("killed")

// fuse is a journal that lets n entries through. The next one is lost, or, with
// after, still reaches the disk; from then on nothing does.
type fuse struct {
	nodeagent.Journal
	left  int
	after bool
}

func (f *fuse) Append(e journal.Entry) error {
	if f.left > 0 {
		f.left--
		return f.Journal.Append(e)
	}
	if f.after && f.left == 0 {
		f.left--
		return errors.Join(f.Journal.Append(e), errKilled)
	}
	return errKilled
}

func TestOrderRunsAndTombstoneRemoves(t *testing.T) {
	n := newNode(t)
	a, b := id.New[id.Assignment](), id.New[id.Assignment]()
	n.obey(orders(n.wholeOrder(a, 1), n.migOrder(b, 1, 3)))
	for _, x := range []id.Assignment{a, b} {
		s, ok := n.slice(x)
		require.True(t, ok)
		require.Equal(t, agentlink.SlicePresent, s.State)
		require.Equal(t, instance.RunRunning, s.RunState, "%+v", s)
		require.NotEmpty(t, s.Slots[0].Device)
		require.GreaterOrEqual(t, s.Age, time.Duration(0))
		require.Negative(t, s.EndedAge)
	}
	n.obey(orders(n.wholeOrder(a, 1)), agentlink.Tombstone{Assignment: b, Fence: 2})
	_, ok := n.slice(b)
	require.False(t, ok)
	require.Equal(t, []agentlink.Tombstone{{Assignment: b, Fence: 2}}, n.Observe(true).Gone)
	slices, containers := n.exists(t)
	require.Zero(t, slices)
	require.Equal(t, 1, containers)
}

// Wherever the agent dies, before or after a journal entry, the next one ends where
// an undisturbed one does, and the driver holds exactly what shall be there.
func TestDeathAtEveryEntry(t *testing.T) {
	for _, tc := range []struct {
		name    string
		desired func(*node, id.Assignment) agentlink.Desired
		check   func(*testing.T, *node, id.Assignment)
	}{
		{"while starting", func(n *node, a id.Assignment) agentlink.Desired {
			return agentlink.Desired{Version: 1, Timeline: 1, Orders: orders(n.migOrder(a, 1, 3))}
		}, func(t *testing.T, n *node, a id.Assignment) {
			s, ok := n.slice(a)
			require.True(t, ok)
			require.Equal(t, instance.RunRunning, s.RunState, "%+v", s)
			slices, containers := n.exists(t)
			require.Equal(t, [2]int{1, 1}, [2]int{slices, containers})
		}},
		{"while removing", func(_ *node, a id.Assignment) agentlink.Desired {
			return agentlink.Desired{Version: 2, Timeline: 1, Tombstones: []agentlink.Tombstone{{Assignment: a, Fence: 2}}}
		}, func(t *testing.T, n *node, a id.Assignment) {
			require.Equal(t, []agentlink.Tombstone{{Assignment: a, Fence: 2}}, n.Observe(true).Gone)
			slices, containers := n.exists(t)
			require.Equal(t, [2]int{0, 0}, [2]int{slices, containers})
		}},
	} {
		for _, after := range []bool{false, true} {
			for at := 0; ; at++ {
				n := newNode(t)
				a := id.New[id.Assignment]()
				if tc.name == "while removing" {
					n.obey(orders(n.migOrder(a, 1, 3)))
				}
				n.up(t, func(j nodeagent.Journal) nodeagent.Journal { return &fuse{Journal: j, left: at, after: after} })
				n.Obey(tc.desired(n, a))
				n.Settle()
				died := n.Broken() != nil
				n.up(t, nil)
				n.Obey(tc.desired(n, a)) // the control plane says it again
				n.Settle()
				t.Logf("%s, after=%t, entry %d, died=%t", tc.name, after, at, died)
				tc.check(t, n, a)
				n.down()
				if !died {
					break
				}
			}
		}
	}
}

// A run outlives the agent: same start, growing age, no second container.
func TestRunOutlivesTheAgent(t *testing.T) {
	n := newNode(t)
	a := id.New[id.Assignment]()
	n.obey(orders(n.migOrder(a, 1, 0)))
	before, _ := n.slice(a)
	hash := n.Observe(true).Hash
	n.up(t, nil)
	after, ok := n.slice(a)
	require.True(t, ok)
	require.Equal(t, instance.RunRunning, after.RunState)
	require.GreaterOrEqual(t, after.Age, before.Age)
	require.Equal(t, agentlink.SlicePresent, after.State)
	require.Equal(t, hash, n.Observe(true).Hash, "the hash names the start, not the age")
	n.obey(orders(n.migOrder(a, 1, 0)))
	again, _ := n.slice(a)
	require.GreaterOrEqual(t, again.Age, after.Age)
}

// What is found at start, row by row.
func TestAdoption(t *testing.T) {
	type found struct {
		state agentlink.SliceState
		run   instance.RunState
		code  string
	}
	for _, tc := range []struct {
		name string
		// change happens to the host while the agent is down.
		change func(*testing.T, *node, id.Assignment)
		want   found
	}{
		{
			"all as it was", func(*testing.T, *node, id.Assignment) {},
			found{agentlink.SlicePresent, instance.RunRunning, ""},
		},
		{"container ended by itself", func(t *testing.T, n *node, a id.Assignment) {
			require.NoError(t, n.Containers.End(a.String(), 3))
		}, found{agentlink.SlicePresent, instance.RunExited, ""}},
		{"container gone", func(t *testing.T, n *node, a id.Assignment) {
			require.NoError(t, n.Containers.Stop(t.Context(), a.String()))
		}, found{agentlink.SlicePresent, instance.RunExited, "PROCESS_LOST"}},
		{"slice gone", func(t *testing.T, n *node, a id.Assignment) {
			s := gpu.Slot{GPU: n.gpu(migs), Mode: gpu.MIGMode(), Profile: 19, Start: 3, Size: 1}
			require.NoError(t, n.Carve.Remove(t.Context(), carve.Slice{ID: "x", Slot: s}))
		}, found{agentlink.SlicePresent, instance.RunExited, "SLICE_LOST"}},
		{
			"machine rebooted", func(_ *testing.T, n *node, _ id.Assignment) { n.boot = "boot-2" },
			found{agentlink.SlicePresent, instance.RunExited, "HOST_REBOOT"},
		},
		{
			"host rebooted, slices and modes lost", func(t *testing.T, n *node, _ id.Assignment) { require.NoError(t, n.Sim.Reboot()) },
			found{agentlink.SlicePresent, instance.RunExited, "HOST_REBOOT"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			a := id.New[id.Assignment]()
			n.obey(orders(n.migOrder(a, 1, 3)))
			tc.change(t, n, a)
			n.up(t, nil)
			s, ok := n.slice(a)
			require.True(t, ok)
			require.Equal(t, tc.want, found{s.State, s.RunState, s.Reason.Code}, "%+v", s)
			// Nothing is removed until a tombstone says so; then everything is.
			n.obey(nil, agentlink.Tombstone{Assignment: a, Fence: 2})
			require.Equal(t, []agentlink.Tombstone{{Assignment: a, Fence: 2}}, n.Observe(true).Gone)
			slices, containers := n.exists(t)
			require.Equal(t, [2]int{0, 0}, [2]int{slices, containers})
			for _, g := range n.Inventory(t.Context()).GPUs {
				require.Equal(t, g.Desired, g.Mode, "settings are applied again on idle GPUs")
			}
		})
	}
}

// A run that ends while the agent looks on is told with its end.
func TestRunEndsByItself(t *testing.T) {
	n := newNode(t)
	a := id.New[id.Assignment]()
	n.obey(orders(n.wholeOrder(a, 1)))
	n.Observe(true)
	require.NoError(t, n.Containers.End(a.String(), 7))
	require.NoError(t, n.Inspect(t.Context()))
	delta := n.Observe(false)
	require.Len(t, delta.Slices, 1)
	require.Equal(t, instance.RunExited, delta.Slices[0].RunState)
	require.Equal(t, 7, delta.Slices[0].ExitCode)
	require.GreaterOrEqual(t, delta.Slices[0].EndedAge, time.Duration(0))
	require.GreaterOrEqual(t, delta.Slices[0].Age, delta.Slices[0].EndedAge)
}

// What nobody orders any more keeps running and is reported; what the agent did not
// make is neither used nor touched.
func TestOrphansAndStrangersAreLeftAlone(t *testing.T) {
	n := newNode(t)
	a, stranger := id.New[id.Assignment](), id.New[id.Assignment]()
	n.obey(orders(n.migOrder(a, 1, 0)))
	n.obey(nil)
	s, ok := n.slice(a)
	require.True(t, ok)
	require.Equal(t, agentlink.SliceOrphan, s.State)
	require.Equal(t, instance.RunRunning, s.RunState)

	slot := gpu.Slot{GPU: n.gpu(migs), Mode: gpu.MIGMode(), Profile: 19, Name: "1g.18gb", Start: 5, Size: 1, Compute: 1}
	_, err := n.Carve.Ensure(t.Context(), carve.Slice{ID: "by hand", Slot: slot})
	require.NoError(t, err)
	_, err = n.Containers.Start(t.Context(), runtime.Spec{Name: stranger.String(), Run: 1})
	require.NoError(t, err)
	n.up(t, nil)
	quarantined := 0
	for _, s := range n.Observe(true).Slices {
		if s.State == agentlink.SliceQuarantined {
			require.True(t, s.Assignment.IsZero())
			quarantined++
		}
	}
	require.Equal(t, 2, quarantined)
	b := id.New[id.Assignment]()
	n.obey(orders(n.migOrder(a, 1, 0), n.migOrder(b, 1, 5)))
	s, _ = n.slice(b)
	require.Equal(t, instance.RunFailed, s.RunState)
	require.Equal(t, "NO_ROOM", s.Reason.Code)
	slices, containers := n.exists(t)
	require.Equal(t, [2]int{2, 2}, [2]int{slices, containers}, "nothing was touched")
}

// On a GPU whose mode binds it to one organization a second one is refused by the
// host itself, also after a restart of its agent.
func TestTheSecondWallBetweenOrganizations(t *testing.T) {
	n := &node{fleet: zoo, dir: t.TempDir(), boot: "boot-1", down: func() {}}
	t.Cleanup(func() { n.down() })
	n.up(t, nil)
	a, b := id.New[id.Assignment](), id.New[id.Assignment]()
	mine, theirs := zooOrder(gpu.MPS, a, 0), zooOrder(gpu.MPS, b, 1)
	mine.Org, theirs.Org = id.New[id.Org](), id.New[id.Org]()
	n.obey(orders(mine))
	n.up(t, nil)
	n.obey(orders(mine, theirs))
	s, _ := n.slice(b)
	require.Equal(t, instance.RunFailed, s.RunState)
	require.Equal(t, "NO_ROOM", s.Reason.Code)
	s, _ = n.slice(a)
	require.Equal(t, instance.RunRunning, s.RunState)
	theirs.Org, theirs.Fence = mine.Org, 2
	n.obey(orders(mine, theirs), agentlink.Tombstone{Assignment: b, Fence: 2})
	theirs.Assignment = id.New[id.Assignment]()
	n.obey(orders(mine, theirs))
	s, _ = n.slice(theirs.Assignment)
	require.Equal(t, instance.RunRunning, s.RunState)
}

// Orders and tombstones are obeyed by fence, whatever way they come.
func TestFences(t *testing.T) {
	a := id.New[id.Assignment]()
	tomb := func(fence int64) agentlink.Tombstone { return agentlink.Tombstone{Assignment: a, Fence: fence} }
	running := func(t *testing.T, n *node) {
		s, ok := n.slice(a)
		require.True(t, ok)
		require.Equal(t, instance.RunRunning, s.RunState)
	}
	gone := func(t *testing.T, n *node, fence int64) {
		_, ok := n.slice(a)
		require.False(t, ok)
		_, containers := n.exists(t)
		require.Zero(t, containers)
		require.Equal(t, []agentlink.Tombstone{tomb(fence)}, n.Observe(true).Gone)
	}
	t.Run("a tombstone of a lower fence is refused", func(t *testing.T) {
		n := newNode(t)
		n.obey(orders(n.wholeOrder(a, 5)))
		n.obey(nil, tomb(4))
		running(t, n)
		require.Empty(t, n.Observe(true).Gone)
	})
	t.Run("a delayed order does not bring back what is gone, not even after a restart", func(t *testing.T) {
		n := newNode(t)
		n.obey(orders(n.wholeOrder(a, 1)))
		n.obey(nil, tomb(2))
		n.up(t, nil)
		n.obey(orders(n.wholeOrder(a, 1)))
		_, containers := n.exists(t)
		require.Zero(t, containers)
		n.obey(nil, tomb(2))
		gone(t, n, 2)
	})
	t.Run("a tombstone that comes before its order", func(t *testing.T) {
		n := newNode(t)
		n.obey(nil, tomb(2))
		gone(t, n, 2)
		n.obey(orders(n.wholeOrder(a, 1)), tomb(2))
		gone(t, n, 2)
	})
	t.Run("order and tombstone in one set", func(t *testing.T) {
		n := newNode(t)
		n.obey(orders(n.wholeOrder(a, 1)))
		n.obey(orders(n.wholeOrder(a, 1)), tomb(2))
		gone(t, n, 2)
	})
	t.Run("a lost acknowledgement is given again", func(t *testing.T) {
		n := newNode(t)
		n.obey(orders(n.wholeOrder(a, 1)))
		n.obey(nil, tomb(2))
		n.Observe(false)
		n.obey(nil, tomb(2))
		require.Equal(t, []agentlink.Tombstone{tomb(2)}, n.Observe(false).Gone)
		n.up(t, nil)
		n.obey(nil, tomb(2))
		require.Equal(t, []agentlink.Tombstone{tomb(2)}, n.Observe(false).Gone)
	})
	t.Run("a raised tombstone is acknowledged with its fence", func(t *testing.T) {
		n := newNode(t)
		n.obey(orders(n.wholeOrder(a, 1)))
		n.obey(nil, tomb(2))
		n.obey(nil, tomb(3))
		gone(t, n, 3)
	})
	t.Run("a raised order keeps the run", func(t *testing.T) {
		n := newNode(t)
		n.obey(orders(n.wholeOrder(a, 1)))
		before, _ := n.slice(a)
		n.obey(orders(n.wholeOrder(a, 2)))
		running(t, n)
		after, _ := n.slice(a)
		require.Equal(t, int64(2), after.Fence)
		require.GreaterOrEqual(t, after.Age, before.Age)
	})
	t.Run("a new timeline accepts a lower fence once", func(t *testing.T) {
		n := newNode(t)
		n.obey(orders(n.wholeOrder(a, 5)))
		n.Obey(agentlink.Desired{Version: 1, Timeline: 2, Tombstones: []agentlink.Tombstone{tomb(2)}})
		n.Settle()
		gone(t, n, 2)
		n.obey(orders(n.wholeOrder(a, 9)))
		_, containers := n.exists(t)
		require.Zero(t, containers, "the old timeline is over")
	})
}

// A removal that something hinders goes on until it is proven, and says so meanwhile.
func TestHinderedRemoval(t *testing.T) {
	n := newNode(t)
	a := id.New[id.Assignment]()
	n.obey(orders(n.wholeOrder(a, 1)))
	require.NoError(t, n.Sim.Attach(n.gpu(whole), sim.Client{PID: 4711, Name: "dcgm"}))
	n.Obey(agentlink.Desired{Version: 2, Timeline: 1, Tombstones: []agentlink.Tombstone{{Assignment: a, Fence: 2}}})
	require.Eventually(t, func() bool {
		s, ok := n.slice(a)
		return ok && s.State == agentlink.SliceReclaiming && s.Reason.Code == "IN_USE"
	}, 10*time.Second, 5*time.Millisecond)
	require.Empty(t, n.Observe(true).Gone)
	require.NoError(t, n.Sim.Detach(n.gpu(whole), 4711))
	n.Settle()
	require.Equal(t, []agentlink.Tombstone{{Assignment: a, Fence: 2}}, n.Observe(true).Gone)
}

// A host that cannot be read says so, obeys nothing, and does when it can again.
func TestUnreadableHost(t *testing.T) {
	n := newNode(t)
	a := id.New[id.Assignment]()
	n.obey(orders(n.wholeOrder(a, 1)))
	folder := filepath.Join(n.dir, "containers")
	require.NoError(t, os.Rename(folder, folder+".away"))
	require.Error(t, n.Inspect(t.Context()))
	o := n.Observe(true)
	require.True(t, o.Failed)
	require.Empty(t, o.Slices)
	require.NoError(t, os.Rename(folder+".away", folder))
	require.NoError(t, n.Inspect(t.Context()))
	s, ok := n.slice(a)
	require.True(t, ok)
	require.Equal(t, instance.RunRunning, s.RunState)
}
