package app

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// ApprovalKind names what may need a second operator.
type ApprovalKind string

// The kinds. Those of price books and tax tables have no amount: where a rule exists
// they always need one.
const (
	ApproveCreditNote ApprovalKind = "credit_note"
	ApproveWriteOff   ApprovalKind = "write_off"
	ApproveRefund     ApprovalKind = "refund"
	ApprovePriceBook  ApprovalKind = "price_book"
	ApproveTaxTable   ApprovalKind = "tax_table"
	approveRule       ApprovalKind = "approval_rule"
)

var approvalKinds = map[ApprovalKind]bool{ // whether it has an amount
	ApproveCreditNote: true, ApproveWriteOff: true, ApproveRefund: true, ApprovePriceBook: false, ApproveTaxTable: false,
}

// approvalLife is how long a request and its approval are good, in machine time.
const approvalLife = 7 * 24 * time.Hour

// Permit is the second operator's consent to one execution of one request. The zero
// Permit is that of requests that need none.
type Permit struct{ approval id.Approval }

// Spend uses the consent up in the transaction of what it is for: exactly one
// execution commits. It fails with state.conflict when it was used meanwhile.
func (p Permit) Spend(ctx context.Context, t *store.SystemTx) error {
	if p.approval.IsZero() {
		return nil
	}
	ok, err := t.SpendApproval(ctx, p.approval)
	if err != nil || ok {
		return err
	}
	return fault.New(fault.Conflict, "state.conflict", fmt.Sprintf("The approval %s was used or has expired.", p.approval)).
		Suggest("Look whether the change was made; otherwise ask again.")
}

// RequireApproval asks whether an operator may do this alone. Body is everything that
// makes up the request, in canonical form; it is stored, so it holds no secret.
// Amount is what the rules compare, its sign does not matter; the zero Amount for
// kinds without one. Call it before the transaction of the change: a refusal leaves
// the request behind, in a transaction of its own.
//
// It fails with approval.required, which names the request and says how to approve
// it; once another operator did, the same request by the same operator passes.
func (a *App) RequireApproval(ctx context.Context, c Caller, kind ApprovalKind, body any, amount money.Amount) (Permit, error) {
	var needed bool
	ctx = store.Apart(ctx)
	err := a.Store.InSystem(ctx, "look up approval rules", func(t *store.SystemTx) error {
		above, ruled, err := t.ApprovalLimit(ctx, string(kind), amount.Currency())
		needed = ruled && (amount.Currency().IsZero() || max(amount.Minor(), -amount.Minor()) > above)
		return err
	})
	if err != nil || !needed {
		return Permit{}, err
	}
	return a.askSecond(ctx, c, kind, body, amount)
}

// askSecond is RequireApproval for what always needs a second operator.
func (a *App) askSecond(ctx context.Context, c Caller, kind ApprovalKind, body any, amount money.Amount) (Permit, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return Permit{}, fmt.Errorf("writing the body of an approval: %w", err)
	}
	request := store.NewApproval{
		ID: id.New[id.Approval](), Kind: string(kind), Body: text, Amount: amount, RequestedBy: c.actor(), Life: approvalLife,
		Hash: sha256.Sum256([]byte(string(kind) + "\n" + amount.String() + "\n" + string(text))),
	}
	var open store.Approval
	err = a.Store.InSystem(ctx, "ask for an approval", func(t *store.SystemTx) error {
		if open, err = t.RequestApproval(ctx, request); err != nil || open.ID != request.ID {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "approval.request", open.ID.String()))
	})
	if err != nil {
		return Permit{}, err
	}
	if open.State == "approved" {
		return Permit{open.ID}, nil
	}
	return Permit{}, fault.New(fault.Forbidden, "approval.required",
		fmt.Sprintf("A second operator has to approve this: it waits as %s until %s.", open.ID, open.ExpiresAt.Format(time.RFC3339))).
		Suggest(fmt.Sprintf("Another operator approves %s; then send the very same request again.", open.ID))
}

// ListApprovals lists requests for approval, newest first.
func (a *App) ListApprovals(ctx context.Context, _ Caller, p Page) (List[store.Approval], error) {
	k, err := keyset[id.Approval](p)
	if err != nil {
		return List[store.Approval]{}, err
	}
	var rows []store.Approval
	err = a.Store.InSystem(ctx, "list approvals", func(t *store.SystemTx) error {
		rows, err = t.Approvals(ctx, k)
		return err
	})
	return paged(rows, p.Size, func(x store.Approval) string { return x.ID.String() }), err
}

// GetApproval reads a request for approval. It fails with resource.not_found.
func (a *App) GetApproval(ctx context.Context, _ Caller, apr id.Approval) (out store.Approval, err error) {
	err = a.Store.InSystem(ctx, "read an approval", func(t *store.SystemTx) error {
		out, err = t.Approval(ctx, apr)
		return err
	})
	return out, err
}

// Approve consents to another operator's request. It fails with approval.self for
// one's own, with state.conflict when it is not open any more, and with
// resource.not_found.
func (a *App) Approve(ctx context.Context, c Caller, apr id.Approval) (store.Approval, error) {
	return a.decide(ctx, c, apr, "approved")
}

// RejectApproval refuses a request; who made it may withdraw it so.
func (a *App) RejectApproval(ctx context.Context, c Caller, apr id.Approval) (store.Approval, error) {
	return a.decide(ctx, c, apr, "rejected")
}

func (a *App) decide(ctx context.Context, c Caller, apr id.Approval, state string) (out store.Approval, err error) {
	if err := operatorOnly(c); err != nil {
		return out, err
	}
	err = a.Store.InSystem(ctx, "decide an approval", func(t *store.SystemTx) error {
		if out, err = t.Approval(ctx, apr); err != nil {
			return err
		}
		if state == "approved" && out.RequestedBy == c.actor() {
			return fault.New(fault.Forbidden, "approval.self", "Nobody approves a request of their own.").
				Suggest("Ask another operator.")
		}
		ok, err := t.DecideApproval(ctx, apr, state, c.actor())
		if err != nil {
			return err
		}
		if !ok {
			return fault.New(fault.Conflict, "state.conflict", fmt.Sprintf("The request is %s, or has expired.", out.State)).
				Suggest("Read it again; a request that expired is made anew.")
		}
		if err := t.Audit(ctx, c.audit(id.Org{}, "approval."+state, apr.String())); err != nil {
			return err
		}
		out, err = t.Approval(ctx, apr)
		return err
	})
	return out, err
}

// ApprovalRule says above which amount a kind needs a second operator. Above without
// a currency is for kinds that have no amount.
type ApprovalRule struct {
	Kind  ApprovalKind
	Above money.Amount
}

// SetApprovalRule writes a rule. Without any rule a kind needs nobody's consent; to
// loosen one needs that of a second operator. It fails with request.invalid and
// approval.required.
func (a *App) SetApprovalRule(ctx context.Context, c Caller, r ApprovalRule) error {
	if err := operatorOnly(c); err != nil {
		return err
	}
	hasAmount, known := approvalKinds[r.Kind]
	if !known || hasAmount == r.Above.Currency().IsZero() || r.Above.Sign() < 0 {
		return fault.New(fault.Invalid, "request.invalid", "The rule cannot be kept.").
			With(fault.Field{Pointer: "/kind", Code: "kind", Detail: "credit_note, write_off and refund with an amount of at least 0, price_book and tax_table without"})
	}
	loosens := func(ctx context.Context, t *store.SystemTx) (bool, error) {
		before, ruled, err := t.LockApprovalLimit(ctx, string(r.Kind), r.Above.Currency())
		return ruled && r.Above.Minor() > before, err
	}
	var ask bool
	err := a.Store.InSystem(ctx, "read an approval rule", func(t *store.SystemTx) (err error) {
		ask, err = loosens(ctx, t)
		return err
	})
	if err != nil {
		return err
	}
	var permit Permit
	if ask {
		body := map[string]string{"kind": string(r.Kind), "above": r.Above.String()}
		if permit, err = a.askSecond(store.Apart(ctx), c, approveRule, body, r.Above); err != nil {
			return err
		}
	}
	return a.Store.InSystem(ctx, "set an approval rule", func(t *store.SystemTx) error {
		now, err := loosens(ctx, t)
		if err != nil {
			return err
		}
		if now && permit == (Permit{}) {
			return fault.New(fault.Conflict, "state.conflict", "The rule was changed meanwhile.").Suggest("Read the rules and send the request again.")
		}
		if err := permit.Spend(ctx, t); err != nil {
			return err
		}
		rule := store.ApprovalRule{Kind: string(r.Kind), Currency: r.Above.Currency(), Above: r.Above.Minor(), UpdatedBy: c.actor()}
		if err := t.PutApprovalRule(ctx, rule); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "approval_rule.set", string(r.Kind)+" "+r.Above.String()))
	})
}

// ApprovalRules lists the rules.
func (a *App) ApprovalRules(ctx context.Context, _ Caller) (out []store.ApprovalRule, err error) {
	err = a.Store.InSystem(ctx, "list approval rules", func(t *store.SystemTx) error {
		out, err = t.ApprovalRules(ctx)
		return err
	})
	return out, err
}
