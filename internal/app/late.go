package app

import (
	"context"
	"fmt"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// invoiceLate makes what usage that was accepted after a close changes of a month: an
// invoice of what is more, and a credit note on each invoice of which there is less.
// The month is rated again with the terms and pools of its first close; the account is
// locked only after that.
func (a *App) invoiceLate(ctx context.Context, t *store.SystemTx, org id.Org, window metering.Interval, all bool) error {
	if err := t.SerializeInvoicing(ctx, org); err != nil {
		return err
	}
	late, err := t.LateCloseNo(ctx, org, window)
	if err != nil {
		return err
	}
	standing, err := t.StandingInvoices(ctx, org, metering.PeriodOf(window.From))
	if err != nil {
		return err
	}
	known := -1
	for _, s := range standing {
		known = max(known, s.AsOf)
	}
	if late <= known {
		return nil
	}
	lines, basis, err := a.adjustment(ctx, t, org, window, standing)
	if err != nil || len(lines) == 0 {
		return err
	}
	if err := t.LockBillingAccount(ctx, org); err != nil {
		return err
	}
	if err := notParked(ctx, t, org, window); err != nil {
		return err
	}
	check, err := t.CheckUsage(ctx, org, window, *basis.AsOf)
	if err != nil {
		return err
	}
	if err := sameUsage(check, window, basis); err != nil {
		return err
	}
	corrections, rest, err := a.split(ctx, t, standing, lines, basis)
	if err != nil {
		return err
	}
	p, err := a.latePlan(ctx, t, org, window, rest, basis, all)
	if err != nil {
		return err
	}
	return a.bookLate(ctx, t, org, window, corrections, p)
}

// bookLate writes the documents of one close, each with its own number.
func (a *App) bookLate(ctx context.Context, t *store.SystemTx, org id.Org, window metering.Interval, corrections []correction, p plan) error {
	if len(p.v.Lines) > 0 {
		p.v.ID = id.New[id.Invoice]()
		if err := t.InsertDraft(ctx, p.v, p.basis); err != nil {
			return err
		}
	}
	var asOf int
	for _, k := range corrections {
		asOf = *k.basis.AsOf
		if err := t.LockInvoice(ctx, org, k.original.ID); err != nil {
			return err
		}
		if _, err := a.book(ctx, t, Caller{}, k); err != nil {
			return err
		}
	}
	if p.basis.AsOf != nil {
		asOf = *p.basis.AsOf
	}
	check, err := t.CheckUsage(ctx, org, window, asOf)
	if err != nil {
		return err
	}
	if err := billsExactly(check, org, window); err != nil {
		return err
	}
	if len(p.v.Lines) > 0 {
		return a.issue(ctx, t, p)
	}
	return t.CloseUsageUntil(ctx, org, window.To)
}

// adjustment rates a month again and compares it with what its documents bill.
func (a *App) adjustment(
	ctx context.Context, t *store.SystemTx, org id.Org, window metering.Interval, standing []store.StandingInvoice,
) ([]billing.Line, store.Basis, error) {
	in, basis, err := a.inputs(ctx, t, org, window, window.To, nil)
	if err != nil {
		return nil, store.Basis{}, err
	}
	var billed []rating.Billed
	for i, s := range standing {
		if i == 0 {
			kept, err := t.BasisOf(ctx, org, s.ID)
			if err != nil {
				return nil, store.Basis{}, err
			}
			if in.Terms, err = billing.DecodeTerms(kept.Terms); err != nil {
				return nil, store.Basis{}, fmt.Errorf("reading the terms of invoice %s: %w", s.ID, err)
			}
			basis.Terms = kept.Terms
		}
		if standing[i].Invoice, err = t.WithLines(ctx, s.Invoice); err != nil {
			return nil, store.Basis{}, err
		}
		for _, l := range standing[i].Lines {
			billed = append(billed, rating.Billed{Ref: billing.LineRef{Invoice: s.ID, Number: s.Number, No: l.No}, Line: l})
		}
	}
	basis.Result, err = rating.Adjust(in, billed)
	return basis.Result.Lines, basis, err
}

// split makes credit notes of what is less than an open invoice bills, and leaves the
// rest: what is more, and what carried documents are about.
func (a *App) split(
	ctx context.Context, t *store.SystemTx, standing []store.StandingInvoice, lines []billing.Line, basis store.Basis,
) (corrections []correction, rest []billing.Line, err error) {
	byInvoice := map[id.Invoice][]billing.Line{}
	for _, l := range lines {
		if l.Corrects == nil {
			rest = append(rest, l)
			continue
		}
		byInvoice[l.Corrects.Invoice] = append(byInvoice[l.Corrects.Invoice], l)
	}
	for _, s := range standing {
		of := byInvoice[s.ID]
		net := int64(0)
		for _, l := range of {
			net += l.Amount.Minor()
		}
		if net >= 0 || s.State != billing.Open || s.Kind != billing.UsageInvoice {
			rest = append(rest, of...)
			continue
		}
		original, err := t.Invoice(ctx, s.Org, s.ID)
		if err != nil {
			return nil, nil, err
		}
		notes, err := t.CreditNotesOf(ctx, s.Org, s.ID)
		if err != nil {
			return nil, nil, err
		}
		note, err := billing.CreditLines(original, notes, of)
		if err != nil {
			return nil, nil, err
		}
		note.Reason, note.Refund, note.CloseNo = lateReason, billing.RefundWallet, basis.Usage.CloseNo
		corrections = append(corrections, correction{original: original, note: note, basis: basis})
	}
	return corrections, rest, nil
}

// lateReason is why the usage of a closed period is credited.
const lateReason = "Usage of the period was corrected after it was invoiced."

// latePlan composes what is more into an invoice of the close.
func (a *App) latePlan(
	ctx context.Context, t *store.SystemTx, org id.Org, window metering.Interval, lines []billing.Line, basis store.Basis, all bool,
) (plan, error) {
	if len(lines) == 0 {
		return plan{}, nil
	}
	s, err := a.sale(ctx, t, org, lastInstant(window))
	if err != nil {
		return plan{}, err
	}
	for i := range lines {
		lines[i].No = i + 1
	}
	v, err := s.document(window, lines)
	if err != nil {
		return plan{}, err
	}
	v.State, v.CloseNo = billing.Draft, basis.Usage.CloseNo
	p := plan{v: v, basis: basis, carry: v.Subtotal.Sign() < 0 || !all && s.small(v)}
	if !p.carry {
		p.v, err = deductAdvances(ctx, t, s, v)
	}
	return p, err
}

// again books the invoice of a cancelled one, all but its number: of the same usage, as
// everything else is now. Late usage keeps its lines: they are differences.
func (a *App) again(ctx context.Context, t *store.SystemTx, old billing.Invoice) (billing.Invoice, error) {
	kept, err := t.BasisOf(ctx, old.Org, old.ID)
	if err != nil {
		return billing.Invoice{}, err
	}
	if kept.AsOf == nil || old.Kind != billing.UsageInvoice {
		return billing.Invoice{}, notReissued()
	}
	basis := store.Basis{Terms: kept.Terms, AsOf: kept.AsOf}
	own, err := old.OwnUsage()
	if err != nil {
		return billing.Invoice{}, err
	}
	lines := own.Lines // without what it took over and deducted: both are added as they are now
	if old.CloseNo == 0 {
		in, fresh, err := a.inputs(ctx, t, old.Org, old.Period, old.Period.To, kept.AsOf)
		if err != nil {
			return billing.Invoice{}, err
		}
		if fresh.Result, err = rating.Rate(in); err != nil {
			return billing.Invoice{}, err
		}
		fresh.AsOf = kept.AsOf
		basis, lines = fresh, fresh.Result.Lines
	} else {
		basis.Result.Engine = kept.Engine
	}
	s, err := a.sale(ctx, t, old.Org, lastInstant(old.Period))
	if err != nil {
		return billing.Invoice{}, err
	}
	v, err := s.document(old.Period, lines)
	if err != nil {
		return billing.Invoice{}, err
	}
	if v, err = takeOver(v, old); err != nil {
		return billing.Invoice{}, err
	}
	v.ID, v.State, v.CloseNo = id.New[id.Invoice](), billing.Draft, old.CloseNo
	v.Replaces = &billing.DocumentRef{ID: old.ID, Number: old.Number, Issued: old.FinalizedAt}
	if err := billsTheSame(v, old); err != nil {
		return billing.Invoice{}, err
	}
	if v, err = deductAdvances(ctx, t, s, v); err != nil {
		return billing.Invoice{}, err
	}
	if err := t.InsertDraft(ctx, v, basis); err != nil {
		return billing.Invoice{}, err
	}
	return v, bookInvoice(ctx, t, v)
}

// billsTheSame asserts that late usage made again is what it was before deductions.
func billsTheSame(v, old billing.Invoice) error {
	if old.CloseNo == 0 {
		return nil
	}
	before, err := old.BeforeAdvances()
	if err != nil || before.Subtotal == v.Subtotal && len(before.Lines) == len(v.Lines) {
		return err
	}
	return fault.New(fault.Internal, "internal", "An invoice made again is not what it was.").
		Because(fmt.Errorf("invoice %s bills %s, its successor %s", old.ID, before.Subtotal, v.Subtotal))
}

func notReissued() error {
	return fault.New(fault.Conflict, "state.conflict", "Only an invoice of usage is made again.").Suggest("Cancel it instead.")
}

// takeOver adds the carried amounts of the document that is made again.
func takeOver(v, old billing.Invoice) (billing.Invoice, error) {
	for _, l := range old.Lines {
		if l.Key.Component != billing.CarryOver {
			continue
		}
		l.No = len(v.Lines) + 1
		v.Lines = append(v.Lines[:len(v.Lines):len(v.Lines)], l)
	}
	v.Taxes = append(slices.Clone(old.Taxes), v.Taxes...) // mentions: the newer one counts
	return composed(v)
}
