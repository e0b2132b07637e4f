package app

import (
	"context"
	"errors"
	"time"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

const (
	// topUpBatch is how many top-ups one round orders.
	topUpBatch = 50
	// topUpPause is how long no top-up is tried after one that failed, business time.
	topUpPause = 24 * time.Hour
)

// TopUpProvider takes an order to pay into a wallet. The key is the order's: the
// same key charges once. What comes of it is told by endTopUp.
type TopUpProvider interface {
	ChargeTopUp(ctx context.Context, org id.Org, key [16]byte, amount money.Amount) error
}

// considerTopUp orders a top-up if the wallet's standing order says so. One is under
// way at a time.
func (a *App) considerTopUp(ctx context.Context, t *store.SystemTx, k *tick) error {
	if k.w.AutoTopUp.Amount.Sign() <= 0 {
		return nil
	}
	period := metering.PeriodOf(k.now)
	done, err := t.TopUpsOf(ctx, k.org, period, k.w.Prepaid.Currency())
	if err != nil {
		return err
	}
	if done.UnderWay || k.now.Before(done.FailedAt.Add(topUpPause)) || !k.w.AutoTopUp.Due(k.w.Prepaid, done.Paid) {
		return nil
	}
	return t.InsertTopUp(ctx, store.TopUp{Org: k.org, ID: id.New[id.Request](), Amount: k.w.AutoTopUp.Amount}, period, k.now)
}

// orderTopUps hands ordered top-ups to the provider, each until it takes it.
func (a *App) orderTopUps(ctx context.Context) error {
	provider := a.TopUps
	if provider == nil {
		provider = a
	}
	var pending []store.TopUp
	err := a.Store.InSystem(ctx, "look for top-ups to order", func(t *store.SystemTx) (err error) {
		pending, err = t.PendingTopUps(ctx, topUpBatch)
		return err
	})
	for _, u := range pending {
		failed := provider.ChargeTopUp(ctx, u.Org, u.ID, u.Amount)
		if failed == nil {
			failed = a.Store.InSystem(ctx, "note an ordered top-up", func(t *store.SystemTx) error {
				_, err := t.MarkTopUp(ctx, u.Org, u.ID, "ordered")
				return err
			})
		}
		err = errors.Join(err, failed)
	}
	return err
}

// endTopUp notes what came of a top-up: the payment itself is added by
// receivePrepayment in the same transaction. A failed one pauses the standing order
// for a day. It reports false if it had ended before.
func (a *App) endTopUp(ctx context.Context, t *store.SystemTx, org id.Org, key [16]byte, paid bool) (bool, error) {
	if _, err := t.LockWallet(ctx, org); err != nil {
		return false, err
	}
	status := "done"
	if !paid {
		status = "failed"
	}
	fresh, err := t.MarkTopUp(ctx, org, key, status)
	if err != nil || !fresh || paid {
		return fresh, err
	}
	return true, t.AppendEvent(ctx, store.Event{Org: org, Type: "wallet.top_up_failed", Subject: org})
}
