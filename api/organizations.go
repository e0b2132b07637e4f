package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreateOrganization answers POST /v1/admin/organizations.
func (h *Handlers) CreateOrganization(ctx context.Context, req CreateOrganizationRequestObject) (CreateOrganizationResponseObject, error) {
	currency, err := currencyOf(req.Body.Currency)
	if err != nil {
		return nil, err
	}
	in := app.NewOrganization{Name: req.Body.Name, Currency: currency}
	if q := req.Body.Quota; q != nil {
		in.Quota = quota.Limits{Instances: int(q.Instances), GPUs: int(q.Gpus)}
	}
	if l := req.Body.Limits; l != nil {
		in.Limits = &org.RateLimits{Read: int(l.Read), Write: int(l.Write), Launch: int(l.Launch)}
	}
	var out CreateOrganization201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.CreateOrganization(ctx, caller(ctx), in)
		if err != nil {
			return nil, err
		}
		location := "/v1/admin/organizations/" + made.ID.String()
		out = CreateOrganization201JSONResponse{
			Body: organizationOf(made), Headers: CreateOrganization201ResponseHeaders{Location: &location},
		}
		return out.VisitCreateOrganizationResponse, nil
	})
	return either[CreateOrganizationResponseObject](out, again, err)
}

// ListOrganizations answers GET /v1/admin/organizations.
func (h *Handlers) ListOrganizations(ctx context.Context, req ListOrganizationsRequestObject) (ListOrganizationsResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListOrganizations(ctx, caller(ctx), p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, organizationOf)
	return ListOrganizations200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetOrganization answers GET /v1/admin/organizations/{organization}.
func (h *Handlers) GetOrganization(ctx context.Context, req GetOrganizationRequestObject) (GetOrganizationResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	got, err := h.app.GetOrganization(ctx, caller(ctx), o)
	if err != nil {
		return nil, err
	}
	return GetOrganization200JSONResponse(organizationOf(got)), nil
}

func organizationOf(o org.Organization) wire.Organization {
	return wire.Organization{
		Id: o.ID.String(), Name: o.Name, Currency: o.Currency.Code(),
		Quota:     wire.Quota{Instances: int32(o.Quota.Instances), Gpus: int32(o.Quota.GPUs)},
		Limits:    wire.RateLimits{Read: int32(o.Limits.Read), Write: int32(o.Limits.Write), Launch: int32(o.Limits.Launch)},
		CreatedAt: wire.At(o.CreatedAt),
	}
}
