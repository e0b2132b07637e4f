package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// usageReader is what both kinds of transaction can read of usage and its price.
type usageReader interface {
	UsageOf(context.Context, id.Org, store.UsageFilter) (store.Usage, error)
	TermsOf(context.Context, id.Org, metering.Interval, time.Time) (billing.Terms, error)
	BusinessNow(context.Context) (time.Time, error)
}

// priceUsage adds to usage of a window what prices it. Reservations, free quotas and
// tiers are pools of the whole organization and its calendar months: with any of
// them, the answer holds all usage of the organization from the first instant of the
// window's month on, and the caller hides what it does not show.
func priceUsage(
	ctx context.Context, t usageReader, org id.Org, usage store.Usage, window metering.Interval, now time.Time, currency money.Currency,
) (rating.Inputs, error) {
	in := rating.Inputs{At: now, Currency: currency, Books: usage.Books, Usage: usage.Segments}
	if len(usage.Segments) == 0 {
		return in, nil
	}
	months := metering.Interval{From: startOfMonth(window.From), To: window.To}
	var err error
	if in.Terms, err = t.TermsOf(ctx, org, months, now); err != nil {
		return in, err
	}
	if !pooled(in.Terms, usage.Books) {
		return in, nil
	}
	whole, err := t.UsageOf(ctx, org, store.UsageFilter{Window: months})
	in.Books, in.Usage = whole.Books, whole.Segments
	return in, err
}

// pooled tells whether what one thing costs depends on what else there is.
func pooled(terms billing.Terms, books map[id.PriceBook]billing.Book) bool {
	if len(terms.Reservations) > 0 || len(terms.FreeQuotas) > 0 {
		return true
	}
	for _, p := range terms.Prices {
		if p.Tiers.Kind != billing.Flat {
			return true
		}
	}
	for _, b := range books {
		for _, v := range b.Versions {
			if len(v.Tiers) > 0 {
				return true
			}
		}
	}
	return false
}

func startOfMonth(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// InstanceUsage is what an instance has used: the intervals it is billed for, the
// last one open while it runs, and their exact cost so far.
type InstanceUsage struct {
	Billed []metering.Interval
	Cost   money.Exact
}

// usageOfInstances returns the usage of each instance up to the business clock's
// now; instances without usage cost nothing in the given currency. It reads all of
// them at once, for a page of a list.
func usageOfInstances(ctx context.Context, t usageReader, org id.Org, currency money.Currency, instances []id.Instance) (map[id.Instance]InstanceUsage, error) {
	out := make(map[id.Instance]InstanceUsage, len(instances))
	for _, i := range instances {
		out[i] = InstanceUsage{Cost: money.ZeroExact(currency)}
	}
	if len(instances) == 0 {
		return out, nil
	}
	usage, err := t.UsageOf(ctx, org, store.UsageFilter{Instances: instances})
	if err != nil || len(usage.Segments) == 0 {
		return out, err
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return nil, err
	}
	first := now
	for _, u := range usage.Segments {
		inst := id.Instance(u.Subject.ID)
		view := out[inst]
		view.Billed = append(view.Billed, u.During)
		out[inst] = view
		if u.During.From.Before(first) {
			first = u.During.From
		}
	}
	if !first.Before(now) {
		return out, nil
	}
	window := metering.Interval{From: first, To: now}
	in, err := priceUsage(ctx, t, org, usage, window, now, currency)
	if err != nil {
		return nil, err
	}
	views, err := rating.Views(in, []metering.Interval{window}, func(u rating.Usage) string {
		if _, shown := out[id.Instance(u.Subject.ID)]; !shown {
			return rating.Hidden
		}
		return string(u.Subject.ID[:])
	})
	if err != nil {
		return nil, err
	}
	for _, v := range views {
		inst := id.Instance([]byte(v.Group))
		view := out[inst]
		if view.Cost, err = view.Cost.Add(v.Exact); err != nil {
			return nil, err
		}
		out[inst] = view
	}
	return out, nil
}
