package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Every function here runs under the lock of the organization's billing account, so
// that what is owed cannot change between reading and posting.

// receive records money once for its reference: as unapplied cash, from which the
// allocations are paid as far as they are owed. It returns false, and does nothing,
// for money that is recorded already.
func (a *App) receive(ctx context.Context, t *store.SystemTx, p store.Payment, to []payment.Allocation) (bool, error) {
	fresh, err := t.InsertPayment(ctx, p)
	if err != nil || !fresh {
		return false, err
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return false, err
	}
	nothing := money.NewAmount(0, p.Amount.Currency())
	if err := post1(ctx, t)(ledger.Paid(ledger.Entry{Org: p.Org, Reference: p.ID, On: now}, id.Invoice{}, nothing, p.Amount)); err != nil {
		return false, err
	}
	if p.Fee != nil {
		if err := postFee(ctx, t, p.Org, p.ID, *p.Fee, now); err != nil {
			return false, err
		}
	}
	for _, x := range to {
		if _, err := a.apply(ctx, t, p.Org, p.ID, x, now); err != nil {
			return false, err
		}
	}
	return true, nil
}

// post1 posts the one journal that a builder returns.
func post1(ctx context.Context, t *store.SystemTx) func(ledger.Journal, error) error {
	return func(j ledger.Journal, err error) error {
		if err != nil {
			return err
		}
		return t.Post(ctx, j)
	}
}

// chargeFee posts what a provider kept, when it becomes known after the payment.
func chargeFee(ctx context.Context, t *store.SystemTx, org id.Org, p id.Payment, fee money.Amount) error {
	first, err := t.SetPaymentFee(ctx, org, p, fee)
	if err != nil || !first {
		return err
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	return postFee(ctx, t, org, p, fee, now)
}

func postFee(ctx context.Context, t *store.SystemTx, org id.Org, reference [16]byte, fee money.Amount, now time.Time) error {
	if fee.IsZero() {
		return nil
	}
	return post1(ctx, t)(ledger.FeeCharged(ledger.Entry{Org: org, Reference: reference, On: now}, fee))
}

// apply pays a document from a payment's unapplied cash, as far as it is owed, and
// returns how much. What was written off of it is taken back first: it is paid after
// all.
func (a *App) apply(
	ctx context.Context, t *store.SystemTx, org id.Org, p id.Payment, x payment.Allocation, now time.Time,
) (money.Amount, error) {
	owed, err := t.Owed(ctx, org, x.Invoice)
	if err != nil {
		return money.Amount{}, err
	}
	if owed.Due.Currency() != x.Amount.Currency() {
		return money.Amount{}, fault.New(fault.Unprocessable, "payment.currency",
			fmt.Sprintf("Invoice %s is in %s, the payment in %s.", owed.Number, owed.Due.Currency(), x.Amount.Currency())).
			Suggest("Refund it, or apply it to an invoice in its currency.")
	}
	if owed.State != billing.Open || owed.Kind == billing.CreditNote {
		return money.Amount{}, fault.New(fault.Conflict, "state.conflict", "That document takes no payments.").
			Suggest("Choose an open invoice.")
	}
	due := max(owed.Due.Minor(), 0)
	part := min(x.Amount.Minor(), due+max(owed.Written.Minor(), 0))
	amount := money.NewAmount(part, x.Amount.Currency())
	if part <= 0 {
		return amount, nil
	}
	if part > due {
		if err := recoverWritten(ctx, t, org, p, x.Invoice, money.NewAmount(part-due, amount.Currency()), "paid after all", now); err != nil {
			return amount, err
		}
	}
	allocation := store.Allocation{Org: org, ID: id.New[id.Event](), Payment: p, Invoice: x.Invoice, Kind: store.Applied, Amount: amount}
	if err := allocate(ctx, t, allocation); err != nil {
		return amount, err
	}
	entry := ledger.Entry{Org: org, Reference: allocation.ID, On: now}
	if err := post1(ctx, t)(ledger.UnappliedUsed(entry, x.Invoice, amount)); err != nil {
		return amount, err
	}
	if part < due {
		return amount, nil
	}
	if err := t.WakeDunnings(ctx, org); err != nil {
		return amount, err
	}
	return amount, t.AppendEvent(ctx, store.Event{Org: org, Type: "invoice.paid", Subject: x.Invoice, Data: map[string]any{"payment": p.String()}})
}

// allocate writes an allocation and counts it on its payment.
func allocate(ctx context.Context, t *store.SystemTx, x store.Allocation) error {
	if err := t.InsertAllocation(ctx, x); err != nil {
		return err
	}
	count := store.PaymentCount{Allocated: x.Amount.Minor()}
	if x.Kind == store.ChargedBack {
		count.ChargedBack = -x.Amount.Minor()
	}
	return t.CountPayment(ctx, x.Org, x.Payment, count)
}

// recoverWritten takes a part of a write-off back: for money that came after all, or
// (p zero) because a credit note takes it off the document.
func recoverWritten(
	ctx context.Context, t *store.SystemTx, org id.Org, p id.Payment, inv id.Invoice, amount money.Amount, reason string, now time.Time,
) error {
	back, err := amount.Neg()
	if err != nil {
		return err
	}
	w := store.WriteOff{Org: org, ID: id.New[id.Event](), Invoice: inv, Payment: p, Amount: back, Reason: reason, By: "system"}
	if err := t.InsertWriteOff(ctx, w); err != nil {
		return err
	}
	return post1(ctx, t)(ledger.Recovered(ledger.Entry{Org: org, Reference: w.ID, On: now}, inv, amount))
}

// release takes a part of a payment back from the document that it paid, into
// unapplied cash.
func release(
	ctx context.Context, t *store.SystemTx, org id.Org, p id.Payment, x payment.Allocation, kind store.AllocationKind, now time.Time,
) error {
	back, err := x.Amount.Neg()
	if err != nil {
		return err
	}
	allocation := store.Allocation{Org: org, ID: id.New[id.Event](), Payment: p, Invoice: x.Invoice, Kind: kind, Amount: back}
	if err := allocate(ctx, t, allocation); err != nil {
		return err
	}
	return post1(ctx, t)(ledger.Overpaid(ledger.Entry{Org: org, Reference: allocation.ID, On: now}, x.Invoice, x.Amount))
}

// releaseOverpaid makes unapplied cash of what a document was paid beyond what it is
// owed, newest payment first: a credit note on a paid invoice leaves such. What the
// wallet paid is not its business. Call it after the credit note is posted.
func (a *App) releaseOverpaid(ctx context.Context, t *store.SystemTx, org id.Org, inv id.Invoice) (money.Amount, error) {
	owed, err := t.Owed(ctx, org, inv)
	if err != nil || owed.Due.Sign() >= 0 {
		return money.NewAmount(0, owed.Due.Currency()), err
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return money.Amount{}, err
	}
	paid, err := t.PaidBy(ctx, org, inv, owed.Due.Currency())
	if err != nil {
		return money.Amount{}, err
	}
	over := -owed.Due.Minor()
	for _, p := range paid {
		part := min(over, p.Free.Minor())
		if part == 0 {
			break
		}
		x := payment.Allocation{Invoice: inv, Amount: money.NewAmount(part, owed.Due.Currency())}
		if err := release(ctx, t, org, p.ID, x, store.Released, now); err != nil {
			return money.Amount{}, err
		}
		over -= part
	}
	return money.NewAmount(-owed.Due.Minor()-over, owed.Due.Currency()), nil
}

// applyCash pays what organizations owe from their unapplied cash, oldest document
// first. One organization in trouble keeps no other waiting.
func (a *App) applyCash(ctx context.Context) (err error) {
	var last id.Org
	for {
		var orgs []id.Org
		failed := a.Store.InSystem(ctx, "look for unapplied cash", func(t *store.SystemTx) (err error) {
			orgs, err = t.OrganizationsWithCash(ctx, last, collectSize)
			return err
		})
		if failed != nil {
			return errors.Join(err, failed)
		}
		for _, org := range orgs {
			failed := a.Store.InSystem(ctx, "apply cash", func(t *store.SystemTx) error { return a.applyCashOf(ctx, t, org) })
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("applying the cash of %s: %w", org, failed))
			}
			if ctx.Err() != nil {
				return err
			}
			last = org
		}
		if len(orgs) < collectSize {
			return err
		}
	}
}

func (a *App) applyCashOf(ctx context.Context, t *store.SystemTx, org id.Org) error {
	if err := t.LockBillingAccount(ctx, org); err != nil {
		return err
	}
	_, currency, err := t.Buyer(ctx, org)
	if err != nil {
		return err
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	free, err := t.FreePayments(ctx, org, currency)
	if err != nil {
		return err
	}
	owed, err := t.OwedInvoices(ctx, org, currency)
	if err != nil {
		return err
	}
	for _, p := range free {
		left := p.Free
		for _, x := range owed {
			if left.IsZero() {
				break
			}
			done, err := a.apply(ctx, t, org, p.ID, payment.Allocation{Invoice: x.Invoice, Amount: left}, now)
			if err != nil {
				return err
			}
			if left, err = left.Sub(done); err != nil {
				return err
			}
		}
	}
	return nil
}
