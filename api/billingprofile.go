package api

import (
	"context"

	"github.com/oapi-codegen/nullable"

	"github.com/tranche-cloud/tranche/billing/tax"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// GetBillingProfile answers GET /v1/organization/billing-profile.
func (h *Handlers) GetBillingProfile(ctx context.Context, _ GetBillingProfileRequestObject) (GetBillingProfileResponseObject, error) {
	c := caller(ctx)
	got, err := h.app.BillingProfile(ctx, c, c.Org)
	if err != nil {
		return nil, err
	}
	return GetBillingProfile200JSONResponse(billingProfileOf(got)), nil
}

// PutBillingProfile answers PUT /v1/organization/billing-profile.
func (h *Handlers) PutBillingProfile(ctx context.Context, req PutBillingProfileRequestObject) (PutBillingProfileResponseObject, error) {
	c, err := payer(ctx)
	if err != nil {
		return nil, err
	}
	got, err := h.app.SetBillingProfile(ctx, c, c.Org, newBillingProfile(*req.Body))
	if err != nil {
		return nil, err
	}
	return PutBillingProfile200JSONResponse(billingProfileOf(got)), nil
}

// GetOrganizationBillingProfile answers GET …/organizations/{organization}/billing-profile.
func (h *Handlers) GetOrganizationBillingProfile(ctx context.Context, req GetOrganizationBillingProfileRequestObject) (GetOrganizationBillingProfileResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	got, err := h.app.BillingProfile(ctx, caller(ctx), o)
	if err != nil {
		return nil, err
	}
	return GetOrganizationBillingProfile200JSONResponse(billingProfileOf(got)), nil
}

// PutOrganizationBillingProfile answers PUT …/organizations/{organization}/billing-profile.
func (h *Handlers) PutOrganizationBillingProfile(ctx context.Context, req PutOrganizationBillingProfileRequestObject) (PutOrganizationBillingProfileResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	b := *req.Body
	in := newBillingProfile(wire.BillingProfilePut{
		Name: b.Name, Address: b.Address, Country: b.Country, Postcode: b.Postcode, TaxId: b.TaxId, Status: b.Status,
		Locale: b.Locale, EInvoice: b.EInvoice, Endpoint: b.Endpoint,
	})
	in.Issuer = value(b.Issuer)
	if in.Issuer == "" {
		was, err := h.app.BillingProfile(ctx, caller(ctx), o)
		if err != nil {
			return nil, err
		}
		in.Issuer = was.Issuer
	}
	got, err := h.app.SetBillingProfile(ctx, caller(ctx), o, in)
	if err != nil {
		return nil, err
	}
	return PutOrganizationBillingProfile200JSONResponse(billingProfileOf(got)), nil
}

// CheckTaxId answers POST …/billing-profile/actions/check-tax-id.
func (h *Handlers) CheckTaxId(ctx context.Context, req CheckTaxIdRequestObject) (CheckTaxIdResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	var out CheckTaxId200JSONResponse
	again, err := h.onceApart(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.CheckTaxID(ctx, caller(ctx), o)
		if err != nil {
			return nil, err
		}
		out.Body = taxIDCheckOf(got)
		return out.VisitCheckTaxIdResponse, nil
	})
	return either[CheckTaxIdResponseObject](out, again, err)
}

// RecordTaxIdCheck answers POST …/organizations/{organization}/tax-id-checks.
func (h *Handlers) RecordTaxIdCheck(ctx context.Context, req RecordTaxIdCheckRequestObject) (RecordTaxIdCheckResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	in := app.TaxIDAnswer{Outcome: string(req.Body.Outcome), Source: req.Body.Source, Consultation: value(req.Body.Consultation)}
	var out RecordTaxIdCheck201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.RecordTaxIDCheck(ctx, caller(ctx), o, in)
		if err != nil {
			return nil, err
		}
		out.Body = taxIDCheckOf(got)
		return out.VisitRecordTaxIdCheckResponse, nil
	})
	return either[RecordTaxIdCheckResponseObject](out, again, err)
}

func newBillingProfile(b wire.BillingProfilePut) store.BillingProfile {
	return store.BillingProfile{
		Name: value(b.Name), Address: texts(value(b.Address)), Country: value(b.Country), Postcode: value(b.Postcode),
		TaxID: tax.ID(value(b.TaxId)), Status: tax.Status(value(b.Status)), Locale: string(value(b.Locale)),
		EInvoice: value(b.EInvoice), Endpoint: value(b.Endpoint),
	}
}

func billingProfileOf(p store.BillingProfile) wire.BillingProfile {
	locale := nullable.NewNullNullable[wire.Locale]()
	if p.Locale != "" {
		locale = nullable.NewNullableWithValue(wire.Locale(p.Locale))
	}
	return wire.BillingProfile{
		Name: p.Name, Address: texts(p.Address), Country: textOrNull(p.Country), Postcode: textOrNull(p.Postcode), TaxId: textOrNull(string(p.TaxID)),
		Status: wire.BuyerStatus(p.Status), Locale: locale, Issuer: p.Issuer, EInvoice: p.EInvoice, Endpoint: textOrNull(p.Endpoint),
	}
}

func taxIDCheckOf(c store.TaxIDCheck) wire.TaxIdCheck {
	return wire.TaxIdCheck{
		Outcome: wire.TaxIdOutcome(c.Outcome), Source: c.Source, Consultation: textOrNull(c.Consultation), CheckedAt: wire.At(c.At),
	}
}
