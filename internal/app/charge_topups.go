package app

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// ChargeTopUp orders a charge that goes into the wallet, once for its key; what comes
// of it is told to the wallet. Where no card is stored the top-up has failed at once.
func (a *App) ChargeTopUp(ctx context.Context, org id.Org, key [16]byte, amount money.Amount) error {
	charge, left, err := payment.Chargeable(amount)
	payable := err == nil && left.IsZero()
	return a.Store.InSystem(ctx, "order a top-up", func(t *store.SystemTx) error {
		if err := t.LockBillingAccount(ctx, org); err != nil {
			return err
		}
		who, err := t.PaymentCustomer(ctx, org)
		if err != nil {
			return err
		}
		if who.Method == "" || !payable {
			_, err := a.endTopUp(ctx, t, org, key, false)
			return err
		}
		last, err := t.LastAttempt(ctx, org, key)
		if err != nil || last > 0 {
			return err
		}
		return t.InsertAttempt(ctx, store.Attempt{
			Org: org, ID: id.New[id.PaymentAttempt](), Purpose: store.ForTopUp, Subject: key, No: 1, Provider: who.Provider,
			IntentKey: fmt.Sprintf("top-up-%x", key), Amount: charge,
		})
	})
}

// endTopUpAttempt tells the wallet what came of a charge.
func (a *App) endTopUpAttempt(ctx context.Context, t *store.SystemTx, x store.Attempt) error {
	if x.State != payment.Declined && x.State != payment.Cancelled {
		return nil
	}
	_, err := a.endTopUp(ctx, t, x.Org, x.Subject, false)
	return err
}

// fillWallet moves a top-up's money from unapplied cash into the wallet.
func (a *App) fillWallet(ctx context.Context, t *store.SystemTx, x store.Attempt, p store.Payment) error {
	fresh, err := a.receivePrepayment(ctx, t, prepayment{
		Org: x.Org, Source: p.ID, Gross: p.Amount, From: ledger.UnappliedCash, Name: "Top-up",
	})
	if err != nil || !fresh {
		return err
	}
	if err := t.CountPayment(ctx, x.Org, p.ID, store.PaymentCount{Allocated: p.Amount.Minor()}); err != nil {
		return err
	}
	_, err = a.endTopUp(ctx, t, x.Org, x.Subject, true)
	return err
}

// takeFromWallet gives money of a top-up that was not spent back to unapplied cash, at
// most the amount, and returns how much.
func (a *App) takeFromWallet(ctx context.Context, t *store.SystemTx, p store.Payment, reference [16]byte, most money.Amount) (money.Amount, error) {
	lot, found, err := lotOf(ctx, t, p.Org, p.ID)
	taken := money.NewAmount(0, most.Currency())
	if err != nil || !found || lot.Remaining.Sign() <= 0 {
		return taken, err
	}
	taken = money.NewAmount(min(most.Minor(), lot.Remaining.Minor()), most.Currency())
	if err := a.returnPrepayment(ctx, t, p.Org, p.ID, reference, taken, ledger.UnappliedCash); err != nil {
		return taken, err
	}
	return taken, t.CountPayment(ctx, p.Org, p.ID, store.PaymentCount{Allocated: -taken.Minor()})
}
