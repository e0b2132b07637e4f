package api

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/big"
	"strconv"

	"github.com/oapi-codegen/nullable"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
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
	f := app.InvoiceFilter{
		Kind: billing.Kind(value(req.Params.Kind)), Label: string(value(req.Params.Status)), Period: value(req.Params.Period),
	}
	l, err := h.app.ListInvoices(ctx, caller(ctx), f, p)
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
	out := wire.Invoice{
		Id: textOrNull(v.ID.String()), Number: textOrNull(v.Number), Status: wire.InvoiceStatus(v.Label()), Kind: kindOf(v),
		Period: periodOf(v.Period), Currency: v.Currency.Code(), Seller: partyOf(v.Seller), Buyer: partyOf(v.Buyer),
		Issuer: textOrNull(v.Issuer), Locale: textOrNull(v.Locale), Corrects: documentRefOf(v.Corrects), Replaces: documentRefOf(v.Replaces),
		Reason: textOrNull(v.Reason), TaxPoint: timeOrNull(&v.TaxPoint), DueOn: dateOrNull(v.DueOn), CloseNo: int32(v.CloseNo),
		Lines: make([]wire.InvoiceLine, len(v.Lines)), Taxes: make([]wire.InvoiceTax, len(v.Taxes)),
		Subtotal: moneyOf(v.Subtotal), Total: moneyOf(v.Total), Due: moneyOf(v.Due), Settlement: settlementOf(v),
		Notes: texts(v.Notes), Original: originalRefOf(v.Original),
		ContentHash: hex.EncodeToString(v.ContentHash[:]), FinalizedAt: timeOrNull(&v.FinalizedAt), Simulated: v.Simulated(),
	}
	for i, l := range v.Lines {
		out.Lines[i] = invoiceLineOf(v, l)
	}
	for i, t := range v.Taxes {
		out.Taxes[i] = wire.InvoiceTax{
			Category: t.Category, Rate: rateOf(t.RatePPM), Base: moneyOf(t.Base), Amount: moneyOf(t.Amount),
		}
	}
	return out
}

// kindOf reads a document without a kind as what it always was.
func kindOf(v billing.Invoice) wire.InvoiceKind {
	if v.Kind == "" {
		return wire.InvoiceKindUsage
	}
	return wire.InvoiceKind(v.Kind)
}

func documentRefOf(r *billing.DocumentRef) nullable.Nullable[wire.DocumentRef] {
	if r == nil {
		return nullable.NewNullNullable[wire.DocumentRef]()
	}
	return nullable.NewNullableWithValue(wire.DocumentRef{Invoice: r.ID.String(), Number: r.Number, IssuedAt: timeOrNull(&r.Issued)})
}

func settlementOf(v billing.Invoice) wire.Settlement {
	s := v.Settlement
	return wire.Settlement{
		Prepaid: moneyIn(s.Prepaid, v.Currency), Paid: moneyIn(s.Paid, v.Currency),
		Credited: moneyIn(s.Credited, v.Currency), WrittenOff: moneyIn(s.WrittenOff, v.Currency),
	}
}

func originalRefOf(o *billing.Original) nullable.Nullable[wire.OriginalRef] {
	if o == nil {
		return nullable.NewNullNullable[wire.OriginalRef]()
	}
	return nullable.NewNullableWithValue(wire.OriginalRef{
		MediaType: o.MediaType, Sha256: hex.EncodeToString(o.SHA256[:]), Size: int32(o.Size),
	})
}

// invoiceLineOf shows the amount before its rounding in a preview only: a document
// promises no more than its minor units.
func invoiceLineOf(v billing.Invoice, l billing.Line) wire.InvoiceLine {
	out := wire.InvoiceLine{
		Id: nullable.NewNullNullable[string](), Description: l.Description, Project: l.Key.Project.String(), Component: componentOf(l),
		Meter: string(l.Key.Meter), Sku: l.SKUCode, Reference: textOrNull(l.Key.Reference), Pricing: orNull[wire.PricingKind](nil),
		Tier: int32(l.Key.Tier), PricedUnit: textOrNull(l.PricedUnit), Packages: orNull(orAbsent(l.Packages)),
		Discounts: each(l.Discounts, func(d billing.Discount) wire.LineDiscount {
			return wire.LineDiscount{Name: d.Name, Rate: rateOf(d.PPM)}
		}),
		Quantity: wire.Quantity{Value: l.Quantity.String(), Unit: l.QuantityUnit}, UnitPrice: priceOf(l.UnitPrice), Amount: moneyOf(l.Amount),
		TaxCategory: l.Key.TaxCategory, TaxRate: rateOf(l.TaxRatePPM), During: orNull[wire.Period](nil), Corrects: orNull[wire.LineRef](nil),
		SubjectsUrl: nullable.NewNullNullable[string](), Simulated: l.Simulated,
	}
	if l.Key.IsolationGPU != "" {
		out.Isolation = &wire.Isolation{Gpu: wire.GpuIsolation(l.Key.IsolationGPU), Host: wire.HostIsolation(l.Key.IsolationHost)}
	}
	if l.Key.Pricing != "" {
		out.Pricing = nullable.NewNullableWithValue(wire.PricingKind(l.Key.Pricing))
	}
	if !l.During.From.IsZero() && !l.During.Open() {
		out.During = nullable.NewNullableWithValue(periodOf(l.During))
	}
	if l.Corrects != nil {
		out.Corrects = nullable.NewNullableWithValue(wire.LineRef{
			Invoice: l.Corrects.Invoice.String(), Number: l.Corrects.Number, Line: int32(l.Corrects.No),
		})
	}
	if v.State == billing.Preview {
		exact := exactOf(l.Exact)
		out.Exact = &exact
		return out
	}
	out.Id = nullable.NewNullableWithValue(strconv.Itoa(l.No))
	if len(l.Subjects) > 0 {
		out.SubjectsUrl = nullable.NewNullableWithValue(fmt.Sprintf("/v1/organization/invoices/%s/lines/%d/segments", v.ID, l.No))
	}
	return out
}

// componentOf reads a line without a component as usage, which all lines once were.
func componentOf(l billing.Line) wire.LineComponent {
	if l.Key.Component == "" {
		return wire.LineComponentUsage
	}
	return wire.LineComponent(l.Key.Component)
}

func invoiceSummaryOf(v billing.Invoice) wire.InvoiceSummary {
	return wire.InvoiceSummary{
		Id: v.ID.String(), Number: textOrNull(v.Number), Kind: kindOf(v), Status: wire.InvoiceStatus(v.Label()), Period: periodOf(v.Period),
		Currency: v.Currency.Code(), Total: moneyOf(v.Total), Due: moneyOf(v.Due), DueOn: dateOrNull(v.DueOn), FinalizedAt: timeOrNull(&v.FinalizedAt),
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

// ListLineSegments answers GET …/invoices/{invoice}/lines/{line}/segments.
func (h *Handlers) ListLineSegments(ctx context.Context, req ListLineSegmentsRequestObject) (ListLineSegmentsResponseObject, error) {
	which, err := parse[id.Invoice](req.Invoice)
	if err != nil {
		return nil, err
	}
	no, err := strconv.Atoi(req.Line)
	if err != nil || no < 1 {
		return nil, auth.NotFound()
	}
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.InvoiceLineSegments(ctx, caller(ctx), which, no, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, lineSegmentOf)
	return ListLineSegments200JSONResponse{Items: items, NextPageToken: next}, err
}

func lineSegmentOf(s app.LineSegment) wire.LineSegment {
	return wire.LineSegment{
		Segment: s.Segment.String(), SubjectKind: s.Subject.Kind, Subject: subjectOf(s.Subject), Name: s.Name,
		From: wire.At(s.From), To: wire.At(s.To), Units: int32(s.Units), Quantity: wire.Quantity{Value: s.Quantity.String(), Unit: s.Unit},
	}
}

// subjectOf writes the id of what was metered.
func subjectOf(s metering.Subject) string {
	switch s.Kind {
	case "reservation":
		return id.Reservation(s.ID).String()
	default:
		return id.Instance(s.ID).String()
	}
}

// ListInvoicePayments answers GET …/invoices/{invoice}/payments.
func (h *Handlers) ListInvoicePayments(ctx context.Context, req ListInvoicePaymentsRequestObject) (ListInvoicePaymentsResponseObject, error) {
	which, err := parse[id.Invoice](req.Invoice)
	if err != nil {
		return nil, err
	}
	c := caller(ctx)
	got, err := h.app.InvoicePayments(ctx, c, c.Org, which)
	if err != nil {
		return nil, err
	}
	return ListInvoicePayments200JSONResponse{Items: each(got, paymentAttemptOf)}, nil
}
