//go:build nvml

package nvml

import (
	"context"
	"slices"
	"sync"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// kinds are the events that the agent wants, by the library's types.
var kinds = map[uint64]gpudrv.EventKind{
	lib.EventTypeXidCriticalError:    gpudrv.EventXID,
	lib.EventTypeGpuRecoveryAction:   gpudrv.EventRecovery,
	lib.EventTypeGpuUnavailableError: gpudrv.EventUnavailable,
	lib.EventMigConfigChange:         gpudrv.EventMIGConfig,
}

const (
	// waitFor is how long one wait inside the library lasts; it bounds how long a
	// reset has to wait for the watcher.
	waitFor = 250 * time.Millisecond
	// tryAgain is how long a watcher rests after a failed wait or registration.
	tryAgain = time.Second
	// makeRoom is how long a watcher keeps out for somebody who wants to be alone.
	makeRoom = 20 * time.Millisecond
	// backlog is how many events wait for the reader before some are dropped.
	backlog = 256
)

// watcher passes the events of one registration on. Its goroutine is the only
// one that touches the event set.
type watcher struct {
	d      *driver
	events chan gpudrv.Event
	stop   chan struct{}
	once   sync.Once
	missed bool // events were dropped and nobody was told yet
}

// registration is an event set with the GPUs that it covers.
type registration struct {
	set        lib.EventSet
	generation uint64
	uuids      map[lib.Device]string
}

// Watch implements gpudrv.Observer.
func (d *driver) Watch(ctx context.Context) (gpudrv.Watcher, error) {
	r, err := within(ctx, d, "", d.register)
	if err != nil {
		return nil, err
	}
	w := &watcher{d: d, events: make(chan gpudrv.Event, backlog), stop: make(chan struct{})}
	go w.run(r)
	return w, nil
}

// register makes an event set for every GPU. A lost GPU is left out: its health
// says that it is lost.
func (d *driver) register() (registration, error) {
	const op = "watch"
	r := registration{generation: d.calls.Generation(), uuids: map[lib.Device]string{}}
	set, ret := d.api.EventSetCreate()
	if ret != lib.SUCCESS {
		return r, refuse(op, "", ret, "make event set")
	}
	r.set = set
	n, ret := d.api.DeviceGetCount()
	if ret != lib.SUCCESS {
		set.Free()
		return r, refuse(op, "", ret, "count gpus")
	}
	for i := range n {
		dev, ret := d.api.DeviceGetHandleByIndex(i)
		if ret != lib.SUCCESS {
			continue
		}
		uuid, ret := dev.GetUUID()
		if ret != lib.SUCCESS || slices.Contains(d.config.Excluded, uuid) {
			continue
		}
		supported, ret := dev.GetSupportedEventTypes()
		if ret != lib.SUCCESS {
			continue
		}
		wanted := uint64(0)
		for t := range kinds {
			wanted |= t & supported
		}
		if wanted == 0 || dev.RegisterEvents(wanted, set) != lib.SUCCESS {
			continue
		}
		r.uuids[dev] = uuid
	}
	if len(r.uuids) == 0 {
		set.Free()
		return r, gpudrv.Refuse(gpudrv.Unsupported, op, "", "no gpu reports events")
	}
	return r, nil
}

// run waits for events until Close. After a reset or a failure it registers again
// and says that events may have been missed.
func (w *watcher) run(r registration) {
	calls := &w.d.calls
	for !w.stopped() {
		if calls.Wanted() {
			w.rest(makeRoom)
			continue
		}
		calls.Shared(func() { r = w.step(r) })
		if r.set == nil {
			w.rest(tryAgain)
		}
	}
	calls.Shared(func() {
		if r.set != nil && r.generation == calls.Generation() {
			r.set.Free()
		}
	})
}

// step waits once for an event, or registers again where the registration is of
// an older session; such a set died with its session and is not freed. It returns
// no registration after a failure.
func (w *watcher) step(r registration) registration {
	if r.set == nil || r.generation != w.d.calls.Generation() {
		next, err := w.d.register()
		if err != nil {
			return registration{}
		}
		w.missed = true
		w.pass(gpudrv.Event{})
		return next
	}
	data, ret := r.set.Wait(uint32(waitFor.Milliseconds()))
	switch ret {
	case lib.SUCCESS:
		w.receive(r, data)
	case lib.ERROR_TIMEOUT:
	default:
		r.set.Free()
		return registration{}
	}
	return r
}

func (w *watcher) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

func (w *watcher) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.stop:
	}
}

// receive turns the library's event into ours.
func (w *watcher) receive(r registration, data lib.EventData) {
	kind, ok := kinds[data.EventType]
	if !ok {
		return
	}
	uuid, ok := r.uuids[data.Device]
	if !ok {
		uuid, _ = data.Device.GetUUID()
	}
	e := gpudrv.Event{
		Kind: kind, GPU: uuid, At: time.Now().UTC(),
		GPUInstance: instanceOf(data.GpuInstanceId), ComputeInstance: instanceOf(data.ComputeInstanceId),
	}
	if kind == gpudrv.EventXID {
		e.XID = int(data.EventData)
	}
	w.pass(e)
}

// instanceOf is -1 where the library says that no instance is meant.
func instanceOf(id uint32) int {
	const none = 1<<32 - 1
	if id == none {
		return -1
	}
	return int(id)
}

// pass hands an event on, after the word that some were dropped if that is due;
// an event without a kind is nothing but that word.
func (w *watcher) pass(e gpudrv.Event) {
	if w.missed {
		select {
		case w.events <- gpudrv.Event{Kind: gpudrv.EventMissed, GPUInstance: -1, ComputeInstance: -1, At: time.Now().UTC()}:
			w.missed = false
		default:
			return
		}
	}
	if e.Kind == "" {
		return
	}
	select {
	case w.events <- e:
	default:
		w.missed = true
	}
}

// Next implements gpudrv.Watcher.
func (w *watcher) Next(ctx context.Context) (gpudrv.Event, error) {
	select {
	case <-w.stop:
		return gpudrv.Event{}, gpudrv.Refuse(gpudrv.Broken, "watch", "", "the watcher is closed")
	default:
	}
	select {
	case e := <-w.events:
		return e, nil
	case <-w.stop:
		return gpudrv.Event{}, gpudrv.Refuse(gpudrv.Broken, "watch", "", "the watcher is closed")
	case <-ctx.Done():
		return gpudrv.Event{}, gpudrv.Refuse(gpudrv.Hung, "watch", "", "no event in time").Because(ctx.Err())
	}
}

// Close implements gpudrv.Watcher.
func (w *watcher) Close() error {
	w.once.Do(func() { close(w.stop) })
	return nil
}
