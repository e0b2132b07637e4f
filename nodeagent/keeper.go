package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/journal"
)

// want is what shall become of a slice.
type want int

const (
	wantKeep want = iota // leave it as it is
	wantRun              // ordered
	wantGo               // under a tombstone
)

// slice is one assignment on this host.
type slice struct {
	entry journal.Entry // as on disk; Step "" before the first
	want  want
	// fence and timeline are of the newest order that was obeyed; the entry gets
	// them with its next step.
	fence, timeline int64
	keys            []string           // who may enter by SSH; desired, never journalled
	progress        string             // what a start does that takes long
	abort           context.CancelFunc // ends a start that nobody wants any more, or a pause; nil if none is under way
	busy            bool               // a goroutine works on it
	orphan          bool               // neither ordered nor under a tombstone
	tries           int
	away            time.Duration    // uptime since when the runtime does not answer its start; 0 if it does
	trouble         instance.Problem // what stands in the way of a removal now
}

// Keeper keeps the slices of one host. Make it with NewKeeper, call Adopt, then
// Obey for each desired set.
type Keeper struct {
	host    Host
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	changed chan struct{}

	journalMu sync.Mutex
	journal   Journal

	mu        sync.Mutex
	slices    map[id.Assignment]*slice
	strangers []agentlink.Slice       // found and not ours
	devices   map[string]gpudrv.Found // by UUID, as last read
	facts     gpudrv.Host             // as last read
	trouble   map[string]error        // GPUs that could not be read, by UUID
	health    map[string]GPUHealth
	condition condition
	modes     *modeBook
	door      *opening // not told yet; nil if nothing is due
	doorBusy  bool
	queues    map[string]chan struct{} // one token a GPU
	desired   *agentlink.Desired
	adopted   bool
	unread    string // why the host could not be read; "" if it can
	broken    error  // the journal failed: nothing may be done any more
	dirty     map[id.Assignment]bool
	inventory bool                  // something of the inventory changed
	gone      []agentlink.Tombstone // carried out and not reported yet
	graves    []id.Assignment       // carried out, oldest first
}

// NewKeeper opens the journal in the host's data folder. It fails if the journal
// is damaged or lost: then nobody knows what was in flight, and an operator must look.
// Its work ends with Close and not with ctx.
func NewKeeper(ctx context.Context, h Host) (*Keeper, error) {
	file, entries, err := openJournal(ctx, h)
	if err != nil {
		return nil, err
	}
	if h.Log == nil {
		h.Log = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{
		host: h, journal: file, changed: make(chan struct{}, 1), slices: map[id.Assignment]*slice{},
		devices: map[string]gpudrv.Found{}, trouble: map[string]error{}, health: map[string]GPUHealth{},
		queues: map[string]chan struct{}{}, dirty: map[id.Assignment]bool{}, unread: "not read yet",
	}
	if err := k.remember(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if h.Journal != nil {
		k.journal = h.Journal(file)
	}
	k.ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, e := range entries {
		k.slices[e.Assignment] = &slice{entry: e, fence: e.Fence, timeline: e.Timeline}
		if e.Step == journal.Gone {
			k.graves = append(k.graves, e.Assignment)
		}
	}
	return k, nil
}

// Close stops working and closes the journal. Slices and containers stay.
func (k *Keeper) Close() error {
	k.mu.Lock()
	k.cancel()
	k.mu.Unlock()
	k.work.Wait()
	return k.journal.Close()
}

// Changed is signalled when there is something new to report.
func (k *Keeper) Changed() <-chan struct{} { return k.changed }

// Broken returns why nothing can be done any more, nil while all is well.
func (k *Keeper) Broken() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.broken
}

// Settle waits until nothing is being worked on.
func (k *Keeper) Settle() { k.work.Wait() }

// touch marks a slice as changed. The caller holds k.mu.
func (k *Keeper) touch(a id.Assignment) {
	k.dirty[a] = true
	k.signal()
}

func (k *Keeper) signal() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// commit writes the slice's next entry to disk and only then lets it be true.
func (k *Keeper) commit(s *slice, change func(*journal.Entry)) error {
	k.journalMu.Lock()
	defer k.journalMu.Unlock()
	k.mu.Lock()
	e, broken := s.entry, k.broken
	e.Fence, e.Timeline, e.BootID = s.fence, s.timeline, k.host.BootID
	k.mu.Unlock()
	if broken != nil {
		return broken
	}
	e.Slots = slices.Clone(e.Slots)
	change(&e)
	err := k.journal.Append(e)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.broken = fmt.Errorf("the journal failed: %w", err)
		k.signal()
		return k.broken
	}
	s.entry = e
	if e.Step == journal.Running {
		k.openDoor() // its container is there now
	}
	if e.Step == journal.Gone {
		k.gone = append(k.gone, agentlink.Tombstone{Assignment: e.Assignment, Fence: e.Fence})
		k.forget(e.Assignment)
		k.openDoor()
	}
	if news[e.Step] {
		k.touch(e.Assignment)
	}
	return nil
}

// maxGraves is how many finished assignments are remembered, for their fences.
const maxGraves = 1024

// forget drops the oldest finished assignments once there are too many. The caller
// holds k.mu.
func (k *Keeper) forget(latest id.Assignment) {
	k.graves = append(k.graves, latest)
	for len(k.graves) > maxGraves {
		oldest := k.graves[0]
		k.graves = k.graves[1:]
		if s := k.slices[oldest]; s != nil && s.entry.Step == journal.Gone && !s.busy {
			delete(k.slices, oldest)
		}
	}
}

// news are the steps that are told at once. The others change nothing for anybody
// but this agent; the full set names them all the same.
var news = map[journal.Step]bool{
	journal.Running: true, journal.Failed: true, journal.Ended: true, journal.Gone: true,
}

// Obey takes all that shall be on the host. Before adoption is complete it is only
// remembered. What it does not name is left alone.
func (k *Keeper) Obey(d agentlink.Desired) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.desired = &d
	if k.adopted {
		k.obey()
	}
}

// obey applies the remembered set. The caller holds k.mu.
func (k *Keeper) obey() {
	d := *k.desired
	k.obeyModes(d.Modes)
	named := map[id.Assignment]bool{}
	for _, o := range d.Orders {
		named[o.Assignment] = true
		k.order(o, d.Timeline)
	}
	for _, t := range d.Tombstones {
		named[t.Assignment] = true
		k.bury(t, d.Timeline)
	}
	for a, s := range k.slices {
		orphan := !named[a] && s.want != wantGo && exists(s.entry.Step)
		if s.orphan != orphan {
			s.orphan = orphan
			k.touch(a)
		}
		k.kick(s)
	}
	k.openDoor()
	k.signal() // the applied version is news
}

// exists reports whether something may be on the host at a step.
func exists(s journal.Step) bool { return s != "" && s != journal.Gone }

// outranks compares an order with the newest that was obeyed. On a new timeline a
// lower fence is accepted once.
func (s *slice) outranks(timeline, fence int64) bool {
	if timeline != s.timeline {
		return timeline > s.timeline
	}
	return fence > s.fence
}

// order takes a run that shall be. The caller holds k.mu.
func (k *Keeper) order(o agentlink.Order, timeline int64) {
	s := k.slices[o.Assignment]
	if s == nil {
		k.slices[o.Assignment] = k.newSlice(o, timeline)
		return
	}
	s.keys = o.SSHKeys
	if !s.outranks(timeline, o.Fence) {
		if o.Fence < s.fence {
			k.host.Log.Warn("order of an old fence refused", "assignment_id", o.Assignment.String(), "fence", o.Fence, "have", s.fence)
		}
		return
	}
	if s.want == wantGo && s.entry.Step != journal.Gone {
		return // what is being removed is removed first
	}
	switch s.entry.Step {
	case journal.Failed, journal.Ended, journal.Gone:
		if s.busy {
			return
		}
		k.slices[o.Assignment] = k.newSlice(o, timeline)
	default:
		s.fence, s.timeline, s.tries = o.Fence, timeline, 0
	}
}

// newSlice is an order that nothing was done for yet.
func (k *Keeper) newSlice(o agentlink.Order, timeline int64) *slice {
	e := journal.Entry{
		Assignment: o.Assignment, Fence: o.Fence, Timeline: timeline, Instance: o.Instance, Run: o.Run,
		BootID: k.host.BootID, Image: o.Image, Command: o.Command, Env: o.Env, VCPU: o.VCPU, RAM: o.RAM, Shm: o.Shm,
		Org: o.Org, Name: o.Name, HasSecrets: o.HasSecrets,
	}
	for _, p := range o.Ports {
		e.Ports = append(e.Ports, journal.Port(p))
	}
	for _, w := range o.Slots {
		e.Slots = append(e.Slots, journal.Slot{Slot: k.exact(w), PCI: k.devices[w.GPU].Ref.PCI})
	}
	return &slice{entry: e, want: wantRun, fence: o.Fence, timeline: timeline, keys: o.SSHKeys}
}

// exact is a slot as the driver of this host names it: what the wire does not carry
// comes from the GPU's own profile.
func (k *Keeper) exact(s gpu.Slot) gpu.Slot {
	if s.Mode.Kind != gpu.MIG {
		return gpu.Slot{GPU: s.GPU, Mode: s.Mode, Start: s.Start, Size: s.Size}
	}
	if p, ok := k.devices[s.GPU].Device.Profile(s.Profile); ok {
		s.Name, s.Compute = p.Name, p.Compute
	}
	return s
}

// bury takes a tombstone. The caller holds k.mu.
func (k *Keeper) bury(t agentlink.Tombstone, timeline int64) {
	s := k.slices[t.Assignment]
	if s == nil {
		// Never heard of: whatever carries its name goes, and that is proven.
		s = &slice{entry: journal.Entry{Assignment: t.Assignment}}
		k.slices[t.Assignment] = s
	}
	repeated := timeline == s.timeline && t.Fence == s.fence
	switch {
	case !repeated && !s.outranks(timeline, t.Fence):
		k.host.Log.Warn("tombstone of an old fence refused", "assignment_id", t.Assignment.String(), "fence", t.Fence, "have", s.fence)
		return
	case repeated && s.entry.Step == journal.Gone:
		k.gone = append(k.gone, t) // the acknowledgement was lost
		return
	case repeated && s.want == wantGo:
		return
	}
	s.want, s.fence, s.timeline, s.tries, s.orphan = wantGo, t.Fence, timeline, 0, false
	if s.abort != nil {
		s.abort() // an image or a runtime may take long to come
	}
}

// kick starts work on a slice that needs some. The caller holds k.mu.
func (k *Keeper) kick(s *slice) {
	if s.busy || k.broken != nil || k.ctx.Err() != nil || s.next() == nil {
		return
	}
	s.busy = true
	k.work.Go(func() { k.labour(s) })
}

// Backoffs of a step that failed and is tried again.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// labour does one step after the other until none is due.
func (k *Keeper) labour(s *slice) {
	for {
		k.mu.Lock()
		do := s.next()
		if do == nil || k.broken != nil || k.ctx.Err() != nil {
			s.busy = false
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		err := do(k, s)
		k.mu.Lock()
		if err == nil {
			s.tries, s.away = 0, 0
			if s.trouble != (instance.Problem{}) {
				s.trouble = instance.Problem{} // what stood in the way is out of it
				k.touch(s.entry.Assignment)
			}
			k.mu.Unlock()
			continue
		}
		wait := min(firstRetry<<min(s.tries, 10), lastRetry)
		s.tries++
		ctx, cancel := context.WithCancel(k.ctx)
		s.abort = cancel
		k.mu.Unlock()
		k.pause(ctx, wait)
		k.mu.Lock()
		s.abort = nil
		k.mu.Unlock()
		cancel()
	}
}

// pause waits for d or the end of ctx.
func (k *Keeper) pause(ctx context.Context, d time.Duration) {
	timer := k.host.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}

// enterQueue waits for the turn on every GPU of a slice, in one order for all, and
// returns how to leave. The caller does not hold k.mu.
func (k *Keeper) enterQueue(e journal.Entry) (leave func(), err error) {
	var uuids []string
	for _, s := range e.Slots {
		uuids = append(uuids, s.Slot.GPU)
	}
	return k.enterQueues(uuids)
}

func (k *Keeper) enterQueues(uuids []string) (leave func(), err error) {
	slices.Sort(uuids)
	var taken []chan struct{}
	leave = func() {
		for _, q := range taken {
			q <- struct{}{}
		}
	}
	for _, u := range slices.Compact(uuids) {
		k.mu.Lock()
		q := k.queues[u]
		if q == nil {
			q = make(chan struct{}, 1)
			q <- struct{}{}
			k.queues[u] = q
		}
		k.mu.Unlock()
		select {
		case <-q:
			taken = append(taken, q)
		case <-k.ctx.Done():
			leave()
			return nil, k.ctx.Err()
		}
	}
	return leave, nil
}

// errRetry asks labour to try the same step again later.
var errRetry = errors.New("try again")
