package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Invoice reads an invoice with lines, shares and taxes. It fails with
// resource.not_found.
func (t *tx) Invoice(ctx context.Context, org id.Org, inv id.Invoice) (billing.Invoice, error) {
	r, err := t.q.GetInvoice(ctx, t.raw, uuid.UUID(org), uuid.UUID(inv))
	if err != nil {
		return billing.Invoice{}, mapError(err)
	}
	v, err := invoiceFrom(db.ListInvoicesRow(r))
	if err != nil {
		return billing.Invoice{}, err
	}
	if v.Lines, err = t.lines(ctx, v); err != nil {
		return billing.Invoice{}, err
	}
	taxes, err := t.q.InvoiceTaxes(ctx, t.raw, uuid.UUID(org), uuid.UUID(inv))
	if err != nil {
		return billing.Invoice{}, mapError(err)
	}
	for _, x := range taxes {
		v.Taxes = append(v.Taxes, billing.Tax{
			Category: x.Category, RatePPM: x.RatePpm, Base: money.NewAmount(x.BaseMinor, v.Currency),
			Amount: money.NewAmount(x.AmountMinor, v.Currency), Note: x.Note,
		})
	}
	return v, nil
}

// Invoices lists finalized invoices without lines, shares and taxes.
func (t *tx) Invoices(ctx context.Context, org id.Org, k Keyset) ([]billing.Invoice, error) {
	rows, err := t.q.ListInvoices(ctx, t.raw, db.ListInvoicesParams{OrgID: uuid.UUID(org), Before: k.before(), Size: int32(k.Size)})
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]billing.Invoice, 0, len(rows))
	for _, r := range rows {
		v, err := invoiceFrom(r)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func invoiceFrom(r db.ListInvoicesRow) (billing.Invoice, error) {
	currency, err := money.ParseCurrency(r.Currency)
	if err != nil {
		return billing.Invoice{}, fmt.Errorf("reading invoice %s: %w", r.ID, err)
	}
	v := billing.Invoice{
		ID: id.Invoice(r.ID), Org: id.Org(r.OrgID), State: billing.State(r.Status), Period: metering.Between(r.PeriodFrom, r.PeriodTo),
		CloseNo: int(r.CloseNo), Currency: currency, Subtotal: money.NewAmount(r.SubtotalMinor, currency),
		TaxTotal: money.NewAmount(r.TaxMinor, currency), Total: money.NewAmount(r.TotalMinor, currency),
		Due: money.NewAmount(r.TotalMinor, currency), CreatedAt: r.CreatedAt.UTC(),
	}
	copy(v.ContentHash[:], r.ContentHash)
	if r.Number != nil {
		v.Number = *r.Number
	}
	if r.FinalizedAt != nil {
		v.FinalizedAt = r.FinalizedAt.UTC()
	}
	var seller, buyer partyRow
	if err := errors.Join(json.Unmarshal(r.Seller, &seller), json.Unmarshal(r.Buyer, &buyer)); err != nil {
		return billing.Invoice{}, fmt.Errorf("reading the parties of invoice %s: %w", v.ID, err)
	}
	v.Seller, v.Buyer = seller.party(), buyer.party()
	return v, nil
}

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
		for _, s := range shares {
			if s.LineNo != r.LineNo {
				continue
			}
			quantity, ok := new(big.Int).SetString(s.Quantity, 10)
			if !ok {
				return nil, fmt.Errorf("reading a share of invoice %s: quantity %q", v.ID, s.Quantity)
			}
			l.Subjects = append(l.Subjects, billing.Share{
				Subject: metering.Subject{Kind: "instance", ID: s.SubjectID}, Name: s.SubjectName, Quantity: quantity,
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
	unit, err := metering.UnitOf(metering.Meter(r.Meter))
	if err != nil {
		return billing.Line{}, err
	}
	return billing.Line{
		No: int(r.LineNo), SKUCode: r.SkuCode, Description: r.Description, ProjectName: r.ProjectName,
		Key: billing.LineKey{
			Project: id.Project(r.ProjectID), Meter: metering.Meter(r.Meter), SKU: r.SkuID, IsolationGPU: r.IsolationGpu,
			IsolationHost: r.IsolationHost, Pricing: billing.PricingKind(r.PricingKind), PriceVersion: orZero[id.PriceVersion](r.PriceVersionID),
			Tier: int(r.Tier), TaxCategory: r.TaxCategory,
		},
		Quantity: quantity, QuantityUnit: r.QuantityUnit, PricedUnit: unit.Priced, Divisor: r.Divisor, UnitPrice: price,
		Exact: price.Times(quantity, r.Divisor), Amount: money.NewAmount(r.AmountMinor, currency), Simulated: r.Simulated,
	}, nil
}
