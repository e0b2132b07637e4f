package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Dunning is how far the dunning of one overdue document came. Instants are business
// time.
type Dunning struct {
	Org      id.Org
	Invoice  id.Invoice
	Issuer   string
	DueOn    time.Time
	Disputed bool
	Told     bool // that it is overdue
	Progress payment.Dunning
}

// scheduleStep is a step as it is stored.
type scheduleStep struct {
	Days   int    `json:"days"`
	Action string `json:"action"`
}

// DunningSchedule reads what an issuer does; the default where it chose nothing.
func (t *SystemTx) DunningSchedule(ctx context.Context, issuer string) (payment.Schedule, error) {
	r, err := t.q.DunningSchedule(ctx, t.raw, issuer)
	if errors.Is(err, pgx.ErrNoRows) {
		return payment.DefaultSchedule, nil
	} else if err != nil {
		return nil, mapError(err)
	}
	var steps []scheduleStep
	if err := json.Unmarshal(r.Steps, &steps); err != nil {
		return nil, fmt.Errorf("reading the dunning schedule of %s: %w", issuer, err)
	}
	out := make(payment.Schedule, 0, len(steps))
	for _, s := range steps {
		out = append(out, payment.Step{Days: s.Days, Action: payment.Action(s.Action)})
	}
	return out, nil
}

// PutDunningSchedule writes what an issuer does.
func (t *SystemTx) PutDunningSchedule(ctx context.Context, issuer string, s payment.Schedule, by string) error {
	steps := make([]scheduleStep, 0, len(s))
	for _, x := range s {
		steps = append(steps, scheduleStep{Days: x.Days, Action: string(x.Action)})
	}
	text, err := json.Marshal(steps)
	if err != nil {
		return fmt.Errorf("writing a dunning schedule: %w", err)
	}
	return mapError(t.q.PutDunningSchedule(ctx, t.raw, db.PutDunningScheduleParams{Issuer: issuer, Steps: text, UpdatedBy: by}))
}

// EnrolDunnings begins the dunning of up to size overdue documents, and takes up that
// of those which are owed again.
func (t *SystemTx) EnrolDunnings(ctx context.Context, size int) error {
	if _, err := t.q.EnrolDunnings(ctx, t.raw, int32(size)); err != nil {
		return mapError(err)
	}
	_, err := t.q.RestartDunnings(ctx, t.raw, int32(size))
	return mapError(err)
}

// PostponeDunning looks at a document that failed after the wait again (business
// time), so that it is not first for ever.
func (t *SystemTx) PostponeDunning(ctx context.Context, x DocumentOf, wait time.Duration) error {
	return mapError(t.q.PostponeDunning(ctx, t.raw, db.PostponeDunningParams{
		WaitSeconds: wait.Seconds(), OrgID: uuid.UUID(x.Org), InvoiceID: uuid.UUID(x.Invoice),
	}))
}

// PostponeStop repeats a stop that failed after the wait (business time).
func (t *SystemTx) PostponeStop(ctx context.Context, x DocumentOf, wait time.Duration) error {
	return mapError(t.q.PostponeStop(ctx, t.raw, db.PostponeStopParams{
		WaitSeconds: wait.Seconds(), OrgID: uuid.UUID(x.Org), InvoiceID: uuid.UUID(x.Invoice),
	}))
}

// DocumentOf names a document of an organization.
type DocumentOf struct {
	Org     id.Org
	Invoice id.Invoice
}

// DueDunnings lists up to size documents whose dunning is to be looked at.
func (t *SystemTx) DueDunnings(ctx context.Context, size int) ([]DocumentOf, error) {
	rows, err := t.q.DueDunnings(ctx, t.raw, int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]DocumentOf, 0, len(rows))
	for _, r := range rows {
		out = append(out, DocumentOf{id.Org(r.OrgID), id.Invoice(r.InvoiceID)})
	}
	return out, nil
}

// LockDunning reads the dunning of a document and keeps others from it.
func (t *SystemTx) LockDunning(ctx context.Context, x DocumentOf) (Dunning, error) {
	r, err := t.q.DunningForUpdate(ctx, t.raw, uuid.UUID(x.Org), uuid.UUID(x.Invoice))
	if err != nil {
		return Dunning{}, mapError(err)
	}
	d := Dunning{
		Org: x.Org, Invoice: x.Invoice, Issuer: r.Issuer, DueOn: r.DueOn.UTC(), Disputed: r.Disputed, Told: r.OverdueTold,
		Progress: payment.Dunning{Done: int(r.StepsDone), Paused: time.Duration(r.PausedUs) * time.Microsecond},
	}
	if r.PausedSince != nil {
		d.Progress.PausedSince = r.PausedSince.UTC()
	}
	return d, nil
}

// SaveDunning writes the progress; again zero: nothing is to be done unless it is
// owed anew, finished: not even then.
func (t *SystemTx) SaveDunning(ctx context.Context, d Dunning, again time.Time, finished bool) error {
	p := db.SaveDunningParams{
		StepsDone: int32(d.Progress.Done), PausedUs: d.Progress.Paused.Microseconds(), Finished: finished, OrgID: uuid.UUID(d.Org), InvoiceID: uuid.UUID(d.Invoice),
	}
	if !d.Progress.PausedSince.IsZero() {
		p.PausedSince = &d.Progress.PausedSince
	}
	if !again.IsZero() {
		p.NextAt = &again
	}
	return mapError(t.q.SaveDunning(ctx, t.raw, p))
}

// HoldStarts keeps the organization from starting anything because of a document.
func (t *SystemTx) HoldStarts(ctx context.Context, x DocumentOf) error {
	return mapError(t.q.PutHold(ctx, t.raw, uuid.UUID(x.Org), uuid.UUID(x.Invoice)))
}

// AnnounceStop dates the stop of what the organization runs.
func (t *SystemTx) AnnounceStop(ctx context.Context, x DocumentOf, at time.Time) error {
	if err := t.HoldStarts(ctx, x); err != nil {
		return err
	}
	return mapError(t.q.AnnounceStop(ctx, t.raw, db.AnnounceStopParams{StopAt: at, OrgID: uuid.UUID(x.Org), InvoiceID: uuid.UUID(x.Invoice)}))
}

// StopsDue lists up to size documents because of which organizations are to be
// stopped now.
func (t *SystemTx) StopsDue(ctx context.Context, size int) ([]DocumentOf, error) {
	rows, err := t.q.StopsDue(ctx, t.raw, int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]DocumentOf, 0, len(rows))
	for _, r := range rows {
		out = append(out, DocumentOf{id.Org(r.OrgID), id.Invoice(r.InvoiceID)})
	}
	return out, nil
}

// MarkStopped notes that the organization was stopped.
func (t *SystemTx) MarkStopped(ctx context.Context, x DocumentOf) error {
	return mapError(t.q.MarkStopped(ctx, t.raw, uuid.UUID(x.Org), uuid.UUID(x.Invoice)))
}

// LiftHold lets the organization start again, as far as this document is concerned.
func (t *SystemTx) LiftHold(ctx context.Context, x DocumentOf) (bool, error) {
	n, err := t.q.LiftHold(ctx, t.raw, uuid.UUID(x.Org), uuid.UUID(x.Invoice))
	return n == 1, mapError(err)
}

// Held tells whether an organization may start nothing because of overdue documents,
// and names one of them.
func (t *tx) Held(ctx context.Context, org id.Org) (number string, held bool, err error) {
	r, err := t.q.HoldOf(ctx, t.raw, uuid.UUID(org))
	return r.Number, r.Holds > 0, mapError(err)
}
