package api

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreateInvoiceRun answers POST /v1/admin/invoice-runs.
func (h *Handlers) CreateInvoiceRun(ctx context.Context, req CreateInvoiceRunRequestObject) (CreateInvoiceRunResponseObject, error) {
	done, err := h.alone(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
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
	return either[CreateInvoiceRunResponseObject](out, again, err)
}

// runWait bounds the wait for another invoice run of this process.
const runWait = 2 * time.Second

// alone waits until no other invoice run is at work here. A run holds a connection for
// its key while it takes others for its invoices: as many runs as the pool has
// connections would wait for each other. It fails with state.conflict.
func (h *Handlers) alone(ctx context.Context) (done func(), err error) {
	timer := h.app.Clock.NewTimer(runWait)
	defer timer.Stop()
	select {
	case h.runs <- struct{}{}:
		return func() { <-h.runs }, nil
	case <-timer.C():
		return nil, fault.New(fault.Conflict, "state.conflict", "Another invoice run is at work.").
			Suggest("Send the same request again in a moment.").After(runWait)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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
