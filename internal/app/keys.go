package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/internal/store"
)

// NewKey asks for an API key. Nil Scopes are the creator's; all of an
// organization's when an operator creates it. ExpiresAt is machine time.
type NewKey struct {
	Name      string
	Scopes    []auth.Scope
	Project   id.Project // zero: all of the organization
	ExpiresAt *time.Time
}

// MintedKey is a fresh key with its text, which nobody can read again.
type MintedKey struct {
	org.APIKey
	Secret auth.Secret
}

// CreateAPIKey makes a key of an organization: the caller's own, or any for an
// operator. It fails with auth.forbidden when the key would have more rights than
// its creator and with resource.not_found for a foreign project.
func (a *App) CreateAPIKey(ctx context.Context, c Caller, o id.Org, in NewKey) (MintedKey, error) {
	scopes, err := a.grant(c, in)
	if err != nil {
		return MintedKey{}, err
	}
	realm := auth.KeyLive
	if a.Dev {
		realm = auth.KeyTest
	}
	key := auth.MintKey(realm)
	row := org.APIKey{
		ID: key.ID, Org: o, Name: in.Name, Scopes: scopes, Project: in.Project,
		CreatedBy: c.actor(), ExpiresAt: in.ExpiresAt,
	}
	err = a.inOrgOf(ctx, c, o, "create an api key", func(t orgRows) error {
		// Read first: an operator sees every organization, so the row decides.
		if _, err := t.Organization(ctx, o); err != nil {
			return err
		}
		row.CreatedAt, err = t.InsertAPIKey(ctx, row, key.String(), a.Hasher.Hash(key))
		if err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(o, "api_key.create", row.ID.String()))
	})
	return MintedKey{APIKey: row, Secret: key.Text()}, err
}

// grant decides the scopes of a new key and whether the caller may give them.
func (a *App) grant(c Caller, in NewKey) ([]string, error) {
	if in.ExpiresAt != nil && !in.ExpiresAt.After(a.Clock.Now()) {
		return nil, fault.New(fault.Invalid, "request.invalid", "The key would have expired already.").
			With(fault.Field{Pointer: "/expires_at", Code: "range", Detail: "must be in the future"})
	}
	want := in.Scopes
	if want == nil {
		want = c.Scopes
		if c.Kind == auth.Operator {
			want = auth.OrgScopes()
		}
	}
	giver := c.Principal
	if c.Kind == auth.Operator {
		giver.Scopes = auth.OrgScopes()
	}
	var projects []id.Project
	if !in.Project.IsZero() {
		projects = []id.Project{in.Project}
	}
	if err := auth.CanGrant(giver, want, projects); err != nil {
		return nil, err
	}
	scopes := make([]string, len(want))
	for i, s := range want {
		scopes[i] = string(s)
	}
	return scopes, nil
}

// ListAPIKeys lists the keys of the caller's organization, newest first; to a
// caller confined to a project those of that project.
func (a *App) ListAPIKeys(ctx context.Context, c Caller, p Page) (List[org.APIKey], error) {
	k, err := keyset[id.Key](p)
	if err != nil {
		return List[org.APIKey]{}, err
	}
	sole, _ := c.SoleProject()
	var items []org.APIKey
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		items, err = t.APIKeys(ctx, c.Org, sole, k)
		return err
	})
	return paged(items, p.Size, func(k org.APIKey) string { return k.ID.String() }), err
}

// RevokeAPIKey ends a key of the caller's organization; a second time changes
// nothing. A caller confined to a project revokes keys of that project only. It
// fails with resource.not_found.
func (a *App) RevokeAPIKey(ctx context.Context, c Caller, k id.Key) error {
	sole, _ := c.SoleProject()
	err := a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		if err := t.RevokeAPIKey(ctx, c.Org, sole, k); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(c.Org, "api_key.revoke", k.String()))
	})
	// Other processes, and a request that read the row meanwhile, follow within
	// credentialLife.
	a.credentials.drop(auth.Org, k)
	return err
}

// CreateOperator makes an operator's key with every operator right. Only the
// command line on the server calls it.
func (a *App) CreateOperator(ctx context.Context, name string) (MintedKey, error) {
	key := auth.MintKey(auth.KeyOperator)
	row := org.APIKey{ID: key.ID, Name: name, CreatedBy: "command line"}
	for _, s := range auth.OperatorScopes() {
		row.Scopes = append(row.Scopes, string(s))
	}
	err := a.Store.InSystem(ctx, "create an operator", func(t *store.SystemTx) (err error) {
		row.CreatedAt, err = t.InsertOperatorKey(ctx, row, "platform-admin", a.Hasher.Hash(key))
		if err != nil {
			return err
		}
		return t.Audit(ctx, store.AuditRow{
			Actor: "command line", Operation: "operator.create", Resource: row.ID.String(), Result: accepted,
		})
	})
	return MintedKey{APIKey: row, Secret: key.Text()}, err
}
