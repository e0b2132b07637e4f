package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// NewOrganization asks for a tenant. Nil Limits are the defaults.
type NewOrganization struct {
	Name     string
	Currency money.Currency
	Quota    quota.Limits
	Limits   *org.RateLimits
}

// CreateOrganization makes a tenant with its quota counter, its billing account
// and the default price book of its currency, if there is one. It fails with
// name.taken.
func (a *App) CreateOrganization(ctx context.Context, c Caller, in NewOrganization) (org.Organization, error) {
	o := org.Organization{
		ID: id.New[id.Org](), Name: in.Name, Currency: in.Currency, Quota: in.Quota,
		Limits: org.DefaultRateLimits(a.Dev),
	}
	if in.Limits != nil {
		o.Limits = *in.Limits
	}
	err := a.Store.InSystem(ctx, "create an organization", func(t *store.SystemTx) error {
		at, err := t.InsertOrganization(ctx, o)
		if err != nil {
			return err
		}
		o.CreatedAt = at
		return t.Audit(ctx, c.audit(o.ID, "organization.create", o.ID.String()))
	})
	return o, err
}

// GetOrganization reads a tenant. It fails with resource.not_found.
func (a *App) GetOrganization(ctx context.Context, _ Caller, o id.Org) (got org.Organization, err error) {
	err = a.Store.InSystem(ctx, "read an organization", func(t *store.SystemTx) error {
		got, err = t.Organization(ctx, o)
		return err
	})
	return got, err
}

// ListOrganizations lists tenants, newest first.
func (a *App) ListOrganizations(ctx context.Context, _ Caller, p Page) (List[org.Organization], error) {
	k, err := keyset[id.Org](p)
	if err != nil {
		return List[org.Organization]{}, err
	}
	var items []org.Organization
	err = a.Store.InSystem(ctx, "list organizations", func(t *store.SystemTx) error {
		items, err = t.Organizations(ctx, k)
		return err
	})
	return paged(items, p.Size, func(o org.Organization) string { return o.ID.String() }), err
}

// CreateProject makes a project of an organization. It fails with name.taken and
// resource.not_found.
func (a *App) CreateProject(ctx context.Context, c Caller, o id.Org, name string) (org.Project, error) {
	p := org.Project{ID: id.New[id.Project](), Org: o, Name: name}
	err := a.Store.InSystem(ctx, "create a project", func(t *store.SystemTx) error {
		at, err := t.InsertProject(ctx, p)
		if err != nil {
			return err
		}
		p.CreatedAt = at
		return t.Audit(ctx, c.audit(o, "project.create", p.ID.String()))
	})
	return p, err
}

// GetProject reads a project. It fails with resource.not_found, also for a project
// of another organization.
func (a *App) GetProject(ctx context.Context, c Caller, o id.Org, p id.Project) (got org.Project, err error) {
	err = a.inOrgOf(ctx, c, o, "read a project", func(t orgRows) error {
		got, err = t.Project(ctx, o, p)
		return err
	})
	return got, err
}

// ListProjects lists the projects of an organization, newest first. It fails with
// resource.not_found for an unknown organization.
func (a *App) ListProjects(ctx context.Context, _ Caller, o id.Org, p Page) (List[org.Project], error) {
	k, err := keyset[id.Project](p)
	if err != nil {
		return List[org.Project]{}, err
	}
	var items []org.Project
	err = a.Store.InSystem(ctx, "list projects", func(t *store.SystemTx) error {
		if _, err := t.Organization(ctx, o); err != nil {
			return err
		}
		items, err = t.Projects(ctx, o, k)
		return err
	})
	return paged(items, p.Size, func(p org.Project) string { return p.ID.String() }), err
}

// Identity says who a credential speaks for.
type Identity struct {
	auth.Principal
	OrgName   string // "" for operators
	KeyName   string
	ExpiresAt *time.Time // of the key; nil: never
}

// Whoami describes the caller's credential.
func (a *App) Whoami(ctx context.Context, c Caller) (Identity, error) {
	row, err := a.credential(ctx, c.Kind, c.Key)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Principal: c.Principal, OrgName: row.OrgName, KeyName: row.Name, ExpiresAt: row.ExpiresAt}, nil
}

// IssueToken exchanges the caller's API key for an access token. The policy keeps
// tokens from prolonging themselves.
func (a *App) IssueToken(_ context.Context, c Caller) (auth.Secret, time.Duration, error) {
	return a.Issuer.Mint(c.Principal)
}
