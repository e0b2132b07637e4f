package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/store"
)

const (
	sweepBatch = 500
	pruneBatch = 5000
	// outboxKept is how long delivered wake-ups stay, for people who look.
	outboxKept = time.Hour
)

// Sweep wakes what asked to be looked at by now and what has not reached its
// generation, in batches until nothing is left; it returns how many.
func (a *App) Sweep(ctx context.Context) (int, error) {
	total := 0
	for {
		n := 0
		err := a.Store.InSystem(ctx, "sweep", func(t *store.SystemTx) (err error) {
			n, err = t.Sweep(ctx, sweepBatch)
			return err
		})
		total += n
		if err != nil || n < sweepBatch {
			return total, err
		}
	}
}

// ClaimOutbox takes wake-ups for delivery; see store.SystemTx.ClaimOutbox.
func (a *App) ClaimOutbox(ctx context.Context, size int, lease time.Duration) ([]store.OutboxRow, error) {
	var rows []store.OutboxRow
	err := a.Store.InSystem(ctx, "relay", func(t *store.SystemTx) (err error) {
		rows, err = t.ClaimOutbox(ctx, size, lease)
		return err
	})
	return rows, err
}

// SettleOutbox notes which claimed wake-ups were delivered and when to try the
// others again.
func (a *App) SettleOutbox(ctx context.Context, sent, failed []int64, delay time.Duration) error {
	return a.Store.InSystem(ctx, "relay", func(t *store.SystemTx) error {
		if len(sent) > 0 {
			if err := t.MarkSent(ctx, sent); err != nil {
				return err
			}
		}
		if len(failed) > 0 {
			return t.Postpone(ctx, failed, delay)
		}
		return nil
	})
}

// Tidy deletes delivered wake-ups, old readings and old idempotency keys.
func (a *App) Tidy(ctx context.Context) error {
	for {
		var n int64
		err := a.Store.InSystem(ctx, "prune the outbox", func(t *store.SystemTx) (err error) {
			n, err = t.PruneOutbox(ctx, outboxKept, pruneBatch)
			return err
		})
		if err != nil {
			return err
		}
		if n < pruneBatch {
			break
		}
	}
	if err := a.pruneSamples(ctx); err != nil {
		return err
	}
	if err := a.pruneMetering(ctx); err != nil {
		return err
	}
	_, err := a.ForgetKeys(ctx)
	return err
}
