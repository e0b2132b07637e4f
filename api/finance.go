package api

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreateFinanceClose answers POST /v1/admin/finance/closes.
func (h *Handlers) CreateFinanceClose(ctx context.Context, req CreateFinanceCloseRequestObject) (CreateFinanceCloseResponseObject, error) {
	var out CreateFinanceClose201JSONResponse
	again, err := h.onceApart(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.CloseMonth(ctx, caller(ctx), req.Body.Period)
		if err != nil {
			return nil, err
		}
		location := "/v1/admin/finance/closes/" + got.Period
		out.Headers.Location = &location
		if out.Body, err = financeCloseOf(got); err != nil {
			return nil, err
		}
		return out.VisitCreateFinanceCloseResponse, nil
	})
	return either[CreateFinanceCloseResponseObject](out, again, err)
}

// GetFinanceClose answers GET /v1/admin/finance/closes/{period}.
func (h *Handlers) GetFinanceClose(ctx context.Context, req GetFinanceCloseRequestObject) (GetFinanceCloseResponseObject, error) {
	period, err := periodIn(req.Period)
	if err != nil {
		return nil, err
	}
	got, err := h.app.GetClose(ctx, caller(ctx), period)
	if err != nil {
		return nil, err
	}
	out, err := financeCloseOf(got)
	return GetFinanceClose200JSONResponse(out), err
}

// financeCloseOf shows a closed month with its report as it was stored.
func financeCloseOf(m app.MonthClose) (wire.FinanceClose, error) {
	out := wire.FinanceClose{
		Period: m.Period, ClosedBy: m.ClosedBy, ClosedAt: wire.At(m.ClosedAt), Sha256: hex.EncodeToString(m.SHA256[:]),
	}
	text, err := json.Marshal(m.Report)
	if err == nil {
		err = json.Unmarshal(text, &out.Report)
	}
	if err != nil {
		return out, fmt.Errorf("showing the report of %s: %w", m.Period, err)
	}
	return out, nil
}

// GetJournalCsv answers GET /v1/admin/finance/closes/{period}/journal.
func (h *Handlers) GetJournalCsv(ctx context.Context, req GetJournalCsvRequestObject) (GetJournalCsvResponseObject, error) {
	period, err := periodIn(req.Period)
	if err != nil {
		return nil, err
	}
	body, err := h.app.JournalCSV(ctx, caller(ctx), period)
	if err != nil {
		return nil, err
	}
	return &document{media: "text/csv; charset=utf-8", name: "journal-" + period + ".csv", body: body}, nil
}

func (d *document) VisitGetJournalCsvResponse(w http.ResponseWriter) error { return d.write(w) }

// ListLedgerAccounts answers GET /v1/admin/finance/accounts.
func (h *Handlers) ListLedgerAccounts(ctx context.Context, req ListLedgerAccountsRequestObject) (ListLedgerAccountsResponseObject, error) {
	var o id.Org
	if req.Params.Organization != nil {
		var err error
		if o, err = named[id.Org](*req.Params.Organization, "organization"); err != nil {
			return nil, err
		}
	}
	day, err := h.dayOr(ctx, req)
	if err != nil {
		return nil, err
	}
	got, err := h.app.LedgerAccounts(ctx, caller(ctx), o, day)
	if err != nil {
		return nil, err
	}
	return ListLedgerAccounts200JSONResponse{Items: each(got, func(a store.AccountBalance) wire.LedgerAccount {
		return wire.LedgerAccount{Account: string(a.Account), Balance: moneyOf(a.Balance)}
	})}, nil
}

// dayOr is the day of a request, today (business time) where it names none.
func (h *Handlers) dayOr(ctx context.Context, req ListLedgerAccountsRequestObject) (day time.Time, err error) {
	if req.Params.Day != nil {
		return req.Params.Day.Time, nil
	}
	err = h.app.Store.InSystem(ctx, "read the business clock", func(t *store.SystemTx) error {
		day, err = t.BusinessNow(ctx)
		return err
	})
	return day, err
}

// CheckInvoiceRun answers POST /v1/admin/invoice-runs/{period}/actions/check.
func (h *Handlers) CheckInvoiceRun(ctx context.Context, req CheckInvoiceRunRequestObject) (CheckInvoiceRunResponseObject, error) {
	period, err := periodIn(req.Period)
	if err != nil {
		return nil, err
	}
	var out CheckInvoiceRun200JSONResponse
	again, err := h.onceApart(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.ReratePeriod(ctx, caller(ctx), period)
		if err != nil {
			return nil, err
		}
		out.Body = wire.RerateReport{
			Period: got.Period, Documents: int32(got.Documents),
			Different: each(got.Different, func(d app.RerateProblem) wire.RerateProblem {
				return wire.RerateProblem{Organization: d.Org.String(), Invoice: d.ID.String(), Detail: d.Detail}
			}),
		}
		return out.VisitCheckInvoiceRunResponse, nil
	})
	return either[CheckInvoiceRunResponseObject](out, again, err)
}

// ListDiscrepancies answers GET /v1/admin/discrepancies.
func (h *Handlers) ListDiscrepancies(ctx context.Context, req ListDiscrepanciesRequestObject) (ListDiscrepanciesResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	f := app.DiscrepancyFilter{Status: string(value(req.Params.Status))}
	if req.Params.Organization != nil {
		if f.Org, err = named[id.Org](*req.Params.Organization, "organization"); err != nil {
			return nil, err
		}
	}
	l, err := h.app.Discrepancies(ctx, caller(ctx), f, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, discrepancyOf)
	return ListDiscrepancies200JSONResponse{Items: items, NextPageToken: next}, err
}

// ResolveDiscrepancy answers POST /v1/admin/discrepancies/{discrepancy}/actions/resolve.
func (h *Handlers) ResolveDiscrepancy(ctx context.Context, req ResolveDiscrepancyRequestObject) (ResolveDiscrepancyResponseObject, error) {
	which, err := parse[id.Discrepancy](req.Discrepancy)
	if err != nil {
		return nil, err
	}
	var out ResolveDiscrepancy204Response
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		if err := h.app.ResolveDiscrepancy(ctx, caller(ctx), which, string(req.Body.Verdict), req.Body.Reason); err != nil {
			return nil, err
		}
		return out.VisitResolveDiscrepancyResponse, nil
	})
	return either[ResolveDiscrepancyResponseObject](out, again, err)
}

func discrepancyOf(d store.Discrepancy) wire.Discrepancy {
	var verdict *wire.DiscrepancyVerdict
	if d.Verdict != "" {
		v := wire.DiscrepancyVerdict(d.Verdict)
		verdict = &v
	}
	return wire.Discrepancy{
		Id: d.ID.String(), Organization: d.Org.String(), Instance: d.Instance.String(), Name: d.Name, Meter: string(d.Meter), Run: int32(d.Run),
		Period: d.Period, From: wire.At(d.During.From), To: wire.At(d.During.To), Status: wire.DiscrepancyStatus(d.Status), Verdict: orNull(verdict),
		Reason: textOrNull(d.Reason), ResolvedBy: textOrNull(d.ResolvedBy), OpenedAt: wire.At(d.OpenedAt), ResolvedAt: timeOrNull(d.ResolvedAt),
	}
}
