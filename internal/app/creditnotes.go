package app

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// maxReason bounds why a document is credited or cancelled.
const maxReason = 500

// CreditRequest is a credit note to write: of lines, of a net amount spread over all
// lines, or with neither of all that is left.
type CreditRequest struct {
	Lines  []billing.LineCredit
	Net    *money.Amount
	Reason string
	Refund billing.Refund // of what was paid; "" leaves it unapplied
}

// CreateCreditNote takes a part of a document back: the note has a number of its own,
// its tax follows what was credited so far, and it is posted, all in one transaction.
// A document and its notes stay within its total whatever comes at once. It fails with
// request.invalid, resource.not_found, state.conflict for a document that is not open,
// credit.exceeds, credit.nothing, and approval.required above the limit.
func (a *App) CreateCreditNote(ctx context.Context, c Caller, org id.Org, inv id.Invoice, r CreditRequest) (billing.Invoice, error) {
	if err := checkCorrection(c, r.Reason, r.Refund); err != nil {
		return billing.Invoice{}, err
	}
	if len(r.Lines) > 0 && r.Net != nil {
		return billing.Invoice{}, refused("/net", "rule", "A credit names lines or one amount, not both.")
	}
	body := map[string]any{"invoice": inv.String(), "lines": creditBody(r.Lines), "net": amountText(r.Net), "reason": r.Reason, "refund": r.Refund}
	return a.correct(ctx, c, org, inv, body, func(t *store.SystemTx, original billing.Invoice, notes []billing.Invoice) (correction, error) {
		note, err := creditOf(original, notes, r)
		note.Reason, note.Refund = r.Reason, r.Refund
		return correction{original: original, note: note}, err
	}, nil)
}

func creditOf(original billing.Invoice, notes []billing.Invoice, r CreditRequest) (billing.Invoice, error) {
	what := append([]billing.LineCredit(nil), r.Lines...)
	if r.Net != nil {
		spread, err := billing.Spread(original, notes, *r.Net)
		if err != nil {
			return billing.Invoice{}, err
		}
		what = spread
	}
	return billing.Credit(original, notes, what)
}

// Cancellation is why a document is taken back, and what happens with what was paid.
type Cancellation struct {
	Reason string
	Refund billing.Refund
}

// CancelInvoice takes a document back as a whole: a credit note over all that is left,
// with a number of its own, its journal, and the end of the document's standing, in
// one transaction. What was cancelled is not billed again but by ReissueInvoice. The
// note has no id where nothing was left to credit. It fails with refund.required if
// money was paid and no refund is decided, with state.conflict if it was cancelled
// before, and like CreateCreditNote.
func (a *App) CancelInvoice(ctx context.Context, c Caller, org id.Org, inv id.Invoice, r Cancellation) (billing.Invoice, error) {
	if err := checkCorrection(c, r.Reason, r.Refund); err != nil {
		return billing.Invoice{}, err
	}
	body := map[string]any{"invoice": inv.String(), "cancel": true, "reason": r.Reason, "refund": r.Refund}
	return a.correct(ctx, c, org, inv, body, cancelling(r), nil)
}

// ReissueInvoice cancels an invoice and makes it again, as the organization, issuer,
// prices and taxes are now, in one transaction; the new one names the old. It fails
// like CancelInvoice.
func (a *App) ReissueInvoice(ctx context.Context, c Caller, org id.Org, inv id.Invoice, r Cancellation) (note, next billing.Invoice, err error) {
	if err := checkCorrection(c, r.Reason, r.Refund); err != nil {
		return note, next, err
	}
	body := map[string]any{"invoice": inv.String(), "reissue": true, "reason": r.Reason, "refund": r.Refund}
	note, err = a.correct(ctx, c, org, inv, body, cancelling(r), func(t *store.SystemTx, original billing.Invoice) (func() error, error) {
		booked, err := a.again(ctx, t, original)
		return func() error {
			if _, err := a.number(ctx, t, booked); err != nil {
				return err
			}
			next, err = t.Invoice(ctx, org, booked.ID)
			return err
		}, err
	})
	return note, next, err
}

func cancelling(r Cancellation) func(*store.SystemTx, billing.Invoice, []billing.Invoice) (correction, error) {
	return func(_ *store.SystemTx, original billing.Invoice, notes []billing.Invoice) (correction, error) {
		k := correction{original: original, cancel: true}
		switch {
		case original.Cancelled:
			return k, fault.New(fault.Conflict, "state.conflict", "The invoice was cancelled before.").Suggest("Read it again.")
		case original.Kind == billing.CreditNote:
			return k, fault.New(fault.Conflict, "state.conflict", "A credit note is not cancelled.").Suggest("Invoice the amount again.")
		}
		paid, err := original.Settlement.Paid.Add(original.Settlement.Prepaid)
		if err != nil {
			return k, err
		}
		if paid.Sign() > 0 && r.Refund == "" {
			return k, fault.New(fault.Conflict, "refund.required", fmt.Sprintf("%s was paid on the invoice.", paid)).
				Suggest("Say what happens with it: refund wallet, provider or none.")
		}
		note, err := billing.Credit(original, notes, nil)
		if fault.CodeOf(err) == "credit.nothing" {
			return k, nil // nothing is owed or was paid for it: it ends without a note
		}
		note.Reason, note.Refund = r.Reason, r.Refund
		k.note = note
		return k, err
	}
}

// correction is a credit note about to be written; cancel ends its document.
type correction struct {
	original billing.Invoice
	note     billing.Invoice // without lines: none
	cancel   bool
	basis    store.Basis
}

// correct runs one correction under the locks of account and document; permission is
// asked for what the note would come to before. What then books beside it comes before
// the note's number; what it returns takes the numbers that follow.
func (a *App) correct(
	ctx context.Context, c Caller, org id.Org, inv id.Invoice, body any,
	make func(*store.SystemTx, billing.Invoice, []billing.Invoice) (correction, error), then func(*store.SystemTx, billing.Invoice) (func() error, error),
) (note billing.Invoice, err error) {
	read := func(t *store.SystemTx) (correction, error) {
		original, err := t.Invoice(ctx, org, inv)
		if err != nil {
			return correction{}, err
		}
		if original.State != billing.Open {
			return correction{}, store.NotFound()
		}
		notes, err := t.CreditNotesOf(ctx, org, inv)
		if err != nil {
			return correction{}, err
		}
		return make(t, original, notes)
	}
	var amount money.Amount
	err = a.Store.InSystem(ctx, "look at what a credit comes to", func(t *store.SystemTx) error {
		k, err := read(t)
		amount = zeroOf(k.original)
		if len(k.note.Lines) > 0 {
			amount = k.note.Total
		}
		return err
	})
	if err != nil {
		return note, err
	}
	permit, err := a.RequireApproval(ctx, c, ApproveCreditNote, body, amount)
	if err != nil {
		return note, err
	}
	err = a.Store.InSystem(ctx, "write a credit note", func(t *store.SystemTx) error {
		if err := lockForCorrection(ctx, t, org, inv); err != nil {
			return err
		}
		k, err := read(t)
		if err != nil {
			return err
		}
		if len(k.note.Lines) > 0 && k.note.Total != amount {
			return fault.New(fault.Conflict, "state.conflict", "The invoice was credited meanwhile.").Suggest("Read it again and decide.")
		}
		if err := permit.Spend(ctx, t); err != nil {
			return err
		}
		if err := t.Audit(ctx, c.audit(org, "invoice.credit", inv.String())); err != nil {
			return err
		}
		if k, err = a.bookNote(ctx, t, c, k); err != nil {
			return err
		}
		last := func() error { return nil }
		if then != nil {
			if last, err = then(t, k.original); err != nil {
				return err
			}
		}
		if note, err = a.numberNote(ctx, t, k); err != nil {
			return err
		}
		return last()
	})
	return note, err
}

// lockForCorrection takes the locks in their one order: invoicing, account, document.
func lockForCorrection(ctx context.Context, t *store.SystemTx, org id.Org, inv id.Invoice) error {
	if err := t.SerializeInvoicing(ctx, org); err != nil {
		return err
	}
	if err := t.LockBillingAccount(ctx, org); err != nil {
		return err
	}
	return t.LockInvoice(ctx, org, inv)
}

// book writes a correction: the note with its money, number last, and the end of its
// document. It answers the finalized note, the zero value without one.
func (a *App) book(ctx context.Context, t *store.SystemTx, c Caller, k correction) (billing.Invoice, error) {
	k, err := a.bookNote(ctx, t, c, k)
	if err != nil {
		return billing.Invoice{}, err
	}
	return a.numberNote(ctx, t, k)
}

// numberNote gives a booked note its number. Without a note it does nothing.
func (a *App) numberNote(ctx context.Context, t *store.SystemTx, k correction) (billing.Invoice, error) {
	if len(k.note.Lines) == 0 {
		return billing.Invoice{}, nil
	}
	return a.number(ctx, t, k.note)
}

// bookNote is book without the number.
func (a *App) bookNote(ctx context.Context, t *store.SystemTx, c Caller, k correction) (correction, error) {
	if k.cancel {
		live, err := t.CancelInvoice(ctx, k.original.Org, k.original.ID)
		if err != nil {
			return k, err
		}
		if !live {
			return k, fault.New(fault.Conflict, "state.conflict", "The invoice was cancelled before.")
		}
		if err := t.AppendEvent(ctx, store.Event{Org: k.original.Org, Type: "invoice.cancelled", Subject: k.original.ID}); err != nil {
			return k, err
		}
	}
	if len(k.note.Lines) == 0 {
		return k, nil
	}
	k.note.ID = id.New[id.Invoice]()
	var err error
	if k.note, err = k.note.Because(k.note.Reason); err != nil {
		return k, err
	}
	if err := t.InsertDraft(ctx, k.note, k.basis); err != nil {
		return k, err
	}
	if err := a.bookMoney(ctx, t, c, k); err != nil {
		return k, err
	}
	return k, t.AppendEvent(ctx, store.Event{
		Org: k.note.Org, Type: "invoice.credited", Subject: k.original.ID, Data: map[string]any{"credit_note": k.note.ID.String()},
	})
}

// bookMoney counts the note on its document, gives back what was paid, and posts.
func (a *App) bookMoney(ctx context.Context, t *store.SystemTx, c Caller, k correction) error {
	gross, err := k.note.Total.Neg()
	if err != nil {
		return err
	}
	if err := t.Credited(ctx, k.original.Org, k.original.ID, gross); err != nil {
		return err
	}
	funding, err := a.returned(ctx, t, k)
	if err != nil {
		return err
	}
	journal, err := ledger.ForCreditNote(k.note, k.original.ID, funding)
	if err != nil {
		return err
	}
	if err := t.Post(ctx, journal); err != nil {
		return err
	}
	paid, err := t.PaidBy(ctx, k.original.Org, k.original.ID, k.original.Currency)
	if err != nil {
		return err
	}
	released, err := a.releaseOverpaid(ctx, t, k.original.Org, k.original.ID)
	if err != nil || k.note.Refund != billing.RefundProvider {
		return err
	}
	for _, r := range refundsOf(paid, released) {
		if err := a.orderRefund(ctx, t, c, k.original.Org, r.payment, r.amount, RefundOrder{Reason: k.note.Reason}); err != nil {
			return err
		}
	}
	return nil
}

// returned gives wallet money, promotions and advances back.
func (a *App) returned(ctx context.Context, t *store.SystemTx, k correction) (ledger.Funding, error) {
	if k.original.Kind == billing.AdvanceInvoice {
		return ledger.Funding{}, nil
	}
	f, err := returnFunding(ctx, t, returnOrder{
		original: k.original, note: k.note, full: k.cancel, wallet: k.note.Refund == billing.RefundWallet,
	})
	if err != nil {
		return ledger.Funding{}, err
	}
	net := zeroOf(k.note)
	for _, l := range k.note.Lines {
		if l.Key.Reference != string(billing.AdvanceOffset) {
			continue
		}
		if net, err = net.Add(l.Amount); err != nil {
			return ledger.Funding{}, err
		}
	}
	if net.IsZero() {
		return f, nil
	}
	before, err := k.original.BeforeAdvances()
	if err != nil {
		return ledger.Funding{}, err
	}
	gross, err := before.Total.Sub(k.original.Total)
	if err != nil {
		return ledger.Funding{}, err
	}
	if err := returnAdvances(ctx, t, k.original, gross); err != nil {
		return ledger.Funding{}, err
	}
	f.AdvanceNet = net
	f.AdvanceTax, err = gross.Sub(net)
	return f, err
}

// refund is a part of a payment that goes back the way it came.
type refund struct {
	payment id.Payment
	amount  money.Amount
}

// refundsOf says which of the payments of a document, newest first, what was released
// of it came from: that much of each goes back the way it came. What the wallet paid
// went back to the wallet before.
func refundsOf(paid []store.FreePayment, released money.Amount) []refund {
	over := released.Minor()
	var out []refund
	for _, p := range paid {
		part := min(over, p.Free.Minor())
		if part <= 0 {
			break
		}
		out = append(out, refund{payment: p.ID, amount: money.NewAmount(part, released.Currency())})
		over -= part
	}
	return out
}

func checkCorrection(c Caller, reason string, r billing.Refund) error {
	if err := operatorOnly(c); err != nil {
		return err
	}
	if reason == "" || len(reason) > maxReason {
		return refused("/reason", "rule", fmt.Sprintf("A correction has a reason of at most %d characters.", maxReason))
	}
	switch r {
	case "", billing.RefundWallet, billing.RefundProvider, billing.RefundNone:
		return nil
	}
	return refused("/refund", "rule", "A refund is wallet, provider or none.")
}

func creditBody(lines []billing.LineCredit) []map[string]any {
	out := make([]map[string]any, len(lines))
	for i, l := range lines {
		out[i] = map[string]any{"no": l.No, "net": amountText(l.Net)}
	}
	return out
}

func amountText(a *money.Amount) string {
	if a == nil {
		return ""
	}
	return a.String()
}
