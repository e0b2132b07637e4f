package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// The states of an operation; the last three are final.
const (
	OperationQueued    = "queued"
	OperationRunning   = "running"
	OperationSucceeded = "succeeded"
	OperationFailed    = "failed"
	OperationCancelled = "cancelled"
)

// Operation is the record of a long-running request on an instance.
type Operation struct {
	ID           id.Operation
	Project      id.Project
	Kind         string // instance.create, instance.start, …
	Subject      id.Instance
	Generation   int64 // that it converges
	Status       string
	Step         string // "": none
	Percent      int
	Problem      *OperationProblem // of a failed one
	SupersededBy id.Operation      // of a cancelled one
	CreatedAt    time.Time         // business
	DeadlineAt   *time.Time        // machine
	FinishedAt   *time.Time        // business
	Revision     int64
}

// Finished reports whether the operation will not change any more.
func (o Operation) Finished() bool {
	return o.Status != OperationQueued && o.Status != OperationRunning
}

// InsertOperation writes a new queued operation.
func (t *OrgTx) InsertOperation(ctx context.Context, o Operation, requestID string) error {
	return mapError(t.q.InsertOperation(ctx, t.raw, db.InsertOperationParams{
		OrgID: uuid.UUID(t.org), OperationID: uuid.UUID(o.ID), ProjectID: uuid.UUID(o.Project), Kind: o.Kind,
		SubjectID: uuid.UUID(o.Subject), Generation: o.Generation, RequestID: requestID,
		At: o.CreatedAt, DeadlineAt: o.DeadlineAt,
	}))
}

// SupersedeOperations cancels what is unfinished of the instance's operations
// other than by, and writes their events.
func (t *OrgTx) SupersedeOperations(ctx context.Context, r InstanceRow, by id.Operation, at time.Time) error {
	gone, err := t.q.SupersedeOperations(ctx, t.raw, db.SupersedeOperationsParams{
		OrgID: uuid.UUID(t.org), SubjectID: uuid.UUID(r.ID), OperationID: nullable(by), At: at,
	})
	if err != nil {
		return mapError(err)
	}
	for _, o := range gone {
		err := t.AppendEvent(ctx, Event{
			Org: t.org, Project: r.Project, Cell: r.Cell, Type: "operation." + OperationCancelled,
			Subject: id.Operation(o), Data: map[string]any{"instance": r.ID.String(), "superseded_by": by.String()},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// OperationFilter narrows a list; zero fields do not filter.
type OperationFilter struct {
	Project id.Project
	ID      id.Operation
	Status  string
	Subject id.Instance
}

// Operations lists operations, newest first.
func (t *OrgTx) Operations(ctx context.Context, f OperationFilter, k Keyset) ([]Operation, error) {
	rows, err := t.q.OperationRows(ctx, t.raw, db.OperationRowsParams{
		OrgID: uuid.UUID(t.org), ProjectID: nullable(f.Project), OperationID: nullable(f.ID),
		Status: textOrNull(f.Status), SubjectID: nullable(f.Subject), Before: k.before(), Size: int32(k.Size),
	})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, operationOf)
}

func operationOf(r db.Operation) (Operation, error) {
	o := Operation{
		ID: id.Operation(r.ID), Project: id.Project(r.ProjectID), Kind: r.Kind, Subject: id.Instance(r.SubjectID),
		Generation: r.Generation, Status: r.Status, Step: r.Step, Percent: int(r.Percent),
		SupersededBy: orZero[id.Operation](r.SupersededBy), CreatedAt: r.CreatedAt, DeadlineAt: r.DeadlineAt,
		FinishedAt: r.FinishedAt, Revision: r.Revision,
	}
	if r.Problem == nil {
		return o, nil
	}
	o.Problem = &OperationProblem{}
	if err := json.Unmarshal(r.Problem, o.Problem); err != nil {
		return o, fmt.Errorf("read the problem of %s: %w", o.ID, err)
	}
	return o, nil
}
