package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// sealBatch is how many segments one transaction of the seal continues.
const sealBatch = 50

// SealDue continues every open segment whose month has ended in a segment of the next
// month, up to the business clock's now, and returns how many rows that made. After it
// no usage of an ended month is open. Running it twice, two at once, or killed anywhere
// changes nothing more.
func (a *App) SealDue(ctx context.Context) (int, error) {
	return a.seal(ctx, time.Time{})
}

// SealMonth is SealDue up to the end of one month, for a month that has ended: what
// runs on is open in the next. It fails with request.invalid.
func (a *App) SealMonth(ctx context.Context, period string) (int, error) {
	month, err := metering.ParsePeriod(period)
	if err != nil {
		return 0, err
	}
	return a.seal(ctx, metering.MonthEnd(month.To)) // whose own seal is due only after it
}

// sealAttempts is how often a batch is tried that another transaction collided with.
const sealAttempts = 4

// seal continues what crosses a month end before the given instant, batch by batch; zero
// is now, and nothing is sealed before its time.
func (a *App) seal(ctx context.Context, before time.Time) (int, error) {
	total, failed := 0, 0
	for {
		added, err := a.sealSome(ctx, before)
		if fault.KindOf(err) == fault.Unavailable && failed+1 < sealAttempts && ctx.Err() == nil {
			failed++
			continue
		}
		if err != nil {
			return total, err
		}
		failed = 0
		if total += added; added == 0 {
			return total, nil
		}
	}
}

// sealSome is one transaction of the seal.
func (a *App) sealSome(ctx context.Context, before time.Time) (added int, err error) {
	err = a.Store.InSystem(ctx, "seal months", func(t *store.SystemTx) error {
		until, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		if !before.IsZero() && before.Before(until) {
			until = before
		}
		due, err := t.OpenAcrossMonths(ctx, until, sealBatch)
		if err != nil {
			return err
		}
		for _, m := range due {
			n, err := t.SealMeter(ctx, m, until)
			if err != nil {
				return err
			}
			added += n
		}
		return nil
	})
	return added, err
}
