package app

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// RerateInvoice checks a document that is no draft: that it adds up, and for the
// invoice of a month that its usage as of then, its stored terms and the engine that
// made it give the very same inputs and content again. Other documents follow from
// documents and only have to add up. It fails with fault.Internal if anything differs.
func (a *App) RerateInvoice(ctx context.Context, org id.Org, inv id.Invoice) error {
	return a.Store.InSystem(ctx, "rate an invoice again", func(t *store.SystemTx) error {
		stored, err := t.Invoice(ctx, org, inv)
		if err != nil {
			return err
		}
		if err := stored.Check(); err != nil {
			return err
		}
		kept, err := t.BasisOf(ctx, org, inv)
		if err != nil {
			return err
		}
		if stored.Kind != billing.UsageInvoice || stored.CloseNo != 0 || kept.AsOf == nil {
			return nil
		}
		return a.rerate(ctx, t, stored, kept)
	})
}

func (a *App) rerate(ctx context.Context, t *store.SystemTx, stored billing.Invoice, kept store.StoredBasis) error {
	usage, _, err := t.BillableUsage(ctx, stored.Org, stored.Period, kept.AsOf)
	if err != nil {
		return err
	}
	in := rating.Inputs{Period: stored.Period, At: stored.Period.To, Currency: stored.Currency, Books: usage.Books, Usage: usage.Segments}
	if in.Terms, err = billing.DecodeTerms(kept.Terms); err != nil {
		return fmt.Errorf("reading the terms of invoice %s: %w", stored.ID, err)
	}
	res, err := rating.RateWith(kept.Engine, in)
	if err != nil {
		return err
	}
	if !bytes.Equal(res.DocumentHash[:], kept.Hash) {
		return differs(stored, "inputs")
	}
	again := stored
	again.Lines = res.Lines
	taxes := stored.Taxes
	for _, l := range stored.Lines { // the tax decision and what other documents brought along, as they were then
		switch l.Key.Component {
		case billing.CarryOver, billing.AdvanceOffset:
			again.Lines = append(again.Lines, l)
		default:
			again.Taxes = nil
			again = again.WithTax(l.Key.TaxCategory, l.TaxRatePPM, noteOf(stored, l))
		}
	}
	again.Taxes = taxes
	if again, err = again.Compose(); err != nil {
		return err
	}
	if again.ContentHash != stored.ContentHash {
		return differs(stored, "content")
	}
	return nil
}

func noteOf(v billing.Invoice, l billing.Line) string {
	for _, t := range v.Taxes {
		if t.Category == l.Key.TaxCategory && t.RatePPM == l.TaxRatePPM {
			return t.Note
		}
	}
	return ""
}

func differs(v billing.Invoice, what string) error {
	return fault.New(fault.Internal, "internal", fmt.Sprintf("Invoice %s does not rate again to its %s.", v.Number, what))
}

// RerateReport is what checking all documents of a period found.
type RerateReport struct {
	Period    string
	Documents int
	Different []RerateProblem
}

// RerateProblem is a document that did not come out the same.
type RerateProblem struct {
	Org    id.Org
	ID     id.Invoice
	Detail string
}

// ReratePeriod checks every document of a period that is no draft, each in a
// transaction of its own. What differs is in the report; it fails only if it could not
// look.
func (a *App) ReratePeriod(ctx context.Context, c Caller, period string) (RerateReport, error) {
	if err := operatorOnly(c); err != nil {
		return RerateReport{}, err
	}
	if _, err := metering.ParsePeriod(period); err != nil {
		return RerateReport{}, err
	}
	ctx = store.Apart(ctx) // a document that differs fails its transaction, not the caller's
	report := RerateReport{Period: period}
	var documents []store.Document
	err := a.Store.InSystem(ctx, "list the documents of a period", func(t *store.SystemTx) (err error) {
		documents, err = t.DocumentsOfPeriod(ctx, period)
		return err
	})
	if err != nil {
		return RerateReport{}, err
	}
	for _, d := range documents {
		err := a.RerateInvoice(ctx, d.Org, d.ID)
		report.Documents++
		if err == nil {
			continue
		}
		if ctx.Err() != nil || fault.KindOf(err) == fault.Unavailable {
			return RerateReport{}, err
		}
		f := fault.From(err)
		report.Different = append(report.Different, RerateProblem{Org: d.Org, ID: d.ID, Detail: f.Detail})
	}
	return report, nil
}
