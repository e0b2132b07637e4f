package app

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// PaymentProvider is who charges stored cards: an adapter, or a double in tests. Every
// order is idempotent by its key, and no method may be called inside a transaction.
//
// They fail with payment.unknown_outcome when an order may or may not have been
// carried out, with rate.limited, payment.misconfigured, payment.refused,
// idempotency.mismatch and resource.not_found. A decline is an answer.
type PaymentProvider interface {
	Name() string
	CreateCustomer(context.Context, payment.NewCustomer) (ref string, err error)
	AttachMethod(ctx context.Context, customer, method string) error
	Charge(context.Context, payment.Charge) (payment.Charged, error)
	// FindCharge looks for what was ordered with a key, at an instant (machine time) or
	// later: after an unknown outcome.
	FindCharge(ctx context.Context, customer, key string, ordered time.Time) (c payment.Charged, found bool, err error)
	Payment(ctx context.Context, ref string) (payment.Charged, error)
	CancelCharge(ctx context.Context, ref string) (payment.Charged, error)
	Refund(context.Context, payment.Refund) (payment.Refunded, error)
	Refunds(ctx context.Context, charge string) ([]payment.Refunded, error)
	Dispute(ctx context.Context, ref string) (payment.Disputed, error)
	// Event verifies signature and age of a webhook. It fails with webhook.forged,
	// webhook.stale and webhook.malformed.
	Event(headers http.Header, body []byte) (payment.Event, error)
}

const (
	// collectSize bounds how much one round of collection takes up.
	collectSize = 50
	// callLease is how long a row is its worker's while it asks the provider: longer
	// than a call may take.
	callLease = 90 * time.Second
	// lookAgain is when an order that the provider works on is asked about; its event
	// comes sooner.
	lookAgain = time.Hour
	// longestWait bounds the doubling pauses after failures.
	longestWait = time.Hour
)

// provider returns the provider of a name. It fails with resource.not_found.
func (a *App) provider(name string) (PaymentProvider, error) {
	for _, p := range a.Payments {
		if p.Name() == name {
			return p, nil
		}
	}
	return nil, fault.New(fault.NotFound, "resource.not_found", fmt.Sprintf("This installation has no payment provider %q.", name)).
		Suggest("Check the address of the webhook and the configuration.")
}

// SetPaymentMethod stores what an organization is charged with from now on: method is
// the provider's reference of a card that the customer gave to the provider itself.
// It fails with payment.refused when the provider does not know it.
func (a *App) SetPaymentMethod(ctx context.Context, c Caller, org id.Org, method string) error {
	if len(a.Payments) == 0 {
		return fault.New(fault.Unavailable, "payment.misconfigured", "This installation has no payment provider.").
			Suggest("Pay by bank transfer.")
	}
	if method == "" || len(method) > 255 {
		return fault.New(fault.Invalid, "request.invalid", "A payment method has a reference.").
			With(fault.Field{Pointer: "/method", Code: "required", Detail: "the provider's reference, 1 to 255 characters"})
	}
	if c.Kind != auth.Operator && c.Org != org {
		return store.NotFound()
	}
	p := a.Payments[0]
	ctx = store.Apart(ctx)
	customer, err := a.customer(ctx, p, org)
	if err != nil {
		return err
	}
	if err := p.AttachMethod(ctx, customer, method); err != nil {
		if fault.KindOf(err) == fault.NotFound { // of the provider: nothing of ours is missing
			return fault.New(fault.Unprocessable, "payment.refused", "The payment provider does not know that payment method.").
				With(fault.Field{Pointer: "/method", Code: "unknown", Detail: "a reference that the provider gave to the customer"}).Because(err)
		}
		return err
	}
	return a.Store.InSystem(ctx, "choose a payment method", func(t *store.SystemTx) error {
		if err := t.PutPaymentMethod(ctx, org, p.Name(), method); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(org, "payment_method.set", org.String()))
	})
}

// customer returns the provider's reference of an organization, made on first use.
func (a *App) customer(ctx context.Context, p PaymentProvider, org id.Org) (string, error) {
	var known store.PaymentCustomer
	err := a.Store.InSystem(ctx, "read a payment customer", func(t *store.SystemTx) (err error) {
		known, err = t.PaymentCustomer(ctx, org)
		return err
	})
	if err != nil || known.Ref != "" && known.Provider == p.Name() {
		return known.Ref, err
	}
	ref, err := newCustomer(ctx, p, known)
	if err != nil {
		return "", err
	}
	return ref, a.Store.InSystem(ctx, "note a payment customer", func(t *store.SystemTx) error {
		return t.SetCustomerRef(ctx, org, p.Name(), ref)
	})
}

// newCustomer makes an organization a customer of a provider, once.
func newCustomer(ctx context.Context, p PaymentProvider, who store.PaymentCustomer) (string, error) {
	return p.CreateCustomer(ctx, payment.NewCustomer{Key: "customer-" + who.Org.String(), Org: who.Org, Name: who.Name})
}

// CollectPayments is one round of collection: unapplied cash pays what is owed, what
// remains is charged where a card is stored, refunds are sent, and what is under way
// is asked about. Orders are written down before they are sent and sent under keys
// that follow from them, so that it may be killed anywhere and run by two at once. One
// organization or order in trouble keeps no other waiting.
func (a *App) CollectPayments(ctx context.Context) error {
	err := errors.Join(a.applyCash(ctx), a.planCharges(ctx))
	if ctx.Err() != nil {
		return err
	}
	var attempts []store.Attempt
	var refunds []store.RefundRow
	failed := a.Store.InSystem(ctx, "take up payments", func(t *store.SystemTx) (err error) {
		if attempts, err = t.ClaimAttempts(ctx, collectSize, callLease); err != nil {
			return err
		}
		refunds, err = t.ClaimRefunds(ctx, collectSize, callLease)
		return err
	})
	if failed != nil {
		return errors.Join(err, failed)
	}
	for _, x := range attempts {
		if failed := a.driveAttempt(ctx, x); failed != nil {
			err = errors.Join(err, fmt.Errorf("charging attempt %s: %w", x.ID, failed))
		}
		if ctx.Err() != nil {
			return err
		}
	}
	for _, x := range refunds {
		if failed := a.driveRefund(ctx, x); failed != nil {
			err = errors.Join(err, fmt.Errorf("refunding payment %s: %w", x.Payment, failed))
		}
		if ctx.Err() != nil {
			return err
		}
	}
	return err
}

// planCharges writes an attempt for every invoice that is to be charged now.
func (a *App) planCharges(ctx context.Context) (err error) {
	var last store.Collectable // those that no card takes stay where they are
	for {
		var todo []store.Collectable
		failed := a.Store.InSystem(ctx, "look for invoices to charge", func(t *store.SystemTx) (err error) {
			todo, err = t.CollectableInvoices(ctx, last, collectSize)
			return err
		})
		if failed != nil {
			return errors.Join(err, failed)
		}
		for _, x := range todo {
			failed := a.Store.InSystem(ctx, "plan a charge", func(t *store.SystemTx) error { return planCharge(ctx, t, x) })
			if failed != nil && fault.KindOf(failed) != fault.Conflict { // another worker was faster
				err = errors.Join(err, fmt.Errorf("planning to charge %s: %w", x.Invoice, failed))
			}
			if ctx.Err() != nil {
				return err
			}
			last = x
		}
		if len(todo) < collectSize {
			return err
		}
	}
}

func planCharge(ctx context.Context, t *store.SystemTx, x store.Collectable) error {
	if err := t.LockBillingAccount(ctx, x.Org); err != nil {
		return err
	}
	owed, err := t.Owed(ctx, x.Org, x.Invoice)
	if err != nil || owed.Due.Sign() <= 0 {
		return err
	}
	amount, _, err := payment.Chargeable(owed.Due)
	if fault.KindOf(err) == fault.Unprocessable || err == nil && amount.IsZero() {
		return nil // no card takes it: it is paid by transfer
	} else if err != nil {
		return err
	}
	return t.InsertAttempt(ctx, store.Attempt{
		Org: x.Org, ID: id.New[id.PaymentAttempt](), Purpose: store.ForInvoice, Subject: x.Invoice, No: x.Attempts + 1,
		Provider: x.Provider, IntentKey: fmt.Sprintf("charge-%s-%d", x.Invoice, x.Attempts+1), Amount: amount,
	})
}

// driveAttempt does what is next about an attempt; only failures of ours are errors.
func (a *App) driveAttempt(ctx context.Context, x store.Attempt) error {
	p, err := a.provider(x.Provider)
	if err == nil {
		var c payment.Charged
		if c, err = a.askCharge(ctx, p, x); err == nil {
			return a.observeCharge(ctx, p.Name(), c, x)
		}
	}
	if ctx.Err() != nil {
		return err
	}
	switch fault.CodeOf(err) {
	case "payment.refused", "payment.currency", "idempotency.mismatch", "resource.not_found":
		if x.Ref == "" {
			reason := map[bool]string{true: "key_conflict", false: "refused"}[fault.CodeOf(err) == "idempotency.mismatch"]
			return a.observeCharge(ctx, x.Provider, payment.Charged{
				Org: x.Org, Attempt: x.ID, State: payment.SaysDeclined, Reason: reason, Detail: fault.From(err).Detail,
			}, x)
		}
	}
	a.Log.Warn("a charge waits", "org_id", x.Org.String(), "attempt", x.ID.String(), "error", err)
	return a.Store.InSystem(ctx, "postpone a charge", func(t *store.SystemTx) error {
		return t.PostponeAttempt(ctx, x, pauseAfter(err, x.Sends), fault.From(err).Detail)
	})
}

// notOwed is the reason of an attempt that was given up because the invoice was paid
// or credited before it was charged.
const notOwed = "not_owed"

// askCharge sends the order, or asks what became of it. What is not owed any more is
// not charged: an order that was never carried out is given up, and so is one that
// waits for the customer.
func (a *App) askCharge(ctx context.Context, p PaymentProvider, x store.Attempt) (payment.Charged, error) {
	who, wanted, late, err := a.charging(ctx, x)
	if err != nil {
		return payment.Charged{}, err
	}
	if x.Ref != "" {
		c, err := p.Payment(ctx, x.Ref)
		if err == nil && c.State == payment.SaysNeedsAction && (late || !wanted) {
			return p.CancelCharge(ctx, x.Ref)
		}
		return c, err
	}
	wanted = wanted && who.Provider == p.Name() // or the customer chose a method of another one
	if !wanted && x.Sends <= 1 {
		return payment.Charged{Org: x.Org, Attempt: x.ID, State: payment.SaysCancelled, Reason: notOwed}, nil
	}
	customer := ""
	if who.Provider == p.Name() {
		customer, err = a.customer(ctx, p, x.Org)
	} else {
		customer, err = newCustomer(ctx, p, who)
	}
	if err != nil {
		return payment.Charged{}, err
	}
	if x.Sends > 1 {
		if c, found, err := p.FindCharge(ctx, customer, x.IntentKey, orderedAt(x.ID)); err != nil || found {
			return c, err
		}
	}
	if !wanted {
		return payment.Charged{Org: x.Org, Attempt: x.ID, State: payment.SaysCancelled, Reason: notOwed}, nil
	}
	return p.Charge(ctx, payment.Charge{
		Key: x.IntentKey, Org: x.Org, Attempt: x.ID, Customer: customer, Method: who.Method, Amount: x.Amount,
		Description: "Tranche " + x.IntentKey,
	})
}

// charging reads whom to charge, whether the attempt's amount is still owed, and
// whether the customer has had long enough to confirm.
func (a *App) charging(ctx context.Context, x store.Attempt) (who store.PaymentCustomer, wanted, late bool, err error) {
	err = a.Store.InSystem(ctx, "read whom to charge", func(t *store.SystemTx) error {
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		late, wanted = now.After(x.CreatedAt.Add(payment.ActionWait)), true
		if x.Purpose == store.ForInvoice {
			owed, err := t.Owed(ctx, x.Org, id.Invoice(x.Subject))
			if err != nil {
				return err
			}
			wanted = owed.Due.Minor() >= x.Amount.Minor()
		}
		who, err = t.PaymentCustomer(ctx, x.Org)
		return err
	})
	return who, wanted, late, err
}

// orderedAt is the machine time at which an attempt was written down, from its id.
func orderedAt(x id.PaymentAttempt) time.Time {
	var ms [8]byte
	copy(ms[2:], x[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:])))
}

// pauseAfter doubles from two seconds, or is what the provider asked for.
func pauseAfter(err error, tries int) time.Duration {
	wait := min(longestWait, time.Second<<min(max(tries, 1), 12))
	return max(wait, fault.From(err).RetryAfter)
}
