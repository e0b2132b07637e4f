package api

import (
	"context"
	"net/http"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/billing/render"
	"github.com/tranche-cloud/tranche/billing/tax"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// documentIn reads a document of an organization that a path names.
func (h *Handlers) documentIn(ctx context.Context, organization, invoice string) (billing.Invoice, error) {
	o, which, err := parse2[id.Org, id.Invoice](organization, invoice)
	if err != nil {
		return billing.Invoice{}, err
	}
	return h.app.GetInvoice(ctx, inside(ctx, o), which)
}

// GetOrganizationInvoiceHtml answers GET …/organizations/{organization}/invoices/{invoice}/html.
func (h *Handlers) GetOrganizationInvoiceHtml(ctx context.Context, req GetOrganizationInvoiceHtmlRequestObject) (GetOrganizationInvoiceHtmlResponseObject, error) {
	got, err := h.documentIn(ctx, req.Organization, req.Invoice)
	if err != nil {
		return nil, err
	}
	return copyIn(got, "html", "text/html; charset=utf-8", render.HTML)
}

// GetOrganizationInvoicePdf answers GET …/organizations/{organization}/invoices/{invoice}/pdf.
func (h *Handlers) GetOrganizationInvoicePdf(ctx context.Context, req GetOrganizationInvoicePdfRequestObject) (GetOrganizationInvoicePdfResponseObject, error) {
	got, err := h.documentIn(ctx, req.Organization, req.Invoice)
	if err != nil {
		return nil, err
	}
	return h.pdf(ctx, got)
}

func (d *document) VisitGetOrganizationInvoiceHtmlResponse(w http.ResponseWriter) error {
	return d.write(w)
}

func (d *document) VisitGetOrganizationInvoicePdfResponse(w http.ResponseWriter) error {
	return d.write(w)
}

// ListStatementCandidates answers GET …/statement-lines/{statement_line}/candidates.
func (h *Handlers) ListStatementCandidates(ctx context.Context, req ListStatementCandidatesRequestObject) (ListStatementCandidatesResponseObject, error) {
	which, err := parse[id.StatementLine](req.StatementLine)
	if err != nil {
		return nil, err
	}
	got, err := h.app.StatementCandidates(ctx, caller(ctx), which)
	if err != nil {
		return nil, err
	}
	return ListStatementCandidates200JSONResponse{Items: each(got, func(c payment.Candidate) wire.StatementCandidate {
		return wire.StatementCandidate{
			Organization: c.Org.String(), OrganizationName: c.OrgName, Invoice: c.Invoice.String(), Number: c.Number,
			Due: moneyOf(c.Due), WrittenOff: moneyIn(c.Written, c.Due.Currency()),
		}
	})}, nil
}

// GetStarterTaxTable answers GET /v1/admin/starter-tax-table.
func (h *Handlers) GetStarterTaxTable(context.Context, GetStarterTaxTableRequestObject) (GetStarterTaxTableResponseObject, error) {
	return GetStarterTaxTable200JSONResponse(taxTableOf(tax.Starter(), 0)), nil
}

// GetDunningSchedule answers GET /v1/admin/issuers/{issuer}/dunning-schedule.
func (h *Handlers) GetDunningSchedule(ctx context.Context, req GetDunningScheduleRequestObject) (GetDunningScheduleResponseObject, error) {
	if _, err := h.app.GetIssuer(ctx, caller(ctx), req.Issuer, time.Time{}); err != nil {
		return nil, err
	}
	got, err := h.app.DunningSchedule(ctx, caller(ctx), req.Issuer)
	if err != nil {
		return nil, err
	}
	return GetDunningSchedule200JSONResponse{Steps: each(got, dunningStepOf)}, nil
}

// PutDunningSchedule answers PUT /v1/admin/issuers/{issuer}/dunning-schedule.
func (h *Handlers) PutDunningSchedule(ctx context.Context, req PutDunningScheduleRequestObject) (PutDunningScheduleResponseObject, error) {
	if _, err := h.app.GetIssuer(ctx, caller(ctx), req.Issuer, time.Time{}); err != nil {
		return nil, err
	}
	steps := payment.Schedule(each(req.Body.Steps, func(s wire.DunningStep) payment.Step {
		return payment.Step{Days: int(s.Days), Action: payment.Action(s.Action)}
	}))
	if err := h.app.SetDunningSchedule(ctx, caller(ctx), req.Issuer, steps); err != nil {
		return nil, err
	}
	return PutDunningSchedule200JSONResponse{Steps: each(steps, dunningStepOf)}, nil
}

func dunningStepOf(s payment.Step) wire.DunningStep {
	return wire.DunningStep{Days: int32(s.Days), Action: wire.DunningAction(s.Action)}
}
