package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/tranche-cloud/tranche/workflows/activities"
)

// InvoiceRun makes the invoices of a month, a batch of organizations a step. Its id is
// invoice-run/<id>; key is the run's id. What is left to do is rows: killed anywhere,
// run twice or by two workers, it makes each invoice once.
//
//	begun ──▶ AdvanceInvoiceRun ──┬─ again ───▶ AdvanceInvoiceRun
//	            (a batch)         ├─ wait ────▶ a second later: organizations in trouble
//	                              └─ nothing ─▶ complete: the run has its end
func InvoiceRun(ctx workflow.Context, key string) error {
	var a *activities.Activities
	return driveAs(ctx, purposeInvoices, InvoiceRun, a.AdvanceInvoiceRun, key)
}
