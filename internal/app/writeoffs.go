package app

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// WriteOffOrder gives up what an invoice is owed; Amount nil is all of it.
type WriteOffOrder struct {
	Amount *money.Amount
	Reason string
}

// WriteOffInvoice gives up what is owed: the invoice stays as it is and gets the label
// uncollectible, dunning ends, and money that comes after all takes the write-off
// back. It changes no tax: relief for bad debts is claimed from the tax office, not
// here. It fails with resource.not_found, request.invalid, approval.required,
// payment.exceeds_due for more than is owed and state.conflict when nothing is.
func (a *App) WriteOffInvoice(ctx context.Context, c Caller, org id.Org, inv id.Invoice, o WriteOffOrder) (owed store.Owed, err error) {
	if err := operatorOnly(c); err != nil {
		return owed, err
	}
	if o.Reason == "" || len(o.Reason) > 500 {
		return owed, fault.New(fault.Invalid, "request.invalid", "A write-off has a reason.").
			With(fault.Field{Pointer: "/reason", Code: "required", Detail: "1 to 500 characters"})
	}
	err = a.Store.InSystem(ctx, "read what is owed", func(t *store.SystemTx) error {
		owed, err = t.Owed(ctx, org, inv)
		return err
	})
	if err != nil {
		return owed, err
	}
	amount, err := writable(owed, o.Amount)
	if err != nil {
		return owed, err
	}
	body := map[string]string{"organization": org.String(), "invoice": inv.String(), "amount": amount.String(), "reason": o.Reason}
	permit, err := a.RequireApproval(ctx, c, ApproveWriteOff, body, amount)
	if err != nil {
		return owed, err
	}
	err = a.Store.InSystem(ctx, "write an invoice off", func(t *store.SystemTx) error {
		if err := permit.Spend(ctx, t); err != nil {
			return err
		}
		if err := t.LockBillingAccount(ctx, org); err != nil {
			return err
		}
		if owed, err = t.Owed(ctx, org, inv); err != nil {
			return err
		}
		if _, err := writable(owed, &amount); err != nil {
			return err
		}
		if err := writeOff(ctx, t, c, org, inv, amount, o.Reason); err != nil {
			return err
		}
		owed, err = t.Owed(ctx, org, inv)
		return err
	})
	return owed, err
}

// writable is the amount of a write-off, checked against what is owed.
func writable(owed store.Owed, asked *money.Amount) (money.Amount, error) {
	if owed.Due.Sign() <= 0 {
		return money.Amount{}, fault.New(fault.Conflict, "state.conflict", fmt.Sprintf("Nothing is owed on %s.", owed.Number)).
			Suggest("Read the invoice again.")
	}
	if asked == nil {
		return owed.Due, nil
	}
	if asked.Currency() != owed.Due.Currency() || asked.Sign() <= 0 {
		return money.Amount{}, fault.New(fault.Invalid, "request.invalid", "A write-off is more than 0, in the invoice's currency.").
			With(fault.Field{Pointer: "/amount", Code: "range", Detail: "at most " + owed.Due.String()})
	}
	if asked.Minor() > owed.Due.Minor() {
		return money.Amount{}, exceedsDue(owed, *asked)
	}
	return *asked, nil
}

func exceedsDue(owed store.Owed, asked money.Amount) error {
	return fault.New(fault.Unprocessable, "payment.exceeds_due", fmt.Sprintf("%s is owed on %s, less than %s.", owed.Due, owed.Number, asked)).
		Suggest("Take at most what is owed; the rest of a payment stays unapplied.")
}

func writeOff(ctx context.Context, t *store.SystemTx, c Caller, org id.Org, inv id.Invoice, amount money.Amount, reason string) error {
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	w := store.WriteOff{Org: org, ID: id.New[id.Event](), Invoice: inv, Amount: amount, Reason: reason, By: c.actor()}
	if err := t.InsertWriteOff(ctx, w); err != nil {
		return err
	}
	if err := post1(ctx, t)(ledger.WrittenOff(ledger.Entry{Org: org, Reference: w.ID, On: now}, inv, amount)); err != nil {
		return err
	}
	if err := t.WakeDunnings(ctx, org); err != nil {
		return err
	}
	data := map[string]any{"amount": amount.Decimal(), "currency": amount.Currency().Code()}
	if err := t.AppendEvent(ctx, store.Event{Org: org, Type: "invoice.written_off", Subject: inv, Data: data}); err != nil {
		return err
	}
	return t.Audit(ctx, c.audit(org, "invoice.write_off", inv.String()))
}
