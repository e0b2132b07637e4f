package client

import (
	"context"

	"github.com/tranche-cloud/tranche/openapi/wire"
)

// DownloadInvoice reads a document of an organization as PDF or HTML.
func (a Admin) DownloadInvoice(ctx context.Context, organization, invoice string, format InvoiceFormat) ([]byte, error) {
	if format == InvoiceHTML {
		return read(a.c.raw.GetOrganizationInvoiceHtml(ctx, organization, invoice))
	}
	return read(a.c.raw.GetOrganizationInvoicePdf(ctx, organization, invoice))
}

// StatementCandidates lists the documents that a bank transfer may be for.
func (a Admin) StatementCandidates(ctx context.Context, line string) ([]StatementCandidate, error) {
	got, err := answer[wire.StatementCandidates](a.c.raw.ListStatementCandidates(ctx, line))
	return got.Items, err
}

// StarterTaxTable reads a table to start from, for sellers in the EU.
func (a Admin) StarterTaxTable(ctx context.Context) (TaxTable, error) {
	return answer[TaxTable](a.c.raw.GetStarterTaxTable(ctx))
}

// GetDunningSchedule reads what is done about overdue invoices of an issuer.
func (a Admin) GetDunningSchedule(ctx context.Context, issuer string) (DunningSchedule, error) {
	return answer[DunningSchedule](a.c.raw.GetDunningSchedule(ctx, issuer))
}

// PutDunningSchedule sets what is done about overdue invoices of an issuer.
func (a Admin) PutDunningSchedule(ctx context.Context, issuer string, steps []DunningStep) (DunningSchedule, error) {
	return answer[DunningSchedule](a.c.raw.PutDunningSchedule(ctx, issuer, wire.DunningSchedulePut{Steps: steps}))
}

// RevenueReport reads what a month, YYYY-MM, earned and what its GPUs cost.
func (a Admin) RevenueReport(ctx context.Context, period string) (RevenueReport, error) {
	return answer[RevenueReport](a.c.raw.GetRevenueReport(ctx, period))
}

// UtilisationReport reads what was sold of the GPUs there were in a month, YYYY-MM.
func (a Admin) UtilisationReport(ctx context.Context, period string) (UtilisationReport, error) {
	return answer[UtilisationReport](a.c.raw.GetUtilisationReport(ctx, period))
}

// SetGPUCost says what an hour of a GPU model costs the operator.
func (a Admin) SetGPUCost(ctx context.Context, in GPUCostCreate, opts ...CallOption) error {
	_, err := read(a.c.raw.CreateGpuCost(ctx, &wire.CreateGpuCostParams{}, in, editors(opts)...))
	return err
}
