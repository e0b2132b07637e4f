package api

import (
	"context"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreateJoinToken answers POST /v1/admin/join-tokens.
func (h *Handlers) CreateJoinToken(ctx context.Context, req CreateJoinTokenRequestObject) (CreateJoinTokenResponseObject, error) {
	in := app.NewJoinToken{
		HostName: value(req.Body.HostName), Pool: value(req.Body.Pool), CIDR: value(req.Body.Cidr),
		TTL: time.Duration(value(req.Body.TtlS)) * time.Second, MaxHosts: int(value(req.Body.MaxHosts)),
		AutoApprove: value(req.Body.AutoApprove),
	}
	var out CreateJoinToken201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, secret, err := h.app.CreateJoinToken(ctx, caller(ctx), in)
		if err != nil {
			return nil, err
		}
		kept := CreateJoinToken201JSONResponse{Body: joinTokenOf(made)}
		out = kept
		out.Body.Secret = nullable.NewNullableWithValue(secret.Reveal())
		return kept.VisitCreateJoinTokenResponse, nil
	})
	return either[CreateJoinTokenResponseObject](out, again, err)
}

// ListJoinTokens answers GET /v1/admin/join-tokens.
func (h *Handlers) ListJoinTokens(ctx context.Context, req ListJoinTokensRequestObject) (ListJoinTokensResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListJoinTokens(ctx, caller(ctx), p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, joinTokenOf)
	return ListJoinTokens200JSONResponse{Items: items, NextPageToken: next}, err
}

// RevokeJoinToken answers DELETE /v1/admin/join-tokens/{join_token}.
func (h *Handlers) RevokeJoinToken(ctx context.Context, req RevokeJoinTokenRequestObject) (RevokeJoinTokenResponseObject, error) {
	token, err := parse[id.JoinToken](req.JoinToken)
	if err != nil {
		return nil, err
	}
	var out RevokeJoinToken204Response
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		if _, err := h.app.RevokeJoinToken(ctx, caller(ctx), token); err != nil {
			return nil, err
		}
		return out.VisitRevokeJoinTokenResponse, nil
	})
	return either[RevokeJoinTokenResponseObject](out, again, err)
}

func joinTokenOf(t app.JoinToken) wire.JoinToken {
	return wire.JoinToken{
		Id: t.ID.String(), HostName: textOrNull(t.HostName), Pool: t.Pool, Cidr: textOrNull(t.CIDR),
		MaxHosts: int32(t.MaxHosts), Used: int32(t.Used), AutoApprove: t.AutoApprove,
		Secret: nullable.NewNullNullable[string](), CreatedAt: wire.At(t.CreatedAt), ExpiresAt: wire.At(t.ExpiresAt),
		RevokedAt: timeOrNull(t.RevokedAt),
	}
}
