package nodeagent

import (
	"context"
	"strings"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// modes.json in the data folder holds the ordered modes: they are settings of the
// host and are applied again after a reboot.
const modesFile = "modes.json"

// ModeState is where the mode of a GPU stands.
type ModeState string

// The states of a mode.
const (
	Settled   ModeState = "settled"
	Draining  ModeState = "draining"  // something is still on the GPU
	Switching ModeState = "switching" // the driver is being asked
	Verifying ModeState = "verifying" // it has switched; the GPU is being tested
	ModeFails ModeState = "failed"
)

// modeEntry is one GPU's ordered mode.
type modeEntry struct {
	Mode    string    `json:"mode"`
	Epoch   int64     `json:"epoch"`
	State   ModeState `json:"state"`
	Problem string    `json:"problem,omitempty"`
}

// modeBook is the durable record of ordered modes. The Keeper's lock guards it.
type modeBook struct {
	path    string
	entries map[string]modeEntry
	busy    map[string]bool
}

func openModeBook(path string) (*modeBook, error) {
	b := &modeBook{path: path, entries: map[string]modeEntry{}, busy: map[string]bool{}}
	return b, loadJSON(path, &b.entries)
}

func (b *modeBook) get(uuid string) modeEntry {
	e, ok := b.entries[uuid]
	if !ok {
		return modeEntry{State: Settled}
	}
	return e
}

func (b *modeBook) set(uuid string, e modeEntry) error {
	old, had := b.entries[uuid]
	if had && old == e {
		return nil
	}
	b.entries[uuid] = e
	if err := storeJSON(b.path, b.entries); err != nil {
		b.entries[uuid] = old
		return err
	}
	return nil
}

// wanted is the mode that a GPU shall be in: an order's, else the host's own
// setting. The caller holds k.mu.
func (k *Keeper) wanted(uuid string) (gpu.Mode, bool) {
	if e, ok := k.modes.entries[uuid]; ok {
		m, err := gpu.ParseMode(e.Mode)
		return m, err == nil
	}
	m, ok := k.host.Modes[uuid]
	return m, ok
}

func (k *Keeper) wantedMode(uuid string) (gpu.Mode, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wanted(uuid)
}

// obeyModes takes mode orders. An order of a known or older epoch changes nothing.
// The caller holds k.mu.
func (k *Keeper) obeyModes(list []agentlink.ModeOrder) {
	for _, o := range list {
		if e, known := k.modes.entries[o.GPU]; known && e.Epoch >= o.Epoch {
			continue
		}
		if _, ours := k.devices[o.GPU]; !ours {
			k.host.Log.Warn("mode order for an unknown gpu", "gpu", o.GPU)
			continue
		}
		k.note(o.GPU, modeEntry{Mode: o.Mode.String(), Epoch: o.Epoch, State: Draining})
	}
	k.driveModes()
}

// note writes a mode's state down and reports it. The caller holds k.mu.
func (k *Keeper) note(uuid string, e modeEntry) {
	if err := k.modes.set(uuid, e); err != nil {
		k.host.Log.Error("mode not written down", "gpu", uuid, "error", err)
		return
	}
	k.inventory = true
	k.signal()
}

// driveModes starts what is due for unsettled modes. The caller holds k.mu.
func (k *Keeper) driveModes() {
	for uuid, e := range k.modes.entries {
		if e.settled() || k.modes.busy[uuid] || k.ctx.Err() != nil {
			continue
		}
		k.modes.busy[uuid] = true
		k.work.Go(func() { k.driveMode(uuid) })
	}
}

// driveMode brings one GPU into its ordered mode, however long it is held, and into the
// next one that is ordered meanwhile.
func (k *Keeper) driveMode(uuid string) {
	for try := 0; ; try++ {
		k.mu.Lock()
		e := k.modes.get(uuid)
		if e.settled() || k.ctx.Err() != nil {
			k.modes.busy[uuid] = false // under the lock that orders come with
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		next := k.switchMode(uuid, e)
		if k.advance(uuid, next) {
			k.relook(uuid)
			continue
		}
		timer := k.host.Clock.NewTimer(min(firstRetry<<min(try, 10), lastRetry))
		select {
		case <-timer.C():
		case <-k.ctx.Done():
			timer.Stop()
		}
	}
}

// settled reports whether there is nothing to do for a mode.
func (e modeEntry) settled() bool { return e.State == Settled || e.State == ModeFails }

// advance notes how far an order was carried out, unless a newer one came meanwhile,
// and reports whether the mode is settled now.
func (k *Keeper) advance(uuid string, e modeEntry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.modes.get(uuid).Epoch == e.Epoch {
		k.note(uuid, e)
	}
	return k.modes.get(uuid).settled()
}

// switchMode tries once and says where the mode stands then.
func (k *Keeper) switchMode(uuid string, e modeEntry) modeEntry {
	mode, err := gpu.ParseMode(e.Mode)
	if err != nil {
		e.State, e.Problem = ModeFails, err.Error()
		return e
	}
	leave, err := k.enterGPU(uuid)
	if err != nil {
		return e
	}
	defer leave()
	if holders := k.holders(uuid); len(holders) > 0 {
		e.State, e.Problem = Draining, "held by "+strings.Join(holders, ", ")
		return e
	}
	k.advance(uuid, modeEntry{Mode: e.Mode, Epoch: e.Epoch, State: Switching})
	if err := k.host.Carve.EnsureMode(k.ctx, uuid, mode); err != nil {
		e.State, e.Problem = ModeFails, err.Error()
		if gpudrv.IsTransient(err) {
			e.State = Draining
		}
		return e
	}
	if k.host.SelfTest != nil {
		k.advance(uuid, modeEntry{Mode: e.Mode, Epoch: e.Epoch, State: Verifying})
		if err := k.host.SelfTest(k.ctx, uuid); err != nil {
			e.State, e.Problem = ModeFails, "the self-test after the switch: "+err.Error()
			return e
		}
	}
	e.State, e.Problem = Settled, ""
	return e
}

// holders names what of ours or of strangers is on a GPU.
func (k *Keeper) holders(uuid string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []string
	for a, s := range k.slices {
		for _, x := range s.entry.Slots {
			if x.Slot.GPU == uuid && exists(s.entry.Step) {
				out = append(out, a.String())
				break
			}
		}
	}
	for _, x := range k.strangers {
		for _, slot := range x.Slots {
			if slot.Slot.GPU == uuid {
				out = append(out, x.Key)
				break
			}
		}
	}
	return out
}

// relook reads a GPU again after its mode was switched.
func (k *Keeper) relook(uuid string) {
	ctx, cancel := context.WithTimeout(k.ctx, readWithin)
	defer cancel()
	k.mu.Lock()
	g, ok := k.devices[uuid]
	k.mu.Unlock()
	if !ok {
		return
	}
	found, err := gpudrv.Inspect(ctx, k.host.Driver, g.Ref)
	if err != nil {
		k.host.Log.Warn("gpu not readable after a mode switch", "gpu", uuid, "error", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.devices[uuid], k.inventory = found, true
	k.signal()
}

// enterGPU waits for the turn on one GPU.
func (k *Keeper) enterGPU(uuid string) (leave func(), err error) {
	return k.enterQueues([]string{uuid})
}
