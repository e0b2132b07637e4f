package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Credential is what authentication needs to know of a key: its record, the keyed
// hash of its text, and the organization behind it.
type Credential struct {
	org.APIKey
	Hash      []byte
	OrgName   string
	Epoch     int64 // session epoch of the organization; tokens of an older one are refused
	Suspended bool
	Limits    org.RateLimits // zero for operators
}

// InsertAPIKey writes a key of an organization and returns the machine instant of
// creation. prefix is the public start of its text. It fails with
// resource.not_found for a foreign project.
func (t *tx) InsertAPIKey(ctx context.Context, k org.APIKey, prefix string, hash []byte) (time.Time, error) {
	at, err := t.q.InsertAPIKey(ctx, t.raw, db.InsertAPIKeyParams{
		OrgID: uuid.UUID(k.Org), KeyID: uuid.UUID(k.ID), ProjectID: nullable(k.Project), Name: k.Name,
		Prefix: prefix, Hash: hash, Scopes: k.Scopes, CreatedBy: k.CreatedBy, ExpiresAt: k.ExpiresAt,
	})
	return at, mapError(err)
}

// InsertOperatorKey writes an operator's key.
func (t *SystemTx) InsertOperatorKey(ctx context.Context, k org.APIKey, role string, hash []byte) (time.Time, error) {
	at, err := t.q.InsertOperatorKey(ctx, t.raw, db.InsertOperatorKeyParams{
		KeyID: uuid.UUID(k.ID), Name: k.Name, Role: role, Hash: hash, Scopes: k.Scopes,
	})
	return at, mapError(err)
}

// APIKeys lists the keys of an organization, newest first, revoked ones included. A
// project other than zero leaves only the keys of that project.
func (t *tx) APIKeys(ctx context.Context, o id.Org, p id.Project, k Keyset) ([]org.APIKey, error) {
	rows, err := t.q.ListAPIKeys(ctx, t.raw, db.ListAPIKeysParams{
		OrgID: uuid.UUID(o), Before: k.before(), Size: int32(k.Size), ProjectID: nullable(p),
	})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.ListAPIKeysRow) (org.APIKey, error) {
		return org.APIKey{
			ID: id.Key(r.ID), Org: id.Org(r.OrgID), Name: r.Name, Scopes: r.Scopes,
			Project: orZero[id.Project](r.ProjectID), CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt,
			ExpiresAt: r.ExpiresAt, LastUsedAt: r.LastUsedAt, RevokedAt: r.RevokedAt,
		}, nil
	})
}

// RevokeAPIKey ends a key; a second time changes nothing. A project other than
// zero confines it to keys of that project. It fails with resource.not_found.
func (t *tx) RevokeAPIKey(ctx context.Context, o id.Org, p id.Project, k id.Key) error {
	_, err := t.q.RevokeAPIKey(ctx, t.raw, db.RevokeAPIKeyParams{
		OrgID: uuid.UUID(o), KeyID: uuid.UUID(k), ProjectID: nullable(p),
	})
	return mapError(err)
}

// Credential finds an organization's key by its public id. It fails with
// resource.not_found.
func (t *SystemTx) Credential(ctx context.Context, k id.Key) (Credential, error) {
	r, err := t.q.FindAPIKey(ctx, t.raw, uuid.UUID(k))
	if err != nil {
		return Credential{}, mapError(err)
	}
	return Credential{
		APIKey: org.APIKey{
			ID: id.Key(r.ID), Org: id.Org(r.OrgID), Name: r.Name, Scopes: r.Scopes,
			Project: orZero[id.Project](r.ProjectID), ExpiresAt: r.ExpiresAt,
			LastUsedAt: r.LastUsedAt, RevokedAt: r.RevokedAt,
		},
		Hash: r.Hash, OrgName: r.OrgName, Epoch: r.SessionEpoch, Suspended: r.SuspendedAt != nil,
		Limits: org.RateLimits{Read: int(r.RateRead), Write: int(r.RateWrite), Launch: int(r.RateLaunch)},
	}, nil
}

// OperatorCredential finds an operator's key by its public id. It fails with
// resource.not_found.
func (t *SystemTx) OperatorCredential(ctx context.Context, k id.Key) (Credential, error) {
	r, err := t.q.FindOperatorKey(ctx, t.raw, uuid.UUID(k))
	if err != nil {
		return Credential{}, mapError(err)
	}
	return Credential{
		APIKey: org.APIKey{
			ID: id.Key(r.ID), Name: r.Name, Scopes: r.Scopes, ExpiresAt: r.ExpiresAt,
			LastUsedAt: r.LastUsedAt, RevokedAt: r.RevokedAt,
		},
		Hash: r.Hash, Epoch: 1,
	}, nil
}

// TouchCredential notes that a key was used, at most once a minute.
func (t *SystemTx) TouchCredential(ctx context.Context, c Credential) error {
	if c.Org.IsZero() {
		return mapError(t.q.TouchOperatorKey(ctx, t.raw, uuid.UUID(c.ID)))
	}
	return mapError(t.q.TouchAPIKey(ctx, t.raw, uuid.UUID(c.ID)))
}
