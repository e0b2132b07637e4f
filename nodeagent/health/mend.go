package health

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// codeOf is the Xid of a cause, false if it is none.
func codeOf(cause string) (int, bool) {
	text, ok := strings.CutPrefix(cause, xidPrefix)
	if !ok {
		return 0, false
	}
	code, err := strconv.Atoi(text)
	return code, err == nil
}

// dueResets lists the groups that need a reset, are empty and may be tried now. The
// caller holds m.mu.
func (m *Monitor) dueResets(now time.Duration) [][]string {
	var out [][]string
	for _, uuid := range m.sorted() {
		b := m.gpus[uuid]
		if b.Need() != ByReset {
			b.waits, b.heldOut = 0, false
			continue
		}
		if b.mending {
			continue
		}
		if b.waits == 0 {
			b.waits = max(now, 1)
		}
		group := m.resetGroup(uuid)
		if group == nil {
			b.Take(Ailment{
				Cause: causeNoReset, Detail: "GPUs of this kind are reset by a reboot of their host", Level: Shut, Cure: ByReboot,
				Credited: true, Since: now,
			}, m.c.Clock.Now())
			m.settle(uuid, b)
			continue
		}
		if now < b.again || b.doubt > 0 || !m.empty(group) {
			m.tellHeld(uuid, b, now)
			continue
		}
		for _, u := range group {
			m.gpus[u].mending = true
		}
		out = append(out, group)
	}
	return out
}

// empty says that nothing is on the GPUs and none is being reset or hangs. The caller
// holds m.mu.
func (m *Monitor) empty(group []string) bool {
	for _, u := range group {
		if b := m.gpus[u]; b.mending || b.probing > 0 || len(m.c.Keeper.Holders(u)) > 0 {
			return false
		}
	}
	return true
}

// tellHeld tells operators once that a reset waits for somebody.
func (m *Monitor) tellHeld(uuid string, b *bed, now time.Duration) {
	if b.heldOut || now-b.waits < heldFor {
		return
	}
	b.heldOut = true
	m.event(agentlink.Event{Kind: "gpu.held", Subject: uuid, Detail: b.Health().Detail, Attributes: map[string]string{
		"holders": strings.Join(m.c.Keeper.Holders(uuid), ", "), "for": (now - b.waits).String(),
	}})
}

// mend resets a group and takes in how it went.
func (m *Monitor) mend(ctx context.Context, group []string) {
	ctx, cancel := context.WithTimeout(ctx, resetFor)
	defer cancel()
	begun := false
	reset := func(ctx context.Context, uuid string) error {
		if !begun {
			begun = true
			m.recovering(group)
		}
		return m.c.Driver.Reset(ctx, uuid)
	}
	err := m.c.Keeper.Mend(ctx, group, reset, m.test)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uuid := range group {
		b := m.gpus[uuid]
		b.Recovering, b.mending = false, false
		if err == nil || begun || gpudrv.KindOf(err) == gpudrv.InUse {
			m.mended(uuid, b, group, err)
		}
	}
	m.nudge()
}

// recovering shows a group as being reset.
func (m *Monitor) recovering(group []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uuid := range group {
		b := m.gpus[uuid]
		b.Recovering = true
		m.settle(uuid, b)
	}
}

// test shows that a GPU is well after its reset.
func (m *Monitor) test(ctx context.Context, uuid string) error {
	h, err := m.c.Driver.Health(ctx, uuid)
	if err != nil {
		return err
	}
	switch action := h.RecoveryAction.Or("none"); {
	case action != "none":
		return gpudrv.Refuse(gpudrv.Broken, "verify", uuid, "the driver still advises %s", action)
	case h.RemapPending.Or(false):
		return gpudrv.Refuse(gpudrv.Broken, "verify", uuid, "memory rows still wait to be replaced")
	}
	if m.c.SelfTest == nil {
		return nil
	}
	if err := m.c.SelfTest(ctx, uuid); err != nil {
		return fmt.Errorf("self-test after the reset: %w", err)
	}
	return nil
}

// mended takes in how the reset of a group went for one of its GPUs. The caller holds
// m.mu.
func (m *Monitor) mended(uuid string, b *bed, group []string, err error) {
	now, wall := m.c.Uptime(), m.c.Clock.Now()
	ill := b.Need() == ByReset
	result := "done"
	switch kind := gpudrv.KindOf(err); {
	case err == nil:
		b.Cured(ByReset, wall)
		b.memory, b.fails, b.proof = memory{}, 0, false
	case kind == gpudrv.InUse:
		b.again = now + mendPause
		for i := range b.Ailments {
			if a := &b.Ailments[i]; a.Cure == ByReset {
				text, _, _ := strings.Cut(a.Detail, "; the reset waits: ")
				a.Detail = text + "; the reset waits: " + err.Error()
			}
		}
		m.settle(uuid, b)
		return
	case !ill: // a neighbour of the one that needs it
		b.memory = memory{}
		result = "failed"
	case kind == gpudrv.Unsupported:
		b.Take(Ailment{
			Cause: causeNoReset, Detail: "the GPU cannot be reset here, the host needs a reboot: " + err.Error(), Level: Shut,
			Cure: ByReboot, Credited: true, Since: now,
		}, wall)
		result = "unsupported"
	default:
		b.Tried(wall)
		b.Take(Ailment{
			Cause: causeReset, Detail: "the reset did not help, the host needs a reboot: " + err.Error(), Level: Shut,
			Cure: ByReboot, Credited: true, Since: now,
		}, wall)
		result = "failed"
	}
	e := agentlink.Event{Kind: "gpu.reset", Subject: uuid, Attributes: map[string]string{
		"result": result, "group": strings.Join(group, ","), "tries": strconv.Itoa(b.Tries),
	}}
	if err != nil {
		e.Detail = err.Error()
	}
	m.event(e)
	m.settle(uuid, b)
}
