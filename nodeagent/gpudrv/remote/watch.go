package remote

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

const (
	// registerWithin bounds the registration for events.
	registerWithin = 10 * time.Second
	// backlog is how many events wait for a reader before some are dropped.
	backlog = 256
	// rewatch is the pause before a lost registration is made again.
	rewatch = 500 * time.Millisecond
)

// Subscribe calls for events on whatever process answers now, and returns when the
// registration has ended. It hands on what Forward tells.
type Subscribe func(ctx context.Context, told func(json.RawMessage)) error

// NewWatcher registers for events; it fails if the first registration does. A lost one
// is made again, and EventMissed tells that something may have been missed meanwhile.
func NewWatcher(ctx context.Context, c clock.Clock, subscribe Subscribe) (gpudrv.Watcher, error) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &watcher{cancel: cancel, done: own.Done(), events: make(chan gpudrv.Event, backlog+1)}
	registered := make(chan struct{})
	failed := make(chan error, 1)
	go w.run(own, c, subscribe, sync.OnceFunc(func() { close(registered) }), failed)
	select {
	case <-registered:
		return w, nil
	case err := <-failed:
		cancel()
		return nil, err
	case <-ctx.Done():
		cancel()
		return nil, gpudrv.Refuse(gpudrv.Hung, opWatch, "", "no answer in time").Because(ctx.Err())
	}
}

type watcher struct {
	cancel context.CancelFunc
	done   <-chan struct{}
	events chan gpudrv.Event

	mu     sync.Mutex
	missed bool
}

// run keeps a registration until Close. Only the first one may fail for good.
func (w *watcher) run(ctx context.Context, c clock.Clock, subscribe Subscribe, registered func(), failed chan<- error) {
	for first := true; ctx.Err() == nil; first = false {
		held := false
		err := subscribe(ctx, func(body json.RawMessage) {
			var e gpudrv.Event
			if json.Unmarshal(body, &e) != nil {
				return
			}
			if e.Kind != "" {
				w.put(e)
				return
			}
			if held = true; first {
				registered()
				return
			}
			w.put(missedEvent(c))
		})
		if first && !held {
			failed <- err
			return
		}
		timer := c.NewTimer(rewatch)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

func missedEvent(c clock.Clock) gpudrv.Event {
	return gpudrv.Event{Kind: gpudrv.EventMissed, GPUInstance: -1, ComputeInstance: -1, At: c.Now()}
}

// put queues an event. One that finds no room is dropped with all after it until the
// reader has come to the word that some were.
func (w *watcher) put(e gpudrv.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.missed:
	case len(w.events) < backlog:
		w.events <- e
	default:
		w.missed = true
		w.events <- gpudrv.Event{Kind: gpudrv.EventMissed, GPUInstance: -1, ComputeInstance: -1, At: e.At}
	}
}

// took notes that the reader has come to an event.
func (w *watcher) took(e gpudrv.Event) gpudrv.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missed = w.missed && e.Kind != gpudrv.EventMissed
	return e
}

// Next implements gpudrv.Watcher.
func (w *watcher) Next(ctx context.Context) (gpudrv.Event, error) {
	select {
	case <-w.done:
		return gpudrv.Event{}, gpudrv.Refuse(gpudrv.Broken, opWatch, "", "the watcher is closed")
	default:
	}
	select {
	case e := <-w.events:
		return w.took(e), nil
	case <-w.done:
		return gpudrv.Event{}, gpudrv.Refuse(gpudrv.Broken, opWatch, "", "the watcher is closed")
	case <-ctx.Done():
		return gpudrv.Event{}, gpudrv.Refuse(gpudrv.Hung, opWatch, "", "no event in time").Because(ctx.Err())
	}
}

// Close implements gpudrv.Watcher.
func (w *watcher) Close() error {
	w.cancel()
	return nil
}
