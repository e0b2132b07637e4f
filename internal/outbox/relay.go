// Package outbox owns the relay: it takes wake-ups that transactions left in the
// outbox and delivers each at least once, several for one key as one.
//
// It knows neither the rows' SQL (internal/store) nor what a delivery is (the
// worker signals a workflow). Durations are machine time.
package outbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Queue is where wake-ups come from and go back to.
type Queue interface {
	// ClaimOutbox takes rows for as long as the lease.
	ClaimOutbox(ctx context.Context, size int, lease time.Duration) ([]store.OutboxRow, error)
	// SettleOutbox notes the delivered rows, and gives the others back after the delay.
	SettleOutbox(ctx context.Context, sent, failed []int64, delay time.Duration) error
}

// Deliver wakes whoever a key names. Delivering twice must do no harm.
type Deliver func(ctx context.Context, kind, key string) error

const (
	// batch is small, because its slowest delivery holds the others' receipts up.
	batch = 32
	// loops is how many batches are under way at once.
	loops = 3
	// lease covers the slowest delivery of a batch; a relay that dies loses its
	// rows to the next one then.
	lease = 30 * time.Second
	// poll is how long a lost notice can delay a wake-up.
	poll = 200 * time.Millisecond
	// deliverWithin bounds one delivery.
	deliverWithin = 10 * time.Second
	// retryMax is the longest a failing row waits: short, because most failures
	// are a Temporal that is away for everybody.
	retryMax = 5 * time.Second
)

// Relay delivers wake-ups until its context ends. Several may run at once, in one
// process or many.
type Relay struct {
	Queue   Queue
	Deliver Deliver
	Clock   clock.Clock
	Log     *slog.Logger
}

// Run relays until ctx ends; a value from wake cuts a pause short.
func (r *Relay) Run(ctx context.Context, wake <-chan struct{}) error {
	var wg sync.WaitGroup
	for range loops {
		wg.Go(func() { r.loop(ctx, wake) })
	}
	wg.Wait()
	return ctx.Err()
}

func (r *Relay) loop(ctx context.Context, wake <-chan struct{}) {
	quiet := false // one line a failing stretch
	for ctx.Err() == nil {
		n, err := r.Once(ctx)
		if err != nil && ctx.Err() == nil && !quiet {
			r.Log.Warn("wake-ups wait", "error", err)
		}
		quiet = err != nil
		if n > 0 && err == nil {
			continue
		}
		timer := r.Clock.NewTimer(poll)
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// Once delivers one batch and returns how many rows it took. An error is that of
// the queue, or the first of a delivery; the rows come back in either case.
func (r *Relay) Once(ctx context.Context) (int, error) {
	rows, err := r.Queue.ClaimOutbox(ctx, batch, lease)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	sent, failed, attempt, first := r.deliverAll(ctx, rows)
	delay := min(time.Duration(attempt)*500*time.Millisecond, retryMax)
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), deliverWithin)
	defer cancel()
	if err := r.Queue.SettleOutbox(settle, sent, failed, delay); err != nil {
		return len(rows), err
	}
	return len(rows), first
}

// deliverAll delivers one wake-up a key and sorts the rows by success; attempt is
// the highest among the failed.
func (r *Relay) deliverAll(ctx context.Context, rows []store.OutboxRow) (sent, failed []int64, attempt int, first error) {
	type target struct{ kind, key string }
	byTarget := map[target][]store.OutboxRow{}
	var order []target
	for _, row := range rows {
		t := target{row.Kind, row.Key}
		if byTarget[t] == nil {
			order = append(order, t)
		}
		byTarget[t] = append(byTarget[t], row)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, t := range order {
		wg.Go(func() {
			one, cancel := context.WithTimeout(ctx, deliverWithin)
			defer cancel()
			err := r.Deliver(one, t.kind, t.key)
			mu.Lock()
			defer mu.Unlock()
			for _, row := range byTarget[t] {
				if err == nil {
					sent = append(sent, row.ID)
					continue
				}
				failed = append(failed, row.ID)
				attempt = max(attempt, row.Attempt)
			}
			if err != nil && first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	return sent, failed, attempt, first
}
