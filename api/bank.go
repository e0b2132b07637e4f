package api

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// ImportStatement answers POST /v1/admin/bank-statements.
func (h *Handlers) ImportStatement(ctx context.Context, req ImportStatementRequestObject) (ImportStatementResponseObject, error) {
	var out ImportStatement201JSONResponse
	again, err := h.onceApart(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.ImportStatement(ctx, caller(ctx), req.Body.Account, []byte(req.Body.Csv))
		if err != nil {
			return nil, err
		}
		out.Body = wire.StatementImport{
			Lines: int32(got.Lines), New: int32(got.New), Matched: int32(got.Matched), Debits: int32(got.Debits),
		}
		return out.VisitImportStatementResponse, nil
	})
	return either[ImportStatementResponseObject](out, again, err)
}

// ListStatementLines answers GET /v1/admin/statement-lines.
func (h *Handlers) ListStatementLines(ctx context.Context, req ListStatementLinesRequestObject) (ListStatementLinesResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListStatementLines(ctx, caller(ctx), string(value(req.Params.State)), p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, statementLineOf)
	return ListStatementLines200JSONResponse{Items: items, NextPageToken: next}, err
}

// MatchStatementLine answers POST …/statement-lines/{statement_line}/actions/match.
func (h *Handlers) MatchStatementLine(ctx context.Context, req MatchStatementLineRequestObject) (MatchStatementLineResponseObject, error) {
	which, err := parse[id.StatementLine](req.StatementLine)
	if err != nil {
		return nil, err
	}
	o, err := named[id.Org](req.Body.Organization, "/organization")
	if err != nil {
		return nil, err
	}
	parts, err := newAllocations(value(req.Body.Parts))
	if err != nil {
		return nil, err
	}
	var out MatchStatementLine200JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.MatchStatementLine(ctx, caller(ctx), which, o, parts)
		if err != nil {
			return nil, err
		}
		out.Body = statementLineOf(got)
		return out.VisitMatchStatementLineResponse, nil
	})
	return either[MatchStatementLineResponseObject](out, again, err)
}

func newAllocations(parts []wire.StatementPart) (out []payment.Allocation, err error) {
	for i, p := range parts {
		a := payment.Allocation{}
		if a.Invoice, err = named[id.Invoice](p.Invoice, fmt.Sprintf("/parts/%d/invoice", i)); err != nil {
			return nil, err
		}
		if a.Amount, err = amountIn(p.Amount, fmt.Sprintf("/parts/%d/amount", i)); err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// ReturnStatementLine answers POST …/statement-lines/{statement_line}/actions/return.
func (h *Handlers) ReturnStatementLine(ctx context.Context, req ReturnStatementLineRequestObject) (ReturnStatementLineResponseObject, error) {
	which, err := parse[id.StatementLine](req.StatementLine)
	if err != nil {
		return nil, err
	}
	var out ReturnStatementLine200JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.ReturnStatementLine(ctx, caller(ctx), which, req.Body.Reason)
		if err != nil {
			return nil, err
		}
		out.Body = statementLineOf(got)
		return out.VisitReturnStatementLineResponse, nil
	})
	return either[ReturnStatementLineResponseObject](out, again, err)
}

func statementLineOf(l store.StatementLine) wire.StatementLine {
	return wire.StatementLine{
		Id: l.ID.String(), Account: l.Account, BankId: l.BankID, BookedOn: l.BookedOn.Format("2006-01-02"), Amount: moneyOf(l.Amount),
		Reference: l.Reference, Payer: l.Payer, State: wire.StatementLineState(l.State), Why: l.Why, Organization: textOrNull(l.Org.String()),
		Payment: textOrNull(l.Payment.String()), DecidedBy: textOrNull(l.DecidedBy), DecidedAt: timeOrNull(&l.DecidedAt),
	}
}
