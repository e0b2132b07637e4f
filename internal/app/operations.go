package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Operation is the record of a long-running request.
type Operation = store.Operation

// GetOperation reads an operation, waiting up to wait (at most a minute) for its
// end; then it answers the current state. It fails with resource.not_found, also
// for an operation of a project that the caller does not see.
func (a *App) GetOperation(ctx context.Context, c Caller, op id.Operation, wait time.Duration) (Operation, error) {
	timer := a.Clock.NewTimer(min(wait, maxWait))
	defer timer.Stop()
	for {
		got, err := a.readOperation(ctx, c, op)
		if err != nil || wait <= 0 || got.Finished() {
			return got, err
		}
		if !a.watch.changed(ctx, op, got.Revision, timer.C()) {
			return got, nil
		}
	}
}

func (a *App) readOperation(ctx context.Context, c Caller, op id.Operation) (Operation, error) {
	var found []Operation
	err := a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) (err error) {
		found, err = t.Operations(ctx, store.OperationFilter{ID: op}, store.Keyset{Size: 1})
		return err
	})
	if err != nil {
		return Operation{}, err
	}
	if len(found) == 0 || !c.Sees(found[0].Project) {
		return Operation{}, store.NotFound()
	}
	return found[0], nil
}

// OperationFilter narrows a list; zero fields do not filter.
type OperationFilter struct {
	Status   string
	Resource id.Instance
}

// ListOperations lists the operations of a project, newest first. It fails with
// resource.not_found.
func (a *App) ListOperations(ctx context.Context, c Caller, p id.Project, f OperationFilter, page Page) (List[Operation], error) {
	k, err := keyset[id.Operation](page)
	if err != nil {
		return List[Operation]{}, err
	}
	var rows []Operation
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		if _, err := t.Project(ctx, c.Org, p); err != nil {
			return err
		}
		rows, err = t.Operations(ctx, store.OperationFilter{Project: p, Status: f.Status, Subject: f.Resource}, k)
		return err
	})
	return paged(rows, page.Size, func(o Operation) string { return o.ID.String() }), err
}
