package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// ListPayments answers GET /v1/organization/payments.
func (h *Handlers) ListPayments(ctx context.Context, req ListPaymentsRequestObject) (ListPaymentsResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	c := caller(ctx)
	l, err := h.app.ListPayments(ctx, c, c.Org, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, paymentOf)
	return ListPayments200JSONResponse{Items: items, NextPageToken: next}, err
}

// ListOrganizationPayments answers GET /v1/admin/organizations/{organization}/payments.
func (h *Handlers) ListOrganizationPayments(ctx context.Context, req ListOrganizationPaymentsRequestObject) (ListOrganizationPaymentsResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListPayments(ctx, caller(ctx), o, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, paymentOf)
	return ListOrganizationPayments200JSONResponse{Items: items, NextPageToken: next}, err
}

// SetPaymentMethod answers PUT /v1/organization/payment-method.
func (h *Handlers) SetPaymentMethod(ctx context.Context, req SetPaymentMethodRequestObject) (SetPaymentMethodResponseObject, error) {
	c, err := payer(ctx)
	if err != nil {
		return nil, err
	}
	if err := h.app.SetPaymentMethod(ctx, c, c.Org, req.Body.Method); err != nil {
		return nil, err
	}
	return SetPaymentMethod204Response{}, nil
}

// ReceivePaymentEvent answers POST /v1/webhooks/payments/{provider}. The signature is
// over the bytes as they came, so they are what is passed on.
func (h *Handlers) ReceivePaymentEvent(ctx context.Context, req ReceivePaymentEventRequestObject) (ReceivePaymentEventResponseObject, error) {
	c := callFrom(ctx)
	got, err := h.app.ReceiveProviderEvent(ctx, req.Provider, c.header, c.body)
	if err != nil {
		return nil, err
	}
	return ReceivePaymentEvent200JSONResponse{Received: true, Fresh: got.Fresh}, nil
}

func paymentOf(p store.Payment) wire.Payment {
	var fee money.Amount
	if p.Fee != nil {
		fee = *p.Fee
	}
	return wire.Payment{
		Id: p.ID.String(), Provider: p.Provider, Amount: moneyOf(p.Amount), Fee: moneyOrNull(fee), Allocated: moneyOf(p.Allocated),
		Refunded: moneyOf(p.Refunded), ChargedBack: moneyOf(p.ChargedBack), Unapplied: moneyOf(p.Free()),
		Payer: textOrNull(p.Payer), Reference: textOrNull(p.Reference), ReceivedAt: wire.At(p.ReceivedAt),
	}
}

func paymentAttemptOf(a store.Attempt) wire.PaymentAttempt {
	return wire.PaymentAttempt{
		Id: a.ID.String(), Number: int32(a.No), Provider: a.Provider, Amount: moneyOf(a.Amount), State: wire.PaymentAttemptState(a.State),
		Reason: textOrNull(a.Reason), Detail: textOrNull(a.Detail), ConfirmUrl: textOrNull(a.Action),
		CreatedAt: wire.At(a.CreatedAt), EndedAt: timeOrNull(a.EndedAt),
	}
}
