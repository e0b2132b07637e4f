package app

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// OrderTopUp orders one payment into the wallet from the stored card. The attempt says
// where it stands and, if the customer has to confirm, where; once it succeeds the
// money is in the wallet. It fails with request.invalid for an amount that cannot be
// charged and with payment.method_missing where no card is stored.
func (a *App) OrderTopUp(ctx context.Context, c Caller, org id.Org, amount money.Amount) (out store.Attempt, err error) {
	charge, left, err := payment.Chargeable(amount)
	if err != nil || !left.IsZero() || amount.Sign() <= 0 {
		return out, fault.New(fault.Invalid, "request.invalid", "The amount cannot be charged.").
			With(fault.Field{Pointer: "/amount", Code: "range", Detail: "must be more than 0, of what the provider can charge"}).Because(err)
	}
	err = a.Store.InSystem(ctx, "order a top-up", func(t *store.SystemTx) error {
		if err := t.LockBillingAccount(ctx, org); err != nil {
			return err
		}
		w, err := t.LockWallet(ctx, org)
		if err != nil {
			return err
		}
		if err := positive(amount, w.Prepaid.Currency()); err != nil {
			return err
		}
		who, err := t.PaymentCustomer(ctx, org)
		if err != nil {
			return err
		}
		if who.Method == "" {
			return fault.New(fault.Conflict, "payment.method_missing", "No payment method is stored.").
				Suggest("Store one, or pay by bank transfer.")
		}
		order := id.New[id.PaymentAttempt]()
		if err := t.InsertAttempt(ctx, store.Attempt{
			Org: org, ID: order, Purpose: store.ForTopUp, Subject: order, No: 1, Provider: who.Provider,
			IntentKey: fmt.Sprintf("top-up-%x", [16]byte(order)), Amount: charge,
		}); err != nil {
			return err
		}
		if out, err = onlyAttempt(ctx, t, org, order); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(org, "wallet.top_up", order.String()))
	})
	return out, err
}

// GetTopUp reads an ordered payment into the wallet. It fails with resource.not_found.
func (a *App) GetTopUp(ctx context.Context, c Caller, org id.Org, order id.PaymentAttempt) (out store.Attempt, err error) {
	err = a.inPayments(ctx, c, org, func(t payments) error {
		out, err = onlyAttempt(ctx, t, org, order)
		return err
	})
	return out, err
}

func onlyAttempt(ctx context.Context, t interface {
	Attempts(context.Context, id.Org, [16]byte) ([]store.Attempt, error)
}, org id.Org, order id.PaymentAttempt) (store.Attempt, error) {
	list, err := t.Attempts(ctx, org, order)
	if err != nil {
		return store.Attempt{}, err
	}
	for _, x := range list {
		if x.Purpose == store.ForTopUp { // an invoice's id is no order
			return x, nil
		}
	}
	return store.Attempt{}, store.NotFound()
}
