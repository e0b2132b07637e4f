package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreateInvoiceRun answers POST /v1/admin/invoice-runs.
func (h *Handlers) CreateInvoiceRun(ctx context.Context, req CreateInvoiceRunRequestObject) (CreateInvoiceRunResponseObject, error) {
	var out CreateInvoiceRun202JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		run, err := h.app.CreateInvoiceRun(ctx, caller(ctx), req.Body.Period)
		if err != nil {
			return nil, err
		}
		location := "/v1/admin/invoice-runs/" + run.Period
		out = CreateInvoiceRun202JSONResponse{
			Body: invoiceRunOf(run), Headers: CreateInvoiceRun202ResponseHeaders{Location: &location},
		}
		return out.VisitCreateInvoiceRunResponse, nil
	})
	if err != nil {
		return nil, err
	}
	if again != nil {
		return again, nil
	}
	return out, nil
}

// GetInvoiceRun answers GET /v1/admin/invoice-runs/{period}.
func (h *Handlers) GetInvoiceRun(ctx context.Context, req GetInvoiceRunRequestObject) (GetInvoiceRunResponseObject, error) {
	if _, err := metering.ParsePeriod(req.Period); err != nil {
		return nil, auth.NotFound()
	}
	run, err := h.app.GetInvoiceRun(ctx, caller(ctx), req.Period)
	if err != nil {
		return nil, err
	}
	return GetInvoiceRun200JSONResponse(invoiceRunOf(run)), nil
}

func invoiceRunOf(r store.InvoiceRun) wire.InvoiceRun {
	out := wire.InvoiceRun{
		Period: r.Period, Status: wire.InvoiceRunStatus(r.Status), Invoices: make([]wire.InvoiceRunItem, len(r.Invoices)),
		CreatedAt: wire.At(r.CreatedAt), FinishedAt: timeOrNull(&r.FinishedAt),
	}
	var problem *wire.Reason
	if r.Problem != nil {
		problem = &wire.Reason{Code: r.Problem.Code, Detail: r.Problem.Detail}
	}
	out.Problem = orNull(problem)
	for i, v := range r.Invoices {
		out.Invoices[i] = wire.InvoiceRunItem{
			Organization: v.Org.String(), Invoice: v.ID.String(), Number: v.Number, Total: moneyOf(v.Total),
		}
	}
	return out
}
