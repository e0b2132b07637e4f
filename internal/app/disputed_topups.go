package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// holdTopUp takes what is left of a disputed top-up out of the wallet, so that it
// cannot be spent while the bank has its money, and returns how much: it is unapplied
// cash until the dispute is over. Its advance invoice stays as it is until then.
func (a *App) holdTopUp(ctx context.Context, t *store.SystemTx, d store.DisputeRow, now time.Time) (money.Amount, error) {
	nothing := money.NewAmount(0, d.Amount.Currency())
	p, err := t.LockPayment(ctx, d.Org, d.Payment)
	if err != nil {
		return nothing, err
	}
	lot, found, err := lotOf(ctx, t, d.Org, d.Payment)
	if err != nil || !found {
		return nothing, err
	}
	held := money.NewAmount(min(d.Amount.Minor()-p.Free().Minor(), lot.Remaining.Minor()), d.Amount.Currency())
	if held.Sign() <= 0 {
		return nothing, nil
	}
	entry := ledger.Entry{Org: d.Org, Reference: derived("dispute held", d.ID.String()), On: now}
	if err := post1(ctx, t)(ledger.PrepaymentReturned(entry, ledger.UnappliedCash, held)); err != nil {
		return nothing, err
	}
	return held, moveTopUp(ctx, t, d, lot, held.Minor(), now)
}

// freeTopUp gives back to the wallet what a dispute that was won held of a top-up.
func (a *App) freeTopUp(ctx context.Context, t *store.SystemTx, d store.DisputeRow, now time.Time) error {
	if d.Held.IsZero() {
		return nil
	}
	lot, _, err := lotOf(ctx, t, d.Org, d.Payment)
	if err != nil {
		return err
	}
	entry := ledger.Entry{Org: d.Org, Reference: derived("dispute freed", d.ID.String()), On: now}
	if err := post1(ctx, t)(ledger.PrepaymentReceived(entry, ledger.UnappliedCash, d.Held)); err != nil {
		return err
	}
	return moveTopUp(ctx, t, d, lot, -d.Held.Minor(), now)
}

// moveTopUp takes minor units out of the lot of a disputed top-up; negative ones go
// back into it.
func moveTopUp(ctx context.Context, t *store.SystemTx, d store.DisputeRow, lot wallet.Lot, minor int64, now time.Time) error {
	uses := []wallet.Use{{Grant: lot.Grant, Amount: money.NewAmount(minor, d.Amount.Currency())}}
	period := store.FundedPeriod{Period: metering.PeriodOf(now)}
	if err := t.MoveGrants(ctx, d.Org, wallet.Prepaid, period, store.UseReturned, now, uses); err != nil {
		return err
	}
	if err := t.CountPayment(ctx, d.Org, d.Payment, store.PaymentCount{Allocated: -minor}); err != nil {
		return err
	}
	return t.LookAtWalletSoon(ctx, d.Org)
}

// lotOf reads the lot that a payment filled, and locks its wallet; found is false for
// a payment that is no top-up.
func lotOf(ctx context.Context, t *store.SystemTx, org id.Org, p id.Payment) (lot wallet.Lot, found bool, err error) {
	if _, err := t.GrantOf(ctx, org, p); fault.KindOf(err) == fault.NotFound {
		return lot, false, nil
	} else if err != nil {
		return lot, false, err
	}
	if _, err := t.LockWallet(ctx, org); err != nil {
		return lot, false, err
	}
	lot, err = t.GrantOf(ctx, org, p)
	return lot, err == nil, err
}
