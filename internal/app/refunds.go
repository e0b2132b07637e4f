package app

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// bankProvider is the provider's name of payments that came by bank transfer: they
// are refunded by hand.
const bankProvider = "bank"

// RefundOrder is a refund to make. Amount nil is all that is unapplied. Reopen lets it
// take money back from invoices that the payment paid: they are owed again.
type RefundOrder struct {
	Amount *money.Amount
	Reason string
	Reopen bool
}

// RefundPayment orders a refund of unapplied cash, or with Reopen also of what paid
// invoices. The order is sent by the collection and is in the books when the provider
// confirms it; a payment by bank transfer is taken as refunded at once, by whoever
// asks. It fails with resource.not_found, request.invalid, approval.required,
// payment.spent when that much is not left, and state.conflict in a dispute.
func (a *App) RefundPayment(ctx context.Context, c Caller, org id.Org, pay id.Payment, o RefundOrder) (p store.Payment, err error) {
	if err := operatorOnly(c); err != nil {
		return p, err
	}
	if o.Reason == "" || len(o.Reason) > 500 {
		return p, fault.New(fault.Invalid, "request.invalid", "A refund has a reason.").
			With(fault.Field{Pointer: "/reason", Code: "required", Detail: "1 to 500 characters"})
	}
	if err := a.readPayment(ctx, org, pay, &p); err != nil {
		return p, err
	}
	amount := p.Free()
	if o.Amount != nil {
		amount = *o.Amount
	}
	if err := refundable(p, amount, o.Reopen); err != nil {
		return p, err
	}
	body := map[string]any{"payment": pay.String(), "amount": amount.String(), "reason": o.Reason, "reopen": o.Reopen}
	permit, err := a.RequireApproval(ctx, c, ApproveRefund, body, amount)
	if err != nil {
		return p, err
	}
	err = a.Store.InSystem(ctx, "order a refund", func(t *store.SystemTx) error {
		if err := permit.Spend(ctx, t); err != nil {
			return err
		}
		if err := a.orderRefund(ctx, t, c, org, pay, amount, o); err != nil {
			return err
		}
		p, err = t.LockPayment(ctx, org, pay)
		return err
	})
	return p, err
}

func (a *App) readPayment(ctx context.Context, org id.Org, pay id.Payment, p *store.Payment) error {
	return a.Store.InSystem(ctx, "read a payment", func(t *store.SystemTx) (err error) {
		*p, err = t.Payment(ctx, org, pay)
		return err
	})
}

// refundable checks an order against what is left of the payment.
func refundable(p store.Payment, amount money.Amount, reopen bool) error {
	if amount.Currency() != p.Amount.Currency() || amount.Sign() <= 0 {
		if p.Free().IsZero() && !reopen {
			return overspent(p)
		}
		return fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("A refund is more than 0 %s.", p.Amount.Currency())).
			With(fault.Field{Pointer: "/amount", Code: "range", Detail: "in the payment's currency"})
	}
	left := p.Free().Minor()
	if reopen {
		left += p.Allocated.Minor()
	}
	if amount.Minor() > left {
		return overspent(p)
	}
	if p.Provider == bankProvider {
		return nil
	}
	if _, rest, err := payment.Chargeable(amount); err != nil || !rest.IsZero() {
		return fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("The provider cannot refund %s exactly.", amount)).
			With(fault.Field{Pointer: "/amount", Code: "step", Detail: "a multiple of the provider's smallest step"})
	}
	return nil
}

func overspent(p store.Payment) error {
	return fault.New(fault.Conflict, "payment.spent",
		fmt.Sprintf("Of the payment %s is unapplied and %s pays invoices.", p.Free(), p.Allocated)).
		Suggest("Refund at most what is unapplied, or say reopen to take it back from invoices, or credit those first.")
}

// orderRefund reserves the money and writes the order down.
func (a *App) orderRefund(ctx context.Context, t *store.SystemTx, c Caller, org id.Org, pay id.Payment, amount money.Amount, o RefundOrder) error {
	if err := t.LockBillingAccount(ctx, org); err != nil {
		return err
	}
	p, err := t.LockPayment(ctx, org, pay)
	if err != nil {
		return err
	}
	if err := refundable(p, amount, o.Reopen); err != nil {
		return err
	}
	disputed, err := t.Disputed(ctx, org, pay)
	if err != nil {
		return err
	}
	if disputed {
		return fault.New(fault.Conflict, "state.conflict", "The payment is in dispute: the bank holds its money.").
			Suggest("Wait for the outcome; a refund beside a dispute pays twice.")
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	n, err := t.RefundCount(ctx, org, pay)
	if err != nil {
		return err
	}
	short, err := a.reserve(ctx, t, p, derived("returned", pay, n+1), amount, now)
	if err != nil {
		return err
	}
	if !short.IsZero() {
		return overspent(p)
	}
	r := store.RefundRow{
		Org: org, Payment: pay, Key: fmt.Sprintf("refund-%s-%d", pay, n+1), Amount: amount, State: payment.RefundPlanned,
		Reason: o.Reason, By: c.actor(), ID: derived("refund", pay, n+1),
	}
	if err := t.InsertRefund(ctx, r); err != nil {
		return err
	}
	if p.Provider == bankProvider {
		if err := refundByHand(ctx, t, r, now); err != nil {
			return err
		}
	}
	return t.Audit(ctx, c.audit(org, "payment.refund", pay.String()))
}

// refundByHand books a transfer back as made: the bank has less.
func refundByHand(ctx context.Context, t *store.SystemTx, r store.RefundRow, now time.Time) error {
	if err := moveRefund(ctx, t, r, payment.Refunded{State: payment.RefundSucceeded, Amount: r.Amount}, now); err != nil {
		return err
	}
	back, err := r.Amount.Neg()
	if err != nil {
		return err
	}
	return post1(ctx, t)(ledger.Deposited(ledger.Entry{Org: r.Org, Reference: r.ID, On: now}, back))
}

// reserve counts money of a payment as refunded; what is not unapplied is taken back
// from documents, newest first and as far as they are not credited, and then from the
// wallet that it topped up. It returns what is left nowhere, and counts only the rest.
func (a *App) reserve(ctx context.Context, t *store.SystemTx, p store.Payment, reference [16]byte, amount money.Amount, now time.Time) (money.Amount, error) {
	short := amount.Minor() - max(p.Free().Minor(), 0)
	parts, err := t.Releasable(ctx, p.Org, p.ID, amount.Currency())
	if err != nil {
		return amount, err
	}
	for _, x := range parts {
		if short <= 0 {
			break
		}
		x.Amount = money.NewAmount(min(short, x.Amount.Minor()), amount.Currency())
		if err := release(ctx, t, p.Org, p.ID, x, store.RefundedOf, now); err != nil {
			return amount, err
		}
		short -= x.Amount.Minor()
	}
	if short > 0 {
		taken, err := a.takeFromWallet(ctx, t, p, reference, money.NewAmount(short, amount.Currency()))
		if err != nil {
			return amount, err
		}
		short -= taken.Minor()
	}
	lost := money.NewAmount(max(short, 0), amount.Currency())
	if lost == amount {
		return lost, nil
	}
	return lost, t.CountPayment(ctx, p.Org, p.ID, store.PaymentCount{Refunded: amount.Minor() - lost.Minor()})
}

// driveRefund sends an order, or the same one again.
func (a *App) driveRefund(ctx context.Context, r store.RefundRow) error {
	p, err := a.provider(r.Provider)
	if err == nil {
		var got payment.Refunded
		if got, err = a.askRefund(ctx, p, r); err == nil {
			return a.observeRefund(ctx, p.Name(), r.Charge, got)
		}
	}
	if ctx.Err() != nil {
		return err
	}
	if code := fault.CodeOf(err); code == "payment.refused" || code == "resource.not_found" || code == "idempotency.mismatch" {
		return a.observeRefund(ctx, r.Provider, r.Charge, payment.Refunded{
			Key: r.Key, Payment: r.Charge, State: payment.RefundFailed, Amount: r.Amount, Detail: fault.From(err).Detail,
		})
	}
	a.Log.Warn("a refund waits", "org_id", r.Org.String(), "payment", r.Payment.String(), "error", err)
	return a.Store.InSystem(ctx, "postpone a refund", func(t *store.SystemTx) error { // it is sent again under the same key
		return t.PostponeRefund(ctx, r, pauseAfter(err, r.Sends), fault.From(err).Detail)
	})
}

func (a *App) askRefund(ctx context.Context, p PaymentProvider, r store.RefundRow) (payment.Refunded, error) {
	known, err := p.Refunds(ctx, r.Charge)
	if err != nil {
		return payment.Refunded{}, err
	}
	for _, k := range known {
		if k.Key == r.Key {
			return k, nil
		}
	}
	return p.Refund(ctx, payment.Refund{Key: r.Key, Payment: r.Charge, Amount: r.Amount, Reason: r.Reason})
}

// observeRefund takes over what the provider says of one refund, by its own amount.
// One that was made at the provider is recorded, too: its money is gone.
func (a *App) observeRefund(ctx context.Context, provider, charge string, got payment.Refunded) error {
	return a.Store.InSystem(ctx, "take over the state of a refund", func(t *store.SystemTx) error {
		org, pay, found, err := t.PaymentByRef(ctx, provider, charge)
		if err != nil || !found {
			return err
		}
		if err := t.LockBillingAccount(ctx, org); err != nil {
			return err
		}
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		r, known, err := t.LockRefund(ctx, org, pay, got.Key, got.Ref)
		if err != nil {
			return err
		}
		if !known {
			if got.State == payment.RefundFailed {
				return nil
			}
			if r, err = a.foreignRefund(ctx, t, org, pay, got, now); err != nil {
				return err
			}
		}
		return moveRefund(ctx, t, r, got, now)
	})
}

// foreignRefund writes down a refund that somebody made at the provider. Its money is
// gone: what was spent of it already is lost.
func (a *App) foreignRefund(ctx context.Context, t *store.SystemTx, org id.Org, pay id.Payment, got payment.Refunded, now time.Time) (store.RefundRow, error) {
	p, err := t.LockPayment(ctx, org, pay)
	if err != nil {
		return store.RefundRow{}, err
	}
	r := store.RefundRow{
		Org: org, ID: derived("refund", got.Ref), Payment: pay, Key: "at-provider-" + got.Ref, Ref: got.Ref, Amount: got.Amount,
		State: payment.RefundPlanned, Reason: "made at the provider", By: "system",
	}
	if r.Lost, err = a.reserve(ctx, t, p, derived("returned", got.Ref), got.Amount, now); err != nil {
		return r, err
	}
	if !r.Lost.IsZero() {
		a.Log.Warn("a refund was made of money that is spent", "org_id", org.String(), "payment", pay.String(), "lost", r.Lost.String())
		entry := ledger.Entry{Org: org, Reference: derived("refund lost", got.Ref), On: now}
		if err := post1(ctx, t)(payment.RefundLost(entry, r.Lost)); err != nil {
			return r, err
		}
	}
	return r, t.InsertRefund(ctx, r)
}

// moveRefund writes the next state of a refund and posts what follows.
func moveRefund(ctx context.Context, t *store.SystemTx, r store.RefundRow, got payment.Refunded, now time.Time) error {
	before := r.State
	if got.Ref != "" {
		r.Ref = got.Ref
	}
	if !payment.RefundMoves(before, got.State) {
		if before == payment.RefundPending && got.State == before {
			return t.SaveRefund(ctx, r, got.Detail, store.Pause(lookAgain))
		}
		return nil
	}
	r.State = got.State
	if err := t.SaveRefund(ctx, r, got.Detail, store.Pause(lookAgain)); err != nil {
		return err
	}
	entry := ledger.Entry{Org: r.Org, Reference: r.ID, On: now}
	switch r.State {
	default: // it is on its way
		return nil
	case payment.RefundSucceeded:
		return post1(ctx, t)(ledger.Refunded(entry, ledger.UnappliedCash, id.Invoice{}, r.Amount))
	case payment.RefundFailed:
		return refundFailed(ctx, t, r, before, got.Detail, now)
	}
}

// refundFailed makes what was to be refunded unapplied cash again, and tells of it.
func refundFailed(ctx context.Context, t *store.SystemTx, r store.RefundRow, before payment.RefundState, why string, now time.Time) error {
	if counted := r.Amount.Minor() - r.Lost.Minor(); counted > 0 {
		if err := t.CountPayment(ctx, r.Org, r.Payment, store.PaymentCount{Refunded: -counted}); err != nil {
			return err
		}
	}
	if !r.Lost.IsZero() { // it is not lost after all
		back, err := r.Lost.Neg()
		if err != nil {
			return err
		}
		entry := ledger.Entry{Org: r.Org, Reference: derived("refund found", r.Key), On: now}
		if err := post1(ctx, t)(payment.RefundLost(entry, back)); err != nil {
			return err
		}
	}
	if before == payment.RefundSucceeded {
		back, err := r.Amount.Neg()
		if err != nil {
			return err
		}
		entry := ledger.Entry{Org: r.Org, Reference: derived("refund failed", r.Key), On: now}
		if err := post1(ctx, t)(ledger.Refunded(entry, ledger.UnappliedCash, id.Invoice{}, back)); err != nil {
			return err
		}
	}
	data := map[string]any{"amount": r.Amount.Decimal(), "currency": r.Amount.Currency().Code(), "detail": why}
	return t.AppendEvent(ctx, store.Event{Org: r.Org, Type: "payment.refund_failed", Subject: r.Payment, Data: data})
}
