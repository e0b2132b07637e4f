package api

import (
	"context"
	"time"

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
	return either[CreateInvoiceRunResponseObject](out, again, err)
}

// runPoll is how often a waiting request looks at its run.
const runPoll = 250 * time.Millisecond

// GetInvoiceRun answers GET /v1/admin/invoice-runs/{period}.
func (h *Handlers) GetInvoiceRun(ctx context.Context, req GetInvoiceRunRequestObject) (GetInvoiceRunResponseObject, error) {
	period, err := periodIn(req.Period)
	if err != nil {
		return nil, err
	}
	var wait time.Duration
	if req.Params.Wait != nil {
		if wait, err = waitOf("wait", *req.Params.Wait); err != nil {
			return nil, err
		}
	}
	until := h.app.Clock.Now().Add(wait)
	for {
		run, err := h.app.GetInvoiceRun(ctx, caller(ctx), period)
		if err != nil {
			return nil, err
		}
		if run.Status != string(wire.InvoiceRunStatusRunning) || !h.app.Clock.Now().Before(until) {
			return GetInvoiceRun200JSONResponse(invoiceRunOf(run)), nil
		}
		timer := h.app.Clock.NewTimer(runPoll)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

func invoiceRunOf(r store.InvoiceRun) wire.InvoiceRun {
	out := wire.InvoiceRun{
		Period: r.Period, Status: wire.InvoiceRunStatus(r.Status), Progress: wire.InvoiceRunProgress{
			Pending: int32(r.Progress.Pending), Done: int32(r.Progress.Done), Failed: int32(r.Progress.Failed),
		}, Invoices: make([]wire.InvoiceRunItem, len(r.Invoices)),
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
