package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreateToken answers POST /v1/auth/token.
func (h *Handlers) CreateToken(ctx context.Context, _ CreateTokenRequestObject) (CreateTokenResponseObject, error) {
	token, life, err := h.app.IssueToken(ctx, caller(ctx))
	if err != nil {
		return nil, err
	}
	return CreateToken200JSONResponse{
		AccessToken: token.Reveal(), TokenType: wire.AccessTokenTokenTypeBearer, ExpiresIn: int32(life.Seconds()),
	}, nil
}

// GetJwks answers GET /.well-known/jwks.json.
func (h *Handlers) GetJwks(context.Context, GetJwksRequestObject) (GetJwksResponseObject, error) {
	return GetJwks200JSONResponse(h.keys), nil
}

// Whoami answers GET /v1/whoami.
func (h *Handlers) Whoami(ctx context.Context, _ WhoamiRequestObject) (WhoamiResponseObject, error) {
	who, err := h.app.Whoami(ctx, caller(ctx))
	if err != nil {
		return nil, err
	}
	kind := wire.PrincipalKindOrganization
	if who.Principal.Kind == auth.Operator {
		kind = wire.PrincipalKindOperator
	}
	project, _ := who.Principal.SoleProject()
	return Whoami200JSONResponse{
		Kind: kind, Organization: textOrNull(who.Principal.Org.String()), OrganizationName: textOrNull(who.OrgName),
		Project: textOrNull(project.String()), Key: who.Principal.Key.String(), KeyName: who.KeyName,
		Scopes: texts(who.Principal.Scopes), ExpiresAt: timeOrNull(who.ExpiresAt),
	}, nil
}
