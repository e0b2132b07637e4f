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

// UsageQuery asks for usage. A zero From is the start of the
// running month, a zero To is now, "" for Bucket is one bucket.
type UsageQuery struct {
	From, To time.Time
	Bucket   metering.Bucket
	GroupBy  []string // of project, instance, name, sku, meter, region, isolation, pricing, label:<key>
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

// Usage returns usage by bucket and group, priced exactly. Pages of one list show
// one window, even if To was not given. It fails with resource.not_found for a
// project of others, request.invalid and page_token.invalid.
func (a *App) Usage(ctx context.Context, c Caller, project id.Project, q UsageQuery, p Page) (List[UsageItem], error) {
	return a.usage(ctx, c, project, q, p)
}

// OrganizationUsage is Usage over all projects of the caller's organization.
func (a *App) OrganizationUsage(ctx context.Context, c Caller, q UsageQuery, p Page) (List[UsageItem], error) {
	return a.usage(ctx, c, id.Project{}, q, p)
}

// usage is the usage of a project, or of all for the zero id.
func (a *App) usage(ctx context.Context, c Caller, project id.Project, q UsageQuery, p Page) (out List[UsageItem], err error) {
	if err := checkGroups(q.GroupBy); err != nil {
		return out, err
	}
	if q.Bucket == "" {
		q.Bucket = metering.NoBucket
	}
	var items []UsageItem
	var window metering.Interval
	skip := 0
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		if !project.IsZero() {
			if _, err := t.Project(ctx, c.Org, project); err != nil {
				return err
			}
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
	in, err := priceUsage(ctx, t, org, usage, window, now, currency)
	if err != nil {
		return nil, err
	}
	group := func(u rating.Usage) string {
		if !project.IsZero() && u.Project != project {
			return rating.Hidden
		}
		return groupOf(u, by, usage.Labels)
	}
	views, err := rating.Views(in, buckets, group)
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
