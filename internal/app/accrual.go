package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// monthsBack bounds how old a month without its document may be to be burned and
// accrued.
const monthsBack = 12

// recentMonths lists the months that may be without their documents at an instant: the
// running one, last, and those before it.
func recentMonths(now time.Time) []metering.Interval {
	out := make([]metering.Interval, 0, monthsBack+1)
	for back := monthsBack; back >= 0; back-- {
		first := time.Date(now.Year(), now.Month()-time.Month(back), 1, 0, 0, 0, 0, time.UTC)
		out = append(out, metering.Between(first, first.AddDate(0, 1, 0)))
	}
	return out
}

func periodsOf(months []metering.Interval) []string {
	out := make([]string, len(months))
	for i, m := range months {
		out[i] = metering.PeriodOf(m.From)
	}
	return out
}

// openMonths lists the months of an organization that are burned: the running one,
// last, the one before it, and the older ones that have usage and no document.
func openMonths(ctx context.Context, t *store.SystemTx, org id.Org, now time.Time) ([]metering.Interval, error) {
	recent := recentMonths(now)
	old, young := recent[:len(recent)-2], recent[len(recent)-2:]
	unbilled, err := t.UnbilledMonths(ctx, org, periodsOf(old))
	if err != nil || len(unbilled) == 0 {
		return young, err
	}
	var out []metering.Interval
	for _, m := range old {
		if slices.Contains(unbilled, metering.PeriodOf(m.From)) {
			out = append(out, m)
		}
	}
	return append(out, young...), nil
}

// bill is what an organization's month comes to at an instant: the document that it
// would become, before advances are deducted, not stored.
func (a *App) bill(ctx context.Context, t *store.SystemTx, org id.Org, month metering.Interval, at time.Time) (billing.Invoice, error) {
	if month.To.Before(at) {
		at = month.To
	}
	v, _, err := a.compose(ctx, t, org, month, at)
	if err != nil {
		return billing.Invoice{}, err
	}
	v.State = billing.Preview
	return v.BeforeAdvances()
}

// AccrueAll posts for every organization what its usage up to the last midnight
// (UTC, business time) earned beyond what was accrued before. One organization in
// trouble keeps no other from it. It is idempotent.
func (a *App) AccrueAll(ctx context.Context) error {
	var now time.Time
	var due []store.MonthDue
	err := a.Store.InSystem(ctx, "look for what to accrue", func(t *store.SystemTx) (err error) {
		if now, err = t.BusinessNow(ctx); err != nil {
			return err
		}
		due, err = t.AccrualDue(ctx, periodsOf(recentMonths(now)), midnight(now))
		return err
	})
	if err != nil {
		return err
	}
	var failed error
	for _, d := range due {
		month, err := metering.ParsePeriod(d.Period)
		if err == nil {
			err = a.accrueMonth(ctx, d.Org, month, midnight(now))
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("accruing %s: %w", d.Org, err))
		}
		if ctx.Err() != nil {
			return failed
		}
	}
	return failed
}

func midnight(at time.Time) time.Time {
	return time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
}

// accrueMonth accrues what a month earned up to an instant.
func (a *App) accrueMonth(ctx context.Context, org id.Org, month metering.Interval, at time.Time) error {
	return a.Store.InSystem(ctx, "accrue a day", func(t *store.SystemTx) error {
		if _, err := t.LockWallet(ctx, org); err != nil {
			return err
		}
		period := metering.PeriodOf(month.From)
		billed, err := t.BilledPeriod(ctx, org, period)
		if err != nil || billed {
			return err
		}
		f, err := t.Funding(ctx, org, store.FundedPeriod{Period: period})
		if err != nil || !f.AccruedAt.Before(at) {
			return err
		}
		v, err := a.bill(ctx, t, org, month, at)
		if err != nil {
			return err
		}
		if err := accrue(ctx, t, org, &f, v.Subtotal, within(at.Add(-time.Microsecond), month)); err != nil {
			return err
		}
		f.AccruedAt = at
		return t.SaveFunding(ctx, org, f)
	})
}

// accrue posts the difference to what was accrued; the caller saves f.
func accrue(ctx context.Context, t *store.SystemTx, org id.Org, f *store.Funding, net money.Amount, on time.Time) error {
	delta := net.Minor() - f.Accrued
	if delta == 0 {
		return nil
	}
	f.AccruedRev++
	journal, err := ledger.Accrued(ledger.Entry{
		Org: org, Reference: derived("accrual", org, f.Period, f.CloseNo, f.AccruedRev), On: on,
	}, money.NewAmount(delta, net.Currency()))
	if err != nil {
		return err
	}
	f.Accrued = net.Minor()
	return t.Post(ctx, journal)
}

// lapseBatch is how many expired grants one round books.
const lapseBatch = 100

// ExpireGrants books what is left of expired grants as breakage, once. What the
// usage until then takes of a promotional grant stays, for the invoice of its month.
func (a *App) ExpireGrants(ctx context.Context) error {
	var due []store.ExpiredGrant
	err := a.Store.InSystem(ctx, "look for expired grants", func(t *store.SystemTx) (err error) {
		due, err = t.ExpiredGrants(ctx, lapseBatch)
		return err
	})
	for _, g := range due {
		if failed := a.lapseOf(ctx, g.Org); failed != nil {
			err = errors.Join(err, fmt.Errorf("lapsing grants of %s: %w", g.Org, failed))
		}
	}
	return err
}

// lapseOf books the expired grants of one organization.
func (a *App) lapseOf(ctx context.Context, org id.Org) error {
	return a.Store.InSystem(ctx, "lapse grants", func(t *store.SystemTx) error {
		grants, err := t.ExpiredGrantsOf(ctx, org)
		if err != nil || len(grants) == 0 {
			return err
		}
		if _, err := t.LockWallet(ctx, org); err != nil {
			return err
		}
		if grants, err = t.ExpiredGrantsOf(ctx, org); err != nil { // what nobody else booked meanwhile
			return err
		}
		for _, g := range grants {
			if err := a.lapse(ctx, t, org, g); err != nil {
				return err
			}
		}
		return nil
	})
}

// lapse books one grant; the wallet is locked.
func (a *App) lapse(ctx context.Context, t *store.SystemTx, org id.Org, g id.Grant) error {
	lots, err := t.Grants(ctx, org, g)
	if err != nil {
		return err
	}
	if len(lots) != 1 {
		return store.NotFound()
	}
	lot := lots[0]
	at, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	kept, err := a.keptBy(ctx, t, org, lot)
	if err != nil {
		return err
	}
	if err := t.LapseGrant(ctx, org, g, at); err != nil {
		return err
	}
	left := lot.Remaining.Minor() - kept
	if left < 0 {
		return fault.New(fault.Internal, "internal", "A wallet does not add up.").Because(fmt.Errorf("grant %s has %s, months hold %d", g, lot.Remaining, kept))
	}
	if left == 0 {
		return nil
	}
	return a.breakage(ctx, t, org, lot, money.NewAmount(left, lot.Remaining.Currency()), at)
}

func (a *App) breakage(ctx context.Context, t *store.SystemTx, org id.Org, lot wallet.Lot, left money.Amount, at time.Time) error {
	uses := []wallet.Use{{Grant: lot.Grant, Amount: left}}
	f := store.FundedPeriod{Period: metering.PeriodOf(lot.Expires)}
	if err := t.MoveGrants(ctx, org, lot.Kind, f, store.UseExpired, at, uses); err != nil {
		return err
	}
	account := ledger.Promo
	if lot.Kind == wallet.Prepaid {
		account = ledger.Prepaid
	}
	// What came back to a grant that had lapsed lapses again: its key is what is left, too.
	journal, err := ledger.GrantExpired(ledger.Entry{
		Org: org, Reference: derived("expired", lot.Grant, lot.Remaining.Minor(), at.UnixMicro()), On: lot.Expires,
	}, account, left)
	if err != nil {
		return err
	}
	if err := t.Post(ctx, journal); err != nil {
		return err
	}
	return t.AppendEvent(ctx, store.Event{Org: org, Type: "grant.expired", Subject: lot.Grant, Data: map[string]any{
		"name": lot.Name, "amount": left.Decimal(), "currency": left.Currency().Code(),
	}})
}

// keptBy is what months without their documents take of a grant up to its expiry;
// it refreshes the hold of the month it expires in.
func (a *App) keptBy(ctx context.Context, t *store.SystemTx, org id.Org, lot wallet.Lot) (int64, error) {
	if lot.Kind != wallet.Promo {
		return 0, nil
	}
	month := monthOf(lot.Expires)
	period := metering.PeriodOf(month.From)
	billed, err := t.BilledPeriod(ctx, org, period)
	if err != nil {
		return 0, err
	}
	holds, err := t.Holds(ctx, org)
	if err != nil {
		return 0, err
	}
	kept := int64(0)
	for _, h := range holds {
		if h.Grant == lot.Grant && h.Period < period {
			kept += h.Minor
		}
	}
	if billed {
		return kept, nil
	}
	v, err := a.bill(ctx, t, org, month, lot.Expires)
	if err != nil {
		return 0, err
	}
	uses, err := promosOf(v)
	if err != nil {
		return 0, err
	}
	for _, u := range uses {
		if u.Grant == lot.Grant {
			kept += u.Amount.Minor()
		}
	}
	return kept, t.SetHolds(ctx, org, period, uses)
}

// monthOf is the calendar month that the instant before at lies in.
func monthOf(at time.Time) metering.Interval {
	first := startOfMonth(at.Add(-time.Microsecond))
	return metering.Between(first, first.AddDate(0, 1, 0))
}
