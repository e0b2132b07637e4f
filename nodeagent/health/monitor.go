package health

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Driver is what the monitor asks of GPUs; gpudrv.Driver has it.
type Driver interface {
	GPUs(ctx context.Context) ([]gpudrv.Ref, error)
	Identity(ctx context.Context, uuid string) (gpudrv.Identity, error)
	Mode(ctx context.Context, uuid string) (gpu.Mode, error)
	GPUInstances(ctx context.Context, uuid string) ([]gpudrv.GPUInstance, error)
	Settings(ctx context.Context, uuid string) (gpudrv.Settings, error)
	Health(ctx context.Context, uuid string) (gpudrv.Health, error)
	Fabric(ctx context.Context, uuid string) (gpudrv.Fabric, error)
	Watch(ctx context.Context) (gpudrv.Watcher, error)
	Reset(ctx context.Context, uuid string) error
}

// Keeper is what the monitor decides over; nodeagent.Keeper is one.
type Keeper interface {
	GPUs() []string
	Holders(uuid string) []string
	Tenancies() []nodeagent.Tenancy
	SetHealth(uuid string, h nodeagent.GPUHealth)
	SetCondition(is agentlink.Condition, cause string)
	Interrupt(in nodeagent.Interruption) ([]id.Assignment, error)
	Mend(ctx context.Context, uuids []string, reset, test func(ctx context.Context, uuid string) error) error
}

// Spool takes events; spool.Spool does.
type Spool interface {
	Event(e agentlink.Event) error
}

// Times of the monitor, unless Config says otherwise.
const (
	DefaultEvery     = 5 * time.Second
	DefaultHungAfter = 20 * time.Second
	// jitter is the part of an interval by which looks are spread.
	jitter = 5
	// roundFor is how long a round waits for its GPUs: one that takes longer is taken
	// in when it answers.
	roundFor = time.Second
	// placeFor bounds the look for the instance that an event names.
	placeFor = 2 * time.Second
	// resetFor bounds a reset and the self-test after it.
	resetFor = 3 * time.Minute
	// mendPause is between two tries to reset a GPU that is held.
	mendPause = 10 * time.Second
	// containedWithin is how soon a contained error follows an error of two bits.
	containedWithin = 3 * time.Second
	// stormPause is how long an Xid is not told again of the same place.
	stormPause = 10 * time.Second
	// heldFor is how long something may be held before operators are told.
	heldFor = 5 * time.Minute
	// rewatchPause is between two tries to register for events.
	rewatchPause = time.Second
	// driftFor is how long a word of the guard about a compute mode holds.
	driftFor = 3 * time.Minute
)

// Config is what a monitor works with. Driver, Keeper, Clock and Uptime are needed.
type Config struct {
	Driver Driver
	Keeper Keeper
	// Spool takes the events; nil drops them.
	Spool Spool
	// SelfTest shows that a GPU computes after its reset; nil accepts what the driver
	// says of it.
	SelfTest func(ctx context.Context, uuid string) error
	// MPSProof shows that a fresh client of a GPU's MPS server works, after an error
	// that may have ended the server's clients; nil is not asked.
	MPSProof func(ctx context.Context, uuid string) error
	Policy   *Policy // nil is DefaultPolicy
	Dir      string  // for health.json; "" keeps nothing
	BootID   string
	Uptime   func() time.Duration
	Clock    clock.Clock
	Log      *slog.Logger
	// Every is the time between two looks; HungAfter is how long a GPU may take to
	// answer. 0 is the default.
	Every, HungAfter time.Duration
}

// bed is one GPU under watch.
type bed struct {
	Patient
	memory memory
	// probing since when; 0 while no look is under way.
	probing   time.Duration
	mending   bool
	again     time.Duration // no reset before
	waits     time.Duration // since when a reset is due
	heldOut   bool          // operators were told that it waits
	silent    time.Duration // since when the driver refuses to ask it; 0: it does not
	fails     int           // looks in a row that found it unreadable or unlisted
	arch      string
	fabric    gpudrv.Fabric
	places    map[int]gpu.Placement // of GPU instances, by id, as last read
	mode      gpu.Mode
	doubt     time.Duration // since when an error of two bits waits for its sequel
	contained time.Duration // when the last contained error came
	proof     bool          // the MPS server has to be proven
	drift     *Ailment      // the guard's word
	driftAt   time.Duration
	told      nodeagent.HealthState
}

// Monitor watches the GPUs of one host.
type Monitor struct {
	c    Config
	wake chan struct{}
	work sync.WaitGroup

	mu        sync.Mutex
	gpus      map[string]*bed
	watcher   gpudrv.Watcher
	listing   time.Duration // since when the driver is asked for its GPUs; 0: not now
	mismatch  string
	condition string // told last
	storms    map[storm]*told
	held      map[id.Assignment]*hold
	saved     string // the file as last written
}

// storm is a place and a code that may come again and again.
type storm struct {
	gpu      string
	code, gi int
}

type told struct {
	at   time.Duration
	more int
}

// hold is a removal that waits for somebody.
type hold struct {
	since time.Duration
	told  bool
}

// New makes a monitor and tells the keeper what is known from before. It does nothing
// more until Watch and Run. It fails if health.json cannot be read.
func New(c Config) (*Monitor, error) {
	if c.Policy == nil {
		c.Policy = DefaultPolicy()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Every <= 0 {
		c.Every = DefaultEvery
	}
	if c.HungAfter <= 0 {
		c.HungAfter = DefaultHungAfter
	}
	m := &Monitor{
		c: c, wake: make(chan struct{}, 1), gpus: map[string]*bed{}, storms: map[storm]*told{}, held: map[id.Assignment]*hold{},
	}
	if c.Dir != "" {
		if err := m.load(filepath.Join(c.Dir, stateFile)); err != nil {
			return nil, err
		}
	}
	for uuid, b := range m.gpus {
		c.Keeper.SetHealth(uuid, b.Health())
	}
	if m.condition != "" { // until the first look says otherwise
		c.Keeper.SetCondition(agentlink.ConditionCordon, m.condition)
	}
	return m, nil
}

// Watch registers for the driver's events; call it before anything is served, since
// events before it are lost. It does nothing where the driver has none.
func (m *Monitor) Watch(ctx context.Context) error {
	w, err := m.c.Driver.Watch(ctx)
	if gpudrv.KindOf(err) == gpudrv.Unsupported {
		return nil
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watcher = w
	return nil
}

// Run takes events and looks at intervals until ctx ends; it returns nil then.
func (m *Monitor) Run(ctx context.Context) error {
	listened := make(chan struct{})
	go func() { defer close(listened); m.listen(ctx) }()
	for ctx.Err() == nil {
		m.Round(ctx)
		timer := m.c.Clock.NewTimer(spread(m.c.Every))
		select {
		case <-timer.C():
		case <-m.wake:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
		}
	}
	<-listened
	m.mu.Lock()
	w := m.watcher
	m.watcher = nil
	m.mu.Unlock()
	if w != nil {
		return w.Close()
	}
	return nil
}

// spread is an interval less or more a part of it, so that hosts do not look at once.
func spread(d time.Duration) time.Duration {
	part := int64(d / jitter)
	return d - time.Duration(part/2) + time.Duration(rand.Int64N(part+1)) //nolint:gosec // jitter
}

// nudge asks for a look now.
func (m *Monitor) nudge() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// listen takes the driver's events; it registers again when a registration breaks.
func (m *Monitor) listen(ctx context.Context) {
	for ctx.Err() == nil {
		m.mu.Lock()
		w := m.watcher
		m.mu.Unlock()
		if w == nil {
			if !m.pause(ctx, rewatchPause) {
				return
			}
			if err := m.Watch(ctx); err != nil {
				m.c.Log.WarnContext(ctx, "no gpu events", "error", err)
			}
			continue
		}
		e, err := w.Next(ctx)
		if err == nil {
			m.Take(ctx, e)
			continue
		}
		if ctx.Err() != nil || gpudrv.KindOf(err) == gpudrv.Hung {
			continue
		}
		m.c.Log.WarnContext(ctx, "gpu events broke off", "error", err)
		m.mu.Lock()
		m.watcher = nil
		m.mu.Unlock()
		m.nudge() // something may have been missed
	}
}

func (m *Monitor) pause(ctx context.Context, d time.Duration) bool {
	timer := m.c.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// bed returns the record of a GPU. The caller holds m.mu.
func (m *Monitor) bed(uuid string) *bed {
	b := m.gpus[uuid]
	if b == nil {
		b = &bed{told: nodeagent.Healthy, fabric: gpudrv.NoFabric("not read yet")}
		m.gpus[uuid] = b
	}
	return b
}

// Clear drops what is held against a GPU after somebody has looked at it; the next
// look finds what is still wrong.
func (m *Monitor) Clear(uuid string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.gpus[uuid]
	if b == nil {
		return gpudrv.Refuse(gpudrv.NotFound, "clear", uuid, "no gpu with this uuid is watched")
	}
	if b.mending {
		return gpudrv.Refuse(gpudrv.InUse, "clear", uuid, "the gpu is being reset")
	}
	b.Cleared()
	m.settle(uuid, b)
	m.nudge()
	return nil
}

// settle makes what is decided about a GPU true: its state, the end of the runs on it,
// the events, the file. The caller holds m.mu.
func (m *Monitor) settle(uuid string, b *bed) {
	h := b.Health()
	m.save() // first, so that a crash forgets no ailment
	m.c.Keeper.SetHealth(uuid, h)
	if a, ends := b.Ends(); ends && !b.Recovering {
		m.interrupt(nodeagent.Interruption{
			GPU: uuid, Code: a.Cause, Detail: a.Detail, Credited: a.Credited, Since: m.c.Uptime() - a.Since,
		})
	}
	if h.State != b.told {
		kind := "gpu.unhealthy"
		if h.State == nodeagent.Healthy {
			kind = "gpu.healthy"
		}
		m.event(agentlink.Event{Kind: kind, Subject: uuid, Detail: h.Detail, Attributes: map[string]string{
			"health": string(h.State), "was": string(b.told), "cause": h.Cause,
		}})
		b.told = h.State
	}
	m.judgeHost()
	m.save()
}

// interrupt has runs ended and tells of it. The caller holds m.mu.
func (m *Monitor) interrupt(in nodeagent.Interruption) {
	ended, err := m.c.Keeper.Interrupt(in)
	if err != nil {
		m.c.Log.Error("runs not interrupted", "gpu", in.GPU, "code", in.Code, "error", err)
	}
	for _, a := range ended {
		m.c.Log.Info("run interrupted", "assignment_id", a.String(), "gpu", in.GPU, "code", in.Code, "credited", in.Credited)
	}
}

// judgeHost decides what concerns the host as a whole. The caller holds m.mu.
func (m *Monitor) judgeHost() {
	cause, hung := "", 0
	for _, uuid := range m.sorted() {
		b := m.gpus[uuid]
		if b.Has(causeHung) {
			hung++
		}
		for _, a := range b.Ailments {
			if a.Cordon && cause == "" {
				cause = a.Cause
			}
		}
	}
	if hung > 1 {
		cause = causeHungGPUs
	}
	if m.listing > 0 && m.c.Uptime()-m.listing >= m.c.HungAfter {
		cause = causeHungDriver
	}
	if m.mismatch != "" {
		cause = causeMismatch
	}
	is := agentlink.ConditionGood
	if cause != "" {
		is = agentlink.ConditionCordon
	}
	m.c.Keeper.SetCondition(is, cause)
	if cause == m.condition {
		return
	}
	e := agentlink.Event{Kind: "host.cordoned", Detail: m.mismatch, Attributes: map[string]string{"cause": cause, "was": m.condition}}
	if cause == "" {
		e.Kind = "host.uncordoned"
	}
	m.condition = cause
	m.event(e)
	m.save()
}

// event spools an event. The caller holds m.mu.
func (m *Monitor) event(e agentlink.Event) {
	if m.c.Spool == nil {
		return
	}
	for k, v := range e.Attributes {
		if v == "" {
			delete(e.Attributes, k)
		}
	}
	if err := m.c.Spool.Event(e); err != nil {
		m.c.Log.Error("event not spooled", "kind", e.Kind, "subject", e.Subject, "error", err)
	}
}

func (m *Monitor) sorted() []string {
	out := make([]string, 0, len(m.gpus))
	for uuid := range m.gpus {
		out = append(out, uuid)
	}
	slices.Sort(out)
	return out
}

// isEnd says that an error only tells that the monitor itself ends.
func isEnd(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || gpudrv.KindOf(err) == gpudrv.Hung)
}
