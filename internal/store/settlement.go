package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Owed is what a document is owed, by every posting that concerns it: negative when
// more was paid than is owed. Written is what was given up of it.
type Owed struct {
	Number  string
	State   billing.State
	Kind    billing.Kind
	Due     money.Amount
	Written money.Amount
}

// Owed reads what a document is owed. It fails with resource.not_found.
func (t *tx) Owed(ctx context.Context, org id.Org, inv id.Invoice) (Owed, error) {
	r, err := t.q.OwedOn(ctx, t.raw, uuid.UUID(org), uuid.UUID(inv))
	if err != nil {
		return Owed{}, mapError(err)
	}
	c, err := money.ParseCurrency(r.Currency)
	if err != nil {
		return Owed{}, fmt.Errorf("reading invoice %s: %w", inv, err)
	}
	return Owed{
		Number: r.Number, State: billing.State(r.Status), Kind: billing.Kind(r.Kind), Due: money.NewAmount(r.OwedMinor, c),
		Written: money.NewAmount(r.WrittenMinor, c),
	}, nil
}

// OwedInvoices lists the documents of an organization that are owed, oldest first.
func (t *SystemTx) OwedInvoices(ctx context.Context, org id.Org, c money.Currency) ([]payment.Allocation, error) {
	rows, err := t.q.OwedInvoices(ctx, t.raw, uuid.UUID(org), c.Code())
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]payment.Allocation, 0, len(rows))
	for _, r := range rows {
		out = append(out, payment.Allocation{Invoice: id.Invoice(r.ID), Amount: money.NewAmount(r.OwedMinor, c)})
	}
	return out, nil
}

// OrganizationsWithCash lists up to size organizations, by id from behind one of them,
// that have unapplied cash and owe a document that it can pay.
func (t *SystemTx) OrganizationsWithCash(ctx context.Context, after id.Org, size int) ([]id.Org, error) {
	rows, err := t.q.OrganizationsWithCash(ctx, t.raw, uuid.UUID(after), int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]id.Org, 0, len(rows))
	for _, r := range rows {
		out = append(out, id.Org(r))
	}
	return out, nil
}

// AllocationKind says why a part of a payment went to a document or came back.
type AllocationKind string

// The kinds; all but Applied are negative.
const (
	Applied     AllocationKind = "applied"
	Released    AllocationKind = "released" // to unapplied cash, after a credit note
	RefundedOf  AllocationKind = "refunded"
	ChargedBack AllocationKind = "charged_back"
)

// Allocation is a part of a payment that went to a document, or came back.
type Allocation struct {
	Org     id.Org
	ID      [16]byte
	Payment id.Payment
	Invoice id.Invoice
	Kind    AllocationKind
	Amount  money.Amount
}

// InsertAllocation writes one.
func (t *SystemTx) InsertAllocation(ctx context.Context, a Allocation) error {
	return mapError(t.q.InsertAllocation(ctx, t.raw, db.InsertAllocationParams{
		OrgID: uuid.UUID(a.Org), AllocationID: a.ID, PaymentID: uuid.UUID(a.Payment), InvoiceID: uuid.UUID(a.Invoice),
		Kind: string(a.Kind), AmountMinor: a.Amount.Minor(), Currency: a.Amount.Currency().Code(),
	}))
}

// Releasable lists what of a payment can be taken back from which document, newest
// first: AllocatedOf without what credit notes took off the documents, which is not
// owed again.
func (t *SystemTx) Releasable(ctx context.Context, org id.Org, p id.Payment, c money.Currency) ([]payment.Allocation, error) {
	rows, err := t.q.AllocatedOfPayment(ctx, t.raw, uuid.UUID(org), uuid.UUID(p))
	if err != nil {
		return nil, mapError(err)
	}
	var out []payment.Allocation
	for _, r := range rows {
		if r.ReleasableMinor > 0 {
			out = append(out, payment.Allocation{Invoice: id.Invoice(r.InvoiceID), Amount: money.NewAmount(r.ReleasableMinor, c)})
		}
	}
	return out, nil
}

// AllocatedOf lists what of a payment pays for which document, newest document first.
func (t *SystemTx) AllocatedOf(ctx context.Context, org id.Org, p id.Payment, c money.Currency) ([]payment.Allocation, error) {
	rows, err := t.q.AllocatedOfPayment(ctx, t.raw, uuid.UUID(org), uuid.UUID(p))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]payment.Allocation, 0, len(rows))
	for _, r := range rows {
		out = append(out, payment.Allocation{Invoice: id.Invoice(r.InvoiceID), Amount: money.NewAmount(r.AmountMinor, c)})
	}
	return out, nil
}

// PaidBy lists which payments pay for a document with how much, newest first.
func (t *SystemTx) PaidBy(ctx context.Context, org id.Org, inv id.Invoice, c money.Currency) ([]FreePayment, error) {
	rows, err := t.q.AllocatedToInvoice(ctx, t.raw, uuid.UUID(org), uuid.UUID(inv))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]FreePayment, 0, len(rows))
	for _, r := range rows {
		out = append(out, FreePayment{ID: id.Payment(r.PaymentID), Free: money.NewAmount(r.AmountMinor, c)})
	}
	return out, nil
}

// WriteOff is what is given up of a document, or, with a payment and negative, what
// came of it after all.
type WriteOff struct {
	Org     id.Org
	ID      [16]byte
	Invoice id.Invoice
	Payment id.Payment
	Amount  money.Amount
	Reason  string
	By      string
}

// InsertWriteOff writes one.
func (t *SystemTx) InsertWriteOff(ctx context.Context, w WriteOff) error {
	return mapError(t.q.InsertWriteOff(ctx, t.raw, db.InsertWriteOffParams{
		OrgID: uuid.UUID(w.Org), WriteOffID: w.ID, InvoiceID: uuid.UUID(w.Invoice), PaymentID: nullable(w.Payment),
		AmountMinor: w.Amount.Minor(), Currency: w.Amount.Currency().Code(), Reason: w.Reason, CreatedBy: w.By,
	}))
}

// RefundRow is a refund of a payment.
type RefundRow struct {
	Org      id.Org
	ID       [16]byte
	Payment  id.Payment
	Key      string
	Ref      string // the provider's, "" until known
	Amount   money.Amount
	Lost     money.Amount // of Amount: of what was spent already, not counted on the payment
	State    payment.RefundState
	Reason   string
	By       string
	Sends    int    // how often it was taken up, of claimed rows only
	Provider string // of the payment, of claimed rows only
	Charge   string // the provider's reference of the payment, of claimed rows only
}

// InsertRefund writes an order down before it is sent.
func (t *SystemTx) InsertRefund(ctx context.Context, r RefundRow) error {
	return mapError(t.q.InsertRefund(ctx, t.raw, db.InsertRefundParams{
		OrgID: uuid.UUID(r.Org), RefundID: r.ID, PaymentID: uuid.UUID(r.Payment), RefundKey: r.Key, ProviderRef: r.Ref,
		AmountMinor: r.Amount.Minor(), LostMinor: r.Lost.Minor(), Currency: r.Amount.Currency().Code(), Reason: r.Reason, CreatedBy: r.By,
	}))
}

// RefundCount counts the refunds of a payment.
func (t *SystemTx) RefundCount(ctx context.Context, org id.Org, p id.Payment) (int, error) {
	n, err := t.q.RefundCount(ctx, t.raw, uuid.UUID(org), uuid.UUID(p))
	return int(n), mapError(err)
}

// ClaimRefunds takes up to size refunds to send or ask about, for as long as the lease.
func (t *SystemTx) ClaimRefunds(ctx context.Context, size int, lease time.Duration) ([]RefundRow, error) {
	rows, err := t.q.ClaimRefunds(ctx, t.raw, lease.Seconds(), int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]RefundRow, 0, len(rows))
	for _, r := range rows {
		c, err := money.ParseCurrency(r.Currency)
		if err != nil {
			return nil, fmt.Errorf("reading refund %s: %w", r.ID, err)
		}
		out = append(out, RefundRow{
			Org: id.Org(r.OrgID), ID: r.ID, Payment: id.Payment(r.PaymentID), Key: r.RefundKey, Amount: money.NewAmount(r.AmountMinor, c),
			Reason: r.Reason, Sends: int(r.Sends), Provider: r.Provider, Charge: r.ProviderRef,
		})
	}
	return out, nil
}

// LockRefund finds a refund of a payment by its key or the provider's reference; found
// is false for none.
func (t *SystemTx) LockRefund(ctx context.Context, org id.Org, p id.Payment, key, ref string) (RefundRow, bool, error) {
	r, err := t.q.RefundForUpdate(ctx, t.raw, db.RefundForUpdateParams{
		OrgID: uuid.UUID(org), PaymentID: uuid.UUID(p), RefundKey: key, ProviderRef: ref,
	})
	if err = mapError(err); fault.KindOf(err) == fault.NotFound {
		return RefundRow{}, false, nil
	} else if err != nil {
		return RefundRow{}, false, err
	}
	c, err := money.ParseCurrency(r.Currency)
	return RefundRow{
		Org: org, ID: r.ID, Payment: p, Key: r.RefundKey, Ref: r.ProviderRef, Amount: money.NewAmount(r.AmountMinor, c),
		Lost: money.NewAmount(r.LostMinor, c), State: payment.RefundState(r.State), Reason: r.Reason,
	}, true, err
}

// SaveRefund writes what became of a refund.
func (t *SystemTx) SaveRefund(ctx context.Context, r RefundRow, detail string, wait Pause) error {
	over := r.State == payment.RefundSucceeded || r.State == payment.RefundFailed
	return mapError(t.q.SaveRefund(ctx, t.raw, db.SaveRefundParams{
		State: string(r.State), ProviderRef: r.Ref, Detail: detail, Over: over, WaitSeconds: time.Duration(wait).Seconds(),
		OrgID: uuid.UUID(r.Org), RefundID: r.ID,
	}))
}

// PostponeRefund dates the next attempt to send a refund, saying why.
func (t *SystemTx) PostponeRefund(ctx context.Context, r RefundRow, wait time.Duration, why string) error {
	return mapError(t.q.PostponeRefund(ctx, t.raw, db.PostponeRefundParams{
		Detail: why, WaitSeconds: wait.Seconds(), OrgID: uuid.UUID(r.Org), RefundID: r.ID,
	}))
}

// DisputeRow is a chargeback of a payment.
type DisputeRow struct {
	Org      id.Org
	ID       id.Dispute
	Payment  id.Payment
	Provider string
	Ref      string
	Amount   money.Amount
	Fee      money.Amount
	Held     money.Amount // of the wallet that the payment topped up, while it is open
	State    payment.DisputeState
	Reason   string
}

// LockDispute finds a dispute; the zero row for none.
func (t *SystemTx) LockDispute(ctx context.Context, provider, ref string) (DisputeRow, error) {
	r, err := t.q.DisputeForUpdate(ctx, t.raw, provider, ref)
	if err = mapError(err); fault.KindOf(err) == fault.NotFound {
		return DisputeRow{}, nil
	} else if err != nil {
		return DisputeRow{}, err
	}
	c, err := money.ParseCurrency(r.Currency)
	return DisputeRow{
		Org: id.Org(r.OrgID), ID: id.Dispute(r.ID), Payment: id.Payment(r.PaymentID), Provider: provider, Ref: ref,
		Amount: money.NewAmount(r.AmountMinor, c), Fee: money.NewAmount(r.FeeMinor, c), Held: money.NewAmount(r.HeldMinor, c),
		State: payment.DisputeState(r.State), Reason: r.Reason,
	}, err
}

// OpenDispute writes a new dispute.
func (t *SystemTx) OpenDispute(ctx context.Context, d DisputeRow) error {
	return mapError(t.q.InsertDispute(ctx, t.raw, db.InsertDisputeParams{
		OrgID: uuid.UUID(d.Org), DisputeID: uuid.UUID(d.ID), PaymentID: uuid.UUID(d.Payment), Provider: d.Provider, ProviderRef: d.Ref,
		AmountMinor: d.Amount.Minor(), FeeMinor: d.Fee.Minor(), HeldMinor: d.Held.Minor(), Currency: d.Amount.Currency().Code(),
		Reason: d.Reason,
	}))
}

// CloseDispute ends an open dispute, won or lost.
func (t *SystemTx) CloseDispute(ctx context.Context, d DisputeRow) error {
	return mapError(t.q.CloseDispute(ctx, t.raw, db.CloseDisputeParams{
		State: string(d.State), FeeMinor: d.Fee.Minor(), OrgID: uuid.UUID(d.Org), DisputeID: uuid.UUID(d.ID),
	}))
}

// Disputed reports whether a dispute of a payment is open.
func (t *SystemTx) Disputed(ctx context.Context, org id.Org, p id.Payment) (bool, error) {
	open, err := t.q.PaymentDisputed(ctx, t.raw, uuid.UUID(org), uuid.UUID(p))
	return open, mapError(err)
}

// WakeDunnings has the dunning of an organization looked at again now.
func (t *SystemTx) WakeDunnings(ctx context.Context, org id.Org) error {
	return mapError(t.q.WakeDunnings(ctx, t.raw, uuid.UUID(org)))
}
