package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Keyset asks for the page of a list that is ordered by descending id: at most
// Size rows with an id below Before (nil: from the start).
type Keyset struct {
	Before *[16]byte
	Size   int
}

func (k Keyset) before() *uuid.UUID { return (*uuid.UUID)(k.Before) }

// nullable is how an absent id is stored.
func nullable[I ~[16]byte](v I) *uuid.UUID {
	if v == (I{}) {
		return nil
	}
	u := uuid.UUID(v)
	return &u
}

// orZero is the inverse of nullable.
func orZero[I ~[16]byte](u *uuid.UUID) I {
	if u == nil {
		return I{}
	}
	return I(*u)
}

// InsertOrganization writes the organization with its quota counter, its billing
// account and, where its currency has one, the default price book. It returns the
// business instant of creation. It fails with name.taken.
func (t *SystemTx) InsertOrganization(ctx context.Context, o org.Organization) (time.Time, error) {
	at, err := t.q.InsertOrganization(ctx, t.raw, db.InsertOrganizationParams{
		OrgID: uuid.UUID(o.ID), Name: o.Name, Currency: o.Currency.Code(),
		QuotaInstances: int32(o.Quota.Instances), QuotaGpus: int32(o.Quota.GPUs),
		RateRead: int32(o.Limits.Read), RateWrite: int32(o.Limits.Write), RateLaunch: int32(o.Limits.Launch),
	})
	if err != nil {
		return time.Time{}, mapError(err)
	}
	if err := t.q.InsertQuotaUsage(ctx, t.raw, uuid.UUID(o.ID)); err != nil {
		return time.Time{}, mapError(err)
	}
	if err := t.q.InsertBillingAccount(ctx, t.raw, uuid.UUID(o.ID), o.Currency.Code()); err != nil {
		return time.Time{}, mapError(err)
	}
	return at, mapError(t.q.AttachDefaultPriceBook(ctx, t.raw, db.AttachDefaultPriceBookParams{
		OrgID: uuid.UUID(o.ID), Since: at, Currency: o.Currency.Code(),
	}))
}

// Organization reads one organization. It fails with resource.not_found.
func (t *tx) Organization(ctx context.Context, o id.Org) (org.Organization, error) {
	row, err := t.q.GetOrganization(ctx, t.raw, uuid.UUID(o))
	if err != nil {
		return org.Organization{}, mapError(err)
	}
	return organization(row)
}

// Organizations lists organizations, newest first.
func (t *SystemTx) Organizations(ctx context.Context, k Keyset) ([]org.Organization, error) {
	rows, err := t.q.ListOrganizations(ctx, t.raw, k.before(), int32(k.Size))
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, organization)
}

func organization(r db.Organization) (org.Organization, error) {
	currency, err := money.ParseCurrency(r.Currency)
	if err != nil {
		return org.Organization{}, fmt.Errorf("read organization %s: %w", id.Org(r.ID), err)
	}
	return org.Organization{
		ID: id.Org(r.ID), Name: r.Name, Currency: currency, CreatedAt: r.CreatedAt,
		Quota:  quota.Limits{Instances: int(r.QuotaInstances), GPUs: int(r.QuotaGpus)},
		Limits: org.RateLimits{Read: int(r.RateRead), Write: int(r.RateWrite), Launch: int(r.RateLaunch)},
	}, nil
}

// InsertProject writes a project and returns the business instant of creation. It
// fails with name.taken, and with resource.not_found for an unknown organization.
func (t *tx) InsertProject(ctx context.Context, p org.Project) (time.Time, error) {
	at, err := t.q.InsertProject(ctx, t.raw, db.InsertProjectParams{
		OrgID: uuid.UUID(p.Org), ProjectID: uuid.UUID(p.ID), Name: p.Name,
	})
	return at, mapError(err)
}

// Project reads one project. It fails with resource.not_found.
func (t *tx) Project(ctx context.Context, o id.Org, p id.Project) (org.Project, error) {
	row, err := t.q.GetProject(ctx, t.raw, uuid.UUID(o), uuid.UUID(p))
	if err != nil {
		return org.Project{}, mapError(err)
	}
	return project(row)
}

// Projects lists the projects of an organization, newest first.
func (t *tx) Projects(ctx context.Context, o id.Org, k Keyset) ([]org.Project, error) {
	rows, err := t.q.ListProjects(ctx, t.raw, db.ListProjectsParams{
		OrgID: uuid.UUID(o), Before: k.before(), Size: int32(k.Size),
	})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, project)
}

func project(r db.Project) (org.Project, error) {
	return org.Project{ID: id.Project(r.ID), Org: id.Org(r.OrgID), Name: r.Name, CreatedAt: r.CreatedAt}, nil
}

// mapRows maps each row to its domain value.
func mapRows[R, T any](rows []R, one func(R) (T, error)) ([]T, error) {
	out := make([]T, 0, len(rows))
	for _, r := range rows {
		v, err := one(r)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}
