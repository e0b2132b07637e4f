package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/store"
)

// watchEvery is how soon a waiter learns of a change. One statement looks for all
// waiters of the process, so their number costs nothing; without waiters there is
// no statement at all.
const watchEvery = 25 * time.Millisecond

// watch tells waiting reads that a row of theirs was written.
type watch struct {
	store *store.Store
	clock clock.Clock
	log   *slog.Logger

	mu      sync.Mutex
	waiters map[*waiter]struct{}
	running bool
}

type waiter struct {
	id      [16]byte
	seen    int64
	changed chan struct{}
}

func newWatch(s *store.Store, c clock.Clock, log *slog.Logger) *watch {
	return &watch{store: s, clock: c, log: log, waiters: map[*waiter]struct{}{}}
}

// changed waits until the row has another revision than the one seen. It reports
// false when over fires or ctx ends first. It holds no transaction meanwhile.
func (w *watch) changed(ctx context.Context, row [16]byte, seen int64, over <-chan time.Time) bool {
	me := &waiter{id: row, seen: seen, changed: make(chan struct{})}
	w.add(ctx, me)
	defer w.remove(me)
	select {
	case <-me.changed:
		return true
	case <-over:
		return false
	case <-ctx.Done():
		return false
	}
}

func (w *watch) add(ctx context.Context, me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters[me] = struct{}{}
	if !w.running {
		w.running = true
		// The first waiter may leave before the others.
		go w.run(context.WithoutCancel(ctx))
	}
}

func (w *watch) remove(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiters, me)
}

// run looks until nobody waits.
func (w *watch) run(ctx context.Context) {
	for {
		timer := w.clock.NewTimer(watchEvery)
		<-timer.C()
		ids := w.ids()
		if ids == nil {
			return
		}
		now, err := w.look(ctx, ids)
		if err != nil {
			w.log.Debug("could not look for changes, trying again", "error", err)
			continue
		}
		w.wake(now)
	}
}

// ids returns what is waited for, nil when that is nothing; then run is over.
func (w *watch) ids() [][16]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiters) == 0 {
		w.running = false
		return nil
	}
	known := map[[16]byte]bool{}
	var ids [][16]byte
	for one := range w.waiters {
		if !known[one.id] {
			known[one.id] = true
			ids = append(ids, one.id)
		}
	}
	return ids
}

func (w *watch) look(ctx context.Context, ids [][16]byte) (now map[[16]byte]int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = w.store.InSystem(ctx, "look for waiters", func(t *store.SystemTx) error {
		now, err = t.Revisions(ctx, ids)
		return err
	})
	return now, err
}

// wake ends the wait for each row that was written. A row that is not there yet,
// because its transaction is, has not changed.
func (w *watch) wake(now map[[16]byte]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.waiters {
		revision, ok := now[one.id]
		if ok && revision != one.seen {
			close(one.changed)
			delete(w.waiters, one)
		}
	}
}
