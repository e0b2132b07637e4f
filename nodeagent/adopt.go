package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/journal"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Reasons of a run that was found to be over.
const (
	reasonReboot      = "HOST_REBOOT"   // another boot: nothing of it can live
	reasonProcessLost = "PROCESS_LOST"  // same boot, the container is not there
	reasonSliceLost   = "SLICE_LOST"    // same boot, the slice is not there
	reasonOutOfMemory = "OUT_OF_MEMORY" // the kernel ended it at its own limit
)

// scene is what the driver and the runtime say exists on the host.
type scene struct {
	gpus       []gpudrv.Found // those that could be read
	trouble    map[string]error
	containers map[string]runtime.Container
	found      map[string][]carve.Found // by GPU UUID
}

// readWithin bounds the reading of one GPU: a hung one costs the others no more.
const readWithin = 5 * time.Second

// listWithin bounds the lists of containers and GPUs: a daemon that hangs makes a host
// unreadable, not silently out of date.
const listWithin = 30 * time.Second

// look reads all of it. An error means that nothing is known; a GPU that cannot be
// read is in trouble and the others are known.
func (k *Keeper) look(ctx context.Context) (scene, error) {
	sc := scene{trouble: map[string]error{}, containers: map[string]runtime.Container{}, found: map[string][]carve.Found{}}
	listing, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	list, err := k.host.Runtime.List(listing)
	if err != nil {
		return scene{}, err
	}
	for _, c := range list {
		sc.containers[c.Name] = c
	}
	refs, err := k.host.Driver.GPUs(listing)
	if err != nil {
		return scene{}, fmt.Errorf("list gpus: %w", err)
	}
	for _, ref := range refs {
		if err := k.lookAt(ctx, &sc, ref); err != nil {
			sc.trouble[ref.UUID] = err
		}
	}
	for _, uuid := range k.known() {
		if !slices.ContainsFunc(refs, func(r gpudrv.Ref) bool { return r.UUID == uuid }) {
			sc.trouble[uuid] = gpudrv.Refuse(gpudrv.GPULost, "list", uuid, "the driver does not list it any more")
		}
	}
	if len(k.known()) == 0 && len(sc.gpus) == 0 {
		return scene{}, errors.Join(errors.New("the driver shows no gpu that can be read"), first(sc.trouble))
	}
	return sc, nil
}

func (k *Keeper) lookAt(ctx context.Context, sc *scene, ref gpudrv.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	k.mu.Lock()
	g, known := k.devices[ref.UUID]
	h := k.health[ref.UUID]
	k.mu.Unlock()
	if h.Cause == CauseHung {
		// Each more read would cost a thread that may never come back.
		return gpudrv.Refuse(gpudrv.Hung, "look", ref.UUID, "%s", h.Detail)
	}
	var err error
	if known && g.Ref == ref {
		// What a GPU can be cut into does not change while the driver is loaded.
		g.Mode, err = k.host.Driver.Mode(ctx, ref.UUID)
	} else {
		g, err = gpudrv.Inspect(ctx, k.host.Driver, ref)
	}
	if err != nil {
		return err
	}
	found, err := k.host.Carve.Observe(ctx, ref.UUID)
	if err != nil {
		return fmt.Errorf("observe gpu %s: %w", ref.UUID, err)
	}
	sc.gpus, sc.found[ref.UUID] = append(sc.gpus, g), found
	return nil
}

// first is the error of the least UUID, so that a message does not change by itself.
func first(trouble map[string]error) error {
	for _, uuid := range slices.Sorted(maps.Keys(trouble)) {
		return trouble[uuid]
	}
	return nil
}

// known lists the GPUs that the host has shown before, this boot or an earlier one.
func (k *Keeper) known() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.devices))
}

// Adopt compares settings, journal, driver and runtime, and decides about each
// thing found: adopt it, finish it, go on removing it, call its run ended, or leave
// it alone as a stranger. Until it succeeds the host reports that it cannot be read
// and obeys nothing; call it again later then.
func (k *Keeper) Adopt(ctx context.Context) error {
	sc, err := k.look(ctx)
	if err == nil && k.settle(ctx, sc) {
		sc, err = k.look(ctx)
	}
	if err != nil {
		k.mu.Lock()
		k.unread = err.Error()
		k.signal()
		k.mu.Unlock()
		return fmt.Errorf("adopt: %w", err)
	}
	if err := k.learn(sc); err != nil {
		return err
	}
	k.mu.Lock()
	known := make([]*slice, 0, len(k.slices))
	for _, s := range k.slices {
		known = append(known, s)
	}
	k.mu.Unlock()
	for _, s := range known {
		if err := k.adoptOne(s, sc); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.strangers = k.strange(sc, k.claimed())
	k.adopted, k.unread = true, ""
	for _, s := range k.slices {
		k.kick(s)
	}
	if k.desired != nil {
		k.obey()
	}
	k.openDoor()
	k.driveModes()
	k.signal()
	return nil
}

// settle brings idle GPUs into the mode that the host's settings ask for; they may
// have lost it in a reboot. A GPU that cannot be brought there shows its true mode
// and is not sold. It reports whether anything changed.
func (k *Keeper) settle(ctx context.Context, sc scene) (changed bool) {
	for _, g := range sc.gpus {
		want, ok := k.wantedMode(g.Ref.UUID)
		if !ok || want == g.Mode || len(sc.found[g.Ref.UUID]) > 0 || inUse(sc, g.Ref.UUID, k.host.BootID) {
			continue
		}
		changed = true
		if err := k.host.Carve.EnsureMode(ctx, g.Ref.UUID, want); err != nil {
			k.host.Log.Warn("gpu mode not restored", "gpu", g.Ref.UUID, "mode", want.String(), "error", err)
		}
	}
	return changed
}

// inUse reports whether a container of this boot runs on a GPU.
func inUse(sc scene, uuid, bootID string) bool {
	for _, c := range sc.containers {
		if c.State != runtime.Running || c.BootID != bootID {
			continue
		}
		for _, s := range c.Slots {
			if s.GPU == uuid {
				return true
			}
		}
	}
	return false
}

// adoptOne writes down what has become of a journalled slice.
func (k *Keeper) adoptOne(s *slice, sc scene) error {
	k.mu.Lock()
	e := s.entry
	if e.BootID != k.host.BootID {
		// Instants of another boot's clock mean nothing in this one.
		s.entry.StartedUS, s.entry.EndedUS = 0, 0
	}
	k.mu.Unlock()
	w, next := judge(e, k.host.BootID, sc)
	k.mu.Lock()
	s.want = w
	k.mu.Unlock()
	if next == nil || unreadable(e, sc) {
		return nil
	}
	k.host.Log.Info("slice found changed", "assignment_id", e.Assignment.String(), "was", string(e.Step), "is", string(next.Step), "code", next.Code)
	return k.commit(s, func(e *journal.Entry) { *e = keepOrder(*e, *next) })
}

// unreadable reports whether a slice is on a GPU that cannot be read now: nothing is
// known of it, so nothing is concluded.
func unreadable(e journal.Entry, sc scene) bool {
	for _, s := range e.Slots {
		if sc.trouble[s.Slot.GPU] != nil && e.Step == journal.Running {
			return true
		}
	}
	return false
}

// keepOrder takes the outcome of judge into an entry that carries the newest fence.
func keepOrder(e, next journal.Entry) journal.Entry {
	next.Fence, next.Timeline, next.BootID = e.Fence, e.Timeline, e.BootID
	return next
}

// judge decides what is true of a journalled slice, and what shall become of it.
// A nil entry means that the journalled one still holds.
func judge(e journal.Entry, bootID string, sc scene) (want, *journal.Entry) {
	c, there := sc.containers[e.Assignment.String()]
	there = there && c.Run == e.Run
	sameBoot := e.BootID == bootID
	switch e.Step {
	case journal.Gone, journal.Failed, journal.Ended:
		return wantKeep, nil
	case journal.Stop, journal.Remove:
		return wantGo, nil // begun removals are finished
	case journal.Running:
		return judgeRunning(e, sameBoot, there, c, sc)
	case journal.Carve, journal.Carved, journal.Start:
		// Also a container that runs: only its start knows whether the tenant's program
		// began, and a start that is done again returns what runs.
	}
	// Begun and not finished: it was ordered, so it is finished. What a reboot took
	// is made again from the start.
	if !sameBoot && e.Step != journal.Carve {
		e.Step, e.StartedUS = journal.Carve, 0
		return wantRun, &e
	}
	return wantRun, nil
}

func judgeRunning(e journal.Entry, sameBoot, there bool, c runtime.Container, sc scene) (want, *journal.Entry) {
	over := func(code, detail string, ended time.Duration, exit int) (want, *journal.Entry) {
		e.Step, e.Code, e.Detail, e.EndedUS, e.ExitCode = journal.Ended, code, detail, ended.Microseconds(), exit
		return wantKeep, &e
	}
	switch {
	case !sameBoot:
		e.StartedUS, e.Credited = 0, true
		return over(reasonReboot, "the host has rebooted", 0, 0)
	case !there || c.State == runtime.Created:
		e.Credited = true
		return over(reasonProcessLost, "the container is not there any more", 0, 0)
	case c.State == runtime.Exited && c.OOM:
		return over(reasonOutOfMemory, "the instance used more memory than it has", c.Ended, c.ExitCode)
	case c.State == runtime.Exited:
		return over("", fmt.Sprintf("its main process ended with exit code %d", c.ExitCode), c.Ended, c.ExitCode)
	case !present(e, sc):
		e.Credited, e.Halt = true, true
		return over(reasonSliceLost, "the slice is not there any more", 0, 0)
	}
	return wantKeep, nil
}

// present reports whether the driver shows every slot of an entry. A whole GPU
// leaves no mark on the driver: it is there while the GPU is.
func present(e journal.Entry, sc scene) bool {
	for _, s := range e.Slots {
		if !shows(sc, s.Slot) {
			return false
		}
	}
	return true
}

func shows(sc scene, s gpu.Slot) bool {
	if s.Mode.Kind == gpu.Whole {
		for _, g := range sc.gpus {
			if g.Ref.UUID == s.GPU {
				return true
			}
		}
		return false
	}
	for _, f := range sc.found[s.GPU] {
		if !f.Incomplete && same(f.Evidence.Slot, s) {
			return true
		}
	}
	return false
}

func same(a, b gpu.Slot) bool {
	return a.GPU == b.GPU && a.Mode == b.Mode && a.Start == b.Start && a.Size == b.Size &&
		(a.Mode.Kind != gpu.MIG || a.Profile == b.Profile)
}

// claimed is what the journal says is ours: names of containers and slots. The
// caller holds k.mu.
func (k *Keeper) claimed() ours {
	o := ours{names: map[string]bool{}}
	for a, s := range k.slices {
		if s.busy || exists(s.entry.Step) {
			o.names[a.String()] = true
			o.slots = append(o.slots, s.entry.Slots...)
		}
	}
	return o
}

type ours struct {
	names map[string]bool
	slots []journal.Slot
}

// strange lists what is on the host and not ours: it is reported, never sold and
// never touched.
func (k *Keeper) strange(sc scene, o ours) []agentlink.Slice {
	var out []agentlink.Slice
	for name, c := range sc.containers {
		if o.names[name] {
			continue
		}
		s := quarantined("container/"+name, "a container that this agent does not know")
		for _, slot := range c.Slots {
			s.Slots = append(s.Slots, agentlink.SliceSlot{Slot: slot})
			o.slots = append(o.slots, journal.Slot{Slot: slot})
		}
		out = append(out, s)
	}
	for uuid, list := range sc.found {
		for _, f := range list {
			if overlap([]journal.Slot{{Slot: f.Evidence.Slot}}, o.slots) {
				continue
			}
			s := quarantined("slot/"+uuid+"/"+strconv.Itoa(f.Evidence.Slot.Start), "a slice that this agent did not make")
			s.Slots = []agentlink.SliceSlot{{
				Slot: f.Evidence.Slot, Device: f.Evidence.UUID, Memory: f.Evidence.Memory, SMs: f.Evidence.SMs,
			}}
			out = append(out, s)
		}
	}
	return out
}

func quarantined(key, detail string) agentlink.Slice {
	return agentlink.Slice{
		Key: key, State: agentlink.SliceQuarantined, RunState: instance.RunNone, Age: -1, EndedAge: -1,
		Reason: instance.Problem{Code: "UNKNOWN", Detail: detail},
	}
}

// Inspect looks again: runs that ended by themselves, things that appeared. A host
// that cannot be read is reported as such.
func (k *Keeper) Inspect(ctx context.Context) error {
	k.mu.Lock()
	if !k.adopted {
		k.mu.Unlock()
		return k.Adopt(ctx)
	}
	before := k.claimed()
	var running []*slice
	for _, s := range k.slices {
		if s.entry.Step == journal.Running && !s.busy && s.want != wantGo {
			running = append(running, s)
		}
	}
	k.mu.Unlock()
	sc, err := k.look(ctx)
	if err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.unread = err.Error()
		k.signal()
		return fmt.Errorf("inspect: %w", err)
	}
	for _, s := range running {
		if err := k.recheck(s, sc); err != nil {
			return err
		}
	}
	if err := k.learn(sc); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	// Ours before or after the look: something may have come or gone meanwhile.
	after := k.claimed()
	for name := range before.names {
		after.names[name] = true
	}
	after.slots = append(after.slots, before.slots...)
	k.strangers = k.strange(sc, after)
	if k.unread != "" {
		k.unread = ""
		k.signal()
	}
	return nil
}

// recheck notes the end of a run that ended by itself.
func (k *Keeper) recheck(s *slice, sc scene) error {
	k.mu.Lock()
	if s.busy || s.entry.Step != journal.Running || s.want == wantGo {
		k.mu.Unlock()
		return nil
	}
	_, next := judge(s.entry, k.host.BootID, sc)
	if next == nil || unreadable(s.entry, sc) {
		k.mu.Unlock()
		return nil
	}
	s.busy = true // nobody else works on it while the end is written
	k.mu.Unlock()
	err := k.commit(s, func(e *journal.Entry) { *e = keepOrder(*e, *next) })
	k.mu.Lock()
	defer k.mu.Unlock()
	s.busy = false
	k.kick(s)
	return err
}
