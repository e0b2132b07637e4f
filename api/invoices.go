package api

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/big"
	"net/http"
	"strconv"

	"github.com/oapi-codegen/nullable"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/render"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// PreviewInvoice answers GET /v1/organization/invoice-preview.
func (h *Handlers) PreviewInvoice(ctx context.Context, req PreviewInvoiceRequestObject) (PreviewInvoiceResponseObject, error) {
	got, err := h.app.PreviewInvoice(ctx, caller(ctx), value(req.Params.Period))
	if err != nil {
		return nil, err
	}
	return PreviewInvoice200JSONResponse(invoiceOf(got)), nil
}

// ListInvoices answers GET /v1/organization/invoices.
func (h *Handlers) ListInvoices(ctx context.Context, req ListInvoicesRequestObject) (ListInvoicesResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListInvoices(ctx, caller(ctx), p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, invoiceSummaryOf)
	return ListInvoices200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetInvoice answers GET /v1/organization/invoices/{invoice}.
func (h *Handlers) GetInvoice(ctx context.Context, req GetInvoiceRequestObject) (GetInvoiceResponseObject, error) {
	got, err := h.invoice(ctx, req.Invoice)
	if err != nil {
		return nil, err
	}
	return GetInvoice200JSONResponse(invoiceOf(got)), nil
}

func (h *Handlers) invoice(ctx context.Context, text string) (billing.Invoice, error) {
	which, err := parse[id.Invoice](text)
	if err != nil {
		return billing.Invoice{}, err
	}
	return h.app.GetInvoice(ctx, caller(ctx), which)
}

func invoiceOf(v billing.Invoice) wire.Invoice {
	finalized := timeOrNull(&v.FinalizedAt)
	out := wire.Invoice{
		Id: textOrNull(v.ID.String()), Number: textOrNull(v.Number), Status: wire.InvoiceStatus(v.State),
		Period: periodOf(v.Period), Currency: v.Currency.Code(), Seller: partyOf(v.Seller), Buyer: partyOf(v.Buyer),
		Lines: make([]wire.InvoiceLine, len(v.Lines)), Taxes: make([]wire.InvoiceTax, len(v.Taxes)),
		Subtotal: moneyOf(v.Subtotal), Total: moneyOf(v.Total), Due: moneyOf(v.Due),
		ContentHash: hex.EncodeToString(v.ContentHash[:]), FinalizedAt: finalized, Simulated: v.Simulated(),
	}
	for i, l := range v.Lines {
		out.Lines[i] = invoiceLineOf(l, v.State)
	}
	for i, t := range v.Taxes {
		out.Taxes[i] = wire.InvoiceTax{
			Category: t.Category, Rate: rateOf(t.RatePPM), Base: moneyOf(t.Base), Amount: moneyOf(t.Amount),
		}
	}
	return out
}

// invoiceLineOf shows the amount before its rounding in a preview only: a document
// promises no more than its minor units.
func invoiceLineOf(l billing.Line, state billing.State) wire.InvoiceLine {
	out := wire.InvoiceLine{
		Id: nullable.NewNullNullable[string](), Description: l.Description, Project: l.Key.Project.String(),
		Meter: string(l.Key.Meter), Sku: l.SKUCode,
		Isolation: wire.Isolation{Gpu: wire.GpuIsolation(l.Key.IsolationGPU), Host: wire.HostIsolation(l.Key.IsolationHost)},
		Quantity:  wire.Quantity{Value: l.Quantity.String(), Unit: l.QuantityUnit},
		UnitPrice: priceOf(l.UnitPrice), Amount: moneyOf(l.Amount), TaxCategory: l.Key.TaxCategory,
		SubjectsUrl: nullable.NewNullNullable[string](), Simulated: l.Simulated,
	}
	if state == billing.Preview {
		exact := exactOf(l.Exact)
		out.Exact = &exact
	} else {
		out.Id = nullable.NewNullableWithValue(strconv.Itoa(l.No))
	}
	return out
}

func invoiceSummaryOf(v billing.Invoice) wire.InvoiceSummary {
	return wire.InvoiceSummary{
		Id: v.ID.String(), Number: textOrNull(v.Number), Status: wire.InvoiceStatus(v.State), Period: periodOf(v.Period),
		Currency: v.Currency.Code(), Total: moneyOf(v.Total), Due: moneyOf(v.Due), FinalizedAt: timeOrNull(&v.FinalizedAt),
	}
}

func periodOf(i metering.Interval) wire.Period {
	return wire.Period{From: wire.At(i.From), To: wire.At(i.To)}
}

func partyOf(p billing.Party) wire.Party {
	address := texts(p.Address)
	return wire.Party{Name: p.Name, Address: &address, Country: textOrNull(p.Country), TaxId: textOrNull(p.TaxID)}
}

// rateOf writes parts per million as a decimal fraction without trailing zeros.
func rateOf(ppm int64) string {
	rate := big.NewRat(ppm, 1_000_000)
	for decimals := range 6 {
		text := rate.FloatString(decimals)
		if back, ok := new(big.Rat).SetString(text); ok && back.Cmp(rate) == 0 {
			return text
		}
	}
	return rate.FloatString(6)
}

// GetInvoiceHtml answers GET /v1/organization/invoices/{invoice}/html.
func (h *Handlers) GetInvoiceHtml(ctx context.Context, req GetInvoiceHtmlRequestObject) (GetInvoiceHtmlResponseObject, error) {
	got, err := h.invoice(ctx, req.Invoice)
	if err != nil {
		return nil, err
	}
	page, err := render.HTML(got)
	if err != nil {
		return nil, fmt.Errorf("rendering invoice %s: %w", got.ID, err)
	}
	return htmlPage(page), nil
}

// htmlPage is a document that may load and run nothing.
type htmlPage []byte

func (p htmlPage) VisitGetInvoiceHtmlResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", render.ContentSecurityPolicy)
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(p)
	return err
}
