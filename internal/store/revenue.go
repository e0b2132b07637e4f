package store

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// RevenueLine is the net of a month of one organization for one thing that was sold.
type RevenueLine struct {
	Org       id.Org
	OrgName   string
	Component billing.Component
	SKU       string // code, "" of what is for no SKU
	Model     string
	Mode      string
	Meter     string
	Net       money.Amount
}

// RevenueLines sums the lines of the documents of a month.
func (t *SystemTx) RevenueLines(ctx context.Context, period string) ([]RevenueLine, error) {
	rows, err := t.q.RevenueLines(ctx, t.raw, period)
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]RevenueLine, len(rows))
	for i, r := range rows {
		net, err := amountIn(r.AmountMinor, r.Currency)
		if err != nil {
			return nil, err
		}
		out[i] = RevenueLine{
			Org: id.Org(r.OrgID), OrgName: r.OrgName, Component: billing.Component(r.Component), SKU: r.SkuCode,
			Model: r.GpuModel, Mode: r.Mode, Meter: r.Meter, Net: net,
		}
	}
	return out, nil
}

// SKUModel is the GPU model and mode of a SKU.
type SKUModel struct{ Code, Model, Mode string }

// SKUModels reads SKUs by id.
func (t *SystemTx) SKUModels(ctx context.Context, skus [][16]byte) (map[[16]byte]SKUModel, error) {
	rows, err := t.q.SKUModels(ctx, t.raw, uuids(skus))
	if err != nil {
		return nil, mapError(err)
	}
	out := make(map[[16]byte]SKUModel, len(rows))
	for _, r := range rows {
		out[r.ID] = SKUModel{r.Code, r.GpuModel, r.Mode}
	}
	return out, nil
}

// UnbilledOrg is an organization whose month has no document.
type UnbilledOrg struct {
	Org  id.Org
	Name string
}

// UnbilledOrganizations lists who used something in a month that has no document yet.
func (t *SystemTx) UnbilledOrganizations(ctx context.Context, period string) ([]UnbilledOrg, error) {
	rows, err := t.q.UnbilledOrganizations(ctx, t.raw, period)
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]UnbilledOrg, len(rows))
	for i, r := range rows {
		out[i] = UnbilledOrg{id.Org(r.OrgID), r.Name}
	}
	return out, nil
}

// GPUCost is what an hour of a GPU costs the operator, from an instant on.
type GPUCost struct {
	Model   string
	PerHour money.Price
	From    time.Time
}

// InsertGPUCost stores a cost.
func (t *SystemTx) InsertGPUCost(ctx context.Context, c GPUCost, by string) error {
	return mapError(t.q.InsertGPUCost(ctx, t.raw, db.InsertGPUCostParams{
		GpuModel: c.Model, Currency: c.PerHour.Currency().Code(), EffectiveFrom: c.From, PerHour: c.PerHour.Decimal(), SetBy: by,
	}))
}

// GPUCosts lists the costs in force at an instant.
func (t *SystemTx) GPUCosts(ctx context.Context, at time.Time) ([]GPUCost, error) {
	rows, err := t.q.GPUCosts(ctx, t.raw, at)
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]GPUCost, len(rows))
	for i, r := range rows {
		c, err := money.ParseCurrency(r.Currency)
		if err != nil {
			return nil, fmt.Errorf("reading the cost of %s: %w", r.GpuModel, err)
		}
		price, err := money.ParsePrice(r.PerHour, c)
		if err != nil {
			return nil, fmt.Errorf("reading the cost of %s: %w", r.GpuModel, err)
		}
		out[i] = GPUCost{Model: r.GpuModel, PerHour: price, From: r.EffectiveFrom.UTC()}
	}
	return out, nil
}

// RevenuePosted sums the postings on revenue of a kind of journal that concern a
// document's month: by the day they are effective on.
func (t *SystemTx) RevenuePosted(ctx context.Context, from, to time.Time) (map[string]money.Amount, error) {
	rows, err := t.q.Movements(ctx, t.raw, db.MovementsParams{Accounts: []string{"revenue"}, FromAt: from, ToAt: to})
	if err != nil {
		return nil, mapError(err)
	}
	out := map[string]money.Amount{}
	for _, r := range rows {
		a, err := amountIn(-r.AmountMinor, r.Currency)
		if err != nil {
			return nil, err
		}
		if have, ok := out[r.Currency]; ok {
			if a, err = have.Add(a); err != nil {
				return nil, fmt.Errorf("summing revenue: %w", err)
			}
		}
		out[r.Currency] = a
	}
	return out, nil
}
