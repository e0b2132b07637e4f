package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// ApprovalRule asks for a second operator above an amount. A zero currency is that of
// kinds that have no amount.
type ApprovalRule struct {
	Kind      string
	Currency  money.Currency
	Above     int64 // minor units
	UpdatedBy string
	UpdatedAt time.Time
}

// Approval is a request for a second pair of eyes, and what became of it. Instants
// are machine time.
type Approval struct {
	ID          id.Approval
	Kind        string
	Body        []byte       // JSON, what exactly is to be done
	Amount      money.Amount // zero value: the kind has none
	State       string       // pending, approved, rejected, executed
	RequestedBy string
	DecidedBy   string
	CreatedAt   time.Time
	DecidedAt   *time.Time
	ExecutedAt  *time.Time
	ExpiresAt   time.Time
}

// NewApproval is a request to write down.
type NewApproval struct {
	ID          id.Approval
	Kind        string
	Body        []byte
	Hash        [32]byte
	Amount      money.Amount
	RequestedBy string
	Life        time.Duration // machine time
}

// ApprovalLimit returns the amount above which a kind needs a second operator; false
// when it never does.
func (t *SystemTx) ApprovalLimit(ctx context.Context, kind string, c money.Currency) (int64, bool, error) {
	above, err := t.q.ApprovalRule(ctx, t.raw, kind, c.Code())
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return above, err == nil, mapError(err)
}

// LockApprovalLimit is ApprovalLimit that lets nobody else write rules until the
// transaction ends.
func (t *SystemTx) LockApprovalLimit(ctx context.Context, kind string, c money.Currency) (int64, bool, error) {
	if err := t.q.LockApprovalRules(ctx, t.raw); err != nil {
		return 0, false, mapError(err)
	}
	return t.ApprovalLimit(ctx, kind, c)
}

// ApprovalRules lists all rules.
func (t *SystemTx) ApprovalRules(ctx context.Context) ([]ApprovalRule, error) {
	rows, err := t.q.ApprovalRules(ctx, t.raw)
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]ApprovalRule, 0, len(rows))
	for _, r := range rows {
		rule := ApprovalRule{Kind: r.Kind, Above: r.AboveMinor, UpdatedBy: r.UpdatedBy, UpdatedAt: r.UpdatedAt.UTC()}
		if r.Currency != "" {
			if rule.Currency, err = money.ParseCurrency(r.Currency); err != nil {
				return nil, err
			}
		}
		out = append(out, rule)
	}
	return out, nil
}

// PutApprovalRule writes a rule.
func (t *SystemTx) PutApprovalRule(ctx context.Context, r ApprovalRule) error {
	return mapError(t.q.PutApprovalRule(ctx, t.raw, db.PutApprovalRuleParams{
		Kind: r.Kind, Currency: r.Currency.Code(), AboveMinor: r.Above, UpdatedBy: r.UpdatedBy,
	}))
}

// RequestApproval writes a request down, once for one operator and body while it is
// open, and returns the open one.
func (t *SystemTx) RequestApproval(ctx context.Context, n NewApproval) (Approval, error) {
	if err := t.q.ExpireApprovals(ctx, t.raw); err != nil {
		return Approval{}, mapError(err)
	}
	_, err := t.q.InsertApproval(ctx, t.raw, db.InsertApprovalParams{
		ApprovalID: uuid.UUID(n.ID), Kind: n.Kind, Body: n.Body, BodyHash: n.Hash[:], AmountMinor: n.Amount.Minor(),
		Currency: n.Amount.Currency().Code(), RequestedBy: n.RequestedBy, LifeSeconds: n.Life.Seconds(),
	})
	if err != nil {
		return Approval{}, mapError(err)
	}
	r, err := t.q.LiveApproval(ctx, t.raw, db.LiveApprovalParams{Kind: n.Kind, BodyHash: n.Hash[:], RequestedBy: n.RequestedBy})
	return Approval{
		ID: id.Approval(r.ID), Kind: n.Kind, State: r.State, DecidedBy: r.DecidedBy, RequestedBy: n.RequestedBy, ExpiresAt: r.ExpiresAt.UTC(),
	}, mapError(err)
}

// Approval reads a request. It fails with resource.not_found.
func (t *SystemTx) Approval(ctx context.Context, a id.Approval) (Approval, error) {
	r, err := t.q.GetApproval(ctx, t.raw, uuid.UUID(a))
	if err != nil {
		return Approval{}, mapError(err)
	}
	return approvalFrom(r)
}

// Approvals lists requests, newest first.
func (t *SystemTx) Approvals(ctx context.Context, k Keyset) ([]Approval, error) {
	rows, err := t.q.ListApprovals(ctx, t.raw, k.before(), int32(k.Size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]Approval, 0, len(rows))
	for _, r := range rows {
		a, err := approvalFrom(r)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// DecideApproval approves or rejects an open request; false when it is not open.
func (t *SystemTx) DecideApproval(ctx context.Context, a id.Approval, state, by string) (bool, error) {
	n, err := t.q.DecideApproval(ctx, t.raw, db.DecideApprovalParams{State: state, DecidedBy: by, ApprovalID: uuid.UUID(a)})
	return n == 1, mapError(err)
}

// SpendApproval uses an approved request up; false when it is not, or was used.
func (t *SystemTx) SpendApproval(ctx context.Context, a id.Approval) (bool, error) {
	n, err := t.q.SpendApproval(ctx, t.raw, uuid.UUID(a))
	return n == 1, mapError(err)
}

func approvalFrom(r db.Approval) (Approval, error) {
	a := Approval{
		ID: id.Approval(r.ID), Kind: r.Kind, Body: r.Body, State: r.State, RequestedBy: r.RequestedBy, DecidedBy: r.DecidedBy,
		CreatedAt: r.CreatedAt.UTC(), DecidedAt: r.DecidedAt, ExecutedAt: r.ExecutedAt, ExpiresAt: r.ExpiresAt.UTC(),
	}
	if r.Currency == "" {
		return a, nil
	}
	currency, err := money.ParseCurrency(r.Currency)
	a.Amount = money.NewAmount(r.AmountMinor, currency)
	return a, err
}
