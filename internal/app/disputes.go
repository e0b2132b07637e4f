package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// observeDispute takes over what the provider says of a dispute: when it opens the
// bank takes the money and a fee; won, it comes back; lost, what it paid is owed again.
func (a *App) observeDispute(ctx context.Context, provider string, got payment.Disputed) error {
	return a.Store.InSystem(ctx, "take over the state of a dispute", func(t *store.SystemTx) error {
		org, pay, found, err := t.PaymentByRef(ctx, provider, got.Payment)
		if err != nil {
			return err
		}
		if !found {
			return store.NotFound()
		}
		if err := t.LockBillingAccount(ctx, org); err != nil {
			return err
		}
		d, err := t.LockDispute(ctx, provider, got.Ref)
		if err != nil {
			return err
		}
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		for _, step := range payment.DisputeSteps(d.State, got.State) {
			if d.ID.IsZero() {
				d = store.DisputeRow{
					Org: org, ID: id.New[id.Dispute](), Payment: pay, Provider: provider, Ref: got.Ref, Amount: got.Amount, Fee: got.Fee,
					Reason: got.Reason,
				}
			}
			d.State = step
			if err := a.stepDispute(ctx, t, &d, got.Fee, now); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *App) stepDispute(ctx context.Context, t *store.SystemTx, d *store.DisputeRow, fee money.Amount, now time.Time) error {
	entry := ledger.Entry{Org: d.Org, Reference: d.ID, On: now}
	if d.State == payment.DisputeOpen {
		held, err := a.holdTopUp(ctx, t, *d, now)
		if err != nil {
			return err
		}
		d.Held = held
		if err := t.OpenDispute(ctx, *d); err != nil {
			return err
		}
		if err := post1(ctx, t)(ledger.ChargebackOpened(entry, d.Amount)); err != nil {
			return err
		}
		if err := postFee(ctx, t, d.Org, d.ID, d.Fee, now); err != nil {
			return err
		}
		return tellDispute(ctx, t, *d, "invoice.disputed")
	}
	change, err := fee.Sub(d.Fee)
	if err != nil {
		return err
	}
	if err := postFee(ctx, t, d.Org, derived("dispute closed", d.ID.String()), change, now); err != nil {
		return err
	}
	d.Fee = fee
	if err := t.CloseDispute(ctx, *d); err != nil {
		return err
	}
	if d.State == payment.DisputeWon {
		if err := post1(ctx, t)(ledger.ChargebackWon(entry, d.Amount)); err != nil {
			return err
		}
		if err := a.freeTopUp(ctx, t, *d, now); err != nil {
			return err
		}
		if err := t.WakeDunnings(ctx, d.Org); err != nil {
			return err
		}
		return tellDispute(ctx, t, *d, "invoice.dispute_won")
	}
	if err := tellDispute(ctx, t, *d, "invoice.dispute_lost"); err != nil {
		return err
	}
	return a.loseDispute(ctx, t, *d, now)
}

// loseDispute takes the money that a dispute took from where the payment went: what
// was unapplied first, then the newest documents, which are owed again, then the wallet
// that it topped up. What was spent of that, or given back to the customer before,
// cannot be taken any more: that is lost.
func (a *App) loseDispute(ctx context.Context, t *store.SystemTx, d store.DisputeRow, now time.Time) error {
	p, err := t.LockPayment(ctx, d.Org, d.Payment)
	if err != nil {
		return err
	}
	if !d.Held.IsZero() {
		if err := a.creditAdvance(ctx, t, d.Org, d.Payment, d.Held); err != nil {
			return err
		}
	}
	left := d.Amount.Minor()
	amount := func(minor int64) money.Amount { return money.NewAmount(minor, d.Amount.Currency()) }
	if free := min(left, p.Free().Minor()); free > 0 {
		if err := t.CountPayment(ctx, d.Org, d.Payment, store.PaymentCount{ChargedBack: free}); err != nil {
			return err
		}
		entry := ledger.Entry{Org: d.Org, Reference: d.ID, On: now}
		if err := post1(ctx, t)(payment.ChargebackAgainst(entry, ledger.UnappliedCash, amount(free))); err != nil {
			return err
		}
		left -= free
	}
	parts, err := t.AllocatedOf(ctx, d.Org, d.Payment, d.Amount.Currency())
	if err != nil {
		return err
	}
	for _, x := range parts {
		part := min(left, x.Amount.Minor())
		if part <= 0 {
			break
		}
		allocation := store.Allocation{
			Org: d.Org, ID: id.New[id.Event](), Payment: d.Payment, Invoice: x.Invoice, Kind: store.ChargedBack, Amount: amount(-part),
		}
		if err := allocate(ctx, t, allocation); err != nil {
			return err
		}
		entry := ledger.Entry{Org: d.Org, Reference: allocation.ID, On: now}
		if err := post1(ctx, t)(ledger.ChargebackLost(entry, x.Invoice, amount(part))); err != nil {
			return err
		}
		left -= part
	}
	if left > 0 {
		taken, err := a.takeLost(ctx, t, d, amount(left))
		if err != nil {
			return err
		}
		left -= taken.Minor()
	}
	if left == 0 {
		return nil
	}
	entry := ledger.Entry{Org: d.Org, Reference: derived("dispute shortfall", d.ID.String()), On: now}
	return post1(ctx, t)(payment.ChargebackAgainst(entry, ledger.WriteOff, amount(left)))
}

// takeLost takes what came back to the wallet of a top-up while its dispute was open,
// or was there before disputes held it, at most the amount, and returns how much.
func (a *App) takeLost(ctx context.Context, t *store.SystemTx, d store.DisputeRow, most money.Amount) (money.Amount, error) {
	nothing := money.NewAmount(0, most.Currency())
	lot, found, err := lotOf(ctx, t, d.Org, d.Payment)
	if err != nil || !found {
		return nothing, err
	}
	part := money.NewAmount(min(most.Minor(), lot.Remaining.Minor()), most.Currency())
	if part.Sign() <= 0 {
		return nothing, nil
	}
	if err := a.returnPrepayment(ctx, t, d.Org, d.Payment, derived("dispute lost", d.ID.String()), part, ledger.Disputes); err != nil {
		return nothing, err
	}
	return part, t.CountPayment(ctx, d.Org, d.Payment, store.PaymentCount{Allocated: -part.Minor(), ChargedBack: part.Minor()})
}

// tellDispute writes an event for each document that the payment paid.
func tellDispute(ctx context.Context, t *store.SystemTx, d store.DisputeRow, event string) error {
	parts, err := t.AllocatedOf(ctx, d.Org, d.Payment, d.Amount.Currency())
	if err != nil {
		return err
	}
	for _, x := range parts {
		data := map[string]any{"payment": d.Payment.String(), "amount": d.Amount.Decimal(), "currency": d.Amount.Currency().Code(), "reason": d.Reason}
		if err := t.AppendEvent(ctx, store.Event{Org: d.Org, Type: event, Subject: x.Invoice, Data: data}); err != nil {
			return err
		}
	}
	return nil
}
