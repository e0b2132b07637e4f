package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// PaymentCustomer is an organization as a payment provider knows it.
type PaymentCustomer struct {
	Org      id.Org
	Name     string
	Provider string // "" the organization has none
	Ref      string // "" the provider does not know it yet
	Method   string // "" nothing is charged by itself
}

// PaymentCustomer reads whom a provider charges for an organization.
func (t *tx) PaymentCustomer(ctx context.Context, org id.Org) (PaymentCustomer, error) {
	r, err := t.q.PaymentCustomer(ctx, t.raw, uuid.UUID(org))
	return PaymentCustomer{Org: org, Name: r.Name, Provider: r.Provider, Ref: r.CustomerRef, Method: r.MethodRef}, mapError(err)
}

// SetCustomerRef notes the provider's reference of an organization, the first one. One
// of another provider is replaced, and so is what was charged there.
func (t *SystemTx) SetCustomerRef(ctx context.Context, org id.Org, provider, ref string) error {
	return mapError(t.q.SetCustomerRef(ctx, t.raw, db.SetCustomerRefParams{OrgID: uuid.UUID(org), Provider: provider, CustomerRef: ref}))
}

// PutPaymentMethod chooses what is charged from now on.
func (t *SystemTx) PutPaymentMethod(ctx context.Context, org id.Org, provider, method string) error {
	return mapError(t.q.PutPaymentMethod(ctx, t.raw, db.PutPaymentMethodParams{OrgID: uuid.UUID(org), Provider: provider, MethodRef: method}))
}

// OrgOfCustomer finds whom a provider's customer is; zero when nobody is known.
func (t *SystemTx) OrgOfCustomer(ctx context.Context, provider, ref string) (id.Org, error) {
	org, err := t.q.OrgOfCustomer(ctx, t.raw, provider, ref)
	if errors.Is(err, pgx.ErrNoRows) || ref == "" {
		return id.Org{}, nil
	}
	return id.Org(org), mapError(err)
}

// Purpose says what an attempt pays.
type Purpose string

// The purposes.
const (
	ForInvoice Purpose = "invoice"
	ForTopUp   Purpose = "top_up"
)

// Attempt is one intent to charge. Created and Ended are business time.
type Attempt struct {
	Org       id.Org
	ID        id.PaymentAttempt
	Purpose   Purpose
	Subject   [16]byte // the invoice, or the key of the top-up
	No        int      // 1…
	Provider  string
	IntentKey string
	Amount    money.Amount
	State     payment.AttemptState
	Ref       string // the provider's, "" until known
	Reason    string
	Detail    string
	Action    string // where the customer confirms
	Sends     int    // how often it was taken up
	CreatedAt time.Time
	EndedAt   *time.Time
}

// Collectable is an invoice to charge now.
type Collectable struct {
	Org      id.Org
	Invoice  id.Invoice
	Provider string
	Attempts int // made before
	Issued   time.Time
}

// CollectableInvoices lists up to size invoices that are owed and to be charged now,
// oldest first, from behind one of them; the zero value: from the first.
func (t *SystemTx) CollectableInvoices(ctx context.Context, after Collectable, size int) ([]Collectable, error) {
	rows, err := t.q.CollectableInvoices(ctx, t.raw, db.CollectableInvoicesParams{
		AfterAt: after.Issued, AfterID: uuid.UUID(after.Invoice), Size: int32(size),
	})
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]Collectable, 0, len(rows))
	for _, r := range rows {
		out = append(out, Collectable{
			Org: id.Org(r.OrgID), Invoice: id.Invoice(r.ID), Provider: r.Provider, Attempts: int(r.Attempts), Issued: r.FinalizedAt,
		})
	}
	return out, nil
}

// InsertAttempt writes an intent down before anything is sent. It fails with
// state.conflict while another attempt of the subject lives.
func (t *SystemTx) InsertAttempt(ctx context.Context, a Attempt) error {
	return mapError(t.q.InsertAttempt(ctx, t.raw, db.InsertAttemptParams{
		OrgID: uuid.UUID(a.Org), AttemptID: uuid.UUID(a.ID), Purpose: string(a.Purpose), SubjectID: a.Subject, AttemptNo: int32(a.No),
		Provider: a.Provider, IntentKey: a.IntentKey, AmountMinor: a.Amount.Minor(), Currency: a.Amount.Currency().Code(),
	}))
}

// LastAttempt is the number of the newest attempt of a subject, 0 for none.
func (t *SystemTx) LastAttempt(ctx context.Context, org id.Org, subject [16]byte) (int, error) {
	n, err := t.q.LastAttemptNo(ctx, t.raw, uuid.UUID(org), subject)
	return int(n), mapError(err)
}

// ClaimAttempts takes up to size attempts that something is to be done about, for as
// long as the lease (machine time).
func (t *SystemTx) ClaimAttempts(ctx context.Context, size int, lease time.Duration) ([]Attempt, error) {
	rows, err := t.q.ClaimAttempts(ctx, t.raw, lease.Seconds(), int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]Attempt, 0, len(rows))
	for _, r := range rows {
		a, err := attemptFrom(db.AttemptForUpdateRow(r))
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// LockAttempt reads an attempt and keeps others from it. It fails with
// resource.not_found.
func (t *SystemTx) LockAttempt(ctx context.Context, org id.Org, a id.PaymentAttempt) (Attempt, error) {
	r, err := t.q.AttemptForUpdate(ctx, t.raw, uuid.UUID(org), uuid.UUID(a))
	if err != nil {
		return Attempt{}, mapError(err)
	}
	return attemptFrom(r)
}

func attemptFrom(r db.AttemptForUpdateRow) (Attempt, error) {
	currency, err := money.ParseCurrency(r.Currency)
	if err != nil {
		return Attempt{}, fmt.Errorf("reading attempt %s: %w", r.ID, err)
	}
	return Attempt{
		Org: id.Org(r.OrgID), ID: id.PaymentAttempt(r.ID), Purpose: Purpose(r.Purpose), Subject: r.SubjectID, No: int(r.AttemptNo),
		Provider: r.Provider, IntentKey: r.IntentKey, Amount: money.NewAmount(r.AmountMinor, currency),
		State: payment.AttemptState(r.State), Ref: r.ProviderRef, Sends: int(r.Sends), CreatedAt: r.CreatedAt.UTC(),
	}, nil
}

// Pause says when an attempt or refund is looked at again, in machine time; zero:
// never by itself.
type Pause time.Duration

// SaveAttempt writes what became of an attempt. Again is when its subject may be
// charged anew (business time).
func (t *SystemTx) SaveAttempt(ctx context.Context, a Attempt, wait Pause, again *time.Time) error {
	return mapError(t.q.SaveAttempt(ctx, t.raw, db.SaveAttemptParams{
		State: string(a.State), ProviderRef: a.Ref, Reason: a.Reason, Detail: a.Detail, ActionUrl: a.Action,
		Over: !a.State.Live(), WaitSeconds: time.Duration(wait).Seconds(), AgainAt: again, OrgID: uuid.UUID(a.Org), AttemptID: uuid.UUID(a.ID),
	}))
}

// PostponeAttempt dates the next look at an attempt, saying why.
func (t *SystemTx) PostponeAttempt(ctx context.Context, a Attempt, wait time.Duration, why string) error {
	return mapError(t.q.PostponeAttempt(ctx, t.raw, db.PostponeAttemptParams{
		Detail: why, WaitSeconds: wait.Seconds(), OrgID: uuid.UUID(a.Org), AttemptID: uuid.UUID(a.ID),
	}))
}

// Attempts lists the attempts of a subject, oldest first.
func (t *tx) Attempts(ctx context.Context, org id.Org, subject [16]byte) ([]Attempt, error) {
	rows, err := t.q.AttemptsOf(ctx, t.raw, uuid.UUID(org), subject)
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]Attempt, 0, len(rows))
	for _, r := range rows {
		currency, err := money.ParseCurrency(r.Currency)
		if err != nil {
			return nil, fmt.Errorf("reading attempt %s: %w", r.ID, err)
		}
		out = append(out, Attempt{
			Org: org, ID: id.PaymentAttempt(r.ID), Purpose: Purpose(r.Purpose), Subject: subject, No: int(r.AttemptNo), Amount: money.NewAmount(r.AmountMinor, currency),
			State: payment.AttemptState(r.State), Ref: r.ProviderRef, Reason: r.Reason, Detail: r.Detail, Action: r.ActionUrl,
			CreatedAt: r.CreatedAt.UTC(), EndedAt: r.EndedAt,
		})
	}
	return out, nil
}

// Payment is money that came. Allocated, Refunded and ChargedBack are what of it went
// where; the rest is unapplied cash of the organization. Received is business time.
type Payment struct {
	Org         id.Org
	ID          id.Payment
	Provider    string // "bank" for transfers
	Ref         string // the provider's; of a transfer the statement line's id
	Attempt     id.PaymentAttempt
	Amount      money.Amount
	Fee         *money.Amount // nil: not known yet; in the currency that the provider settles in
	Allocated   money.Amount
	Refunded    money.Amount // including what is on its way
	ChargedBack money.Amount
	Payer       string
	Reference   string
	ReceivedAt  time.Time
}

// Free is what of the payment pays for nothing and was not given back.
func (p Payment) Free() money.Amount {
	return money.NewAmount(p.Amount.Minor()-p.Allocated.Minor()-p.Refunded.Minor()-p.ChargedBack.Minor(), p.Amount.Currency())
}

// InsertPayment records money once for a reference; false: it is recorded already.
func (t *SystemTx) InsertPayment(ctx context.Context, p Payment) (bool, error) {
	var fee *int64
	var feeCurrency *string
	if p.Fee != nil {
		minor, code := p.Fee.Minor(), p.Fee.Currency().Code()
		fee, feeCurrency = &minor, &code
	}
	n, err := t.q.InsertPayment(ctx, t.raw, db.InsertPaymentParams{
		OrgID: uuid.UUID(p.Org), PaymentID: uuid.UUID(p.ID), Provider: p.Provider, ProviderRef: p.Ref, AttemptID: nullable(p.Attempt),
		AmountMinor: p.Amount.Minor(), Currency: p.Amount.Currency().Code(), FeeMinor: fee, FeeCurrency: feeCurrency,
		Payer: p.Payer, Reference: p.Reference,
	})
	return n == 1, mapError(err)
}

// LockPayment reads a payment and keeps others from it. It fails with
// resource.not_found.
func (t *SystemTx) LockPayment(ctx context.Context, org id.Org, p id.Payment) (Payment, error) {
	r, err := t.q.PaymentForUpdate(ctx, t.raw, uuid.UUID(org), uuid.UUID(p))
	if err != nil {
		return Payment{}, mapError(err)
	}
	return paymentFrom(r)
}

// Payment reads a payment. It fails with resource.not_found.
func (t *SystemTx) Payment(ctx context.Context, org id.Org, p id.Payment) (Payment, error) {
	r, err := t.q.PaymentByID(ctx, t.raw, uuid.UUID(org), uuid.UUID(p))
	if err != nil {
		return Payment{}, mapError(err)
	}
	return paymentFrom(r)
}

// PaymentByRef finds a payment by the provider's reference; found is false for none.
func (t *SystemTx) PaymentByRef(ctx context.Context, provider, ref string) (org id.Org, p id.Payment, found bool, err error) {
	r, err := t.q.PaymentByRef(ctx, t.raw, provider, ref)
	if errors.Is(err, pgx.ErrNoRows) {
		return org, p, false, nil
	}
	return id.Org(r.OrgID), id.Payment(r.ID), err == nil, mapError(err)
}

// Payments lists the payments of an organization, newest first.
func (t *tx) Payments(ctx context.Context, org id.Org, k Keyset) ([]Payment, error) {
	rows, err := t.q.ListPayments(ctx, t.raw, db.ListPaymentsParams{OrgID: uuid.UUID(org), Before: k.before(), Size: int32(k.Size)})
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]Payment, 0, len(rows))
	for _, r := range rows {
		p, err := paymentFrom(r)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func paymentFrom(r db.Payment) (Payment, error) {
	c, err := money.ParseCurrency(r.Currency)
	if err != nil {
		return Payment{}, fmt.Errorf("reading payment %s: %w", r.ID, err)
	}
	p := Payment{
		Org: id.Org(r.OrgID), ID: id.Payment(r.ID), Provider: r.Provider, Ref: r.ProviderRef, Attempt: orZero[id.PaymentAttempt](r.AttemptID),
		Amount: money.NewAmount(r.AmountMinor, c), Allocated: money.NewAmount(r.AllocatedMinor, c), Refunded: money.NewAmount(r.RefundedMinor, c),
		ChargedBack: money.NewAmount(r.ChargedBackMinor, c), Payer: r.Payer, Reference: r.Reference, ReceivedAt: r.ReceivedAt.UTC(),
	}
	if r.FeeMinor != nil && r.FeeCurrency != nil {
		if c, err = money.ParseCurrency(*r.FeeCurrency); err != nil {
			return Payment{}, fmt.Errorf("reading the fee of payment %s: %w", r.ID, err)
		}
		fee := money.NewAmount(*r.FeeMinor, c)
		p.Fee = &fee
	}
	return p, nil
}

// PaymentCount is what a change adds to the counters of a payment, in minor units.
type PaymentCount struct{ Allocated, Refunded, ChargedBack int64 }

// CountPayment adds to the counters. It fails with payment.spent when more would be
// given away than came.
func (t *SystemTx) CountPayment(ctx context.Context, org id.Org, p id.Payment, c PaymentCount) error {
	return mapError(t.q.CountPayment(ctx, t.raw, db.CountPaymentParams{
		Allocated: c.Allocated, Refunded: c.Refunded, ChargedBack: c.ChargedBack, OrgID: uuid.UUID(org), PaymentID: uuid.UUID(p),
	}))
}

// SetPaymentFee notes what the provider kept, the first time it is known.
func (t *SystemTx) SetPaymentFee(ctx context.Context, org id.Org, p id.Payment, fee money.Amount) (bool, error) {
	minor, code := fee.Minor(), fee.Currency().Code()
	n, err := t.q.SetPaymentFee(ctx, t.raw, db.SetPaymentFeeParams{FeeMinor: &minor, FeeCurrency: &code, OrgID: uuid.UUID(org), PaymentID: uuid.UUID(p)})
	return n == 1, mapError(err)
}

// FreePayment is a payment with money that pays for nothing yet.
type FreePayment struct {
	ID   id.Payment
	Free money.Amount
}

// FreePayments lists and locks them, oldest first; those in dispute are left alone.
func (t *SystemTx) FreePayments(ctx context.Context, org id.Org, c money.Currency) ([]FreePayment, error) {
	rows, err := t.q.FreePayments(ctx, t.raw, uuid.UUID(org), c.Code())
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]FreePayment, 0, len(rows))
	for _, r := range rows {
		out = append(out, FreePayment{ID: id.Payment(r.ID), Free: money.NewAmount(r.FreeMinor, c)})
	}
	return out, nil
}
