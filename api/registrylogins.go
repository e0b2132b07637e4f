package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreateRegistryLogin answers POST /v1/organization/registry-logins.
func (h *Handlers) CreateRegistryLogin(ctx context.Context, req CreateRegistryLoginRequestObject) (CreateRegistryLoginResponseObject, error) {
	in := app.NewRegistryLogin{
		Registry: req.Body.Registry, Username: req.Body.Username, Password: auth.NewSecret(req.Body.Password),
	}
	var out CreateRegistryLogin201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.CreateRegistryLogin(ctx, caller(ctx), in)
		if err != nil {
			return nil, err
		}
		out = CreateRegistryLogin201JSONResponse{Body: registryLoginOf(made)}
		return out.VisitCreateRegistryLoginResponse, nil
	})
	return either[CreateRegistryLoginResponseObject](out, again, err)
}

// ListRegistryLogins answers GET /v1/organization/registry-logins.
func (h *Handlers) ListRegistryLogins(ctx context.Context, req ListRegistryLoginsRequestObject) (ListRegistryLoginsResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListRegistryLogins(ctx, caller(ctx), p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, registryLoginOf)
	return ListRegistryLogins200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetRegistryLogin answers GET /v1/organization/registry-logins/{registry_login}.
func (h *Handlers) GetRegistryLogin(ctx context.Context, req GetRegistryLoginRequestObject) (GetRegistryLoginResponseObject, error) {
	which, err := parse[id.RegistryLogin](req.RegistryLogin)
	if err != nil {
		return nil, err
	}
	got, err := h.app.GetRegistryLogin(ctx, caller(ctx), which)
	if err != nil {
		return nil, err
	}
	return GetRegistryLogin200JSONResponse(registryLoginOf(got)), nil
}

// UpdateRegistryLogin answers PATCH /v1/organization/registry-logins/{registry_login}.
func (h *Handlers) UpdateRegistryLogin(ctx context.Context, req UpdateRegistryLoginRequestObject) (UpdateRegistryLoginResponseObject, error) {
	which, err := parse[id.RegistryLogin](req.RegistryLogin)
	if err != nil {
		return nil, err
	}
	password := auth.NewSecret(req.Body.Password)
	var out UpdateRegistryLogin200JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.UpdateRegistryLogin(ctx, caller(ctx), which, value(req.Body.Username), password)
		if err != nil {
			return nil, err
		}
		out = UpdateRegistryLogin200JSONResponse{Body: registryLoginOf(got)}
		return out.VisitUpdateRegistryLoginResponse, nil
	})
	return either[UpdateRegistryLoginResponseObject](out, again, err)
}

// DeleteRegistryLogin answers DELETE /v1/organization/registry-logins/{registry_login}.
func (h *Handlers) DeleteRegistryLogin(ctx context.Context, req DeleteRegistryLoginRequestObject) (DeleteRegistryLoginResponseObject, error) {
	which, err := parse[id.RegistryLogin](req.RegistryLogin)
	if err != nil {
		return nil, err
	}
	var out DeleteRegistryLogin204Response
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		if err := h.app.DeleteRegistryLogin(ctx, caller(ctx), which); err != nil {
			return nil, err
		}
		return out.VisitDeleteRegistryLoginResponse, nil
	})
	return either[DeleteRegistryLoginResponseObject](out, again, err)
}

func registryLoginOf(l app.RegistryLogin) wire.RegistryLogin {
	return wire.RegistryLogin{
		Id: l.ID.String(), Registry: l.Registry, Username: l.Username, CreatedAt: wire.At(l.CreatedAt), UpdatedAt: wire.At(l.UpdatedAt),
	}
}
