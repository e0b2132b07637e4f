package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// observeCharge takes over what the provider says of a charge: states only move
// forward, and money that came is recorded once, with the amount that came. asked is
// the attempt that was asked about, the zero value after an event.
func (a *App) observeCharge(ctx context.Context, provider string, c payment.Charged, asked store.Attempt) error {
	return a.Store.InSystem(ctx, "take over the state of a charge", func(t *store.SystemTx) error {
		org, err := a.payer(ctx, t, provider, c, asked)
		if err != nil {
			return err
		}
		if err := t.LockBillingAccount(ctx, org); err != nil {
			return err
		}
		attempt := id.PaymentAttempt(asked.ID)
		if attempt.IsZero() {
			attempt = c.Attempt
		}
		var x store.Attempt
		if !attempt.IsZero() {
			x, err = t.LockAttempt(ctx, org, attempt)
			if err != nil && fault.KindOf(err) != fault.NotFound {
				return err
			}
		}
		if x.ID.IsZero() {
			x.Org, x.Provider = org, provider
		} else if err := a.moveAttempt(ctx, t, &x, c); err != nil {
			return err
		}
		if c.State != payment.SaysSucceeded {
			return nil
		}
		return a.receiveCharge(ctx, t, x, c)
	})
}

// payer finds whose charge it is. It fails with resource.not_found for a charge that
// is nobody's here.
func (a *App) payer(ctx context.Context, t *store.SystemTx, provider string, c payment.Charged, asked store.Attempt) (id.Org, error) {
	if !asked.Org.IsZero() {
		return asked.Org, nil
	}
	if !c.Org.IsZero() {
		return c.Org, nil
	}
	org, err := t.OrgOfCustomer(ctx, provider, c.Customer)
	if err == nil && org.IsZero() {
		err = store.NotFound()
	}
	return org, err
}

// moveAttempt writes the next state of an attempt and tells of it.
func (a *App) moveAttempt(ctx context.Context, t *store.SystemTx, x *store.Attempt, c payment.Charged) error {
	next, moves := payment.NextAttempt(x.State, c.State)
	if !moves {
		if !x.State.Live() || c.Ref == "" {
			return nil
		}
		next = x.State
	}
	before := x.State
	x.State, x.Reason, x.Detail, x.Action = next, c.Reason, c.Detail, c.Action
	if c.Ref != "" {
		x.Ref = c.Ref
	}
	var again *time.Time
	event := ""
	switch {
	case before == next:
	case next == payment.NeedsAction:
		event = "invoice.payment_action_required"
	case next == payment.Cancelled && c.Reason == notOwed:
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		again = &now // should something be owed after all
	case next == payment.Declined, next == payment.Cancelled:
		event = "invoice.payment_failed"
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		if at, ok := payment.RetryAt(x.No, x.Reason, now); ok && x.Purpose == store.ForInvoice {
			again = &at
		}
	}
	if err := t.SaveAttempt(ctx, *x, store.Pause(lookAgain), again); err != nil {
		return err
	}
	if x.Purpose == store.ForTopUp {
		return a.endTopUpAttempt(ctx, t, *x)
	}
	if event == "" {
		return nil
	}
	data := map[string]any{"attempt": x.ID.String(), "amount": x.Amount.Decimal(), "currency": x.Amount.Currency().Code(), "reason": x.Reason}
	if again != nil {
		data["again_at"] = again.Format(time.RFC3339)
	}
	return t.AppendEvent(ctx, store.Event{Org: x.Org, Type: event, Subject: id.Invoice(x.Subject), Data: data})
}

// receiveCharge records the money of a charge that succeeded, with the amount and the
// fee that the provider tells, and applies it to what was charged for. What is over
// is unapplied cash: a second charge for a paid invoice, too.
func (a *App) receiveCharge(ctx context.Context, t *store.SystemTx, x store.Attempt, c payment.Charged) error {
	p := store.Payment{
		Org: x.Org, ID: id.New[id.Payment](), Provider: x.Provider, Ref: c.Ref, Attempt: x.ID, Amount: c.Received, Fee: c.Fee,
		Reference: x.IntentKey,
	}
	if c.Fee != nil && c.Fee.Currency() != c.Received.Currency() {
		a.Log.Warn("a provider settles in another currency", "org_id", x.Org.String(), "payment", p.ID.String(), "fee", c.Fee.String())
	}
	var to []payment.Allocation
	if x.Purpose == store.ForInvoice {
		to = []payment.Allocation{{Invoice: id.Invoice(x.Subject), Amount: c.Received}}
	}
	fresh, err := a.receive(ctx, t, p, to)
	if err == nil && fresh && x.Purpose == store.ForTopUp {
		return a.fillWallet(ctx, t, x, p)
	}
	if err != nil || fresh || c.Fee == nil {
		return err
	}
	_, known, found, err := t.PaymentByRef(ctx, x.Provider, c.Ref)
	if err != nil || !found {
		return err
	}
	return chargeFee(ctx, t, x.Org, known, *c.Fee)
}

// ListPayments lists the payments of an organization, newest first.
func (a *App) ListPayments(ctx context.Context, c Caller, org id.Org, p Page) (List[store.Payment], error) {
	k, err := keyset[id.Payment](p)
	if err != nil {
		return List[store.Payment]{}, err
	}
	var rows []store.Payment
	err = a.inPayments(ctx, c, org, func(t payments) error {
		rows, err = t.Payments(ctx, org, k)
		return err
	})
	return paged(rows, p.Size, func(x store.Payment) string { return x.ID.String() }), err
}

// InvoicePayments lists the attempts to charge for an invoice, oldest first: one that
// needs the customer says where it is confirmed.
func (a *App) InvoicePayments(ctx context.Context, c Caller, org id.Org, inv id.Invoice) (out []store.Attempt, err error) {
	err = a.inPayments(ctx, c, org, func(t payments) error {
		if _, err := t.Owed(ctx, org, inv); err != nil {
			return err
		}
		out, err = t.Attempts(ctx, org, inv)
		return err
	})
	return out, err
}

// payments is what both kinds of transaction can read of payments.
type payments interface {
	Payments(context.Context, id.Org, store.Keyset) ([]store.Payment, error)
	Owed(context.Context, id.Org, id.Invoice) (store.Owed, error)
	Attempts(context.Context, id.Org, [16]byte) ([]store.Attempt, error)
}

func (a *App) inPayments(ctx context.Context, c Caller, org id.Org, fn func(payments) error) error {
	if c.Kind == auth.Operator {
		return a.Store.InSystem(ctx, "read payments", func(t *store.SystemTx) error { return fn(t) })
	}
	if c.Org != org {
		return store.NotFound()
	}
	return a.Store.InOrg(ctx, org, func(t *store.OrgTx) error { return fn(t) })
}
