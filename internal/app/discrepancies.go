package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// DiscrepancyFilter selects discrepancies; zero fields do not filter.
type DiscrepancyFilter struct {
	Org    id.Org
	Status string // open, resolved
}

// Discrepancies lists what was billed beyond its proof, newest first. For operators. It
// fails with request.invalid and page_token.invalid.
func (a *App) Discrepancies(ctx context.Context, _ Caller, f DiscrepancyFilter, p Page) (List[store.Discrepancy], error) {
	if f.Status != "" && f.Status != "open" && f.Status != "resolved" {
		return List[store.Discrepancy]{}, fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("The status %.16q is unknown.", f.Status)).
			With(fault.Field{Pointer: "status", Code: "enum", Detail: "open or resolved"})
	}
	k, err := keyset[id.Discrepancy](p)
	if err != nil {
		return List[store.Discrepancy]{}, err
	}
	var items []store.Discrepancy
	err = a.Store.InSystem(ctx, "list discrepancies", func(t *store.SystemTx) (err error) {
		items, err = t.Discrepancies(ctx, f.Org, f.Status, k)
		return err
	})
	return paged(items, p.Size, func(d store.Discrepancy) string { return d.ID.String() }), err
}

// ResolveDiscrepancy ends a discrepancy by a person's verdict: billed (the meter was right,
// its time is billed again) or proven (it stays off the bill), with the reason, which is
// kept. Operators only. Repeating the verdict changes nothing. It fails with
// resource.not_found, request.invalid, and state.conflict for another verdict.
func (a *App) ResolveDiscrepancy(ctx context.Context, c Caller, d id.Discrepancy, verdict, reason string) error {
	if err := operatorOnly(c); err != nil {
		return err
	}
	reason = strings.TrimSpace(reason)
	switch {
	case verdict != store.VerdictBilled && verdict != store.VerdictProven:
		return fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("The verdict %.16q is unknown.", verdict)).
			With(fault.Field{Pointer: "/verdict", Code: "enum", Detail: "billed or proven"})
	case reason == "" || len(reason) > 1000:
		return fault.New(fault.Invalid, "request.invalid", "A verdict needs a reason of at most 1000 characters.").
			With(fault.Field{Pointer: "/reason", Code: "length", Detail: "1 to 1000 characters"})
	}
	return a.Store.InSystem(ctx, "resolve a discrepancy", func(t *store.SystemTx) error {
		row, err := t.LockDiscrepancy(ctx, d)
		if err != nil {
			return err
		}
		if row.Status != "open" {
			if row.Verdict == verdict {
				return nil
			}
			return conflictOf("The discrepancy is resolved.", "Read it; a verdict is final.")
		}
		row.Verdict, row.Reason, row.ResolvedBy = verdict, reason, c.actor()
		if err := t.ResolveDiscrepancy(ctx, row); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(row.Org, "discrepancy.resolve", d.String()))
	})
}

func conflictOf(detail, suggestion string) error {
	return fault.New(fault.Conflict, "state.conflict", detail).Suggest(suggestion)
}

// settleDiscrepancies ends those that late evidence has proven: their time is billed again.
func (a *App) settleDiscrepancies(ctx context.Context, window metering.Interval) error {
	return a.Store.InSystem(ctx, "settle discrepancies", func(t *store.SystemTx) error {
		list, err := t.SettledDiscrepancies(ctx, window)
		if err != nil {
			return err
		}
		for _, d := range list {
			row, err := t.LockDiscrepancy(ctx, d.ID)
			if err != nil {
				return err
			}
			row.Verdict, row.Reason, row.ResolvedBy = store.VerdictBilled, "Evidence came in that proves the time.", "system"
			if err := t.ResolveDiscrepancy(ctx, row); err != nil {
				return err
			}
		}
		return nil
	})
}
