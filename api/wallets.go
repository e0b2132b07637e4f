package api

import (
	"context"

	"github.com/oapi-codegen/nullable"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// GetWallet answers GET /v1/organization/wallet.
func (h *Handlers) GetWallet(ctx context.Context, _ GetWalletRequestObject) (GetWalletResponseObject, error) {
	c := caller(ctx)
	got, err := h.app.GetWallet(ctx, c, c.Org)
	if err != nil {
		return nil, err
	}
	return GetWallet200JSONResponse(walletOf(got)), nil
}

// GetOrganizationWallet answers GET /v1/admin/organizations/{organization}/wallet.
func (h *Handlers) GetOrganizationWallet(ctx context.Context, req GetOrganizationWalletRequestObject) (GetOrganizationWalletResponseObject, error) {
	got, err := h.walletOfOrganization(ctx, req.Organization)
	if err != nil {
		return nil, err
	}
	return GetOrganizationWallet200JSONResponse(walletOf(got)), nil
}

func (h *Handlers) walletOfOrganization(ctx context.Context, text string) (app.Wallet, error) {
	o, err := h.organizationIn(ctx, text)
	if err != nil {
		return app.Wallet{}, err
	}
	return h.app.GetWallet(ctx, caller(ctx), o)
}

// organizationIn reads the organization of an operator's path and sees that there is
// one.
func (h *Handlers) organizationIn(ctx context.Context, text string) (id.Org, error) {
	o, err := parse[id.Org](text)
	if err != nil {
		return o, err
	}
	_, err = h.app.GetOrganization(ctx, caller(ctx), o)
	return o, err
}

// ListGrants answers GET /v1/organization/wallet/grants.
func (h *Handlers) ListGrants(ctx context.Context, req ListGrantsRequestObject) (ListGrantsResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	c := caller(ctx)
	l, err := h.app.ListGrants(ctx, c, c.Org, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, grantOf)
	return ListGrants200JSONResponse{Items: items, NextPageToken: next}, err
}

// ListOrganizationGrants answers GET /v1/admin/organizations/{organization}/grants.
func (h *Handlers) ListOrganizationGrants(ctx context.Context, req ListOrganizationGrantsRequestObject) (ListOrganizationGrantsResponseObject, error) {
	o, err := h.organizationIn(ctx, req.Organization)
	if err != nil {
		return nil, err
	}
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListGrants(ctx, caller(ctx), o, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, grantOf)
	return ListOrganizationGrants200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetAutoTopUp answers GET /v1/organization/wallet/auto-top-up.
func (h *Handlers) GetAutoTopUp(ctx context.Context, _ GetAutoTopUpRequestObject) (GetAutoTopUpResponseObject, error) {
	c := caller(ctx)
	got, err := h.app.GetWallet(ctx, c, c.Org)
	if err != nil {
		return nil, err
	}
	return GetAutoTopUp200JSONResponse{Order: autoTopUpOf(got.AutoTopUp)}, nil
}

// PutAutoTopUp answers PUT /v1/organization/wallet/auto-top-up.
func (h *Handlers) PutAutoTopUp(ctx context.Context, req PutAutoTopUpRequestObject) (PutAutoTopUpResponseObject, error) {
	c, err := payer(ctx)
	if err != nil {
		return nil, err
	}
	var order wallet.AutoTopUp
	if in, err := req.Body.Order.Get(); err == nil {
		if order, err = newAutoTopUp(in); err != nil {
			return nil, err
		}
	}
	if err := h.app.SetAutoTopUp(ctx, c, c.Org, order); err != nil {
		return nil, err
	}
	return PutAutoTopUp200JSONResponse{Order: autoTopUpOf(order)}, nil
}

func newAutoTopUp(in wire.AutoTopUpOrder) (out wallet.AutoTopUp, err error) {
	if out.Threshold, err = amountIn(in.Threshold, "/order/threshold"); err != nil {
		return out, err
	}
	if out.Amount, err = amountIn(in.Amount, "/order/amount"); err != nil {
		return out, err
	}
	out.MonthlyMax, err = amountIn(in.MonthlyMax, "/order/monthly_max")
	return out, err
}

func autoTopUpOf(o wallet.AutoTopUp) nullable.Nullable[wire.AutoTopUpOrder] {
	if o == (wallet.AutoTopUp{}) {
		return nullable.NewNullNullable[wire.AutoTopUpOrder]()
	}
	return nullable.NewNullableWithValue(wire.AutoTopUpOrder{
		Threshold: wire.MoneyInput(moneyOf(o.Threshold)), Amount: wire.MoneyInput(moneyOf(o.Amount)), MonthlyMax: wire.MoneyInput(moneyOf(o.MonthlyMax)),
	})
}

// CreateTopUp answers POST /v1/organization/wallet/top-ups.
func (h *Handlers) CreateTopUp(ctx context.Context, req CreateTopUpRequestObject) (CreateTopUpResponseObject, error) {
	c, err := payer(ctx)
	if err != nil {
		return nil, err
	}
	amount, err := amountIn(req.Body.Amount, "/amount")
	if err != nil {
		return nil, err
	}
	var out CreateTopUp202JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.OrderTopUp(ctx, c, c.Org, amount)
		if err != nil {
			return nil, err
		}
		location := "/v1/organization/wallet/top-ups/" + made.ID.String()
		out.Body, out.Headers.Location = paymentAttemptOf(made), &location
		return out.VisitCreateTopUpResponse, nil
	})
	return either[CreateTopUpResponseObject](out, again, err)
}

// GetTopUp answers GET /v1/organization/wallet/top-ups/{top_up}.
func (h *Handlers) GetTopUp(ctx context.Context, req GetTopUpRequestObject) (GetTopUpResponseObject, error) {
	which, err := parse[id.PaymentAttempt](req.TopUp)
	if err != nil {
		return nil, err
	}
	c := caller(ctx)
	got, err := h.app.GetTopUp(ctx, c, c.Org, which)
	if err != nil {
		return nil, err
	}
	return GetTopUp200JSONResponse(paymentAttemptOf(got)), nil
}

// RedeemCoupon answers POST /v1/organization/wallet/actions/redeem.
func (h *Handlers) RedeemCoupon(ctx context.Context, req RedeemCouponRequestObject) (RedeemCouponResponseObject, error) {
	c, err := payer(ctx)
	if err != nil {
		return nil, err
	}
	var out RedeemCoupon201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.RedeemCoupon(ctx, c, req.Body.Code)
		if err != nil {
			return nil, err
		}
		out.Body = grantOf(got)
		return out.VisitRedeemCouponResponse, nil
	})
	return either[RedeemCouponResponseObject](out, again, err)
}

// PutMoneyMode answers PUT /v1/admin/organizations/{organization}/money-mode.
func (h *Handlers) PutMoneyMode(ctx context.Context, req PutMoneyModeRequestObject) (PutMoneyModeResponseObject, error) {
	o, err := h.organizationIn(ctx, req.Organization)
	if err != nil {
		return nil, err
	}
	if err := h.app.SetMoneyMode(ctx, caller(ctx), o, wallet.Mode(req.Body.Mode)); err != nil {
		return nil, err
	}
	got, err := h.app.GetWallet(ctx, caller(ctx), o)
	if err != nil {
		return nil, err
	}
	return PutMoneyMode200JSONResponse(walletOf(got)), nil
}

// CreateGrant answers POST /v1/admin/organizations/{organization}/grants.
func (h *Handlers) CreateGrant(ctx context.Context, req CreateGrantRequestObject) (CreateGrantResponseObject, error) {
	o, err := h.organizationIn(ctx, req.Organization)
	if err != nil {
		return nil, err
	}
	amount, err := amountIn(req.Body.Amount, "/amount")
	if err != nil {
		return nil, err
	}
	in := app.NewGrant{Name: req.Body.Name, Amount: amount, Priority: int(value(req.Body.Priority)), Expires: instantOf(req.Body.ExpiresAt)}
	if s := req.Body.Scope; s != nil {
		in.Scope = billing.Scope{Meter: metering.Meter(value(s.Meter)), Family: value(s.Family)}
	}
	var out CreateGrant201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.CreateGrant(ctx, caller(ctx), o, in)
		if err != nil {
			return nil, err
		}
		out.Body = grantOf(made)
		return out.VisitCreateGrantResponse, nil
	})
	return either[CreateGrantResponseObject](out, again, err)
}

// CreatePrepayment answers POST /v1/admin/organizations/{organization}/prepayments.
func (h *Handlers) CreatePrepayment(ctx context.Context, req CreatePrepaymentRequestObject) (CreatePrepaymentResponseObject, error) {
	o, err := h.organizationIn(ctx, req.Organization)
	if err != nil {
		return nil, err
	}
	amount, err := amountIn(req.Body.Amount, "/amount")
	if err != nil {
		return nil, err
	}
	var out CreatePrepayment201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		if _, err := h.app.RecordPrepayment(ctx, caller(ctx), o, app.Prepayment{Reference: req.Body.Reference, Amount: amount}); err != nil {
			return nil, err
		}
		got, err := h.app.GetWallet(ctx, caller(ctx), o)
		if err != nil {
			return nil, err
		}
		out.Body = walletOf(got)
		return out.VisitCreatePrepaymentResponse, nil
	})
	return either[CreatePrepaymentResponseObject](out, again, err)
}

// CreateCoupon answers POST /v1/admin/coupons.
func (h *Handlers) CreateCoupon(ctx context.Context, req CreateCouponRequestObject) (CreateCouponResponseObject, error) {
	amount, err := amountIn(req.Body.Amount, "/amount")
	if err != nil {
		return nil, err
	}
	in := app.Coupon{
		Code: req.Body.Code, Name: req.Body.Name, Amount: amount, Priority: int(value(req.Body.Priority)),
		ValidUntil: instantOf(req.Body.ValidUntil), GrantDays: int(value(req.Body.GrantDays)), MaxUses: int(req.Body.MaxUses),
	}
	var out CreateCoupon201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		if err := h.app.CreateCoupon(ctx, caller(ctx), in); err != nil {
			return nil, err
		}
		out.Body = wire.Coupon{
			Code: in.Code, Name: in.Name, Amount: moneyOf(in.Amount), Priority: int32(in.Priority), ValidUntil: timeOrNull(&in.ValidUntil),
			GrantDays: int32(in.GrantDays), MaxUses: int32(in.MaxUses),
		}
		return out.VisitCreateCouponResponse, nil
	})
	return either[CreateCouponResponseObject](out, again, err)
}

func walletOf(w app.Wallet) wire.Wallet {
	return wire.Wallet{
		Mode: wire.MoneyMode(w.Mode), Prepaid: moneyOf(w.Prepaid), Promo: moneyOf(w.Promo), PromoHeld: moneyOf(w.PromoHeld),
		Spendable: exactOf(w.Spendable), Held: exactOf(w.Held), TaxRate: rateOf(w.TaxPPM), AutoTopUp: autoTopUpOf(w.AutoTopUp),
		TickedAt: timeOrNull(&w.TickedAt), ExhaustedAt: timeOrNull(&w.ExhaustedAt),
		Overruns: each(w.Overruns, func(o store.Overrun) wire.WalletOverrun {
			return wire.WalletOverrun{Period: o.Period, Excess: moneyOf(o.Excess), Outage: moneyOf(o.Outage)}
		}),
	}
}

func grantOf(g app.Grant) wire.Grant {
	return wire.Grant{
		Id: g.Grant.String(), Kind: wire.GrantKind(g.Kind), Name: g.Name, Priority: int32(g.Priority),
		Scope:  wire.GrantScope{Meter: orAbsent(wire.Meter(g.Scope.Meter)), Family: orAbsent(g.Scope.Family)},
		Amount: moneyOf(g.Amount), Remaining: moneyOf(g.Remaining), ExpiresAt: timeOrNull(&g.Expires), Lapsed: g.Lapsed,
		CreatedAt: wire.At(g.CreatedAt),
	}
}
