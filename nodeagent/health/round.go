package health

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Round looks once at every GPU, all at the same time, and does what is due. It waits
// a moment for the answers; a GPU that takes longer is taken in when it answers, and
// is not asked again before. So a GPU that hangs costs one call, whatever happens.
func (m *Monitor) Round(ctx context.Context) {
	var looks sync.WaitGroup
	m.list(ctx, &looks)
	m.waitFor(ctx, &looks)
	m.mu.Lock()
	now := m.c.Uptime()
	for _, uuid := range m.sorted() {
		b := m.gpus[uuid]
		if b.probing > 0 && now-b.probing >= m.c.HungAfter && !b.Has(causeHung) {
			m.apply(uuid, b, judgeError(m.c.Policy, gpudrv.Refuse(gpudrv.Hung, "health", uuid, "no answer for %s", m.c.HungAfter), b.probing))
		}
		if b.drift != nil && now-b.driftAt > driftFor {
			b.drift = nil
		}
	}
	m.settleDoubts(now)
	m.settleWards()
	m.watchHolds(now)
	m.judgeHost()
	due := m.dueResets(now)
	m.mu.Unlock()
	for _, group := range due {
		m.work.Go(func() { m.mend(ctx, group) })
	}
}

// Settle waits until no reset is under way.
func (m *Monitor) Settle() { m.work.Wait() }

// waitFor waits until the looks are done, for a moment.
func (m *Monitor) waitFor(ctx context.Context, looks *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { looks.Wait(); close(done) }()
	timer := m.c.Clock.NewTimer(roundFor)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C():
	case <-ctx.Done():
	}
}

// list asks the driver for its GPUs, unless it has not answered the last time, and
// looks at each that is there or has been.
func (m *Monitor) list(ctx context.Context, looks *sync.WaitGroup) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listing > 0 {
		return
	}
	m.listing = max(m.c.Uptime(), 1)
	looks.Go(func() {
		refs, err := m.c.Driver.GPUs(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.listing = 0
		if isEnd(ctx, err) {
			return
		}
		m.mismatch = ""
		if gpudrv.KindOf(err) == gpudrv.Mismatch {
			m.mismatch = err.Error()
		}
		if err != nil {
			m.c.Log.WarnContext(ctx, "gpus not listed", "error", err)
			return
		}
		listed := map[string]bool{}
		for _, r := range refs {
			listed[r.UUID] = true
		}
		known := m.c.Keeper.GPUs()
		for uuid, b := range m.gpus {
			if !listed[uuid] && !slices.Contains(known, uuid) && !b.mending && b.probing == 0 {
				delete(m.gpus, uuid) // an operator took it out
			}
		}
		for _, uuid := range known {
			listed[uuid] = listed[uuid] || false
		}
		for uuid, there := range listed {
			b := m.bed(uuid)
			if b.probing > 0 || b.Recovering {
				continue
			}
			b.probing = max(m.c.Uptime(), 1)
			proof := b.proof || b.Has(causeMPS)
			looks.Go(func() { m.probe(ctx, uuid, there, proof) })
		}
	})
}

// probe reads one GPU. Its calls have no deadline of their own: an abandoned call
// would leave a thread behind, and a second one another.
func (m *Monitor) probe(ctx context.Context, uuid string, listed, proof bool) {
	var places map[int]gpu.Placement
	r, arch, err := m.read(ctx, uuid)
	if err == nil && r.mode.Kind == gpu.MIG {
		var list []gpudrv.GPUInstance
		list, err = m.c.Driver.GPUInstances(ctx, uuid)
		places = placesOf(list)
	}
	if err == nil && proof && m.c.MPSProof != nil && r.mode.Kind == gpu.MPS {
		if r.mps = m.c.MPSProof(ctx, uuid); gpudrv.KindOf(r.mps) == gpudrv.NotFound {
			r.mps = nil // no daemon, so nobody to prove
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.bed(uuid)
	since := b.probing
	b.probing = 0
	if isEnd(ctx, err) || b.Recovering {
		return
	}
	if err != nil {
		b.fails++
		if since, sure := m.sure(b, gpudrv.KindOf(err), since); sure {
			m.apply(uuid, b, judgeError(m.c.Policy, err, since))
		}
		return
	}
	b.silent = 0
	if !listed {
		if b.fails++; b.fails < 2 {
			m.nudge()
			return
		}
		lost := gpudrv.Refuse(gpudrv.GPULost, "list", uuid, "the driver does not list it any more")
		m.apply(uuid, b, judgeError(m.c.Policy, lost, since))
		return
	}
	b.fails, b.arch, b.fabric, b.mode, b.places = 0, arch, r.fabric, r.mode, places
	b.proof = b.proof && !proof
	found := judgeReading(r, &b.memory, since)
	if b.drift != nil {
		found = append(found, *b.drift)
	}
	m.applyState(uuid, b, found)
}

// sure says whether a failed read is enough to go by, and since when it shows. One that
// failed without a reason says little; neither does it that calls of others have not
// come back yet, until that has lasted. The caller holds m.mu.
func (m *Monitor) sure(b *bed, kind gpudrv.Kind, since time.Duration) (time.Duration, bool) {
	switch kind {
	case gpudrv.Broken:
		if b.fails < 2 {
			m.nudge()
			return since, false
		}
	case gpudrv.Hung:
		if b.silent == 0 {
			b.silent = since
		}
		return b.silent, m.c.Uptime()-b.silent >= m.c.HungAfter
	}
	return since, true
}

// read reads what judgeReading wants, the driver's advice first.
func (m *Monitor) read(ctx context.Context, uuid string) (r reading, arch string, err error) {
	d := m.c.Driver
	if r.health, err = d.Health(ctx, uuid); err != nil {
		return r, "", err
	}
	if r.fabric, err = d.Fabric(ctx, uuid); err != nil {
		return r, "", err
	}
	settings, err := d.Settings(ctx, uuid)
	if err != nil {
		return r, "", err
	}
	r.ecc = settings.ECC
	if r.mode, err = d.Mode(ctx, uuid); err != nil {
		return r, "", err
	}
	r.shared = r.mode.Kind != gpu.Whole
	m.mu.Lock()
	arch = m.bed(uuid).arch
	m.mu.Unlock()
	if arch != "" {
		return r, arch, nil
	}
	identity, err := d.Identity(ctx, uuid)
	return r, identity.Architecture.Or("unknown"), err
}

// apply takes in what was found, and lets nothing go. The caller holds m.mu.
func (m *Monitor) apply(uuid string, b *bed, found []Ailment) {
	for _, a := range found {
		b.Take(a, m.c.Clock.Now())
	}
	m.settle(uuid, b)
}

// applyState takes in a whole reading: what goes by itself and is not in it is gone.
func (m *Monitor) applyState(uuid string, b *bed, found []Ailment) {
	for _, a := range b.Ailments {
		if a.Cause == causeGroup {
			found = append(found, a)
		}
	}
	b.Eased(found)
	m.apply(uuid, b, found)
}

// linked lists the GPUs that a GPU is linked to, itself among them. The caller holds
// m.mu.
func (m *Monitor) linked(uuid string) []string {
	me := m.gpus[uuid]
	out := []string{uuid}
	if me == nil || len(me.memory.linksUp) == 0 {
		return out
	}
	for _, other := range m.sorted() {
		b := m.gpus[other]
		if other != uuid && len(b.memory.linksUp) > 0 && b.arch == me.arch &&
			b.fabric.Clique.Or(-1) == me.fabric.Clique.Or(-1) && b.fabric.Cluster.Or("") == me.fabric.Cluster.Or("") {
			out = append(out, other)
		}
	}
	return out
}

// resetGroup lists what must be reset together with a GPU; nil if only a reboot of
// the host resets it. The caller holds m.mu.
func (m *Monitor) resetGroup(uuid string) []string {
	switch m.c.Policy.scope(m.gpus[uuid].arch) {
	case ResetHost:
		return nil
	case ResetGroup:
		return m.linked(uuid)
	case ResetOne:
	}
	return []string{uuid}
}

// settleWards keeps new work off GPUs that are linked to an ill one: because they are
// reset with it, or because its error is one of their links. The caller holds m.mu.
func (m *Monitor) settleWards() {
	wards := map[string]string{}
	for _, uuid := range m.sorted() {
		b := m.gpus[uuid]
		var group []string
		if b.Need() == ByReset {
			group = m.resetGroup(uuid)
		}
		for _, a := range b.Ailments {
			if m.bucketOf(a.Cause) == NVLinkGroup {
				group = m.linked(uuid)
			}
		}
		for _, other := range group {
			if _, named := wards[other]; other != uuid && !named {
				wards[other] = uuid
			}
		}
	}
	for _, uuid := range m.sorted() {
		b, source := m.gpus[uuid], wards[uuid]
		switch {
		case source != "" && !b.Has(causeGroup):
			b.Take(Ailment{
				Cause: causeGroup, Detail: "waits with " + source + ", to which it is linked", Level: Suspect, Since: m.c.Uptime(),
			}, m.c.Clock.Now())
		case source == "" && b.Has(causeGroup):
			b.drop(func(a Ailment) bool { return a.Cause == causeGroup })
		default:
			continue
		}
		m.settle(uuid, b)
	}
}

// bucketOf is the policy's word on a cause that is an Xid; "" on any other.
func (m *Monitor) bucketOf(cause string) Bucket {
	code, ok := codeOf(cause)
	if !ok {
		return ""
	}
	rule, _ := m.c.Policy.Rule(code)
	return rule.Do
}

// watchHolds tells operators of removals that somebody has held up for long. The
// caller holds m.mu.
func (m *Monitor) watchHolds(now time.Duration) {
	stuck := map[id.Assignment]bool{}
	for _, t := range m.c.Keeper.Tenancies() {
		if t.Problem.Code != string(gpudrv.InUse) {
			continue
		}
		stuck[t.Assignment] = true
		h := m.held[t.Assignment]
		if h == nil {
			h = &hold{since: now}
			m.held[t.Assignment] = h
		}
		if h.told || now-h.since < heldFor {
			continue
		}
		h.told = true
		var gpus []string
		for _, s := range t.Slots {
			gpus = append(gpus, s.Slot.GPU)
		}
		m.event(agentlink.Event{Kind: "slice.held", Subject: t.Assignment.String(), Detail: t.Problem.Detail, Attributes: map[string]string{
			"gpu": strings.Join(gpus, ","), "for": (now - h.since).String(),
		}})
	}
	for a := range m.held {
		if !stuck[a] {
			delete(m.held, a)
		}
	}
}
