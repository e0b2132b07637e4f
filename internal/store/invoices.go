package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Buyer returns an organization as it is printed on documents, and its currency.
func (t *tx) Buyer(ctx context.Context, org id.Org) (billing.Party, money.Currency, error) {
	r, err := t.q.BuyerOf(ctx, t.raw, uuid.UUID(org))
	if err != nil {
		return billing.Party{}, money.Currency{}, mapError(err)
	}
	currency, err := money.ParseCurrency(r.Currency)
	if err != nil {
		return billing.Party{}, money.Currency{}, fmt.Errorf("reading organization %s: %w", org, err)
	}
	p := billing.Party{Name: r.BillingName, Country: r.BillingCountry, TaxID: r.TaxID}
	if p.Name == "" {
		p.Name = r.Name
	}
	if r.BillingAddress != "" {
		p.Address = strings.Split(r.BillingAddress, "\n")
	}
	return p, currency, nil
}

// Unbillable counts the segments that keep a period from being invoiced.
type Unbillable struct{ Open, Crossing int64 }

// Unbillable counts segments that touch the window and are open or cross its
// bounds: of one organization, or of all for the zero id.
func (t *SystemTx) Unbillable(ctx context.Context, org id.Org, window metering.Interval) (Unbillable, error) {
	r, err := t.q.UnbillableSegments(ctx, t.raw, db.UnbillableSegmentsParams{FromAt: window.From, ToAt: window.To, OrgID: nullable(org)})
	return Unbillable{Open: r.OpenCount, Crossing: r.CrossingCount}, mapError(err)
}

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

// LiveInvoice is the usage invoice of a period that counts.
type LiveInvoice struct {
	ID          id.Invoice // zero: there is none
	State       billing.State
	ContentHash []byte
	InputsHash  []byte
}

// SameAs reports whether the stored invoice was made of just this.
func (l LiveInvoice) SameAs(v billing.Invoice, basis Basis) bool {
	return bytes.Equal(l.ContentHash, v.ContentHash[:]) && bytes.Equal(l.InputsHash, basis.Result.DocumentHash[:])
}

// LiveInvoice returns the usage invoice of a period, the zero value if there is none.
func (t *SystemTx) LiveInvoice(ctx context.Context, org id.Org, period string) (LiveInvoice, error) {
	r, err := t.q.LiveUsageInvoice(ctx, t.raw, db.LiveUsageInvoiceParams{OrgID: uuid.UUID(org), Period: period})
	if errors.Is(err, pgx.ErrNoRows) {
		return LiveInvoice{}, nil
	}
	return LiveInvoice{
		ID: id.Invoice(r.ID), State: billing.State(r.Status), ContentHash: r.ContentHash, InputsHash: r.InputsHash,
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

// Basis is what a draft was made from: the record of the rating, and what a
// finalize compares to see that no usage came in between.
type Basis struct {
	Result      rating.Result
	MaxRecorded time.Time
}

// InsertDraft writes a draft with lines, shares and taxes.
func (t *SystemTx) InsertDraft(ctx context.Context, v billing.Invoice, basis Basis) error {
	seller, err := json.Marshal(partyOf(v.Seller))
	if err != nil {
		return fmt.Errorf("encoding the seller: %w", err)
	}
	buyer, err := json.Marshal(partyOf(v.Buyer))
	if err != nil {
		return fmt.Errorf("encoding the buyer: %w", err)
	}
	inputs, err := json.Marshal(map[string]string{"document": basis.Result.Document})
	if err != nil {
		return fmt.Errorf("encoding the inputs: %w", err)
	}
	_, err = t.q.InsertInvoice(ctx, t.raw, db.InsertInvoiceParams{
		OrgID: uuid.UUID(v.Org), InvoiceID: uuid.UUID(v.ID), Period: metering.PeriodOf(v.Period.From), PeriodFrom: v.Period.From,
		PeriodTo: v.Period.To, CloseNo: int32(v.CloseNo), Currency: v.Currency.Code(), Seller: seller, Buyer: buyer,
		SubtotalMinor: v.Subtotal.Minor(), TaxMinor: v.TaxTotal.Minor(), TotalMinor: v.Total.Minor(), ContentHash: v.ContentHash[:],
		EngineVersion: rating.Engine, Inputs: inputs, InputsHash: basis.Result.DocumentHash[:],
		SegmentCount: basis.Result.Segments, MaxRecordedAt: basis.MaxRecorded, Simulated: v.Simulated(),
	})
	if err != nil {
		return mapError(err)
	}
	for _, l := range v.Lines {
		if err := t.insertLine(ctx, v, l); err != nil {
			return err
		}
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

func (t *SystemTx) insertLine(ctx context.Context, v billing.Invoice, l billing.Line) error {
	err := t.q.InsertInvoiceLine(ctx, t.raw, db.InsertInvoiceLineParams{
		OrgID: uuid.UUID(v.Org), InvoiceID: uuid.UUID(v.ID), LineNo: int32(l.No), ProjectID: uuid.UUID(l.Key.Project),
		ProjectName: l.ProjectName, Description: l.Description, Meter: string(l.Key.Meter), SkuID: l.Key.SKU, SkuCode: l.SKUCode,
		IsolationGpu: l.Key.IsolationGPU, IsolationHost: l.Key.IsolationHost, PricingKind: string(l.Key.Pricing),
		PriceVersionID: nullable(l.Key.PriceVersion), Tier: int32(l.Key.Tier), TaxCategory: l.Key.TaxCategory,
		Quantity: l.Quantity.String(), QuantityUnit: l.QuantityUnit, Divisor: l.Divisor, UnitPrice: l.UnitPrice.Decimal(),
		AmountMinor: l.Amount.Minor(), Simulated: l.Simulated,
	})
	if err != nil {
		return mapError(err)
	}
	p := db.InsertLineSubjectsParams{OrgID: uuid.UUID(v.Org), InvoiceID: uuid.UUID(v.ID), LineNo: int32(l.No)}
	for _, s := range l.Subjects {
		p.SubjectIds = append(p.SubjectIds, s.Subject.ID)
		p.SubjectNames = append(p.SubjectNames, s.Name)
		p.Quantities = append(p.Quantities, s.Quantity.String())
		p.SegmentCounts = append(p.SegmentCounts, s.Segments)
		p.Amounts = append(p.Amounts, s.Amount.Minor())
		p.Hashes = append(p.Hashes, s.Hash[:])
	}
	return mapError(t.q.InsertLineSubjects(ctx, t.raw, p))
}

// LockBillingAccount keeps usage of the organization from being opened and other
// finalizes out, until the transaction ends.
func (t *SystemTx) LockBillingAccount(ctx context.Context, org id.Org) error {
	_, err := t.q.LockBillingAccount(ctx, t.raw, uuid.UUID(org))
	return mapError(err)
}

// UsageCount reads again what a draft was made from.
func (t *SystemTx) UsageCount(ctx context.Context, org id.Org, window metering.Interval) (segments int64, maxRecorded time.Time, err error) {
	r, err := t.q.UsageOfPeriod(ctx, t.raw, db.UsageOfPeriodParams{OrgID: uuid.UUID(org), FromAt: window.From, ToAt: window.To})
	return r.SegmentCount, r.MaxRecordedAt, mapError(err)
}

// UnbilledSubjects counts the (subject, meter) pairs whose lines do not sum to
// their segments: 0 on every correct invoice.
func (t *SystemTx) UnbilledSubjects(ctx context.Context, v billing.Invoice) (int64, error) {
	n, err := t.q.UnbilledSubjects(ctx, t.raw, db.UnbilledSubjectsParams{
		InvoiceID: uuid.UUID(v.ID), OrgID: uuid.UUID(v.Org), FromAt: v.Period.From, ToAt: v.Period.To,
	})
	return n, mapError(err)
}

// CloseUsageUntil closes the organization's usage up to an instant: no segment
// opens before it from then on.
func (t *SystemTx) CloseUsageUntil(ctx context.Context, org id.Org, until time.Time) error {
	return mapError(t.q.AdvanceClosedUntil(ctx, t.raw, until, uuid.UUID(org)))
}

// TakeNumber takes the next number of a series of usage invoices, at an instant
// that is never before the last one's. Take it last: it holds the series until the
// transaction ends, and a rollback gives the number back.
func (t *SystemTx) TakeNumber(ctx context.Context, s billing.Series, at time.Time) (number int, issued time.Time, err error) {
	r, err := t.q.TakeInvoiceNumber(ctx, t.raw, db.TakeInvoiceNumberParams{Series: s.Prefix, Year: int32(s.Year), Kind: "usage", At: at})
	return int(r.Last), r.LastAt.UTC(), mapError(err)
}

// SaveFinalized numbers the draft; from then on the database refuses any change. It
// fails with state.conflict if it is no draft any more.
func (t *SystemTx) SaveFinalized(ctx context.Context, v billing.Invoice, s billing.Series) error {
	n, err := t.q.OpenInvoice(ctx, t.raw, db.OpenInvoiceParams{
		Series: s.Prefix, Number: &v.Number, FinalizedAt: &v.FinalizedAt, OrgID: uuid.UUID(v.Org), InvoiceID: uuid.UUID(v.ID),
	})
	if err != nil {
		return mapError(err)
	}
	if n == 0 {
		return constraintFaults["invoices_finalized"]
	}
	return nil
}

// Apart returns ctx outside of any shared transaction: what is done with it
// commits by itself. For work that is idempotent without its caller's key and must
// not hold the key's locks together.
func Apart(ctx context.Context) context.Context { return context.WithValue(ctx, sharingKey{}, nil) }
