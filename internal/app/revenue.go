package app

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Revenue is what a month earned and what its GPUs cost. Nothing is summed over
// currencies.
type Revenue struct {
	Period  string
	Until   time.Time // the end of the month, or now
	Rows    []RevenueRow
	Totals  []RevenueTotal
	Margins []Margin
}

// RevenueRow is the net of one organization for one thing that was sold.
type RevenueRow struct {
	store.RevenueLine
	Accrued bool // on no document yet
}

// RevenueTotal is the net of a currency.
type RevenueTotal struct {
	Invoiced money.Amount
	Accrued  money.Amount // up to Until
	Posted   money.Amount // on the account revenue in the month: after promotional lines are added, up to the last accrual
}

// Margin is what a GPU model earned beyond what it cost, in one currency. Cost is
// that of all the time that its GPUs were there, sold or not, at the price an hour in
// force at the end. Times are GPU·microseconds.
type Margin struct {
	Model                string
	Revenue              money.Amount // net of its SKUs
	CostPerHour          money.Price
	Cost                 money.Exact
	Margin               money.Exact // Revenue − Cost
	Sold, Sellable, Idle int64
	Estimated            bool // for some time it is not known whether GPUs were there
}

// SetGPUCost says what an hour of a GPU model costs the operator, from an instant on;
// zero is now. Operators only. It fails with request.invalid and state.conflict.
func (a *App) SetGPUCost(ctx context.Context, c Caller, cost store.GPUCost) error {
	if err := operatorOnly(c); err != nil {
		return err
	}
	if cost.Model == "" || cost.PerHour.Currency().IsZero() {
		return fault.New(fault.Invalid, "request.invalid", "A cost names a GPU model and a price an hour.").
			With(fault.Field{Pointer: "/model", Code: "required", Detail: "is the GPU model, H200-141 for example"})
	}
	return a.Store.InSystem(ctx, "set the cost of GPUs", func(t *store.SystemTx) error {
		if cost.From.IsZero() {
			now, err := t.BusinessNow(ctx)
			if err != nil {
				return err
			}
			cost.From = now
		}
		if err := t.InsertGPUCost(ctx, cost, c.actor()); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "gpu_cost.set", cost.Model))
	})
}

// RevenueReport tells what a month earned by organization, SKU, model, mode and
// meter: of its documents, and of previews where there is none yet; and the margin
// of each GPU model. Operators only. It fails with request.invalid.
func (a *App) RevenueReport(ctx context.Context, c Caller, period string) (Revenue, error) {
	if err := operatorOnly(c); err != nil {
		return Revenue{}, err
	}
	month, err := metering.ParsePeriod(period)
	if err != nil {
		return Revenue{}, err
	}
	out := Revenue{Period: period, Until: month.To}
	var unbilled []store.UnbilledOrg
	var costs []store.GPUCost
	var posted map[string]money.Amount
	err = a.Store.InSystem(ctx, "report revenue", func(t *store.SystemTx) error {
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		if now.Before(month.To) {
			out.Until = now
		}
		lines, err := t.RevenueLines(ctx, period)
		if err != nil {
			return err
		}
		for _, l := range lines {
			out.Rows = append(out.Rows, RevenueRow{RevenueLine: l})
		}
		if unbilled, err = t.UnbilledOrganizations(ctx, period); err != nil {
			return err
		}
		if posted, err = t.RevenuePosted(ctx, month.From, month.To); err != nil {
			return err
		}
		costs, err = t.GPUCosts(ctx, out.Until)
		return err
	})
	if err != nil {
		return Revenue{}, err
	}
	for _, o := range unbilled {
		rows, err := a.previewRevenue(ctx, o, month, out.Until)
		if err != nil {
			return Revenue{}, err
		}
		out.Rows = append(out.Rows, rows...)
	}
	if err := out.total(posted); err != nil {
		return Revenue{}, err
	}
	used, err := a.UtilisationReport(ctx, c, period)
	if err != nil {
		return Revenue{}, err
	}
	return out, out.margins(costs, used)
}

// previewRevenue is what an organization without a document earned until now.
func (a *App) previewRevenue(ctx context.Context, o store.UnbilledOrg, month metering.Interval, at time.Time) (rows []RevenueRow, err error) {
	err = a.Store.InSystem(ctx, "preview revenue", func(t *store.SystemTx) error {
		v, err := a.bill(ctx, t, o.Org, month, at)
		if err != nil {
			return err
		}
		var skus [][16]byte
		for _, l := range v.Lines {
			skus = append(skus, l.Key.SKU)
		}
		models, err := t.SKUModels(ctx, skus)
		if err != nil {
			return err
		}
		rows = nil
		for _, l := range v.Lines {
			m := models[l.Key.SKU]
			rows = append(rows, RevenueRow{Accrued: true, RevenueLine: store.RevenueLine{
				Org: o.Org, OrgName: o.Name, Component: l.Key.Component, SKU: m.Code, Model: m.Model, Mode: m.Mode,
				Meter: string(l.Key.Meter), Net: l.Amount,
			}})
		}
		return nil
	})
	return rows, err
}

// total sums the rows by currency.
func (r *Revenue) total(posted map[string]money.Amount) error {
	at := func(c money.Currency) *RevenueTotal {
		i := slices.IndexFunc(r.Totals, func(t RevenueTotal) bool { return t.Invoiced.Currency() == c })
		if i < 0 {
			zero := money.NewAmount(0, c)
			r.Totals = append(r.Totals, RevenueTotal{zero, zero, zero})
			i = len(r.Totals) - 1
		}
		return &r.Totals[i]
	}
	for _, row := range r.Rows {
		t := at(row.Net.Currency())
		sum := &t.Invoiced
		if row.Accrued {
			sum = &t.Accrued
		}
		next, err := sum.Add(row.Net)
		if err != nil {
			return fmt.Errorf("summing revenue: %w", err)
		}
		*sum = next
	}
	for _, p := range posted {
		at(p.Currency()).Posted = p
	}
	return nil
}

// margins compares what each model earned with what it cost, in each currency it has
// a cost in.
func (r *Revenue) margins(costs []store.GPUCost, used Utilisation) error {
	for _, c := range costs {
		m := Margin{Model: c.Model, CostPerHour: c.PerHour, Revenue: money.NewAmount(0, c.PerHour.Currency())}
		for _, row := range r.Rows {
			if row.Model != c.Model || row.Net.Currency() != c.PerHour.Currency() || row.Component == billing.PromoCredit {
				continue
			}
			sum, err := m.Revenue.Add(row.Net)
			if err != nil {
				return fmt.Errorf("summing revenue of %s: %w", c.Model, err)
			}
			m.Revenue = sum
		}
		there := int64(0)
		for _, u := range used.Rows {
			if u.Model != c.Model {
				continue
			}
			m.Sold, m.Sellable, m.Idle = m.Sold+u.Sold, m.Sellable+u.Sellable, m.Idle+u.Idle
			m.Estimated = m.Estimated || u.Estimated
			there += max(u.Observed, u.Sold)
		}
		m.Cost = c.PerHour.Times(big.NewInt(there), time.Hour.Microseconds())
		var err error
		if m.Margin, err = m.Revenue.Exact().Sub(m.Cost); err != nil {
			return fmt.Errorf("the margin of %s: %w", c.Model, err)
		}
		r.Margins = append(r.Margins, m)
	}
	return nil
}
