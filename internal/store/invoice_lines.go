package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// lineRow is a line as it is written; the names are those of the statement.
type lineRow struct {
	LineNo          int           `json:"line_no"`
	Component       string        `json:"component"`
	Reference       string        `json:"reference"`
	Variant         string        `json:"variant"`
	ProjectID       *uuid.UUID    `json:"project_id"`
	ProjectName     string        `json:"project_name"`
	Description     string        `json:"description"`
	Meter           string        `json:"meter"`
	SKUID           *uuid.UUID    `json:"sku_id"`
	SKUCode         string        `json:"sku_code"`
	IsolationGPU    string        `json:"isolation_gpu"`
	IsolationHost   string        `json:"isolation_host"`
	PricingKind     string        `json:"pricing_kind"`
	PriceVersionID  *uuid.UUID    `json:"price_version_id"`
	Tier            int           `json:"tier"`
	TaxCategory     string        `json:"tax_category"`
	RatePPM         int64         `json:"rate_ppm"`
	Quantity        string        `json:"quantity"`
	QuantityUnit    string        `json:"quantity_unit"`
	PricedUnit      string        `json:"priced_unit"`
	Divisor         int64         `json:"divisor"`
	UnitPrice       string        `json:"unit_price"`
	Discounts       []discountRow `json:"discounts"`
	Packages        int64         `json:"packages"`
	Exact           string        `json:"exact"`
	AmountMinor     int64         `json:"amount_minor"`
	Simulated       bool          `json:"simulated"`
	FromAt          *time.Time    `json:"from_at"`
	ToAt            *time.Time    `json:"to_at"`
	CorrectsInvoice *uuid.UUID    `json:"corrects_invoice"`
	CorrectsNumber  string        `json:"corrects_number"`
	CorrectsLine    *int          `json:"corrects_line"`
}

type discountRow struct {
	Name string `json:"name"`
	PPM  int64  `json:"ppm"`
}

func lineRowOf(l billing.Line) lineRow {
	r := lineRow{
		LineNo: l.No, Component: string(l.Key.Component), Reference: l.Key.Reference, Variant: l.Key.Variant,
		ProjectID: nullable(l.Key.Project), ProjectName: l.ProjectName, Description: l.Description, Meter: string(l.Key.Meter),
		SKUID: nullable(uuid.UUID(l.Key.SKU)), SKUCode: l.SKUCode, IsolationGPU: l.Key.IsolationGPU, IsolationHost: l.Key.IsolationHost,
		PricingKind: string(l.Key.Pricing), PriceVersionID: nullable(l.Key.PriceVersion), Tier: l.Key.Tier,
		TaxCategory: l.Key.TaxCategory, RatePPM: l.TaxRatePPM, Quantity: l.Quantity.String(), QuantityUnit: l.QuantityUnit,
		PricedUnit: l.PricedUnit, Divisor: l.Divisor, UnitPrice: l.UnitPrice.Decimal(), Discounts: []discountRow{}, Packages: l.Packages,
		Exact: l.Exact.Rat().RatString(), AmountMinor: l.Amount.Minor(), Simulated: l.Simulated,
	}
	for _, d := range l.Discounts {
		r.Discounts = append(r.Discounts, discountRow{Name: d.Name, PPM: d.PPM})
	}
	if !l.During.From.IsZero() {
		r.FromAt, r.ToAt = &l.During.From, &l.During.To
	}
	if l.Corrects != nil {
		no := l.Corrects.No
		r.CorrectsInvoice, r.CorrectsNumber, r.CorrectsLine = nullable(l.Corrects.Invoice), l.Corrects.Number, &no
	}
	return r
}

// lines reads the lines of a document with their shares.
func (t *tx) lines(ctx context.Context, v billing.Invoice) ([]billing.Line, error) {
	rows, err := t.q.InvoiceLines(ctx, t.raw, uuid.UUID(v.Org), uuid.UUID(v.ID))
	if err != nil {
		return nil, mapError(err)
	}
	shares, err := t.q.InvoiceSubjects(ctx, t.raw, uuid.UUID(v.Org), uuid.UUID(v.ID))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]billing.Line, 0, len(rows))
	for _, r := range rows {
		l, err := lineFrom(r, v.Currency)
		if err != nil {
			return nil, fmt.Errorf("reading line %d of invoice %s: %w", r.LineNo, v.ID, err)
		}
		for len(shares) > 0 && shares[0].LineNo == r.LineNo { // both are ordered by line
			s := shares[0]
			shares = shares[1:]
			quantity, ok := new(big.Int).SetString(s.Quantity, 10)
			if !ok {
				return nil, fmt.Errorf("reading a share of invoice %s: quantity %q", v.ID, s.Quantity)
			}
			l.Subjects = append(l.Subjects, billing.Share{
				Subject: metering.Subject{Kind: s.SubjectKind, ID: s.SubjectID}, Name: s.SubjectName, Quantity: quantity,
				Segments: s.SegmentCount, Amount: money.NewAmount(s.AmountMinor, v.Currency), Hash: [32]byte(s.Hash),
			})
		}
		out = append(out, l)
	}
	return out, nil
}

func lineFrom(r db.InvoiceLinesRow, currency money.Currency) (billing.Line, error) {
	quantity, ok := new(big.Int).SetString(r.Quantity, 10)
	if !ok {
		return billing.Line{}, fmt.Errorf("quantity %q", r.Quantity)
	}
	price, err := money.ParsePrice(r.UnitPrice, currency)
	if err != nil {
		return billing.Line{}, err
	}
	var discounts []discountRow
	if err := json.Unmarshal(r.Discounts, &discounts); err != nil {
		return billing.Line{}, fmt.Errorf("discounts: %w", err)
	}
	l := billing.Line{
		No: int(r.LineNo), SKUCode: r.SkuCode, Description: r.Description, ProjectName: r.ProjectName,
		Key: billing.LineKey{
			Component: billing.Component(r.Component), Reference: r.Reference, Variant: r.Variant, Project: orZero[id.Project](r.ProjectID),
			Meter: metering.Meter(r.Meter), SKU: orZero[uuid.UUID](r.SkuID), IsolationGPU: r.IsolationGpu,
			IsolationHost: r.IsolationHost, Pricing: billing.PricingKind(r.PricingKind), PriceVersion: orZero[id.PriceVersion](r.PriceVersionID),
			Tier: int(r.Tier), TaxCategory: r.TaxCategory,
		},
		Quantity: quantity, QuantityUnit: r.QuantityUnit, PricedUnit: r.PricedUnit, Divisor: r.Divisor, UnitPrice: price,
		TaxRatePPM: r.RatePpm, Packages: r.Packages, Amount: money.NewAmount(r.AmountMinor, currency), Simulated: r.Simulated,
	}
	for _, d := range discounts {
		l.Discounts = append(l.Discounts, billing.Discount{Name: d.Name, PPM: d.PPM})
	}
	if r.FromAt != nil && r.ToAt != nil {
		l.During = metering.Between(*r.FromAt, *r.ToAt)
	}
	if r.CorrectsInvoice != nil && r.CorrectsLine != nil {
		l.Corrects = &billing.LineRef{Invoice: id.Invoice(*r.CorrectsInvoice), Number: r.CorrectsNumber, No: int(*r.CorrectsLine)}
	}
	if r.Exact == "" { // of a document from before components: price × quantity is all there was
		l.Exact = price.Times(quantity, r.Divisor)
		unit, err := metering.UnitOf(l.Key.Meter)
		l.PricedUnit = unit.Priced
		return l, err
	}
	exact, ok := new(big.Rat).SetString(r.Exact)
	if !ok {
		return billing.Line{}, fmt.Errorf("exact value %q", r.Exact)
	}
	l.Exact = money.NewExact(exact, currency)
	return l, nil
}
