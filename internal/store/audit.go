package store

import (
	"context"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// AuditRow says who did what with which result. It never holds a secret.
type AuditRow struct {
	Org        id.Org // whose log; zero for the operator's own
	Actor      string // for example key/key_01h…
	Credential string // id of the API key
	Operation  string // for example instance.create
	Resource   string // typed id or slug
	Result     string // accepted, or the code of the refusal
	RequestID  string
}

// Audit appends a row to the audit log in this transaction.
func (t *tx) Audit(ctx context.Context, r AuditRow) error {
	return mapError(t.q.InsertAudit(ctx, t.raw, db.InsertAuditParams{
		OrgID: uuid.UUID(r.Org), Actor: r.Actor, Credential: r.Credential, Operation: r.Operation,
		Resource: r.Resource, Result: r.Result, RequestID: r.RequestID,
	}))
}
