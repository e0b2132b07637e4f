package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// LockInvoice waits until no other transaction credits or cancels a document. The
// lock order is: account, document, wallet. It fails with resource.not_found.
func (t *SystemTx) LockInvoice(ctx context.Context, org id.Org, inv id.Invoice) error {
	_, err := t.q.LockInvoice(ctx, t.raw, uuid.UUID(org), uuid.UUID(inv))
	return mapError(err)
}

// Credited counts a credit note on its document; amount is its gross, positive. The
// database refuses more than the document's total, with credit.exceeds.
func (t *SystemTx) Credited(ctx context.Context, org id.Org, inv id.Invoice, amount money.Amount) error {
	n, err := t.q.CreditInvoice(ctx, t.raw, db.CreditInvoiceParams{Minor: amount.Minor(), OrgID: uuid.UUID(org), InvoiceID: uuid.UUID(inv)})
	if err == nil && n == 0 {
		return NotFound()
	}
	return mapError(err)
}

// CancelInvoice notes that a document counts no more. False: it was cancelled before.
func (t *SystemTx) CancelInvoice(ctx context.Context, org id.Org, inv id.Invoice) (bool, error) {
	n, err := t.q.CancelInvoice(ctx, t.raw, uuid.UUID(org), uuid.UUID(inv))
	return n > 0, mapError(err)
}

// AdvanceOf returns the advance invoice of a payment; false for none.
func (t *tx) AdvanceOf(ctx context.Context, org id.Org, p id.Payment) (id.Invoice, bool, error) {
	source := uuid.UUID(p)
	inv, err := t.q.AdvanceOf(ctx, t.raw, uuid.UUID(org), &source)
	if errors.Is(err, pgx.ErrNoRows) {
		return id.Invoice{}, false, nil
	}
	return id.Invoice(inv), err == nil, mapError(err)
}

// AdvanceLeft is an advance invoice and what no document has deducted of it yet.
type AdvanceLeft struct {
	ID       id.Invoice
	Number   string
	Payment  id.Payment
	Category string
	RatePPM  int64
	Net      money.Amount
}

// AdvancesLeft lists advance invoices with something left, oldest first.
func (t *tx) AdvancesLeft(ctx context.Context, org id.Org) ([]AdvanceLeft, error) {
	rows, err := t.q.AdvancesLeft(ctx, t.raw, uuid.UUID(org))
	if err != nil {
		return nil, mapError(err)
	}
	lines, err := t.q.AdvancesDeducted(ctx, t.raw, uuid.UUID(org))
	if err != nil {
		return nil, mapError(err)
	}
	deducted := map[string]int64{}
	for _, l := range lines {
		deducted[l.Reference] = l.Net
	}
	out := make([]AdvanceLeft, 0, len(rows))
	for _, r := range rows {
		left := r.NetLeft - deducted[id.Invoice(r.ID).String()]
		if left <= 0 {
			continue
		}
		currency, err := money.ParseCurrency(r.Currency)
		if err != nil {
			return nil, fmt.Errorf("reading invoice %s: %w", r.ID, err)
		}
		out = append(out, AdvanceLeft{
			ID: id.Invoice(r.ID), Number: *r.Number, Payment: orZero[id.Payment](r.SourceID), Category: r.TaxCategory, RatePPM: r.RatePpm,
			Net: money.NewAmount(left, currency),
		})
	}
	return out, nil
}

// StoredBasis is what a document was made from, as it is kept.
type StoredBasis struct {
	Engine   string
	Document string
	Hash     []byte
	Terms    []byte // billing.EncodeTerms, nil for none
	AsOf     *int
	Source   id.Payment
}

// BasisOf reads what a document was made from.
func (t *tx) BasisOf(ctx context.Context, org id.Org, inv id.Invoice) (StoredBasis, error) {
	r, err := t.q.BasisOf(ctx, t.raw, uuid.UUID(org), uuid.UUID(inv))
	if err != nil {
		return StoredBasis{}, mapError(err)
	}
	var inputs struct {
		Document string `json:"document"`
	}
	if err := json.Unmarshal(r.Inputs, &inputs); err != nil {
		return StoredBasis{}, fmt.Errorf("reading the inputs of invoice %s: %w", inv, err)
	}
	b := StoredBasis{
		Engine: r.EngineVersion, Document: inputs.Document, Hash: r.InputsHash, Terms: r.Terms, Source: orZero[id.Payment](r.SourceID),
	}
	if r.AsOfClose != nil {
		n := int(*r.AsOfClose)
		b.AsOf = &n
	}
	return b, nil
}

// Document names a document of an organization.
type Document struct {
	Org id.Org
	ID  id.Invoice
}

// DocumentsOfPeriod lists every document of a period that is no draft.
func (t *SystemTx) DocumentsOfPeriod(ctx context.Context, period string) ([]Document, error) {
	rows, err := t.q.DocumentsOfPeriod(ctx, t.raw, period)
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]Document, len(rows))
	for i, r := range rows {
		out[i] = Document{Org: id.Org(r.OrgID), ID: id.Invoice(r.ID)}
	}
	return out, nil
}

// WithoutOriginal lists up to size finalized documents whose original is not stored
// yet, oldest first, from behind one of them.
func (t *SystemTx) WithoutOriginal(ctx context.Context, after id.Invoice, size int) ([]Document, error) {
	rows, err := t.q.WithoutOriginal(ctx, t.raw, uuid.UUID(after), int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]Document, len(rows))
	for i, r := range rows {
		out[i] = Document{Org: id.Org(r.OrgID), ID: id.Invoice(r.ID)}
	}
	return out, nil
}

// InsertOriginal stores the original of a document once; false means it was there.
func (t *SystemTx) InsertOriginal(ctx context.Context, v billing.Invoice, o billing.Original, body []byte, keepUntil time.Time) (bool, error) {
	n, err := t.q.InsertOriginal(ctx, t.raw, db.InsertOriginalParams{
		OrgID: uuid.UUID(v.Org), InvoiceID: uuid.UUID(v.ID), Number: v.Number, MediaType: o.MediaType, Sha256: o.SHA256[:], Body: body,
		KeepUntil: keepUntil,
	})
	return n > 0, mapError(err)
}

// Original reads the stored original of a document. It fails with resource.not_found.
func (t *tx) Original(ctx context.Context, org id.Org, inv id.Invoice) (billing.Original, []byte, error) {
	r, err := t.q.ReadOriginal(ctx, t.raw, uuid.UUID(org), uuid.UUID(inv))
	if err != nil {
		return billing.Original{}, nil, mapError(err)
	}
	return billing.Original{MediaType: r.MediaType, SHA256: [32]byte(r.Sha256), Size: int64(len(r.Body))}, r.Body, nil
}
