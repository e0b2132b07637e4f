package nodeagent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/nodeagent/journal"
)

// Observe returns the full set of the host, or what changed since it was last
// asked. A host that cannot be read says so and nothing else. There is nothing to
// send when a delta is empty and its version is known.
func (k *Keeper) Observe(full bool) agentlink.Observed {
	k.mu.Lock()
	defer k.mu.Unlock()
	o := agentlink.Observed{Full: full}
	if k.unread != "" {
		return agentlink.Observed{Full: full, Failed: true, Failure: k.unread}
	}
	if k.desired != nil {
		o.Applied = k.desired.Version
	}
	for a, s := range k.slices {
		if (full || k.dirty[a]) && s.entry.Step != journal.Gone {
			o.Slices = append(o.Slices, k.report(s))
		}
	}
	if full {
		o.Slices = append(o.Slices, k.strangers...)
		o.Gone = k.acknowledged()
	} else {
		o.Gone = k.gone
	}
	slices.SortFunc(o.Slices, func(a, b agentlink.Slice) int { return cmp.Compare(a.Key, b.Key) })
	clear(k.dirty)
	k.gone = nil
	if full {
		o.Hash = k.hash(o)
	}
	return o
}

// acknowledged lists the tombstones of the desired set that are carried out.
func (k *Keeper) acknowledged() []agentlink.Tombstone {
	if k.desired == nil {
		return k.gone
	}
	var out []agentlink.Tombstone
	for _, t := range k.desired.Tombstones {
		if s := k.slices[t.Assignment]; s != nil && s.entry.Step == journal.Gone && s.entry.Fence >= t.Fence {
			out = append(out, agentlink.Tombstone{Assignment: t.Assignment, Fence: s.entry.Fence})
		}
	}
	return out
}

// sliceStates says what each step looks like from outside.
var sliceStates = map[journal.Step]agentlink.SliceState{
	"": agentlink.SliceClaimed, journal.Carve: agentlink.SliceClaimed, journal.Failed: agentlink.SliceClaimed,
	journal.Carved: agentlink.SlicePresent, journal.Start: agentlink.SlicePresent,
	journal.Running: agentlink.SlicePresent, journal.Ended: agentlink.SlicePresent,
	journal.Stop: agentlink.SliceReclaiming, journal.Remove: agentlink.SliceReclaiming,
}

var runStates = map[journal.Step]instance.RunState{
	"": instance.RunPreparing, journal.Carve: instance.RunPreparing, journal.Carved: instance.RunPreparing,
	journal.Start: instance.RunPreparing, journal.Running: instance.RunRunning, journal.Stop: instance.RunRunning,
	journal.Failed: instance.RunFailed, journal.Ended: instance.RunExited, journal.Remove: instance.RunExited,
}

// report tells where a slice stands. The caller holds k.mu.
func (k *Keeper) report(s *slice) agentlink.Slice {
	e := s.entry
	out := agentlink.Slice{
		Key: e.Assignment.String(), Assignment: e.Assignment, Fence: e.Fence, Run: e.Run,
		State: sliceStates[e.Step], RunState: runStates[e.Step],
		Age: k.age(e, e.StartedUS), EndedAge: k.age(e, e.EndedUS), ExitCode: e.ExitCode,
		Reason: instance.Problem{Code: e.Code, Detail: e.Detail}, Credited: e.Credited,
	}
	if out.RunState == instance.RunPreparing {
		out.Progress = s.progress
	}
	switch {
	case s.want == wantGo:
		out.State, out.Reason = agentlink.SliceReclaiming, s.trouble
	case s.orphan:
		out.State = agentlink.SliceOrphan
	}
	switch {
	case e.Step != journal.Stop && e.Step != journal.Remove:
	case e.StartedUS == 0:
		out.RunState = instance.RunNone // it never ran, or nobody knows until when
	case e.EndedUS > 0:
		out.RunState = instance.RunExited
	}
	for _, x := range e.Slots {
		out.Slots = append(out.Slots, agentlink.SliceSlot{Slot: x.Slot, Device: x.Device, Memory: x.Memory, SMs: x.SMs})
	}
	return out
}

// age is how long ago a journalled instant is, negative if there is none that this
// boot's clock can measure from.
func (k *Keeper) age(e journal.Entry, us int64) time.Duration {
	if us == 0 || e.BootID != k.host.BootID {
		return -1
	}
	return max(0, k.host.Uptime()-uptimeOf(us))
}

// hash names a full set: everything but the ages, which change by themselves; the
// instants behind them do not.
func (k *Keeper) hash(o agentlink.Observed) string {
	list := slices.Clone(o.Slices)
	for i := range list {
		list[i].Age, list[i].EndedAge = 0, 0
		if mine := k.slices[list[i].Assignment]; mine != nil {
			list[i].Age, list[i].EndedAge = uptimeOf(mine.entry.StartedUS), uptimeOf(mine.entry.EndedUS)
		}
	}
	text, err := json.Marshal([]any{list, o.Gone})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// timeline is the newest that was obeyed, 0 for none.
func (k *Keeper) timeline() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out int64
	for _, s := range k.slices {
		out = max(out, s.timeline)
	}
	return out
}
