package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// StatementImport says what came of a statement: New lines of Lines credits, Matched
// of them by themselves; the others wait in the queue. Debits were left out.
type StatementImport struct{ Lines, New, Matched, Debits int }

// importBatch is how many lines of a statement one transaction takes in.
const importBatch = 100

// ImportStatement takes the credits of a bank statement in (see parseStatement), each
// once for its account and bank_id, and matches what the rules are sure of. A
// statement may be sent again. Operators only. It fails with request.invalid, and with
// statement.mismatch when a bank_id comes with other contents; nothing is imported
// then.
func (a *App) ImportStatement(ctx context.Context, c Caller, account string, body []byte) (out StatementImport, err error) {
	if err := operatorOnly(c); err != nil {
		return out, err
	}
	lines, debits, err := parseStatement(account, body)
	if err != nil {
		return out, err
	}
	out.Lines, out.Debits = len(lines), debits
	ctx = store.Apart(ctx)
	if err := a.checkKnownLines(ctx, lines); err != nil {
		return out, err
	}
	var waiting []id.StatementLine
	for batch := range slices.Chunk(lines, importBatch) {
		var fresh int
		var queued []id.StatementLine
		err := a.Store.InSystem(ctx, "import a bank statement", func(t *store.SystemTx) error {
			fresh, queued, err = importLines(ctx, t, c, batch)
			return err
		})
		if err != nil {
			return out, err
		}
		out.New, waiting = out.New+fresh, append(waiting, queued...)
	}
	for _, l := range waiting {
		var done bool
		err := a.Store.InSystem(ctx, "match a bank transfer", func(t *store.SystemTx) error {
			done, err = a.matchLine(ctx, t, l)
			return err
		})
		if err != nil {
			return out, fmt.Errorf("matching statement line %s: %w", l, err)
		}
		if done {
			out.Matched++
		}
	}
	return out, nil
}

// checkKnownLines fails where a line is known with other contents, or comes twice
// with different ones. It only reads.
func (a *App) checkKnownLines(ctx context.Context, lines []store.StatementLine) error {
	first := map[string]store.StatementLine{}
	for _, l := range lines {
		before, twice := first[l.BankID]
		if twice && !sameEntry(before, l) {
			return statementMismatch(l)
		}
		first[l.BankID] = l
	}
	return a.Store.InSystem(ctx, "compare a bank statement", func(t *store.SystemTx) error {
		for batch := range slices.Chunk(lines, 10*importBatch) {
			known, err := t.KnownStatementLines(ctx, batch)
			if err != nil {
				return err
			}
			for _, l := range known {
				if !sameEntry(l, first[l.BankID]) {
					return statementMismatch(l)
				}
			}
		}
		return nil
	})
}

// importLines writes what of a batch is new, and lists what waits to be matched.
func importLines(ctx context.Context, t *store.SystemTx, c Caller, batch []store.StatementLine) (fresh int, queued []id.StatementLine, err error) {
	for _, l := range batch {
		l.ImportedBy = c.actor()
		known, added, err := t.InsertStatementLine(ctx, l)
		if err != nil {
			return 0, nil, err
		}
		if !sameEntry(known, l) { // another import came in between
			return 0, nil, statementMismatch(l)
		}
		if added || known.State == "queued" {
			queued = append(queued, known.ID)
		}
		if added {
			fresh++
		}
	}
	return fresh, queued, t.Audit(ctx, c.audit(id.Org{}, "statement.import", batch[0].Account))
}

func sameEntry(a, b store.StatementLine) bool {
	return a.Amount == b.Amount && a.BookedOn.Equal(b.BookedOn) && a.Reference == b.Reference && a.Payer == b.Payer
}

func statementMismatch(l store.StatementLine) error {
	return fault.New(fault.Conflict, "statement.mismatch", fmt.Sprintf("The entry %s of %s was imported with other contents.", l.BankID, l.Account)).
		Suggest("Compare it with the bank's own statement; nothing was imported.")
}

// matchLine decides a line by the rules, or notes why it waits.
func (a *App) matchLine(ctx context.Context, t *store.SystemTx, line id.StatementLine) (bool, error) {
	l, err := t.LockStatementLine(ctx, line)
	if err != nil || l.State != "queued" {
		return false, err
	}
	found, err := t.TransferCandidates(ctx, l, false)
	if err != nil {
		return false, err
	}
	m := payment.MatchTransfer(payment.Transfer{Amount: l.Amount, Reference: l.Reference, Payer: l.Payer}, found)
	if m.Org.IsZero() {
		return false, t.ExplainStatementLine(ctx, line, m.Why)
	}
	return true, a.settleLine(ctx, t, l, m.Org, m.Allocations, "rules", m.Why)
}

// settleLine records the money of a line as a payment of an organization.
func (a *App) settleLine(
	ctx context.Context, t *store.SystemTx, l store.StatementLine, org id.Org, to []payment.Allocation, by, why string,
) error {
	if err := t.LockBillingAccount(ctx, org); err != nil {
		return err
	}
	p := store.Payment{
		Org: org, ID: id.New[id.Payment](), Provider: bankProvider, Ref: l.ID.String(), Amount: l.Amount,
		Payer: l.Payer, Reference: l.Reference,
	}
	fresh, err := a.receive(ctx, t, p, to)
	if err != nil {
		return err
	}
	if !fresh {
		return fault.New(fault.Conflict, "state.conflict", "The transfer is recorded already.").Suggest("Read the queue again.")
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	if err := post1(ctx, t)(ledger.Deposited(ledger.Entry{Org: org, Reference: p.ID, On: now}, l.Amount)); err != nil {
		return err
	}
	l.State, l.Org, l.Payment, l.DecidedBy, l.Why = "matched", org, p.ID, by, why
	return t.DecideStatementLine(ctx, l)
}

// ListStatementLines lists statement lines in a state, "" for all, newest first.
func (a *App) ListStatementLines(ctx context.Context, _ Caller, state string, p Page) (List[store.StatementLine], error) {
	if state != "" && state != "queued" && state != "matched" && state != "returned" {
		return List[store.StatementLine]{}, fault.New(fault.Invalid, "request.invalid", "There is no such state.").
			With(fault.Field{Pointer: "state", Code: "enum", Detail: "queued, matched or returned"})
	}
	k, err := keyset[id.StatementLine](p)
	if err != nil {
		return List[store.StatementLine]{}, err
	}
	var rows []store.StatementLine
	err = a.Store.InSystem(ctx, "list statement lines", func(t *store.SystemTx) error {
		rows, err = t.StatementLines(ctx, state, k)
		return err
	})
	return paged(rows, p.Size, func(l store.StatementLine) string { return l.ID.String() }), err
}

// StatementCandidates lists the documents that a line may be for.
func (a *App) StatementCandidates(ctx context.Context, _ Caller, line id.StatementLine) (found []payment.Candidate, err error) {
	err = a.Store.InSystem(ctx, "look for what a transfer pays", func(t *store.SystemTx) error {
		l, err := t.StatementLine(ctx, line)
		if err != nil {
			return err
		}
		found, err = t.TransferCandidates(ctx, l, true)
		return err
	})
	return found, err
}

// MatchStatementLine decides a waiting line: it is a payment of the organization,
// split over the documents as said; the rest is unapplied cash. It fails with
// resource.not_found, state.conflict when the line does not wait any more,
// request.invalid for parts that are more than the line, payment.exceeds_due for more
// than a document is owed, and payment.currency.
func (a *App) MatchStatementLine(
	ctx context.Context, c Caller, line id.StatementLine, org id.Org, to []payment.Allocation,
) (l store.StatementLine, err error) {
	if err := operatorOnly(c); err != nil {
		return l, err
	}
	err = a.Store.InSystem(ctx, "match a bank transfer", func(t *store.SystemTx) error {
		if l, err = waitingLine(ctx, t, line); err != nil {
			return err
		}
		if err := checkSplit(ctx, t, l, org, to); err != nil {
			return err
		}
		if err := a.settleLine(ctx, t, l, org, to, c.actor(), "by an operator"); err != nil {
			return err
		}
		if err := t.Audit(ctx, c.audit(org, "statement_line.match", line.String())); err != nil {
			return err
		}
		l, err = t.LockStatementLine(ctx, line)
		return err
	})
	return l, err
}

// checkSplit checks the parts of a line against the line and the documents.
func checkSplit(ctx context.Context, t *store.SystemTx, l store.StatementLine, org id.Org, to []payment.Allocation) error {
	if err := t.LockBillingAccount(ctx, org); err != nil {
		return err
	}
	left := l.Amount
	seen := map[id.Invoice]bool{}
	for i, x := range to {
		rest, err := left.Sub(x.Amount)
		if err != nil || x.Amount.Sign() <= 0 || rest.Sign() < 0 || seen[x.Invoice] {
			return fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("The parts do not fit into %s.", l.Amount)).
				With(fault.Field{Pointer: fmt.Sprintf("/parts/%d", i), Code: "range", Detail: "parts are more than 0, in the line's currency, one a document, and sum to at most the line"})
		}
		left, seen[x.Invoice] = rest, true
		owed, err := t.Owed(ctx, org, x.Invoice)
		if err != nil {
			return err
		}
		if owed.Due.Currency() == x.Amount.Currency() && x.Amount.Minor() > max(owed.Due.Minor(), 0)+max(owed.Written.Minor(), 0) {
			return exceedsDue(owed, x.Amount)
		}
	}
	return nil
}

// ReturnStatementLine decides a waiting line: the money goes back to the payer by
// hand, and never was a payment. It fails as MatchStatementLine does, and with
// approval.required.
func (a *App) ReturnStatementLine(ctx context.Context, c Caller, line id.StatementLine, reason string) (l store.StatementLine, err error) {
	if err := operatorOnly(c); err != nil {
		return l, err
	}
	if reason == "" || len(reason) > 500 {
		return l, fault.New(fault.Invalid, "request.invalid", "A return has a reason.").
			With(fault.Field{Pointer: "/reason", Code: "required", Detail: "1 to 500 characters"})
	}
	err = a.Store.InSystem(ctx, "read a statement line", func(t *store.SystemTx) error {
		l, err = waitingLine(ctx, t, line)
		return err
	})
	if err != nil {
		return l, err
	}
	body := map[string]string{"line": line.String(), "reason": reason}
	permit, err := a.RequireApproval(ctx, c, ApproveRefund, body, l.Amount)
	if err != nil {
		return l, err
	}
	err = a.Store.InSystem(ctx, "return a bank transfer", func(t *store.SystemTx) error {
		if err := permit.Spend(ctx, t); err != nil {
			return err
		}
		if l, err = waitingLine(ctx, t, line); err != nil {
			return err
		}
		l.State, l.Why, l.DecidedBy = "returned", reason, c.actor()
		if err := t.DecideStatementLine(ctx, l); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "statement_line.return", line.String()))
	})
	return l, err
}

func waitingLine(ctx context.Context, t *store.SystemTx, line id.StatementLine) (store.StatementLine, error) {
	l, err := t.LockStatementLine(ctx, line)
	if err == nil && l.State != "queued" {
		err = fault.New(fault.Conflict, "state.conflict", fmt.Sprintf("The line is %s since %s.", l.State, l.DecidedAt.Format(time.RFC3339))).
			Suggest("Read the queue again.")
	}
	return l, err
}
