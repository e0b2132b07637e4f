package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/journal"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Bounds of a start that meets what may pass.
const (
	// maxTries is how often it is tried on a device that is busy.
	maxTries = 5
	// runtimeWithin is how long it waits for a runtime that does not answer. A restart or
	// an upgrade takes less; and the control plane waits longer (instance.PrepareWithin).
	runtimeWithin = 2 * time.Minute
)

// step does one thing for a slice. An error asks to try again later.
type step func(*Keeper, *slice) error

// The steps after each journalled one, on the way up and on the way down. A step is
// safe to repeat: after a crash the journalled one is done again.
var (
	up = map[journal.Step]step{
		"":             (*Keeper).planCarve,
		journal.Carve:  (*Keeper).carve,
		journal.Carved: (*Keeper).planStart,
		journal.Start:  (*Keeper).start,
	}
	down = map[journal.Step]step{
		"":              (*Keeper).planStop,
		journal.Carve:   (*Keeper).planStop,
		journal.Carved:  (*Keeper).planStop,
		journal.Start:   (*Keeper).planStop,
		journal.Running: (*Keeper).planStop,
		journal.Failed:  (*Keeper).planStop,
		journal.Ended:   (*Keeper).planStop,
		journal.Stop:    (*Keeper).stop,
		journal.Remove:  (*Keeper).remove,
	}
)

// next is the step that is due, nil for none. The caller holds the keeper's lock.
func (s *slice) next() step {
	var do step
	switch s.want {
	case wantRun:
		do = up[s.entry.Step]
	case wantGo:
		do = down[s.entry.Step]
	case wantKeep:
	}
	if s.want != wantGo && s.entry.Halt {
		do = (*Keeper).halt
	}
	stale := s.fence != s.entry.Fence || s.timeline != s.entry.Timeline
	if do == nil && stale && s.entry.Step != "" {
		return (*Keeper).refence
	}
	return do
}

// refence remembers a raised fence of a slice that needs nothing else.
func (k *Keeper) refence(s *slice) error {
	return k.commit(s, func(*journal.Entry) {})
}

func (k *Keeper) snapshot(s *slice) journal.Entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	return s.entry
}

// planCarve refuses a slot that something else of this host holds, and otherwise
// notes that carving begins.
func (k *Keeper) planCarve(s *slice) error {
	if holder, clash := k.clash(s); clash {
		return k.fail(s, gpudrv.Refuse(gpudrv.NoRoom, "carve", "", "the slot is held by %s", holder))
	}
	if err := k.refusedByHealth(s); err != nil {
		return k.fail(s, err)
	}
	if err := k.bound(s); err != nil {
		return k.fail(s, err)
	}
	return k.commit(s, func(e *journal.Entry) { e.Step = journal.Carve })
}

// clash names who else holds a unit of the slice's slots.
func (k *Keeper) clash(s *slice) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for a, other := range k.slices {
		if other != s && exists(other.entry.Step) && overlap(s.entry.Slots, other.entry.Slots) {
			return a.String(), true
		}
	}
	for _, x := range k.strangers {
		for _, slot := range x.Slots {
			if overlap(s.entry.Slots, []journal.Slot{{Slot: slot.Slot}}) {
				return x.Key, true
			}
		}
	}
	return "", false
}

// bound refuses a slice beside another organization's on a GPU whose mode binds it to
// one. The claim keeps that rule; this is the second wall, by the journal.
func (k *Keeper) bound(s *slice) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var held []carve.Slice
	for _, other := range k.slices {
		if other == s || !exists(other.entry.Step) {
			continue
		}
		for i := range other.entry.Slots {
			held = append(held, sliceOf(other.entry, i))
		}
	}
	for i := range s.entry.Slots {
		if err := carve.Bound(held, sliceOf(s.entry, i)); err != nil {
			return err
		}
	}
	return nil
}

func overlap(a, b []journal.Slot) bool {
	for _, x := range a {
		for _, y := range b {
			if x.Slot.GPU == y.Slot.GPU &&
				x.Slot.Start < y.Slot.Start+y.Slot.Size && y.Slot.Start < x.Slot.Start+x.Slot.Size {
				return true
			}
		}
	}
	return false
}

func sliceOf(e journal.Entry, n int) carve.Slice {
	s := carve.Slice{ID: fmt.Sprintf("%s/%d", e.Assignment, n), Slot: e.Slots[n].Slot}
	if !e.Org.IsZero() {
		s.Org = e.Org.String()
	}
	return s
}

// quiet cuts the container's processes off from its GPUs. What cannot be cut off is
// signalled all the same: a removal must not wait for a daemon that is gone.
func (k *Keeper) quiet(e journal.Entry) {
	if k.host.PIDs == nil {
		return
	}
	pids, err := k.host.PIDs(e.Assignment.String())
	if err != nil || len(pids) == 0 {
		return
	}
	for i := range e.Slots {
		if err := k.host.Carve.Quiet(k.ctx, sliceOf(e, i), pids); err != nil {
			k.host.Log.Warn("processes not cut off before their end", "assignment_id", e.Assignment.String(), "error", err)
		}
	}
}

// carve makes exactly the ordered slots and keeps what the driver says about them.
func (k *Keeper) carve(s *slice) error {
	e := k.snapshot(s)
	leave, err := k.enterQueue(e)
	if err != nil {
		return err
	}
	defer leave()
	slots := make([]journal.Slot, 0, len(e.Slots))
	for i, want := range e.Slots {
		seen, err := k.host.Carve.Ensure(k.ctx, sliceOf(e, i))
		if err != nil {
			return k.failOrRetry(s, err)
		}
		want.Device, want.Memory, want.SMs = seen.UUID, seen.Memory, seen.SMs
		slots = append(slots, want)
	}
	return k.commit(s, func(e *journal.Entry) { e.Step, e.Slots = journal.Carved, slots })
}

func (k *Keeper) planStart(s *slice) error {
	return k.commit(s, func(e *journal.Entry) { e.Step = journal.Start })
}

// start starts the container. The GPU's queue is free meanwhile: neighbours on the
// same GPU need not wait for it.
func (k *Keeper) start(s *slice) error {
	e := k.snapshot(s)
	if err := k.refusedByHealth(s); err != nil {
		return k.fail(s, err)
	}
	ctx, done := k.abortable(s)
	defer done()
	spec, err := k.spec(ctx, s, e)
	var c runtime.Container
	if err == nil {
		c, err = k.host.Runtime.Start(ctx, spec)
	}
	if err != nil && ctx.Err() != nil && k.ctx.Err() == nil {
		return nil // a tombstone came meanwhile: what was begun is removed
	}
	if err != nil {
		return k.failOrRetry(s, err)
	}
	return k.commit(s, func(e *journal.Entry) {
		e.Step, e.StartedUS, e.EndedUS, e.Code, e.Detail = journal.Running, c.Started.Microseconds(), 0, "", ""
	})
}

// abortable is a context that a tombstone of the slice ends.
func (k *Keeper) abortable(s *slice) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancel(k.ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	s.abort = cancel
	if s.want == wantGo {
		cancel()
	}
	return ctx, func() {
		k.mu.Lock()
		s.abort = nil
		k.mu.Unlock()
		cancel()
	}
}

// spec is the container of an entry, with what the host must not keep asked for now.
func (k *Keeper) spec(ctx context.Context, s *slice, e journal.Entry) (runtime.Spec, error) {
	k.mu.Lock()
	keys := slices.Clone(s.keys)
	k.mu.Unlock()
	spec := runtime.Spec{
		Name: e.Assignment.String(), Run: e.Run, Instance: e.Instance.String(), Org: e.Org.String(), Hostname: hostname(e.Name),
		Image: e.Image, Command: e.Command, Env: e.Env, VCPU: e.VCPU, RAM: e.RAM, Shm: e.Shm, Keys: keys,
		Extra: runtime.Extra{Progress: func(text string) { k.progress(s, text) }},
	}
	for _, x := range e.Slots {
		spec.Slots = append(spec.Slots, x.Slot)
		spec.Devices = append(spec.Devices, x.Device)
		spec.Memory = append(spec.Memory, x.Memory)
	}
	for _, p := range e.Ports {
		spec.Ports = append(spec.Ports, runtime.Port(p))
	}
	if !e.HasSecrets || k.host.Secrets == nil {
		return spec, nil
	}
	ctx, cancel := context.WithTimeout(ctx, secretsWithin)
	defer cancel()
	got, err := k.host.Secrets(ctx, agentlink.SecretsRequest{Assignment: e.Assignment, Fence: e.Fence})
	if err != nil {
		return runtime.Spec{}, fmt.Errorf("%w: ask for secrets: %w", errRetry, err)
	}
	if got.Refused != "" {
		return runtime.Spec{}, runtime.Refuse(secretsRefused, "secrets", spec.Name, "%s", got.Refused)
	}
	spec.Secrets = got.Env
	if got.Login != nil {
		login := runtime.Login(*got.Login)
		spec.Login = &login
	}
	return spec, nil
}

// secretsWithin bounds one question; it is asked again after it.
const secretsWithin = 30 * time.Second

// secretsRefused is the reason of a run whose secrets the control plane keeps back.
const secretsRefused runtime.Kind = "SECRETS_REFUSED"

// progress notes what a start is doing, for people.
func (k *Keeper) progress(s *slice, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.progress != text {
		s.progress = text
		k.touch(s.entry.Assignment)
	}
}

// failOrRetry tries a busy device a few times and a runtime that is away for a while,
// and gives up on anything else.
func (k *Keeper) failOrRetry(s *slice, err error) error {
	if k.ctx.Err() != nil {
		return k.ctx.Err()
	}
	k.mu.Lock()
	again := gpudrv.KindOf(err) == gpudrv.InUse && s.tries < maxTries && s.want == wantRun
	again = again || errors.Is(err, errRetry) && s.want == wantRun
	again = again || k.awaits(s, err) && s.want == wantRun
	k.mu.Unlock()
	if again {
		return errRetry
	}
	return k.fail(s, err)
}

// awaits reports whether a start failed for want of a runtime that may come back in
// time. The caller holds k.mu.
func (k *Keeper) awaits(s *slice, err error) bool {
	if runtime.KindOf(err) != runtime.Unavailable {
		s.away = 0
		return false
	}
	now := k.host.Uptime()
	if s.away == 0 {
		s.away = now
		k.host.Log.Warn("start waits for the container runtime", "assignment_id", s.entry.Assignment.String(), "error", err)
	}
	return now-s.away < runtimeWithin
}

// fail gives an order up with the driver's typed reason. What was made stays until
// a tombstone names it.
func (k *Keeper) fail(s *slice, err error) error {
	p := problemOf(err)
	k.host.Log.Warn("slice failed", "assignment_id", s.entry.Assignment.String(), "code", p.Code, "error", err)
	return k.commit(s, func(e *journal.Entry) { e.Step, e.Code, e.Detail = journal.Failed, p.Code, p.Detail })
}

// maxDetail bounds a reason's text, in bytes.
const maxDetail = 512

func problemOf(err error) instance.Problem {
	text := err.Error()
	if len(text) > maxDetail {
		text = text[:maxDetail]
	}
	return instance.Problem{Code: codeOf(err), Detail: text}
}

// codeOf is the reason code of an error of the runtime or of the driver.
func codeOf(err error) string {
	if r, ok := errors.AsType[*runtime.Error](err); ok {
		return string(r.Kind)
	}
	return string(gpudrv.KindOf(err))
}

func (k *Keeper) planStop(s *slice) error {
	return k.commit(s, func(e *journal.Entry) {
		if e.Step == journal.Ended && e.EndedUS == 0 {
			e.StartedUS = 0 // the end is unknown and must not be guessed later
		}
		e.Step, e.Halt = journal.Stop, false
	})
}

// halt ends the container of a run that is over for us. What it held stays until a
// tombstone names it.
func (k *Keeper) halt(s *slice) error {
	k.quiet(k.snapshot(s))
	if err := k.host.Runtime.Stop(k.ctx, k.snapshot(s).Assignment.String()); err != nil {
		return k.hinder(s, err)
	}
	return k.commit(s, func(e *journal.Entry) { e.Halt = false })
}

// stop ends the container, and learns from it what slots a forgotten assignment had.
func (k *Keeper) stop(s *slice) error {
	e := k.snapshot(s)
	found, err := k.container(e.Assignment.String())
	if err != nil {
		return k.hinder(s, err)
	}
	k.quiet(e)
	if err := k.host.Runtime.Stop(k.ctx, e.Assignment.String()); err != nil {
		return k.hinder(s, err)
	}
	return k.commit(s, func(e *journal.Entry) {
		e.Step = journal.Remove
		if e.StartedUS > 0 && e.EndedUS == 0 {
			e.EndedUS = k.host.Uptime().Microseconds()
		}
		if len(e.Slots) == 0 && found != nil {
			for _, slot := range found.Slots {
				e.Slots = append(e.Slots, journal.Slot{Slot: slot})
			}
		}
	})
}

func (k *Keeper) container(name string) (*runtime.Container, error) {
	list, err := k.host.Runtime.List(k.ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		if c.Name == name {
			return &c, nil
		}
	}
	return nil, nil
}

// remove takes the slices away and acknowledges only what it has proven: no
// container of that name, no slice of those slots.
func (k *Keeper) remove(s *slice) error {
	e := k.snapshot(s)
	leave, err := k.enterQueue(e)
	if err != nil {
		return err
	}
	defer leave()
	evidence, err := k.scrub(e)
	if err != nil {
		return k.hinder(s, err)
	}
	for i := range e.Slots {
		if err := k.host.Carve.Remove(k.ctx, sliceOf(e, i)); err != nil {
			return k.hinder(s, err)
		}
	}
	if err := k.proveGone(e); err != nil {
		return k.hinder(s, err)
	}
	return k.commit(s, func(e *journal.Entry) {
		e.Step, e.Code, e.Detail, e.Scrubbed = journal.Gone, "", "", evidence
	})
}

// scrub cleans the slices of a run before they are taken away. A slice that was
// never carved has held nothing.
func (k *Keeper) scrub(e journal.Entry) (string, error) {
	if k.host.Scrub == nil {
		return "", nil
	}
	var seen []string
	for i, slot := range e.Slots {
		if slot.Device == "" {
			continue
		}
		text, err := k.host.Scrub.Scrub(k.ctx, sliceOf(e, i))
		if err != nil {
			return "", gpudrv.Refuse(scrubFailed, "scrub", slot.Slot.GPU, "the slice is not clean and stays out of sale").Because(err)
		}
		seen = append(seen, text)
	}
	return strings.Join(seen, "; "), nil
}

// scrubFailed is the reason of a slice that could not be proven clean.
const scrubFailed gpudrv.Kind = "SCRUB_FAILED"

func (k *Keeper) proveGone(e journal.Entry) error {
	c, err := k.container(e.Assignment.String())
	if err != nil {
		return err
	}
	if c != nil {
		return errors.New("the container is still there")
	}
	for _, slot := range e.Slots {
		found, err := k.host.Carve.Observe(k.ctx, slot.Slot.GPU)
		if err != nil {
			return err
		}
		for _, f := range found {
			if overlap([]journal.Slot{slot}, []journal.Slot{{Slot: f.Evidence.Slot}}) {
				return fmt.Errorf("a slice is still at %s", f.Evidence.Slot)
			}
		}
	}
	return nil
}

// hinder keeps a removal going for ever, and says what stands in its way.
func (k *Keeper) hinder(s *slice, err error) error {
	if k.ctx.Err() != nil {
		return k.ctx.Err()
	}
	p := problemOf(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.trouble != p {
		s.trouble = p
		k.touch(s.entry.Assignment)
		k.host.Log.Warn("removal hindered", "assignment_id", s.entry.Assignment.String(), "code", p.Code, "error", err)
	}
	return errRetry
}

// uptimeOf turns journalled microseconds into a duration.
func uptimeOf(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
