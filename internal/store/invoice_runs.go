package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// InvoiceRun is one attempt to finalize the invoices of a period.
type InvoiceRun struct {
	ID         [16]byte
	Period     string
	Status     string // running, succeeded, failed
	CreatedAt  time.Time
	FinishedAt time.Time   // zero while running
	Progress   RunProgress // of its organizations
	Problem    *InvoiceRunProblem
	Invoices   []billing.Invoice // of the period, without lines
}

// InvoiceRunProblem is why a run failed.
type InvoiceRunProblem struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// InsertInvoiceRun records that a run began.
func (t *SystemTx) InsertInvoiceRun(ctx context.Context, run [16]byte, period, by string) error {
	_, err := t.q.InsertInvoiceRun(ctx, t.raw, db.InsertInvoiceRunParams{RunID: run, Period: period, CreatedBy: by})
	return mapError(err)
}

// EndInvoiceRun records how a run ended; nil means it succeeded.
func (t *SystemTx) EndInvoiceRun(ctx context.Context, run [16]byte, problem *InvoiceRunProblem) error {
	status, result := "succeeded", []byte("{}")
	if problem != nil {
		encoded, err := json.Marshal(problem)
		if err != nil {
			return fmt.Errorf("encoding a problem: %w", err)
		}
		status, result = "failed", encoded
	}
	_, err := t.q.EndInvoiceRun(ctx, t.raw, db.EndInvoiceRunParams{Status: status, Result: result, RunID: run})
	return mapError(err)
}

// LatestInvoiceRun reads the newest run of a period and the period's invoices. It
// fails with resource.not_found.
func (t *SystemTx) LatestInvoiceRun(ctx context.Context, period string) (InvoiceRun, error) {
	r, err := t.q.LatestInvoiceRun(ctx, t.raw, period)
	if err != nil {
		return InvoiceRun{}, mapError(err)
	}
	run := InvoiceRun{ID: r.ID, Period: r.Period, Status: r.Status, CreatedAt: r.CreatedAt.UTC()}
	if r.FinishedAt != nil {
		run.FinishedAt = r.FinishedAt.UTC()
	}
	if run.Progress, err = t.InvoiceRunProgress(ctx, id.Request(r.ID)); err != nil {
		return InvoiceRun{}, err
	}
	if r.Status == "failed" {
		run.Problem = &InvoiceRunProblem{}
		if err := json.Unmarshal(r.Result, run.Problem); err != nil {
			return InvoiceRun{}, fmt.Errorf("reading the invoice run of %s: %w", period, err)
		}
	}
	rows, err := t.q.InvoicesOfPeriod(ctx, t.raw, period)
	if err != nil {
		return InvoiceRun{}, mapError(err)
	}
	for _, i := range rows {
		currency, err := money.ParseCurrency(i.Currency)
		if err != nil {
			return InvoiceRun{}, fmt.Errorf("reading invoice %s: %w", i.ID, err)
		}
		run.Invoices = append(run.Invoices, billing.Invoice{
			ID: id.Invoice(i.ID), Org: id.Org(i.OrgID), State: billing.Open, Number: *i.Number, Currency: currency,
			Total: money.NewAmount(i.TotalMinor, currency),
		})
	}
	return run, nil
}
