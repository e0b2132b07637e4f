package app

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/internal/store"
)

// accepted is the result of an audit row whose work was done.
const accepted = "accepted"

// Caller is who asks, and the id of the request for audit rows and operations.
type Caller struct {
	auth.Principal
	RequestID string
}

// actor names the caller in audit rows.
func (c Caller) actor() string {
	if c.Kind == auth.Operator {
		return "operator/" + c.Key.String()
	}
	if c.Key.IsZero() {
		return "system"
	}
	return "key/" + c.Key.String()
}

// audit is the row for an accepted operation on a resource of an organization.
func (c Caller) audit(o id.Org, operation, resource string) store.AuditRow {
	return store.AuditRow{
		Org: o, Actor: c.actor(), Credential: c.Key.String(), Operation: operation,
		Resource: resource, Result: accepted, RequestID: c.RequestID,
	}
}

// operatorOnly refuses tenants: what it guards is for operators, whoever asked before.
func operatorOnly(c Caller) error {
	if c.Kind == auth.Operator {
		return nil
	}
	return fault.New(fault.Forbidden, "auth.forbidden", "Only operators may do this.").Suggest("Ask the operator.")
}

// orgRows is what both kinds of transaction can do for one organization.
type orgRows interface {
	Organization(context.Context, id.Org) (org.Organization, error)
	Project(context.Context, id.Org, id.Project) (org.Project, error)
	InsertAPIKey(context.Context, org.APIKey, string, []byte) (time.Time, error)
	Audit(context.Context, store.AuditRow) error
}

// inOrgOf runs fn confined to an organization for its own callers, and in a system
// transaction for operators.
func (a *App) inOrgOf(ctx context.Context, c Caller, o id.Org, reason string, fn func(orgRows) error) error {
	if c.Kind == auth.Operator {
		return a.Store.InSystem(ctx, reason, func(t *store.SystemTx) error { return fn(t) })
	}
	return a.Store.InOrg(ctx, o, func(t *store.OrgTx) error { return fn(t) })
}

// Match is a caller's If-Match: the generation it last saw, nil for none.
type Match struct{ Generation *int64 }

// check fails with precondition.failed when the generation has moved on.
func (m Match) check(generation int64) error {
	if m.Generation == nil || *m.Generation == generation {
		return nil
	}
	return fault.New(fault.PreconditionFailed, "precondition.failed",
		fmt.Sprintf("The resource is at generation %d.", generation)).
		Suggest("Read the resource again and send its ETag as If-Match.")
}
