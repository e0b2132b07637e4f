package api

import (
	"context"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreateApiKey answers POST /v1/organization/api-keys.
func (h *Handlers) CreateApiKey(ctx context.Context, req CreateApiKeyRequestObject) (CreateApiKeyResponseObject, error) {
	var out CreateApiKey201JSONResponse
	again, err := h.createKey(ctx, caller(ctx).Org, req.Body, func(key wire.ApiKey) visit {
		out = CreateApiKey201JSONResponse{Body: key}
		return out.VisitCreateApiKeyResponse
	})
	return either[CreateApiKeyResponseObject](out, again, err)
}

// CreateOrganizationApiKey answers POST /v1/admin/organizations/{organization}/api-keys.
func (h *Handlers) CreateOrganizationApiKey(ctx context.Context, req CreateOrganizationApiKeyRequestObject) (CreateOrganizationApiKeyResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	var out CreateOrganizationApiKey201JSONResponse
	again, err := h.createKey(ctx, o, req.Body, func(key wire.ApiKey) visit {
		out = CreateOrganizationApiKey201JSONResponse{Body: key}
		return out.VisitCreateOrganizationApiKeyResponse
	})
	return either[CreateOrganizationApiKeyResponseObject](out, again, err)
}

// createKey makes a key. Answer is called twice: with the key as it is stored for
// repetitions, without its secret, and last with the secret.
func (h *Handlers) createKey(ctx context.Context, o id.Org, body *wire.ApiKeyCreate, answer func(wire.ApiKey) visit) (*repeated, error) {
	in, err := newKey(body)
	if err != nil {
		return nil, err
	}
	var shown wire.ApiKey
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.CreateAPIKey(ctx, caller(ctx), o, in)
		if err != nil {
			return nil, err
		}
		kept := apiKeyOf(made.APIKey)
		shown = kept
		shown.Secret = nullable.NewNullableWithValue(made.Secret.Reveal())
		return answer(kept), nil
	})
	if err == nil && again == nil {
		answer(shown)
	}
	return again, err
}

func newKey(body *wire.ApiKeyCreate) (app.NewKey, error) {
	in := app.NewKey{Name: body.Name}
	for _, s := range value(body.Scopes) {
		in.Scopes = append(in.Scopes, auth.Scope(s))
	}
	if body.ExpiresAt != nil {
		at := body.ExpiresAt.Time.UTC().Truncate(time.Microsecond)
		in.ExpiresAt = &at
	}
	if body.Project != nil {
		project, err := id.Parse[id.Project](*body.Project)
		if err != nil {
			return in, invalid(codeInvalid, "The project is no project id.",
				fault.Field{Pointer: "/project", Code: "format", Detail: "The value must be a project id."})
		}
		in.Project = project
	}
	return in, nil
}

// ListApiKeys answers GET /v1/organization/api-keys.
func (h *Handlers) ListApiKeys(ctx context.Context, req ListApiKeysRequestObject) (ListApiKeysResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListAPIKeys(ctx, caller(ctx), p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, apiKeyOf)
	return ListApiKeys200JSONResponse{Items: items, NextPageToken: next}, err
}

// RevokeApiKey answers DELETE /v1/organization/api-keys/{api_key}.
func (h *Handlers) RevokeApiKey(ctx context.Context, req RevokeApiKeyRequestObject) (RevokeApiKeyResponseObject, error) {
	key, err := parse[id.Key](req.ApiKey)
	if err != nil {
		return nil, err
	}
	var out RevokeApiKey204Response
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		if err := h.app.RevokeAPIKey(ctx, caller(ctx), key); err != nil {
			return nil, err
		}
		return out.VisitRevokeApiKeyResponse, nil
	})
	return either[RevokeApiKeyResponseObject](out, again, err)
}

func apiKeyOf(k org.APIKey) wire.ApiKey {
	return wire.ApiKey{
		Id: k.ID.String(), Name: k.Name, Scopes: texts(k.Scopes), Project: textOrNull(k.Project.String()),
		Secret: nullable.NewNullNullable[string](), CreatedAt: wire.At(k.CreatedAt),
		ExpiresAt: timeOrNull(k.ExpiresAt), LastUsedAt: timeOrNull(k.LastUsedAt), RevokedAt: timeOrNull(k.RevokedAt),
	}
}
