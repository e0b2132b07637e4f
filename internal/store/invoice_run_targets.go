package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// RunTarget is an organization that a run has still to invoice.
type RunTarget struct {
	Org      id.Org
	Attempts int
}

// RunProgress counts the organizations of a run by what became of them.
type RunProgress struct{ Pending, Done, Failed int }

// BeginInvoiceRun records a run of a period with every organization it has to
// invoice, and wakes its workflow. If one is running already, it answers that run
// and false.
func (t *SystemTx) BeginInvoiceRun(ctx context.Context, run id.Request, period, by string) (id.Request, bool, error) {
	running, err := t.q.RunningInvoiceRun(ctx, t.raw, period)
	if err == nil {
		return id.Request(running), false, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return id.Request{}, false, mapError(err)
	}
	if err := t.InsertInvoiceRun(ctx, run, period, by); err != nil {
		return id.Request{}, false, err // two at once: the second one tries again and finds the first
	}
	if _, err := t.q.InsertRunTargets(ctx, t.raw, uuid.UUID(run), period); err != nil {
		return id.Request{}, false, mapError(err)
	}
	return run, true, t.AppendOutbox(ctx, OutboxInvoiceRun, run.String(), "begun")
}

// AnyOrganizationDue reports whether a month still owes anybody a document.
func (t *SystemTx) AnyOrganizationDue(ctx context.Context, period string) (bool, error) {
	due, err := t.q.AnyOrganizationDue(ctx, t.raw, period)
	return due, mapError(err)
}

// InvoiceRunPeriod reads the period of a run and whether it is still running. It
// fails with resource.not_found.
func (t *SystemTx) InvoiceRunPeriod(ctx context.Context, run id.Request) (period string, running bool, err error) {
	r, err := t.q.InvoiceRunForWork(ctx, t.raw, uuid.UUID(run))
	return r.Period, r.Status == "running", mapError(err)
}

// PendingRunTargets lists what is left of a run, the least tried first.
func (t *SystemTx) PendingRunTargets(ctx context.Context, run id.Request, size int) ([]RunTarget, error) {
	rows, err := t.q.PendingRunTargets(ctx, t.raw, uuid.UUID(run), int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]RunTarget, len(rows))
	for i, r := range rows {
		out[i] = RunTarget{Org: id.Org(r.OrgID), Attempts: int(r.Attempts)}
	}
	return out, nil
}

// SettleRunTarget notes one attempt: status is done, failed, or pending for another
// one. Settling twice changes nothing.
func (t *SystemTx) SettleRunTarget(ctx context.Context, run id.Request, org id.Org, status string, problem InvoiceRunProblem) error {
	return mapError(t.q.SettleRunTarget(ctx, t.raw, db.SettleRunTargetParams{
		RunID: uuid.UUID(run), OrgID: uuid.UUID(org), Status: status, ProblemCode: problem.Code, ProblemDetail: problem.Detail,
	}))
}

// WakeInvoiceRunAt dates the next look at a run, in machine time; zero: none.
func (t *SystemTx) WakeInvoiceRunAt(ctx context.Context, run id.Request, at time.Time) error {
	var wake *time.Time
	if !at.IsZero() {
		wake = &at
	}
	return mapError(t.q.WakeInvoiceRunAt(ctx, t.raw, wake, uuid.UUID(run)))
}

// FinishInvoiceRun ends a run in which nothing is pending: failed if one
// organization failed, with the first problem; succeeded otherwise.
func (t *SystemTx) FinishInvoiceRun(ctx context.Context, run id.Request) error {
	status, result := "succeeded", []byte("{}")
	failed, err := t.q.FirstFailedRunTarget(ctx, t.raw, uuid.UUID(run))
	switch {
	case err == nil:
		status = "failed"
		if result, err = json.Marshal(InvoiceRunProblem{Code: failed.ProblemCode, Detail: failed.ProblemDetail}); err != nil {
			return fmt.Errorf("encoding a problem: %w", err)
		}
	case !errors.Is(err, pgx.ErrNoRows):
		return mapError(err)
	}
	_, err = t.q.FinishInvoiceRun(ctx, t.raw, db.FinishInvoiceRunParams{Status: status, Result: result, RunID: uuid.UUID(run)})
	return mapError(err)
}

// InvoiceRunProgress counts what became of a run's organizations.
func (t *SystemTx) InvoiceRunProgress(ctx context.Context, run id.Request) (RunProgress, error) {
	r, err := t.q.InvoiceRunProgress(ctx, t.raw, uuid.UUID(run))
	return RunProgress{Pending: int(r.Pending), Done: int(r.Done), Failed: int(r.Failed)}, mapError(err)
}
