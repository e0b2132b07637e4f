package api

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/tax"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// What an issuer has where a request says nothing.
const (
	defaultPaymentDays = 14
	defaultRetention   = 10 // years
)

// ListIssuers answers GET /v1/admin/issuers.
func (h *Handlers) ListIssuers(ctx context.Context, _ ListIssuersRequestObject) (ListIssuersResponseObject, error) {
	got, err := h.app.ListIssuers(ctx, caller(ctx))
	if err != nil {
		return nil, err
	}
	return ListIssuers200JSONResponse{Items: each(got, issuerOf)}, nil
}

// GetIssuer answers GET /v1/admin/issuers/{issuer}.
func (h *Handlers) GetIssuer(ctx context.Context, req GetIssuerRequestObject) (GetIssuerResponseObject, error) {
	got, err := h.app.GetIssuer(ctx, caller(ctx), req.Issuer, time.Time{})
	if err != nil {
		return nil, err
	}
	return GetIssuer200JSONResponse(issuerOf(got)), nil
}

// PutIssuer answers PUT /v1/admin/issuers/{issuer}.
func (h *Handlers) PutIssuer(ctx context.Context, req PutIssuerRequestObject) (PutIssuerResponseObject, error) {
	in, err := newIssuer(req.Issuer, *req.Body)
	if err != nil {
		return nil, err
	}
	got, err := h.app.PutIssuer(ctx, caller(ctx), in)
	if err != nil {
		return nil, err
	}
	return PutIssuer200JSONResponse(issuerOf(got)), nil
}

func newIssuer(slug string, b wire.IssuerPut) (billing.Issuer, error) {
	out := billing.Issuer{
		Slug: slug, EffectiveFrom: instantOf(b.EffectiveFrom), LegalName: b.LegalName, Address: texts(b.Address), Country: b.Country,
		TaxID: value(b.TaxId), TimeZone: value(b.TimeZone), Prefix: b.Prefix, PaymentDays: defaultPaymentDays, Locale: billing.Locales[0],
		TaxPoint: billing.AtConsumption, Retention: defaultRetention, Original: billing.FormatPDF,
	}
	if b.Bank != nil {
		out.Bank = billing.Bank{Holder: b.Bank.Holder, IBAN: b.Bank.Iban, BIC: value(b.Bank.Bic), Name: value(b.Bank.Name)}
	}
	if b.PaymentDays != nil {
		out.PaymentDays = int(*b.PaymentDays)
	}
	if b.Locale != nil {
		out.Locale = string(*b.Locale)
	}
	if b.TaxPoint != nil {
		out.TaxPoint = billing.TaxPoint(*b.TaxPoint)
	}
	if b.RetentionYears != nil {
		out.Retention = int(*b.RetentionYears)
	}
	if b.Original != nil {
		out.Original = string(*b.Original)
	}
	for i, m := range value(b.SmallAmounts) {
		a, err := amountIn(m, fmt.Sprint("/small_amounts/", i))
		if err != nil {
			return out, err
		}
		out.SmallAmounts = append(out.SmallAmounts, a)
	}
	return out, nil
}

func issuerOf(i billing.Issuer) wire.Issuer {
	bank := nullable.NewNullNullable[wire.BankAccount]()
	if i.Bank != (billing.Bank{}) {
		bank = nullable.NewNullableWithValue(wire.BankAccount{
			Holder: i.Bank.Holder, Iban: i.Bank.IBAN, Bic: orAbsent(i.Bank.BIC), Name: orAbsent(i.Bank.Name),
		})
	}
	return wire.Issuer{
		Slug: i.Slug, EffectiveFrom: wire.At(i.EffectiveFrom), LegalName: i.LegalName, Address: texts(i.Address), Country: i.Country,
		TaxId: textOrNull(i.TaxID), TimeZone: i.TimeZone, Prefix: i.Prefix, Bank: bank, PaymentDays: int32(i.PaymentDays),
		Locale: wire.Locale(i.Locale), TaxPoint: wire.TaxPoint(i.TaxPoint), SmallAmounts: each(i.SmallAmounts, moneyOf),
		RetentionYears: int32(i.Retention), Original: wire.OriginalFormat(i.Original),
	}
}

// GetTaxTable answers GET /v1/admin/issuers/{issuer}/tax-table.
func (h *Handlers) GetTaxTable(ctx context.Context, req GetTaxTableRequestObject) (GetTaxTableResponseObject, error) {
	table, version, err := h.app.GetTaxTable(ctx, caller(ctx), req.Issuer)
	if err != nil {
		return nil, err
	}
	return GetTaxTable200JSONResponse(taxTableOf(table, version)), nil
}

// PutTaxTable answers PUT /v1/admin/issuers/{issuer}/tax-table.
func (h *Handlers) PutTaxTable(ctx context.Context, req PutTaxTableRequestObject) (PutTaxTableResponseObject, error) {
	table := newTaxTable(*req.Body)
	version, err := h.app.PutTaxTable(ctx, caller(ctx), req.Issuer, table)
	if err != nil {
		return nil, err
	}
	return PutTaxTable200JSONResponse(taxTableOf(table, version)), nil
}

func newTaxTable(b wire.TaxTablePut) tax.Table {
	return tax.Table{
		Rules: each(b.Rules, func(r wire.TaxRule) tax.Rule {
			return tax.Rule{
				Seller: tax.Place(value(r.Seller)), Buyer: tax.Place(value(r.Buyer)), Status: tax.Status(value(r.Status)),
				Proof: tax.Proof(value(r.Proof)), From: instantOf(r.From), To: instantOf(r.To), Category: tax.Category(r.Category),
				RateOf: tax.Party(value(r.RateOf)), Note: tax.Note(value(r.Note)),
			}
		}),
		Rates: each(value(b.Rates), func(r wire.TaxRate) tax.Rate {
			return tax.Rate{Territory: r.Territory, PPM: ppmOf(r.Rate), From: instantOf(r.From), To: instantOf(r.To)}
		}),
		Territories: each(value(b.Territories), func(t wire.TaxTerritory) tax.Territory {
			return tax.Territory{Code: t.Code, Country: t.Country, Postcodes: texts(t.Postcodes), Union: t.Union}
		}),
	}
}

// ppmOf reads a decimal fraction of at most six decimals, as its pattern allows.
func ppmOf(rate string) int64 {
	r, ok := new(big.Rat).SetString(rate)
	if !ok {
		return 0
	}
	r.Mul(r, big.NewRat(1_000_000, 1))
	return r.Num().Int64()
}

func taxTableOf(t tax.Table, version int) wire.TaxTable {
	return wire.TaxTable{
		Version: int32(version),
		Rules: each(t.Rules, func(r tax.Rule) wire.TaxRule {
			return wire.TaxRule{
				Seller: orAbsent(string(r.Seller)), Buyer: orAbsent(string(r.Buyer)), Status: orAbsent(wire.BuyerStatus(r.Status)),
				Proof: orAbsent(wire.TaxProof(r.Proof)), From: orAbsentTime(r.From), To: orAbsentTime(r.To), Category: wire.TaxCategory(r.Category),
				RateOf: orAbsent(wire.TaxRateOf(r.RateOf)), Note: orAbsent(string(r.Note)),
			}
		}),
		Rates: each(t.Rates, func(r tax.Rate) wire.TaxRate {
			return wire.TaxRate{Territory: r.Territory, Rate: rateOf(r.PPM), From: orAbsentTime(r.From), To: orAbsentTime(r.To)}
		}),
		Territories: each(t.Territories, func(t tax.Territory) wire.TaxTerritory {
			return wire.TaxTerritory{Code: t.Code, Country: t.Country, Postcodes: texts(t.Postcodes), Union: t.Union}
		}),
	}
}

func orAbsentTime(t time.Time) *wire.Timestamp {
	if t.IsZero() {
		return nil
	}
	at := wire.At(t)
	return &at
}
