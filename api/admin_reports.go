package api

import (
	"context"
	"math/big"
	"time"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// GetRevenueReport answers GET /v1/admin/finance/revenue/{period}.
func (h *Handlers) GetRevenueReport(ctx context.Context, req GetRevenueReportRequestObject) (GetRevenueReportResponseObject, error) {
	period, err := periodIn(req.Period)
	if err != nil {
		return nil, err
	}
	got, err := h.app.RevenueReport(ctx, caller(ctx), period)
	if err != nil {
		return nil, err
	}
	return GetRevenueReport200JSONResponse{
		Period: got.Period, Until: wire.At(got.Until), Rows: each(got.Rows, revenueRowOf),
		Totals: each(got.Totals, func(t app.RevenueTotal) wire.RevenueTotal {
			return wire.RevenueTotal{Invoiced: moneyOf(t.Invoiced), Accrued: moneyOf(t.Accrued), Posted: moneyOf(t.Posted)}
		}),
		Margins: each(got.Margins, func(m app.Margin) wire.ModelMargin {
			return wire.ModelMargin{
				GpuModel: m.Model, Revenue: moneyOf(m.Revenue), CostPerHour: priceOf(m.CostPerHour), Cost: exactOf(m.Cost), Margin: exactOf(m.Margin),
				SoldGpuHours: hoursOf(m.Sold), SellableGpuHours: hoursOf(m.Sellable), IdleGpuHours: hoursOf(m.Idle), Estimated: m.Estimated,
			}
		}),
	}, nil
}

func revenueRowOf(r app.RevenueRow) wire.RevenueRow {
	component := wire.LineComponentUsage
	if r.Component != "" {
		component = wire.LineComponent(r.Component)
	}
	return wire.RevenueRow{
		Organization: r.Org.String(), OrganizationName: r.OrgName, Component: component, Sku: textOrNull(r.SKU), GpuModel: textOrNull(r.Model),
		Mode: textOrNull(r.Mode), Meter: textOrNull(r.Meter), Net: moneyOf(r.Net), Accrued: r.Accrued,
	}
}

// hoursOf writes microseconds as hours, to a millionth.
func hoursOf(micros int64) string {
	return big.NewRat(micros, time.Hour.Microseconds()).FloatString(6)
}

// GetUtilisationReport answers GET /v1/admin/finance/utilisation/{period}.
func (h *Handlers) GetUtilisationReport(ctx context.Context, req GetUtilisationReportRequestObject) (GetUtilisationReportResponseObject, error) {
	period, err := periodIn(req.Period)
	if err != nil {
		return nil, err
	}
	got, err := h.app.UtilisationReport(ctx, caller(ctx), period)
	if err != nil {
		return nil, err
	}
	return GetUtilisationReport200JSONResponse{Period: got.Period, Until: wire.At(got.Until), Rows: each(got.Rows, utilisationRowOf)}, nil
}

func utilisationRowOf(r app.UtilisationRow) wire.UtilisationRow {
	out := wire.UtilisationRow{
		GpuModel: r.Model, Mode: r.Mode, Host: textOrNull(""), HostName: textOrNull(r.HostName), Gpus: int32(r.GPUs),
		SoldGpuHours: hoursOf(r.Sold), SellableGpuHours: hoursOf(r.Sellable), IdleGpuHours: hoursOf(r.Idle),
		ObservedGpuHours: hoursOf(r.Observed), Estimated: r.Estimated, Revenue: each(r.Revenue, exactOf),
	}
	if !r.Host.IsZero() {
		out.Host = textOrNull(r.Host.String())
	}
	return out
}

// CreateGpuCost answers POST /v1/admin/finance/gpu-costs.
func (h *Handlers) CreateGpuCost(ctx context.Context, req CreateGpuCostRequestObject) (CreateGpuCostResponseObject, error) {
	currency, err := currencyOf(req.Body.Currency)
	if err != nil {
		return nil, err
	}
	price, err := money.ParsePrice(req.Body.PricePerHour, currency)
	if err != nil {
		return nil, invalid(codeInvalid, "The price cannot be kept.",
			fault.Field{Pointer: "/price_per_hour", Code: "format", Detail: "A decimal of at most 12 decimals."}).Because(err)
	}
	cost := store.GPUCost{Model: req.Body.GpuModel, PerHour: price, From: instantOf(req.Body.From)}
	var out CreateGpuCost204Response
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		return out.VisitCreateGpuCostResponse, h.app.SetGPUCost(ctx, caller(ctx), cost)
	})
	return either[CreateGpuCostResponseObject](out, again, err)
}
