package api

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// ListOrganizationInvoices answers GET /v1/admin/organizations/{organization}/invoices.
func (h *Handlers) ListOrganizationInvoices(ctx context.Context, req ListOrganizationInvoicesRequestObject) (ListOrganizationInvoicesResponseObject, error) {
	o, err := h.organizationIn(ctx, req.Organization)
	if err != nil {
		return nil, err
	}
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	f := app.InvoiceFilter{
		Kind: billing.Kind(value(req.Params.Kind)), Label: string(value(req.Params.Status)), Period: value(req.Params.Period),
	}
	l, err := h.app.ListInvoices(ctx, inside(ctx, o), f, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, invoiceSummaryOf)
	return ListOrganizationInvoices200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetOrganizationInvoice answers GET …/organizations/{organization}/invoices/{invoice}.
func (h *Handlers) GetOrganizationInvoice(ctx context.Context, req GetOrganizationInvoiceRequestObject) (GetOrganizationInvoiceResponseObject, error) {
	o, which, err := parse2[id.Org, id.Invoice](req.Organization, req.Invoice)
	if err != nil {
		return nil, err
	}
	got, err := h.app.GetInvoice(ctx, inside(ctx, o), which)
	if err != nil {
		return nil, err
	}
	return GetOrganizationInvoice200JSONResponse(invoiceOf(got)), nil
}

// CreateCreditNote answers POST …/invoices/{invoice}/credit-notes.
func (h *Handlers) CreateCreditNote(ctx context.Context, req CreateCreditNoteRequestObject) (CreateCreditNoteResponseObject, error) {
	o, which, err := parse2[id.Org, id.Invoice](req.Organization, req.Invoice)
	if err != nil {
		return nil, err
	}
	in, err := newCredit(*req.Body)
	if err != nil {
		return nil, err
	}
	var out CreateCreditNote201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		note, err := h.app.CreateCreditNote(ctx, caller(ctx), o, which, in)
		if err != nil {
			return nil, err
		}
		if note, err = h.app.GetInvoice(ctx, inside(ctx, o), note.ID); err != nil {
			return nil, err
		}
		out.Body = invoiceOf(note)
		return out.VisitCreateCreditNoteResponse, nil
	})
	return either[CreateCreditNoteResponseObject](out, again, err)
}

func newCredit(b wire.CreditNoteCreate) (in app.CreditRequest, err error) {
	in = app.CreditRequest{Reason: b.Reason, Refund: billing.Refund(value(b.Refund))}
	if in.Net, err = amountOr(b.Net, "/net"); err != nil {
		return in, err
	}
	for i, l := range value(b.Lines) {
		net, err := amountOr(l.Net, fmt.Sprintf("/lines/%d/net", i))
		if err != nil {
			return in, err
		}
		in.Lines = append(in.Lines, billing.LineCredit{No: int(l.Line), Net: net})
	}
	return in, nil
}

// amountOr reads an amount that may be left out.
func amountOr(m *wire.MoneyInput, pointer string) (*money.Amount, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // nothing was said, and nothing is wrong
	}
	a, err := amountIn(*m, pointer)
	return &a, err
}

// CancelInvoice answers POST …/invoices/{invoice}/actions/cancel.
func (h *Handlers) CancelInvoice(ctx context.Context, req CancelInvoiceRequestObject) (CancelInvoiceResponseObject, error) {
	o, which, err := parse2[id.Org, id.Invoice](req.Organization, req.Invoice)
	if err != nil {
		return nil, err
	}
	in := app.Cancellation{Reason: req.Body.Reason, Refund: billing.Refund(value(req.Body.Refund))}
	var out CancelInvoice200JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		note, err := h.app.CancelInvoice(ctx, caller(ctx), o, which, in)
		if err != nil {
			return nil, err
		}
		got, err := h.app.GetInvoice(ctx, inside(ctx, o), which)
		if err != nil {
			return nil, err
		}
		out.Body = wire.InvoiceCancelled{Invoice: invoiceOf(got), CreditNote: textOrNull(note.ID.String())}
		return out.VisitCancelInvoiceResponse, nil
	})
	return either[CancelInvoiceResponseObject](out, again, err)
}

// ReissueInvoice answers POST …/invoices/{invoice}/actions/reissue.
func (h *Handlers) ReissueInvoice(ctx context.Context, req ReissueInvoiceRequestObject) (ReissueInvoiceResponseObject, error) {
	o, which, err := parse2[id.Org, id.Invoice](req.Organization, req.Invoice)
	if err != nil {
		return nil, err
	}
	in := app.Cancellation{Reason: req.Body.Reason, Refund: billing.Refund(value(req.Body.Refund))}
	var out ReissueInvoice200JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		note, next, err := h.app.ReissueInvoice(ctx, caller(ctx), o, which, in)
		if err != nil {
			return nil, err
		}
		got, err := h.app.GetInvoice(ctx, inside(ctx, o), next.ID)
		if err != nil {
			return nil, err
		}
		out.Body = wire.InvoiceReissued{Invoice: invoiceOf(got), CreditNote: textOrNull(note.ID.String())}
		return out.VisitReissueInvoiceResponse, nil
	})
	return either[ReissueInvoiceResponseObject](out, again, err)
}

// CreateWriteOff answers POST …/invoices/{invoice}/write-offs.
func (h *Handlers) CreateWriteOff(ctx context.Context, req CreateWriteOffRequestObject) (CreateWriteOffResponseObject, error) {
	o, which, err := parse2[id.Org, id.Invoice](req.Organization, req.Invoice)
	if err != nil {
		return nil, err
	}
	amount, err := amountOr(req.Body.Amount, "/amount")
	if err != nil {
		return nil, err
	}
	var out CreateWriteOff201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		if _, err := h.app.WriteOffInvoice(ctx, caller(ctx), o, which, app.WriteOffOrder{Amount: amount, Reason: req.Body.Reason}); err != nil {
			return nil, err
		}
		got, err := h.app.GetInvoice(ctx, inside(ctx, o), which)
		if err != nil {
			return nil, err
		}
		out.Body = invoiceOf(got)
		return out.VisitCreateWriteOffResponse, nil
	})
	return either[CreateWriteOffResponseObject](out, again, err)
}

// CreateRefund answers POST …/payments/{payment}/refunds.
func (h *Handlers) CreateRefund(ctx context.Context, req CreateRefundRequestObject) (CreateRefundResponseObject, error) {
	o, which, err := parse2[id.Org, id.Payment](req.Organization, req.Payment)
	if err != nil {
		return nil, err
	}
	amount, err := amountOr(req.Body.Amount, "/amount")
	if err != nil {
		return nil, err
	}
	in := app.RefundOrder{Amount: amount, Reason: req.Body.Reason, Reopen: value(req.Body.Reopen)}
	var out CreateRefund201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.RefundPayment(ctx, caller(ctx), o, which, in)
		if err != nil {
			return nil, err
		}
		out.Body = paymentOf(got)
		return out.VisitCreateRefundResponse, nil
	})
	return either[CreateRefundResponseObject](out, again, err)
}
