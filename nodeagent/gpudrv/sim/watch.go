package sim

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// sampleWindow is over how long usage is averaged.
const sampleWindow = 100 * time.Millisecond

// maxPending is how many events wait for a watcher before some are dropped.
const maxPending = 256

// watcher is one registration. Events before it are lost, as with a driver.
type watcher struct {
	drv    *Driver
	events chan gpudrv.Event // one place more than maxPending, for missed
	closed chan struct{}
	missed bool
}

// Watch implements gpudrv.Observer.
func (d *Driver) Watch(ctx context.Context) (gpudrv.Watcher, error) {
	if err := d.wait(ctx, "watch", "", d.latency.Read); err != nil {
		return nil, err
	}
	w := &watcher{drv: d, events: make(chan gpudrv.Event, maxPending+1), closed: make(chan struct{})}
	d.watching.Lock()
	defer d.watching.Unlock()
	d.watchers[w] = struct{}{}
	return w, nil
}

// Next implements gpudrv.Watcher.
func (w *watcher) Next(ctx context.Context) (gpudrv.Event, error) {
	select {
	case <-w.closed:
		return gpudrv.Event{}, gpudrv.Refuse(gpudrv.Broken, "watch", "", "watcher is closed")
	case e := <-w.events:
		w.drv.watching.Lock()
		defer w.drv.watching.Unlock()
		w.missed = w.missed && e.Kind != gpudrv.EventMissed
		return e, nil
	case <-ctx.Done():
		return gpudrv.Event{}, gpudrv.Refuse(gpudrv.Hung, "watch", "", "no event in time").Because(ctx.Err())
	}
}

// Close implements gpudrv.Watcher.
func (w *watcher) Close() error {
	w.drv.watching.Lock()
	defer w.drv.watching.Unlock()
	if _, ok := w.drv.watchers[w]; ok {
		delete(w.drv.watchers, w)
		close(w.closed)
	}
	return nil
}

// whole is an event of a whole GPU.
func whole(kind gpudrv.EventKind, uuid string) gpudrv.Event {
	return gpudrv.Event{Kind: kind, GPU: uuid, GPUInstance: -1, ComputeInstance: -1}
}

// tell gives an event to every watcher; one that does not keep up gets a single
// note that it missed some.
func (d *Driver) tell(e gpudrv.Event) {
	d.watching.Lock()
	defer d.watching.Unlock()
	e.At = d.now().UTC()
	for w := range d.watchers {
		switch {
		case w.missed:
		case len(w.events) >= maxPending:
			w.missed = true
			w.events <- gpudrv.Event{Kind: gpudrv.EventMissed, GPUInstance: -1, ComputeInstance: -1, At: e.At}
		default:
			w.events <- e
		}
	}
}

// XID reports an error of a GPU to watchers. gi and ci are -1 when the driver
// does not blame an instance.
func (d *Driver) XID(uuid string, code, gi, ci int) {
	e := whole(gpudrv.EventXID, uuid)
	e.XID, e.GPUInstance, e.ComputeInstance = code, gi, ci
	d.tell(e)
}

// Mismatch makes library and kernel module differ until the next reboot, as an
// upgrade under a running driver does.
func (d *Driver) Mismatch() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.st.clone()
	next.Mismatch = true
	return d.store(next)
}
