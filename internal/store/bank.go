package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// StatementLine is one credit of a bank statement. It belongs to no organization
// until it is matched.
type StatementLine struct {
	ID         id.StatementLine
	Account    string
	BankID     string
	BookedOn   time.Time // a date
	Amount     money.Amount
	Reference  string
	Payer      string
	State      string // queued, matched, returned
	Why        string // why it waits, or was decided so
	Org        id.Org
	Payment    id.Payment
	DecidedBy  string // "rules", or an operator
	DecidedAt  time.Time
	ImportedBy string
}

// InsertStatementLine writes a line, once for its account and id of the bank; added
// is false for one that is known, which is returned.
func (t *SystemTx) InsertStatementLine(ctx context.Context, l StatementLine) (known StatementLine, added bool, err error) {
	n, err := t.q.InsertStatementLine(ctx, t.raw, db.InsertStatementLineParams{
		LineID: uuid.UUID(l.ID), Account: l.Account, BankID: l.BankID, BookedOn: l.BookedOn, AmountMinor: l.Amount.Minor(),
		Currency: l.Amount.Currency().Code(), Reference: l.Reference, Payer: l.Payer, ImportedBy: l.ImportedBy,
	})
	if err != nil {
		return l, false, mapError(err)
	}
	r, err := t.q.StatementLineByBankID(ctx, t.raw, l.Account, l.BankID)
	if err != nil {
		return l, false, mapError(err)
	}
	known, err = statementLine(r)
	return known, n == 1, err
}

// KnownStatementLines reads which of the lines, all of one account, are known by their
// ids of the bank.
func (t *SystemTx) KnownStatementLines(ctx context.Context, lines []StatementLine) ([]StatementLine, error) {
	if len(lines) == 0 {
		return nil, nil
	}
	ids := make([]string, len(lines))
	for i, l := range lines {
		ids[i] = l.BankID
	}
	rows, err := t.q.StatementLinesByBankIDs(ctx, t.raw, lines[0].Account, ids)
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]StatementLine, len(rows))
	for i, r := range rows {
		if out[i], err = statementLine(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// StatementLine reads a line. It fails with resource.not_found.
func (t *SystemTx) StatementLine(ctx context.Context, line id.StatementLine) (StatementLine, error) {
	r, err := t.q.StatementLineByID(ctx, t.raw, uuid.UUID(line))
	if err != nil {
		return StatementLine{}, mapError(err)
	}
	return statementLine(r)
}

// LockStatementLine reads a line and keeps others from it. It fails with
// resource.not_found.
func (t *SystemTx) LockStatementLine(ctx context.Context, line id.StatementLine) (StatementLine, error) {
	r, err := t.q.StatementLineForUpdate(ctx, t.raw, uuid.UUID(line))
	if err != nil {
		return StatementLine{}, mapError(err)
	}
	return statementLine(r)
}

// StatementLines lists lines in a state, "" for all, newest first.
func (t *SystemTx) StatementLines(ctx context.Context, state string, k Keyset) ([]StatementLine, error) {
	rows, err := t.q.ListStatementLines(ctx, t.raw, db.ListStatementLinesParams{State: state, Before: k.before(), Size: int32(k.Size)})
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]StatementLine, 0, len(rows))
	for _, r := range rows {
		l, err := statementLine(r)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// ExplainStatementLine notes why a line waits.
func (t *SystemTx) ExplainStatementLine(ctx context.Context, line id.StatementLine, why string) error {
	return mapError(t.q.ExplainStatementLine(ctx, t.raw, why, uuid.UUID(line)))
}

// DecideStatementLine ends the waiting of a line. It fails with state.conflict if
// somebody else did.
func (t *SystemTx) DecideStatementLine(ctx context.Context, l StatementLine) error {
	n, err := t.q.DecideStatementLine(ctx, t.raw, db.DecideStatementLineParams{
		State: l.State, Why: l.Why, MatchedOrg: nullable(l.Org), PaymentID: nullable(l.Payment), DecidedBy: l.DecidedBy, LineID: uuid.UUID(l.ID),
	})
	if err != nil {
		return mapError(err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "state.conflict", "The line does not wait any more.").Suggest("Read the queue again.")
	}
	return nil
}

// TransferCandidates lists the open documents that a line names, and those of
// organizations that it names which are owed with just its amount, at most 50, named
// ones first. byTotal adds those of anybody whose whole total is the amount: too little
// to match by, but a person may know more.
func (t *SystemTx) TransferCandidates(ctx context.Context, l StatementLine, byTotal bool) ([]payment.Candidate, error) {
	words := payment.Words(l.Reference)
	orgs := uuids(payment.Organizations(words))
	rows, err := t.q.TransferCandidates(ctx, t.raw, db.TransferCandidatesParams{
		Numbers: words, Orgs: orgs, ByTotal: byTotal, Currency: l.Amount.Currency().Code(), AmountMinor: l.Amount.Minor(),
	})
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]payment.Candidate, 0, len(rows))
	for _, r := range rows {
		c, err := money.ParseCurrency(r.Currency)
		if err != nil {
			return nil, fmt.Errorf("reading invoice %s: %w", r.ID, err)
		}
		out = append(out, payment.Candidate{
			Org: id.Org(r.OrgID), OrgName: r.OrgName, Invoice: id.Invoice(r.ID), Number: r.Number,
			Due: money.NewAmount(r.OwedMinor, c), Written: money.NewAmount(r.WrittenMinor, c),
		})
	}
	return out, nil
}

func statementLine(r db.StatementLine) (StatementLine, error) {
	c, err := money.ParseCurrency(r.Currency)
	l := StatementLine{
		ID: id.StatementLine(r.ID), Account: r.Account, BankID: r.BankID, BookedOn: r.BookedOn.Time.UTC(), Amount: money.NewAmount(r.AmountMinor, c),
		Reference: r.Reference, Payer: r.Payer, State: r.State, Why: r.Why, Org: orZero[id.Org](r.MatchedOrg),
		Payment: orZero[id.Payment](r.PaymentID), DecidedBy: r.DecidedBy, ImportedBy: r.ImportedBy,
	}
	if r.DecidedAt != nil {
		l.DecidedAt = r.DecidedAt.UTC()
	}
	return l, err
}
