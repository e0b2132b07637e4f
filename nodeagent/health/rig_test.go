package health_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/health"
	"github.com/tranche-cloud/tranche/nodeagent/simhost"
)

// GPUs of the test host: two of Hopper, which are reset one by one, and two of Ampere,
// which are reset together.
const whole, migs, shares, turns = 0, 1, 2, 3

// hungAfter is how long a GPU of the test host may take to answer.
const hungAfter = 2 * time.Second

const patience = 20 * time.Second

func mode(text string) gpu.Mode {
	m, err := gpu.ParseMode(text)
	if err != nil {
		panic(err)
	}
	return m
}

var zoo = sim.FleetHost{Name: "zoo", VCPU: 64, RAM: 512 * units.GiB, GPUs: []sim.FleetGPU{
	{Model: "H100-80", Mode: gpu.WholeMode(), Count: 1},
	{Model: "H200-141", Mode: gpu.MIGMode(), Count: 1},
	{Model: "A100-80", Mode: mode("mps:4x25"), Count: 1},
	{Model: "A100-80", Mode: mode("timeslice:2"), Count: 1},
}}

func uuidOf(i int) string { return zoo.Devices()[i].UUID }

// diary is a spool that a test reads.
type diary struct {
	mu   sync.Mutex
	list []agentlink.Event
}

func (d *diary) Event(e agentlink.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, e)
	return nil
}

// of lists the events of a kind and subject; "" is any subject.
func (d *diary) of(kind, subject string) []agentlink.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []agentlink.Event
	for _, e := range d.list {
		if e.Kind == kind && (subject == "" || e.Subject == subject) {
			out = append(out, e)
		}
	}
	return out
}

// stubborn is a driver whose calls about a GPU may never come back, whatever their
// context says.
type stubborn struct {
	health.Driver
	mu     sync.Mutex
	stuck  map[string]chan struct{}
	inside map[string]int // calls that do not come back
	most   int
	events []gpudrv.Watcher
	busy   string // a GPU about which calls of others have not come back
}

func (s *stubborn) hang(uuid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck[uuid] = make(chan struct{})
}

func (s *stubborn) Watch(ctx context.Context) (gpudrv.Watcher, error) {
	w, err := s.Driver.Watch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, w)
	return w, err
}

// deafen breaks the registration for events.
func (s *stubborn) deafen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events[len(s.events)-1].Close()
}

// refuse makes the driver refuse calls about a GPU; "" is none.
func (s *stubborn) refuse(uuid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = uuid
}

// answer lets every call come back.
func (s *stubborn) answer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uuid, c := range s.stuck {
		close(c)
		delete(s.stuck, uuid)
	}
}

func (s *stubborn) Health(ctx context.Context, uuid string) (gpudrv.Health, error) {
	s.mu.Lock()
	if s.busy == uuid {
		s.mu.Unlock()
		return gpudrv.Health{}, gpudrv.Refuse(gpudrv.Hung, "health", uuid, "3 earlier calls have not come back")
	}
	c := s.stuck[uuid]
	if c != nil {
		s.inside[uuid]++
		s.most = max(s.most, s.inside[uuid])
	}
	s.mu.Unlock()
	if c != nil {
		<-c
		s.mu.Lock()
		s.inside[uuid]--
		s.mu.Unlock()
	}
	return s.Driver.Health(ctx, uuid)
}

// rig is one simulated host with its keeper and its monitor, and a control plane that
// knows what it ordered.
type rig struct {
	simhost.Host
	keeper  *nodeagent.Keeper
	monitor *health.Monitor
	diary   *diary
	driver  *stubborn
	dir     string
	adjust  func(*health.Config)
	ahead   atomic.Int64 // how far the monitor's clock was moved
	orders  map[id.Assignment]agentlink.Order
	graves  []agentlink.Tombstone
	down    func()
}

func newRig(t *testing.T, adjust func(*health.Config)) *rig {
	t.Helper()
	r := &rig{dir: t.TempDir(), diary: &diary{}, orders: map[id.Assignment]agentlink.Order{}, down: func() {}, adjust: adjust}
	t.Cleanup(func() { r.down() })
	r.up(t)
	return r
}

// up starts the agent anew on what is there.
func (r *rig) up(t *testing.T) {
	t.Helper()
	r.down()
	var err error
	r.Host, err = simhost.Open(t.Context(), simhost.Config{Dir: r.dir, Host: zoo, MachineBoot: "boot", Clock: clock.Real()})
	require.NoError(t, err)
	r.keeper, err = nodeagent.NewKeeper(t.Context(), r.Host.Host)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r.driver = &stubborn{Driver: r.Sim, stuck: map[string]chan struct{}{}, inside: map[string]int{}}
	cfg := health.Config{
		Driver: r.driver, Keeper: r.keeper, Spool: r.diary, Dir: r.dir, BootID: r.BootID, Clock: clock.Real(),
		Uptime: func() time.Duration { return nodeagent.Uptime() + time.Duration(r.ahead.Load()) },
		Every:  50 * time.Millisecond, HungAfter: hungAfter,
	}
	if r.adjust != nil {
		r.adjust(&cfg)
	}
	r.monitor, err = health.New(cfg)
	require.NoError(t, err)
	require.NoError(t, r.monitor.Watch(ctx))
	if err := r.keeper.Adopt(ctx); err != nil {
		require.Equal(t, gpudrv.Mismatch, gpudrv.KindOf(err))
	}
	r.keeper.Settle()
	done := make(chan error, 1)
	go func() { done <- r.monitor.Run(ctx) }()
	r.down = func() {
		cancel()
		r.driver.answer()
		require.NoError(t, <-done)
		r.monitor.Settle()
		require.NoError(t, r.keeper.Close())
		require.NoError(t, r.Sim.Close())
		r.down = func() {}
	}
}

// order starts a run on a unit of a GPU and waits for it.
func (r *rig) order(t *testing.T, at, unit int) id.Assignment {
	t.Helper()
	a := r.wish(at, unit)
	require.Equal(t, instance.RunRunning, r.slice(a).RunState, "%+v", r.slice(a))
	return a
}

// wish orders a run and waits until it runs or fails.
func (r *rig) wish(at, unit int) id.Assignment {
	d := zoo.Devices()[at]
	s := gpu.Slot{GPU: d.UUID, Mode: d.Mode, Start: unit, Size: 1}
	if d.Mode.Kind == gpu.MIG {
		s.Profile = 19
	}
	a := id.New[id.Assignment]()
	r.orders[a] = agentlink.Order{Assignment: a, Fence: 1, Instance: id.New[id.Instance](), Run: 1, Image: "img", Slots: []gpu.Slot{s}}
	r.obey()
	return a
}

func (r *rig) obey() {
	r.keeper.Obey(agentlink.Desired{
		Version: 1, Timeline: 1, Orders: slices.Collect(maps.Values(r.orders)), Tombstones: r.graves,
	})
	r.keeper.Settle()
}

// bury puts a run under a tombstone, as a control plane does with one that has ended.
func (r *rig) bury(a id.Assignment) {
	delete(r.orders, a)
	r.graves = append(r.graves, agentlink.Tombstone{Assignment: a, Fence: 2})
	r.obey()
}

func (r *rig) slice(a id.Assignment) agentlink.Slice {
	for _, s := range r.keeper.Observe(true).Slices {
		if s.Assignment == a {
			return s
		}
	}
	return agentlink.Slice{}
}

func (r *rig) stock(t *testing.T, i int) agentlink.InventoryGPU {
	t.Helper()
	inv := r.keeper.Inventory(t.Context())
	require.False(t, inv.Failed, inv.Failure)
	at := slices.IndexFunc(inv.GPUs, func(g agentlink.InventoryGPU) bool { return g.Device.UUID == uuidOf(i) })
	require.GreaterOrEqual(t, at, 0)
	return inv.GPUs[at]
}

func (r *rig) is(t *testing.T, i int, state nodeagent.HealthState) {
	t.Helper()
	require.Eventually(t, func() bool { return r.stock(t, i).Health == string(state) }, patience, 5*time.Millisecond,
		"gpu %d never became %s: %+v", i, state, r.stock(t, i))
}

// looked waits until the monitor has read every GPU since now.
func (r *rig) looked(t *testing.T) {
	t.Helper()
	before := r.Sim.Calls()
	const twoRounds = 60
	require.Eventually(t, func() bool { return r.Sim.Calls() > before+twoRounds }, patience, time.Millisecond)
}

// play takes the steps of a fault script now.
func (r *rig) play(t *testing.T, steps string) {
	t.Helper()
	s, err := sim.ParseScript([]byte("faults:\n" + steps))
	require.NoError(t, err)
	r.Sim.Play(s)
}
