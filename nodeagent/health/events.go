package health

import (
	"context"
	"strconv"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Take takes in one event of the driver.
func (m *Monitor) Take(ctx context.Context, e gpudrv.Event) {
	switch e.Kind {
	case gpudrv.EventXID:
		m.xid(ctx, e)
	case gpudrv.EventUnavailable:
		m.mu.Lock()
		b := m.bed(e.GPU)
		b.Take(Ailment{
			Cause: causeUnavailable, Detail: "the driver says that the GPU is not available", Level: Suspect, Cure: ByReset,
			Credited: true, Since: m.c.Uptime(),
		}, m.c.Clock.Now())
		m.settle(e.GPU, b)
		m.mu.Unlock()
		m.nudge()
	case gpudrv.EventRecovery, gpudrv.EventMissed:
		m.nudge()
	case gpudrv.EventMIGConfig:
		// The keeper reads what exists; a GPU's health does not hang on it.
	}
}

// xid does what the policy says of an Xid.
func (m *Monitor) xid(ctx context.Context, e gpudrv.Event) {
	at, known := m.place(ctx, e)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.c.Uptime()
	v := m.c.Policy.Judge(e.XID, now)
	b := m.bed(e.GPU)
	hit := m.on(e.GPU, at)
	if e.GPUInstance >= 0 && !known {
		hit = nil // the instance that is named is gone
	}
	m.tellXID(e, v, hit)
	in := nodeagent.Interruption{
		GPU: e.GPU, At: at, Code: xidPrefix + strconv.Itoa(e.XID), Detail: detailOf(v.Rule.Do), Credited: v.Rule.Credited,
	}
	if v.EndInstance && (e.GPUInstance < 0 || known) {
		m.interrupt(in)
	}
	switch v.Rule.Do {
	case DoubleBit:
		if b.doubt == 0 && (b.contained == 0 || now-b.contained >= containedWithin) {
			b.doubt = max(now, 1)
		}
	case Contained:
		b.doubt, b.contained = 0, max(now, 1) // neighbours go on
	case RestartApp:
		b.proof = b.proof || b.mode.Kind == gpu.MPS
	case Ignore, Follow, DriverSays, ResetGPU, NVLinkGroup, RestartHost, AwaitReboot, RestartVM, Update, Inspect, Alarm:
	}
	if v.Ailment.Cause != "" {
		b.Take(v.Ailment, m.c.Clock.Now())
		m.settle(e.GPU, b)
	}
	if v.Group {
		m.settleWards()
	}
	if v.Probe {
		m.nudge()
	}
}

// detailOf is what a run that ends alone is told.
func detailOf(do Bucket) string {
	if do == Contained {
		return "a memory error of the GPU hit this instance"
	}
	return "the GPU's error asks for a fresh start of the instance"
}

// place finds the units of the GPU instance that an event names. nil is all of the
// GPU; known is false if it names one that is not there. A GPU that is slow to answer
// is not asked: what was read of it last is taken.
func (m *Monitor) place(ctx context.Context, e gpudrv.Event) (at *gpu.Placement, known bool) {
	if e.GPUInstance < 0 {
		return nil, true
	}
	m.mu.Lock()
	b := m.bed(e.GPU)
	slow := b.probing > 0 && m.c.Uptime()-b.probing > placeFor || b.Has(causeHung)
	places := b.places
	m.mu.Unlock()
	if !slow {
		ctx, cancel := context.WithTimeout(ctx, placeFor)
		defer cancel()
		if list, err := m.c.Driver.GPUInstances(ctx, e.GPU); err == nil {
			places = placesOf(list)
		}
	}
	if p, ok := places[e.GPUInstance]; ok {
		return &p, true
	}
	return nil, false
}

func placesOf(list []gpudrv.GPUInstance) map[int]gpu.Placement {
	out := map[int]gpu.Placement{}
	for _, g := range list {
		out[g.ID] = gpu.Placement(g.Placement)
	}
	return out
}

// on lists the runs on a GPU, or on some units of it. The caller holds m.mu.
func (m *Monitor) on(uuid string, at *gpu.Placement) []id.Assignment {
	var out []id.Assignment
	for _, t := range m.c.Keeper.Tenancies() {
		for _, s := range t.Slots {
			x := s.Slot
			if t.Running && x.GPU == uuid && (at == nil || x.Start < at.Start+at.Size && at.Start < x.Start+x.Size) {
				out = append(out, t.Assignment)
				break
			}
		}
	}
	return out
}

// tellXID spools the event: of the GPU for operators, and of each run for its tenant
// where the policy says so. One that comes again and again is told at intervals, with
// how often it came. The caller holds m.mu.
func (m *Monitor) tellXID(e gpudrv.Event, v Verdict, hit []id.Assignment) {
	now := m.c.Uptime()
	key := storm{e.GPU, e.XID, e.GPUInstance}
	last := m.storms[key]
	if last != nil && now-last.at < stormPause {
		last.more++
		return
	}
	for k, x := range m.storms {
		if now-x.at >= stormPause && k != key {
			delete(m.storms, k)
		}
	}
	attributes := func() map[string]string {
		a := map[string]string{
			"code": strconv.Itoa(e.XID), "policy": string(v.Rule.Do), "credited": strconv.FormatBool(v.Rule.Credited),
			"known": strconv.FormatBool(v.Known), "gpu": e.GPU, "revision": m.c.Policy.Revision,
		}
		if e.GPUInstance >= 0 {
			a["gpu_instance"] = strconv.Itoa(e.GPUInstance)
		}
		if last != nil && last.more > 0 {
			a["repeated"] = strconv.Itoa(last.more)
		}
		return a
	}
	m.event(agentlink.Event{Kind: "gpu.xid", Subject: e.GPU, Detail: v.Ailment.Detail, Attributes: attributes()})
	if !v.Known {
		m.event(agentlink.Event{Kind: "gpu.alarm", Subject: e.GPU, Detail: "an Xid that the policy does not know", Attributes: attributes()})
	}
	if v.Tell {
		for _, a := range hit {
			m.event(agentlink.Event{
				Kind: "gpu.xid", Subject: a.String(), Detail: "a program of the instance, or of one it shares the GPU with, made the GPU report an error",
				Attributes: attributes(),
			})
		}
	}
	m.storms[key] = &told{at: now}
}

// settleDoubts ends the runs on GPUs whose error of two bits was not contained. The
// caller holds m.mu.
func (m *Monitor) settleDoubts(now time.Duration) {
	for _, uuid := range m.sorted() {
		b := m.gpus[uuid]
		if b.doubt == 0 || now-b.doubt < containedWithin {
			continue
		}
		since := b.doubt
		b.doubt = 0
		for _, a := range b.Ailments {
			if m.bucketOf(a.Cause) == DoubleBit {
				a.Level, a.Since, a.Detail = Failed, since, "a memory error of two bits was not contained"
				b.Take(a, m.c.Clock.Now())
			}
		}
		m.settle(uuid, b)
	}
}
