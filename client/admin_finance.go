package client

import (
	"context"
	"iter"
	"net/http"
	"time"

	openapi "github.com/oapi-codegen/runtime/types"

	"github.com/tranche-cloud/tranche/openapi/wire"
)

// Issuers lists who sells, as of now.
func (a Admin) Issuers(ctx context.Context) ([]Issuer, error) {
	got, err := answer[wire.IssuerList](a.c.raw.ListIssuers(ctx))
	return got.Items, err
}

// GetIssuer reads the version of an issuer that is in force.
func (a Admin) GetIssuer(ctx context.Context, issuer string) (Issuer, error) {
	return answer[Issuer](a.c.raw.GetIssuer(ctx, issuer))
}

// PutIssuer writes the next version of an issuer; the first makes it.
func (a Admin) PutIssuer(ctx context.Context, issuer string, in IssuerPut) (Issuer, error) {
	return answer[Issuer](a.c.raw.PutIssuer(ctx, issuer, in))
}

// GetTaxTable reads the newest tax table of an issuer; version 0 is none.
func (a Admin) GetTaxTable(ctx context.Context, issuer string) (TaxTable, error) {
	return answer[TaxTable](a.c.raw.GetTaxTable(ctx, issuer))
}

// PutTaxTable replaces the tax table of an issuer. It fails with approval.required
// where a second operator has to approve.
func (a Admin) PutTaxTable(ctx context.Context, issuer string, in TaxTablePut) (TaxTable, error) {
	return answer[TaxTable](a.c.raw.PutTaxTable(ctx, issuer, in))
}

// Invoices lists the documents of an organization, newest first.
func (a Admin) Invoices(ctx context.Context, organization string, f InvoiceFilter) iter.Seq2[InvoiceSummary, error] {
	return each[InvoiceSummary](func(token *string) (*http.Response, error) {
		return a.c.raw.ListOrganizationInvoices(ctx, organization, &wire.ListOrganizationInvoicesParams{
			Kind: optional(f.Kind), Status: optional(f.Status), Period: optional(f.Period), PageSize: sized(), PageToken: token,
		})
	})
}

// GetInvoice reads one document of an organization.
func (a Admin) GetInvoice(ctx context.Context, organization, invoice string) (Invoice, error) {
	return answer[Invoice](a.c.raw.GetOrganizationInvoice(ctx, organization, invoice))
}

// CreateCreditNote credits a document: lines, a net amount, or all that is left.
func (a Admin) CreateCreditNote(ctx context.Context, organization, invoice string, in CreditNoteCreate, opts ...CallOption) (Invoice, error) {
	return answer[Invoice](a.c.raw.CreateCreditNote(ctx, organization, invoice, &wire.CreateCreditNoteParams{}, in, editors(opts)...))
}

// CancelInvoice takes a document back by a full credit note.
func (a Admin) CancelInvoice(ctx context.Context, organization, invoice string, in InvoiceCancel, opts ...CallOption) (InvoiceCancelled, error) {
	return answer[InvoiceCancelled](a.c.raw.CancelInvoice(ctx, organization, invoice, &wire.CancelInvoiceParams{}, in, editors(opts)...))
}

// ReissueInvoice cancels a document and issues it again as things are now.
func (a Admin) ReissueInvoice(ctx context.Context, organization, invoice string, in InvoiceCancel, opts ...CallOption) (InvoiceReissued, error) {
	return answer[InvoiceReissued](a.c.raw.ReissueInvoice(ctx, organization, invoice, &wire.ReissueInvoiceParams{}, in, editors(opts)...))
}

// WriteOff gives up what a document is owed.
func (a Admin) WriteOff(ctx context.Context, organization, invoice string, in WriteOffCreate, opts ...CallOption) (Invoice, error) {
	return answer[Invoice](a.c.raw.CreateWriteOff(ctx, organization, invoice, &wire.CreateWriteOffParams{}, in, editors(opts)...))
}

// RefundPayment orders a refund of what a payment has left.
func (a Admin) RefundPayment(ctx context.Context, organization, payment string, in RefundCreate, opts ...CallOption) (Payment, error) {
	return answer[Payment](a.c.raw.CreateRefund(ctx, organization, payment, &wire.CreateRefundParams{}, in, editors(opts)...))
}

// ImportStatement takes a bank statement in, each entry once.
func (a Admin) ImportStatement(ctx context.Context, in StatementCreate, opts ...CallOption) (StatementImport, error) {
	return answer[StatementImport](a.c.raw.ImportStatement(ctx, &wire.ImportStatementParams{}, in, editors(opts)...))
}

// StatementLines lists bank transfers in a state, "" for all, newest first.
func (a Admin) StatementLines(ctx context.Context, state StatementLineState) iter.Seq2[StatementLine, error] {
	return each[StatementLine](func(token *string) (*http.Response, error) {
		return a.c.raw.ListStatementLines(ctx, &wire.ListStatementLinesParams{State: optional(state), PageSize: sized(), PageToken: token})
	})
}

// MatchStatementLine says whose transfer it is and what it pays.
func (a Admin) MatchStatementLine(ctx context.Context, line string, in StatementMatch, opts ...CallOption) (StatementLine, error) {
	return answer[StatementLine](a.c.raw.MatchStatementLine(ctx, line, &wire.MatchStatementLineParams{}, in, editors(opts)...))
}

// ReturnStatementLine sends a transfer back.
func (a Admin) ReturnStatementLine(ctx context.Context, line, reason string, opts ...CallOption) (StatementLine, error) {
	return answer[StatementLine](a.c.raw.ReturnStatementLine(ctx, line, &wire.ReturnStatementLineParams{},
		wire.StatementReturn{Reason: reason}, editors(opts)...))
}

// CloseMonth closes a month of the ledger for good; a second close answers the first.
func (a Admin) CloseMonth(ctx context.Context, period string, opts ...CallOption) (FinanceClose, error) {
	return answer[FinanceClose](a.c.raw.CreateFinanceClose(ctx, &wire.CreateFinanceCloseParams{}, wire.FinanceCloseCreate{Period: period}, editors(opts)...))
}

// GetClose reads a closed month.
func (a Admin) GetClose(ctx context.Context, period string) (FinanceClose, error) {
	return answer[FinanceClose](a.c.raw.GetFinanceClose(ctx, period))
}

// JournalCSV reads every posting of a closed month, byte for byte as stored.
func (a Admin) JournalCSV(ctx context.Context, period string) ([]byte, error) {
	return read(a.c.raw.GetJournalCsv(ctx, period))
}

// LedgerAccounts reads what accounts stand at: of one organization, "" for all, up to
// and with a day, the zero time for today.
func (a Admin) LedgerAccounts(ctx context.Context, organization string, day time.Time) ([]LedgerAccount, error) {
	p := wire.ListLedgerAccountsParams{Organization: optional(organization)}
	if !day.IsZero() {
		p.Day = &openapi.Date{Time: day}
	}
	got, err := answer[wire.LedgerAccounts](a.c.raw.ListLedgerAccounts(ctx, &p))
	return got.Items, err
}

// CheckInvoices rates the documents of a month again and says what differs.
func (a Admin) CheckInvoices(ctx context.Context, period string, opts ...CallOption) (RerateReport, error) {
	return answer[RerateReport](a.c.raw.CheckInvoiceRun(ctx, period, &wire.CheckInvoiceRunParams{}, editors(opts)...))
}

// Discrepancies lists what was billed beyond its proof, newest first; "" for all.
func (a Admin) Discrepancies(ctx context.Context, status DiscrepancyStatus) iter.Seq2[Discrepancy, error] {
	return each[Discrepancy](func(token *string) (*http.Response, error) {
		return a.c.raw.ListDiscrepancies(ctx, &wire.ListDiscrepanciesParams{Status: optional(status), PageSize: sized(), PageToken: token})
	})
}

// ResolveDiscrepancy decides whether the meter or the proof was right.
func (a Admin) ResolveDiscrepancy(ctx context.Context, discrepancy string, in DiscrepancyResolve, opts ...CallOption) error {
	_, err := read(a.c.raw.ResolveDiscrepancy(ctx, discrepancy, &wire.ResolveDiscrepancyParams{}, in, editors(opts)...))
	return err
}
