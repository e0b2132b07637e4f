package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// OrganizationsWithUsage lists who used anything in a window, ordered by id.
func (t *SystemTx) OrganizationsWithUsage(ctx context.Context, window metering.Interval) ([]id.Org, error) {
	rows, err := t.q.OrganizationsWithUsage(ctx, t.raw, window.From, window.To)
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]id.Org, 0, len(rows))
	for _, r := range rows {
		out = append(out, id.Org(r))
	}
	return out, nil
}

// SerializeInvoicing waits until no other transaction makes invoices of the
// organization; it holds until the transaction ends and keeps no usage waiting.
func (t *SystemTx) SerializeInvoicing(ctx context.Context, org id.Org) error {
	return mapError(t.q.SerializeInvoicing(ctx, t.raw, uuid.UUID(org)))
}

// LiveInvoice is the usage invoice of a close of a period that counts.
type LiveInvoice struct {
	ID          id.Invoice // zero: there is none
	State       billing.State
	Replaces    id.Invoice // of a re-issue
	ContentHash []byte
	InputsHash  []byte
}

// SameAs reports whether the stored invoice was made of just this.
func (l LiveInvoice) SameAs(v billing.Invoice, basis Basis) bool {
	return bytes.Equal(l.ContentHash, v.ContentHash[:]) && bytes.Equal(l.InputsHash, basis.Result.DocumentHash[:]) &&
		l.Replaces == replaced(v)
}

// LiveInvoice returns the usage invoice of a close, the zero value if there is none.
func (t *SystemTx) LiveInvoice(ctx context.Context, org id.Org, period string, closeNo int) (LiveInvoice, error) {
	r, err := t.q.LiveUsageInvoice(ctx, t.raw, db.LiveUsageInvoiceParams{OrgID: uuid.UUID(org), Period: period, CloseNo: int32(closeNo)})
	if errors.Is(err, pgx.ErrNoRows) {
		return LiveInvoice{}, nil
	}
	return LiveInvoice{
		ID: id.Invoice(r.ID), State: billing.State(r.Status), Replaces: orZero[id.Invoice](r.Replaces),
		ContentHash: r.ContentHash, InputsHash: r.InputsHash,
	}, mapError(err)
}

// DeleteDraft removes a draft with its parts. A finalized invoice is refused by the
// database, with state.conflict.
func (t *SystemTx) DeleteDraft(ctx context.Context, org id.Org, inv id.Invoice) error {
	for _, part := range []func(context.Context, db.DBTX, uuid.UUID) error{
		t.q.DeleteDraftSubjects, t.q.DeleteDraftLines, t.q.DeleteDraftTaxes,
	} {
		if err := part(ctx, t.raw, uuid.UUID(inv)); err != nil {
			return mapError(err)
		}
	}
	return mapError(t.q.DeleteDraft(ctx, t.raw, uuid.UUID(org), uuid.UUID(inv)))
}

// Basis is what a draft was made from: the record of the rating, the terms, and what
// a finalize compares to see that no usage came in between.
type Basis struct {
	Result rating.Result
	Terms  []byte     // billing.EncodeTerms, nil for none
	Usage  UsageState // of the period
	AsOf   *int       // the close up to which the period's usage is in; nil: of no usage
	Source [16]byte   // of an advance: the payment
}

// UsageState tells one state of a period's usage from another.
type UsageState struct {
	Segments    int64
	Changes     int64 // exclusions and lifts
	MaxRecorded time.Time
	CloseNo     int // of the account
}

// InsertDraft writes a draft with lines, shares and taxes.
func (t *SystemTx) InsertDraft(ctx context.Context, v billing.Invoice, basis Basis) error {
	p, err := draftRow(v, basis)
	if err != nil {
		return err
	}
	if _, err := t.q.InsertInvoice(ctx, t.raw, p); err != nil {
		return mapError(err)
	}
	if err := t.insertLines(ctx, v); err != nil {
		return err
	}
	for _, x := range v.Taxes {
		err := t.q.InsertInvoiceTax(ctx, t.raw, db.InsertInvoiceTaxParams{
			OrgID: uuid.UUID(v.Org), InvoiceID: uuid.UUID(v.ID), Category: x.Category, RatePpm: x.RatePPM,
			BaseMinor: x.Base.Minor(), AmountMinor: x.Amount.Minor(), Note: x.Note,
		})
		if err != nil {
			return mapError(err)
		}
	}
	return nil
}

func draftRow(v billing.Invoice, basis Basis) (db.InsertInvoiceParams, error) {
	seller, err := json.Marshal(partyOf(v.Seller))
	if err != nil {
		return db.InsertInvoiceParams{}, fmt.Errorf("encoding the seller: %w", err)
	}
	buyer, err := json.Marshal(partyOf(v.Buyer))
	if err != nil {
		return db.InsertInvoiceParams{}, fmt.Errorf("encoding the buyer: %w", err)
	}
	inputs, err := json.Marshal(map[string]string{"document": basis.Result.Document})
	if err != nil {
		return db.InsertInvoiceParams{}, fmt.Errorf("encoding the inputs: %w", err)
	}
	p := db.InsertInvoiceParams{
		OrgID: uuid.UUID(v.Org), InvoiceID: uuid.UUID(v.ID), Kind: string(v.Kind), Period: metering.PeriodOf(v.Period.From),
		PeriodFrom: v.Period.From, PeriodTo: v.Period.To, CloseNo: int32(v.CloseNo), Issuer: v.Issuer, Locale: v.Locale,
		TaxPoint: v.TaxPoint, Replaces: nullable(replaced(v)), SourceID: nullable(id.Payment(basis.Source)), Reason: v.Reason,
		Refund: string(v.Refund), Notes: v.Notes, Currency: v.Currency.Code(), Seller: seller, Buyer: buyer,
		SubtotalMinor: v.Subtotal.Minor(), TaxMinor: v.TaxTotal.Minor(), TotalMinor: v.Total.Minor(),
		ContentVersion: int32(v.ContentVersion), ContentHash: v.ContentHash[:], EngineVersion: basis.Result.Engine, Inputs: inputs,
		InputsHash: basis.Result.DocumentHash[:], Terms: basis.Terms, SegmentCount: basis.Result.Segments,
		MaxRecordedAt: basis.Usage.MaxRecorded, Simulated: v.Simulated(),
	}
	if v.Corrects != nil {
		p.Corrects = nullable(v.Corrects.ID)
	}
	if basis.AsOf != nil {
		n := int32(*basis.AsOf)
		p.AsOfClose = &n
	}
	if p.Notes == nil {
		p.Notes = []string{}
	}
	return p, nil
}

func replaced(v billing.Invoice) id.Invoice {
	if v.Replaces == nil {
		return id.Invoice{}
	}
	return v.Replaces.ID
}

// insertLines writes all lines in one statement and all shares in another.
func (t *SystemTx) insertLines(ctx context.Context, v billing.Invoice) error {
	rows := make([]lineRow, len(v.Lines))
	p := db.InsertLineSubjectsParams{OrgID: uuid.UUID(v.Org), InvoiceID: uuid.UUID(v.ID)}
	for i, l := range v.Lines {
		rows[i] = lineRowOf(l)
		for _, s := range l.Subjects {
			p.LineNos = append(p.LineNos, int32(l.No))
			p.SubjectKinds = append(p.SubjectKinds, s.Subject.Kind)
			p.SubjectIds = append(p.SubjectIds, s.Subject.ID)
			p.SubjectNames = append(p.SubjectNames, s.Name)
			p.Quantities = append(p.Quantities, s.Quantity.String())
			p.SegmentCounts = append(p.SegmentCounts, s.Segments)
			p.Amounts = append(p.Amounts, s.Amount.Minor())
			p.Hashes = append(p.Hashes, s.Hash[:])
		}
	}
	if len(rows) == 0 {
		return nil
	}
	lines, err := json.Marshal(rows)
	if err != nil {
		return fmt.Errorf("encoding lines: %w", err)
	}
	if err := t.q.InsertInvoiceLines(ctx, t.raw, db.InsertInvoiceLinesParams{OrgID: p.OrgID, InvoiceID: p.InvoiceID, Lines: lines}); err != nil {
		return mapError(err)
	}
	if len(p.LineNos) == 0 {
		return nil
	}
	return mapError(t.q.InsertLineSubjects(ctx, t.raw, p))
}

// LockBillingAccount keeps usage of the organization from being opened and other
// finalizes out, until the transaction ends.
func (t *SystemTx) LockBillingAccount(ctx context.Context, org id.Org) error {
	_, err := t.q.LockBillingAccount(ctx, t.raw, uuid.UUID(org))
	return mapError(err)
}

// LateCloseNo is the last close after which anything about a period was accepted, 0
// for none.
func (t *tx) LateCloseNo(ctx context.Context, org id.Org, window metering.Interval) (int, error) {
	n, err := t.q.LateCloseNo(ctx, t.raw, db.LateCloseNoParams{
		OrgID: uuid.UUID(org), Period: metering.PeriodOf(window.From), FromAt: window.From, ToAt: window.To,
	})
	return int(n), mapError(err)
}

// CloseUsageUntil closes the organization's usage up to an instant: no segment
// opens before it in time from then on.
func (t *SystemTx) CloseUsageUntil(ctx context.Context, org id.Org, until time.Time) error {
	return mapError(t.q.AdvanceClosedUntil(ctx, t.raw, until, uuid.UUID(org)))
}

// TakeNumber takes the next number of a series, at an instant that is never before
// the last one's. Take it last: it holds the series until the transaction ends, and a
// rollback gives the number back.
func (t *SystemTx) TakeNumber(ctx context.Context, s billing.Series, at time.Time) (number int, issued time.Time, err error) {
	r, err := t.q.TakeInvoiceNumber(ctx, t.raw, db.TakeInvoiceNumberParams{
		Series: s.Prefix, Year: int32(s.Year), Kind: string(s.Kind), At: at,
	})
	return int(r.Last), r.LastAt.UTC(), mapError(err)
}

// SaveFinalized numbers the draft; from then on the database refuses any change. It
// fails with state.conflict if it is no draft any more.
func (t *SystemTx) SaveFinalized(ctx context.Context, v billing.Invoice, s billing.Series) error {
	n, err := t.q.OpenInvoice(ctx, t.raw, db.OpenInvoiceParams{
		Series: s.Prefix, Number: &v.Number, FinalizedAt: &v.FinalizedAt, DueOn: v.DueOn, OrgID: uuid.UUID(v.Org), InvoiceID: uuid.UUID(v.ID),
	})
	if err != nil {
		return mapError(err)
	}
	if n == 0 {
		return constraintFaults["invoices_finalized"]
	}
	return nil
}

// SaveCarried makes a draft immutable without a number. It fails like SaveFinalized.
func (t *SystemTx) SaveCarried(ctx context.Context, v billing.Invoice, at time.Time) error {
	n, err := t.q.CarryInvoice(ctx, t.raw, db.CarryInvoiceParams{FinalizedAt: &at, OrgID: uuid.UUID(v.Org), InvoiceID: uuid.UUID(v.ID)})
	if err != nil {
		return mapError(err)
	}
	if n == 0 {
		return constraintFaults["invoices_finalized"]
	}
	return nil
}

// TakeCarried notes which invoice took carried documents on. It fails with
// state.conflict if another one has.
func (t *SystemTx) TakeCarried(ctx context.Context, v billing.Invoice, carried []id.Invoice) error {
	if len(carried) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(carried))
	for i, c := range carried {
		ids[i] = uuid.UUID(c)
	}
	n, err := t.q.TakeCarried(ctx, t.raw, db.TakeCarriedParams{By: uuid.UUID(v.ID), OrgID: uuid.UUID(v.Org), InvoiceIds: ids})
	if err != nil {
		return mapError(err)
	}
	if int(n) != len(carried) {
		return constraintFaults["invoices_carried_by"]
	}
	return nil
}

// Apart returns ctx outside of any shared transaction: what is done with it
// commits by itself. For work that is idempotent without its caller's key and must
// not hold the key's locks together.
func Apart(ctx context.Context) context.Context { return context.WithValue(ctx, sharingKey{}, nil) }
