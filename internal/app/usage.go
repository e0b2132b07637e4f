package app

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// UsageQuery asks for the usage of a project. A zero From is the start of the
// running month, a zero To is now, "" for Bucket is one bucket.
type UsageQuery struct {
	From, To time.Time
	Bucket   metering.Bucket
	GroupBy  []string // of instance, sku, meter, region
}

// UsageItem is the usage of one bucket and group. Quantity is exact; Exact has 12
// decimals and sums, over buckets of any size, to the same.
type UsageItem struct {
	From, To time.Time
	Group    map[string]string
	Quantity *big.Int
	Unit     string
	Exact    money.Exact
}

// groupers is what usage can be grouped by.
var groupers = map[string]func(u rating.Usage, region string) string{
	"instance": func(u rating.Usage, _ string) string { return id.Instance(u.Subject.ID).String() },
	"sku":      func(u rating.Usage, _ string) string { return u.SKU.Code },
	"meter":    func(u rating.Usage, _ string) string { return string(u.Meter) },
	"region":   func(_ rating.Usage, region string) string { return region },
}

// groupSeparator joins the values of a group; no value contains it.
const groupSeparator = "\x1f"

// Usage returns usage by bucket and group, priced exactly. Pages of one list show
// one window, even if To was not given. It fails with resource.not_found for a
// project of others, request.invalid and page_token.invalid.
func (a *App) Usage(ctx context.Context, c Caller, project id.Project, q UsageQuery, p Page) (out List[UsageItem], err error) {
	for _, g := range q.GroupBy {
		if groupers[g] == nil {
			return out, fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("Usage cannot be grouped by %.32q.", g)).
				With(fault.Field{Pointer: "group_by", Code: "enum", Detail: "instance, sku, meter or region"})
		}
	}
	if q.Bucket == "" {
		q.Bucket = metering.NoBucket
	}
	var items []UsageItem
	var window metering.Interval
	skip := 0
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		if _, err := t.Project(ctx, c.Org, project); err != nil {
			return err
		}
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		if window, skip, err = usageWindow(q, p, now); err != nil {
			return err
		}
		buckets, err := metering.Split(window, q.Bucket)
		if err != nil {
			return err
		}
		items, err = usageItems(ctx, t, c.Org, project, q.GroupBy, buckets, now)
		return err
	})
	if err != nil {
		return out, err
	}
	items = items[min(skip, len(items)):]
	if len(items) > p.Size {
		items = items[:p.Size]
		out.Next = fmt.Sprintf("%d.%d.%d", window.From.UnixMicro(), window.To.UnixMicro(), skip+p.Size)
	}
	out.Items = items
	return out, nil
}

// usageWindow resolves the defaults of a query, once per list: later pages carry
// the window of the first in their cursor.
func usageWindow(q UsageQuery, p Page, now time.Time) (window metering.Interval, skip int, err error) {
	if p.Cursor != "" {
		var from, to int64
		if n, err := fmt.Sscanf(p.Cursor, "%d.%d.%d", &from, &to, &skip); n != 3 || err != nil || skip < 0 {
			return window, 0, fault.New(fault.Invalid, "page_token.invalid", "The page token is not one of this list.").
				Suggest("Start the list again without page_token.")
		}
		return metering.Between(time.UnixMicro(from), time.UnixMicro(to)), skip, nil
	}
	if q.From.IsZero() {
		q.From = time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	if q.To.IsZero() {
		q.To = now
	}
	return metering.Between(q.From, q.To), 0, nil
}

func usageItems(ctx context.Context, t *store.OrgTx, org id.Org, project id.Project, by []string, buckets []metering.Interval, now time.Time) ([]UsageItem, error) {
	window := metering.Interval{From: buckets[0].From, To: buckets[len(buckets)-1].To}
	usage, err := t.UsageOf(ctx, org, store.UsageFilter{Window: window, Project: project})
	if err != nil {
		return nil, err
	}
	_, currency, err := t.Buyer(ctx, org)
	if err != nil {
		return nil, err
	}
	group := func(u rating.Usage) string {
		values := make([]string, 0, len(by))
		for _, g := range by {
			values = append(values, groupers[g](u, usage.Regions[u.ID]))
		}
		return strings.Join(values, groupSeparator)
	}
	views, err := rating.Views(rating.Inputs{At: now, Currency: currency, Books: usage.Books, Usage: usage.Segments}, buckets, group)
	if err != nil {
		return nil, err
	}
	items := make([]UsageItem, 0, len(views))
	for _, v := range views {
		item := UsageItem{From: v.Bucket.From, To: v.Bucket.To, Group: map[string]string{}, Quantity: v.Quantity, Unit: v.Unit, Exact: v.Exact}
		values := strings.Split(v.Group, groupSeparator)
		for i, g := range by {
			item.Group[g] = values[i]
		}
		items = append(items, item)
	}
	return items, nil
}

// InstanceUsage is what an instance has used: the intervals it is billed for, the
// last one open while it runs, and their exact cost so far.
type InstanceUsage struct {
	Billed []metering.Interval
	Cost   money.Exact
}

// usageReader is what both kinds of transaction can read.
type usageReader interface {
	UsageOf(context.Context, id.Org, store.UsageFilter) (store.Usage, error)
	BusinessNow(context.Context) (time.Time, error)
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
	bySubject := map[id.Instance][]rating.Usage{}
	for _, u := range usage.Segments {
		inst := id.Instance(u.Subject.ID)
		bySubject[inst] = append(bySubject[inst], u)
	}
	for inst, segments := range bySubject {
		cost, err := rating.Cost(rating.Inputs{
			Period: metering.Interval{From: time.Unix(0, 0).UTC(), To: now}, At: now, Currency: currency, Books: usage.Books, Usage: segments,
		})
		if err != nil {
			return nil, fmt.Errorf("costing %s: %w", inst, err)
		}
		view := InstanceUsage{Cost: cost}
		for _, s := range segments {
			view.Billed = append(view.Billed, s.During)
		}
		out[inst] = view
	}
	return out, nil
}
