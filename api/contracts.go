package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// ListContracts answers GET /v1/organization/contracts.
func (h *Handlers) ListContracts(ctx context.Context, req ListContractsRequestObject) (ListContractsResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	c := caller(ctx)
	l, err := h.app.ListContracts(ctx, c, c.Org, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, contractOf)
	return ListContracts200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetContract answers GET /v1/organization/contracts/{contract}.
func (h *Handlers) GetContract(ctx context.Context, req GetContractRequestObject) (GetContractResponseObject, error) {
	which, err := parse[id.Contract](req.Contract)
	if err != nil {
		return nil, err
	}
	c := caller(ctx)
	got, err := h.app.GetContract(ctx, c, c.Org, which)
	if err != nil {
		return nil, err
	}
	return GetContract200JSONResponse(contractOf(got)), nil
}

// CreateContract answers POST /v1/admin/organizations/{organization}/contracts.
func (h *Handlers) CreateContract(ctx context.Context, req CreateContractRequestObject) (CreateContractResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	in := app.NewContract{
		Name: req.Body.Name, Currency: value(req.Body.Currency), From: instantOf(req.Body.From), To: instantOf(req.Body.To),
		ContractTerms: newTerms(*req.Body),
	}
	var out CreateContract201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.CreateContract(ctx, caller(ctx), o, in)
		if err != nil {
			return nil, err
		}
		location := "/v1/admin/organizations/" + o.String() + "/contracts/" + made.ID.String()
		out.Body, out.Headers.Location = contractOf(made), &location
		return out.VisitCreateContractResponse, nil
	})
	return either[CreateContractResponseObject](out, again, err)
}

// ListOrganizationContracts answers GET /v1/admin/organizations/{organization}/contracts.
func (h *Handlers) ListOrganizationContracts(ctx context.Context, req ListOrganizationContractsRequestObject) (ListOrganizationContractsResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListContracts(ctx, caller(ctx), o, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, contractOf)
	return ListOrganizationContracts200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetOrganizationContract answers GET …/contracts/{contract}.
func (h *Handlers) GetOrganizationContract(ctx context.Context, req GetOrganizationContractRequestObject) (GetOrganizationContractResponseObject, error) {
	o, which, err := parse2[id.Org, id.Contract](req.Organization, req.Contract)
	if err != nil {
		return nil, err
	}
	got, err := h.app.GetContract(ctx, caller(ctx), o, which)
	if err != nil {
		return nil, err
	}
	return GetOrganizationContract200JSONResponse(contractOf(got)), nil
}

// EndContract answers POST …/contracts/{contract}/actions/end.
func (h *Handlers) EndContract(ctx context.Context, req EndContractRequestObject) (EndContractResponseObject, error) {
	o, which, err := parse2[id.Org, id.Contract](req.Organization, req.Contract)
	if err != nil {
		return nil, err
	}
	var out EndContract200JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.EndContract(ctx, caller(ctx), o, which, instantOf(req.Body.At))
		if err != nil {
			return nil, err
		}
		out.Body = contractOf(got)
		return out.VisitEndContractResponse, nil
	})
	return either[EndContractResponseObject](out, again, err)
}

func newTerms(in wire.ContractCreate) app.ContractTerms {
	return app.ContractTerms{
		Prices: newOfferPrices(value(in.Prices)),
		Discounts: each(value(in.Discounts), func(d wire.ContractDiscount) app.ContractDiscount {
			return app.ContractDiscount{Name: d.Name, Scope: termScope(d.Scope), Percent: d.Percent}
		}),
		FreeQuotas: each(value(in.FreeQuotas), func(q wire.ContractQuota) app.ContractQuota {
			return app.ContractQuota{Name: q.Name, Scope: termScope(q.Scope), Quantity: q.Quantity}
		}),
		Minimums: each(value(in.Minimums), func(m wire.ContractMinimum) app.ContractMinimum {
			return app.ContractMinimum{Scope: termScope(m.Scope), Seconds: int64(m.Seconds)}
		}),
		Caps: each(value(in.Caps), func(c wire.ContractCap) app.ContractCap {
			return app.ContractCap{Scope: termScope(c.Scope), Hours: int64(value(c.Hours)), Amount: value(c.Amount)}
		}),
		Commitments:    each(value(in.Commitments), newContractAmount),
		FixedDiscounts: each(value(in.FixedDiscounts), newContractAmount),
	}
}

func newContractAmount(a wire.ContractAmount) app.ContractAmount {
	return app.ContractAmount{Name: a.Name, Scope: termScope(a.Scope), Amount: a.Amount}
}

func termScope(s *wire.TermScope) app.TermScope {
	if s == nil {
		return app.TermScope{}
	}
	return app.TermScope{Meter: metering.Meter(value(s.Meter)), Family: value(s.Family), Offer: value(s.Offer)}
}

func contractOf(c app.Contract) wire.Contract {
	return wire.Contract{
		Id: c.ID.String(), Organization: c.Org.String(), Name: c.Name, Currency: c.Currency.Code(),
		From: wire.At(c.During.From), To: endOf(c.During), Prices: offerPricesOf(c.Prices),
		Discounts: each(c.Discounts, func(d app.ContractDiscount) wire.ContractDiscount {
			return wire.ContractDiscount{Name: d.Name, Scope: termScopeOf(d.Scope), Percent: d.Percent}
		}),
		FreeQuotas: each(c.FreeQuotas, func(q app.ContractQuota) wire.ContractQuota {
			return wire.ContractQuota{Name: q.Name, Scope: termScopeOf(q.Scope), Quantity: q.Quantity}
		}),
		Minimums: each(c.Minimums, func(m app.ContractMinimum) wire.ContractMinimum {
			return wire.ContractMinimum{Scope: termScopeOf(m.Scope), Seconds: int32(m.Seconds)}
		}),
		Caps: each(c.Caps, func(x app.ContractCap) wire.ContractCap {
			return wire.ContractCap{Scope: termScopeOf(x.Scope), Hours: orAbsent(int32(x.Hours)), Amount: orAbsent(x.Amount)}
		}),
		Commitments: each(c.Commitments, contractAmountOf), FixedDiscounts: each(c.FixedDiscounts, contractAmountOf),
		CreatedAt: wire.At(c.CreatedAt), CreatedBy: c.CreatedBy, CancelledAt: timeOrNull(c.CancelledAt), EndedBy: textOrNull(c.EndedBy),
	}
}

func contractAmountOf(a app.ContractAmount) wire.ContractAmount {
	return wire.ContractAmount{Name: a.Name, Scope: termScopeOf(a.Scope), Amount: a.Amount}
}

func termScopeOf(s app.TermScope) *wire.TermScope {
	return &wire.TermScope{Meter: orAbsent(wire.Meter(s.Meter)), Family: orAbsent(s.Family), Offer: orAbsent(s.Offer)}
}
