package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Invoice reads a document with lines, shares, taxes and settlement. It fails with
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
	if v, err = t.withParts(ctx, v); err != nil {
		return billing.Invoice{}, err
	}
	settled, err := t.settled(ctx, []billing.Invoice{v})
	if err != nil {
		return billing.Invoice{}, err
	}
	return settled[0], nil
}

// WithLines reads lines, shares and taxes of a document that was read without.
func (t *tx) WithLines(ctx context.Context, v billing.Invoice) (billing.Invoice, error) {
	return t.withParts(ctx, v)
}

// withParts reads lines, shares and taxes.
func (t *tx) withParts(ctx context.Context, v billing.Invoice) (billing.Invoice, error) {
	var err error
	if v.Lines, err = t.lines(ctx, v); err != nil {
		return billing.Invoice{}, err
	}
	taxes, err := t.q.InvoiceTaxes(ctx, t.raw, uuid.UUID(v.Org), uuid.UUID(v.ID))
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

// settled fills what happened to the totals of documents of one organization.
func (t *tx) settled(ctx context.Context, list []billing.Invoice) ([]billing.Invoice, error) {
	if len(list) == 0 {
		return list, nil
	}
	ids := make([]id.Invoice, len(list))
	for i, v := range list {
		ids[i] = v.ID
	}
	sums, err := t.SettlementsOf(ctx, list[0].Org, list[0].Currency, ids)
	if err != nil {
		return nil, err
	}
	for i, v := range list {
		if v.Kind == billing.AdvanceInvoice { // issued for money that is there
			sums[v.ID] = billing.Settlement{Prepaid: v.Total}
		}
		if list[i], err = v.Settled(sums[v.ID]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Invoices lists finalized documents without lines, shares and taxes: of a kind and a
// calendar month, "" for all.
func (t *tx) Invoices(ctx context.Context, org id.Org, kind billing.Kind, period string, k Keyset) ([]billing.Invoice, error) {
	rows, err := t.q.ListInvoices(ctx, t.raw, db.ListInvoicesParams{
		OrgID: uuid.UUID(org), Before: k.before(), Size: int32(k.Size), Kind: string(kind), Period: period,
	})
	if err != nil {
		return nil, mapError(err)
	}
	list, err := invoicesFrom(rows)
	if err != nil {
		return nil, err
	}
	return t.settled(ctx, list)
}

// StandingInvoice is a document that billed a period's usage, and up to which close.
type StandingInvoice struct {
	billing.Invoice
	AsOf int
}

// StandingInvoices reads, without parts, the documents that billed a period's usage:
// invoices, and credit notes of late usage. What was cancelled stands until it is
// replaced: nothing bills it again by itself.
func (t *tx) StandingInvoices(ctx context.Context, org id.Org, period string) ([]StandingInvoice, error) {
	rows, err := t.q.StandingInvoices(ctx, t.raw, uuid.UUID(org), period)
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]StandingInvoice, 0, len(rows))
	for _, r := range rows {
		v, err := invoiceFrom(db.ListInvoicesRow(r))
		if err != nil {
			return nil, err
		}
		out = append(out, StandingInvoice{Invoice: v, AsOf: int(*r.AsOfClose)})
	}
	return out, nil
}

// CreditNotesOf reads the credit notes of a document with their lines, oldest first.
func (t *tx) CreditNotesOf(ctx context.Context, org id.Org, inv id.Invoice) ([]billing.Invoice, error) {
	corrected := uuid.UUID(inv)
	rows, err := t.q.NotesOf(ctx, t.raw, uuid.UUID(org), &corrected)
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]billing.Invoice, 0, len(rows))
	for _, r := range rows {
		v, err := invoiceFrom(db.ListInvoicesRow(r))
		if err != nil {
			return nil, err
		}
		if v, err = t.withParts(ctx, v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// WaitingCarried lists the carried documents that no invoice has taken on, oldest
// first, without parts.
func (t *tx) WaitingCarried(ctx context.Context, org id.Org) ([]billing.Invoice, error) {
	rows, err := t.q.WaitingCarried(ctx, t.raw, uuid.UUID(org))
	if err != nil {
		return nil, mapError(err)
	}
	list := make([]db.ListInvoicesRow, len(rows))
	for i, r := range rows {
		list[i] = db.ListInvoicesRow(r)
	}
	return invoicesFrom(list)
}

func invoicesFrom(rows []db.ListInvoicesRow) ([]billing.Invoice, error) {
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
		ID: id.Invoice(r.ID), Kind: billing.Kind(r.Kind), Issuer: r.Issuer, Locale: r.Locale, Reason: r.Reason,
		Refund: billing.Refund(r.Refund), Notes: r.Notes, Org: id.Org(r.OrgID), State: billing.State(r.Status), Cancelled: !r.Live,
		Period: metering.Between(r.PeriodFrom, r.PeriodTo), TaxPoint: r.PeriodTo.UTC(), CloseNo: int(r.CloseNo), Currency: currency,
		Subtotal: money.NewAmount(r.SubtotalMinor, currency), TaxTotal: money.NewAmount(r.TaxMinor, currency),
		Total: money.NewAmount(r.TotalMinor, currency), Due: money.NewAmount(r.TotalMinor, currency),
		ContentVersion: int(r.ContentVersion), CreatedAt: r.CreatedAt.UTC(),
	}
	copy(v.ContentHash[:], r.ContentHash)
	if r.Number != nil {
		v.Number = *r.Number
	}
	if r.FinalizedAt != nil {
		v.FinalizedAt = r.FinalizedAt.UTC()
	}
	if r.TaxPoint != nil {
		v.TaxPoint = r.TaxPoint.UTC()
	}
	if r.DueOn.Valid {
		v.DueOn = r.DueOn.Time.UTC()
	}
	v.Corrects, v.Replaces = documentRef(r.Corrects, r.CorrectsNumber), documentRef(r.Replaces, r.ReplacesNumber)
	if v.Corrects != nil && r.CorrectsAt != nil {
		v.Corrects.Issued = r.CorrectsAt.UTC()
	}
	if v.Replaces != nil && r.ReplacesAt != nil {
		v.Replaces.Issued = r.ReplacesAt.UTC()
	}
	if r.MediaType != nil {
		v.Original = &billing.Original{MediaType: *r.MediaType, SHA256: [32]byte(r.Sha256), Size: r.OriginalSize}
	}
	var seller, buyer partyRow
	if err := errors.Join(json.Unmarshal(r.Seller, &seller), json.Unmarshal(r.Buyer, &buyer)); err != nil {
		return billing.Invoice{}, fmt.Errorf("reading the parties of invoice %s: %w", v.ID, err)
	}
	v.Seller, v.Buyer = seller.party(), buyer.party()
	return v, nil
}

func documentRef(of *uuid.UUID, number *string) *billing.DocumentRef {
	if of == nil {
		return nil
	}
	ref := &billing.DocumentRef{ID: id.Invoice(*of)}
	if number != nil {
		ref.Number = *number
	}
	return ref
}
