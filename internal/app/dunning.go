package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// dunningSize bounds how many documents one round looks at.
const dunningSize = 100

// dunAgain is the business time after which a document that failed is looked at again.
const dunAgain = 10 * time.Minute

// SetDunningSchedule writes what is done about overdue invoices of an issuer. Steps
// that were taken stay taken. It fails with request.invalid.
func (a *App) SetDunningSchedule(ctx context.Context, c Caller, issuer string, s payment.Schedule) error {
	if err := operatorOnly(c); err != nil {
		return err
	}
	if err := s.Check(); err != nil {
		return err
	}
	return a.Store.InSystem(ctx, "set a dunning schedule", func(t *store.SystemTx) error {
		if err := t.PutDunningSchedule(ctx, issuer, s, c.actor()); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "dunning_schedule.set", issuer))
	})
}

// DunningSchedule reads what is done about overdue invoices of an issuer.
func (a *App) DunningSchedule(ctx context.Context, _ Caller, issuer string) (s payment.Schedule, err error) {
	err = a.Store.InSystem(ctx, "read a dunning schedule", func(t *store.SystemTx) error {
		s, err = t.DunningSchedule(ctx, issuer)
		return err
	})
	return s, err
}

// RunDunning is one round: each overdue document takes at most one step of its
// issuer's schedule, in a transaction of its own. What is paid, credited or written
// off is left alone, a dispute pauses. One document in trouble keeps no other waiting.
func (a *App) RunDunning(ctx context.Context) error {
	var todo, stops []store.DocumentOf
	err := a.Store.InSystem(ctx, "look for overdue documents", func(t *store.SystemTx) (err error) {
		if err := t.EnrolDunnings(ctx, dunningSize); err != nil {
			return err
		}
		todo, err = t.DueDunnings(ctx, dunningSize)
		return err
	})
	if err != nil {
		return err
	}
	for _, x := range todo {
		failed := a.Store.InSystem(ctx, "take a step of dunning", func(t *store.SystemTx) error { return a.dun(ctx, t, x) })
		if failed != nil {
			if ctx.Err() != nil {
				return errors.Join(err, failed)
			}
			failed = errors.Join(failed, a.Store.InSystem(ctx, "postpone dunning", func(t *store.SystemTx) error {
				return t.PostponeDunning(ctx, x, dunAgain)
			}))
			err = errors.Join(err, fmt.Errorf("dunning %s: %w", x.Invoice, failed))
		}
	}
	failed := a.Store.InSystem(ctx, "look for announced stops", func(t *store.SystemTx) (err error) {
		stops, err = t.StopsDue(ctx, dunningSize)
		return err
	})
	err = errors.Join(err, failed)
	for _, x := range stops {
		if failed := a.stopDebtor(ctx, x); failed != nil {
			if ctx.Err() != nil {
				return errors.Join(err, failed)
			}
			failed = errors.Join(failed, a.Store.InSystem(ctx, "postpone a stop", func(t *store.SystemTx) error {
				return t.PostponeStop(ctx, x, time.Minute)
			}))
			err = errors.Join(err, fmt.Errorf("stopping what %s runs: %w", x.Org, failed))
		}
	}
	return err
}

// dun takes at most one step about a document.
func (a *App) dun(ctx context.Context, t *store.SystemTx, x store.DocumentOf) error {
	if err := t.LockBillingAccount(ctx, x.Org); err != nil {
		return err
	}
	d, err := t.LockDunning(ctx, x)
	if err != nil {
		return err
	}
	owed, err := t.Owed(ctx, x.Org, x.Invoice)
	if err != nil {
		return err
	}
	schedule, err := t.DunningSchedule(ctx, d.Issuer)
	if err != nil {
		return err
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	settled := owed.Due.Sign() <= 0
	progress, act, again := schedule.Advance(d.Progress, payment.Facts{DueOn: d.DueOn, Settled: settled, Disputed: d.Disputed, At: now})
	d.Progress = progress
	if err := t.SaveDunning(ctx, d, again, !settled && again.IsZero()); err != nil {
		return err
	}
	if settled {
		return a.liftHold(ctx, t, x)
	}
	if !d.Told {
		if err := tellDunning(ctx, t, x, "invoice.overdue", owed, nil); err != nil {
			return err
		}
	}
	return a.dunBy(ctx, t, x, act, owed, again)
}

// dunBy carries a step out. What runs is stopped after the transaction, by the round.
func (a *App) dunBy(ctx context.Context, t *store.SystemTx, x store.DocumentOf, act payment.Action, owed store.Owed, next time.Time) error {
	switch act {
	case payment.Remind:
		return tellDunning(ctx, t, x, "invoice.reminded", owed, nil)
	case payment.Suspend:
		if err := t.HoldStarts(ctx, x); err != nil {
			return err
		}
		return tellDunning(ctx, t, x, "invoice.starts_suspended", owed, nil)
	case payment.AnnounceStop:
		if err := t.HoldStarts(ctx, x); err != nil {
			return err
		}
		return tellDunning(ctx, t, x, "invoice.stop_announced", owed, map[string]any{"stop_at": next.Format(time.RFC3339)})
	case payment.Stop:
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		return t.AnnounceStop(ctx, x, now)
	}
	return nil
}

// liftHold lets the organization start again once a document is settled.
func (a *App) liftHold(ctx context.Context, t *store.SystemTx, x store.DocumentOf) error {
	lifted, err := t.LiftHold(ctx, x)
	if err != nil || !lifted {
		return err
	}
	return t.AppendEvent(ctx, store.Event{Org: x.Org, Type: "invoice.starts_resumed", Subject: x.Invoice})
}

func tellDunning(ctx context.Context, t *store.SystemTx, x store.DocumentOf, event string, owed store.Owed, more map[string]any) error {
	data := map[string]any{"number": owed.Number, "due": owed.Due.Decimal(), "currency": owed.Due.Currency().Code()}
	for k, v := range more {
		data[k] = v
	}
	return t.AppendEvent(ctx, store.Event{Org: x.Org, Type: event, Subject: x.Invoice, Data: data})
}

// stopDebtor stops what an organization runs, as its own stop would: disks and data
// stay. It looks once more whether the document is owed, and may be repeated.
func (a *App) stopDebtor(ctx context.Context, x store.DocumentOf) error {
	var running []store.RunningInstance
	var owed store.Owed
	err := a.Store.InSystem(ctx, "look for what a debtor runs", func(t *store.SystemTx) (err error) {
		if owed, err = t.Owed(ctx, x.Org, x.Invoice); err != nil || owed.Due.Sign() <= 0 {
			return err
		}
		running, err = t.RunningInstances(ctx, x.Org, id.Project{}, id.Key{})
		return err
	})
	if err != nil {
		return err
	}
	for _, i := range running {
		if _, failed := a.StopInstance(ctx, systemCaller(x.Org), i.Project, i.ID, Match{}); failed != nil && fault.KindOf(failed) != fault.Conflict {
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return err
	}
	return a.Store.InSystem(ctx, "note a stop", func(t *store.SystemTx) error {
		if err := t.MarkStopped(ctx, x); err != nil || owed.Due.Sign() <= 0 {
			return err
		}
		return tellDunning(ctx, t, x, "invoice.stopped", owed, map[string]any{"instances": len(running)})
	})
}

// mayStart fails with billing.suspended while starts of an organization are held
// because of overdue invoices.
func mayStart(ctx context.Context, t *store.OrgTx) error {
	number, held, err := t.Held(ctx, t.Org())
	if err != nil || !held {
		return err
	}
	return fault.New(fault.OverBudget, "billing.suspended", fmt.Sprintf("Nothing new starts: invoice %s is overdue.", number)).
		Suggest("Pay it; starts are possible again within a minute of its payment.")
}
