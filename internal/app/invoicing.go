package app

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// finalizeAttempts bounds how often a draft is made again because usage or another
// run came in between.
const finalizeAttempts = 3

// InvoiceOrganization makes the documents of a month that an organization lacks: the
// invoice of its usage, and what late usage changes of it. It is idempotent, can be
// killed anywhere and be called by two at once. A period below the issuer's small
// amount is carried on. It answers the documents that stand, without lines.
//
// It fails with state.conflict within the grace, while a segment of the month is open
// or crosses it, and where usage keeps coming in; with billing.parked while an open
// discrepancy holds the organization back; with tax.no_rule and tax.no_rate.
func (a *App) InvoiceOrganization(ctx context.Context, org id.Org, period string) ([]billing.Invoice, error) {
	return a.invoiceOrganization(ctx, org, period, false)
}

// InvoiceRemainder is InvoiceOrganization for the last documents of an organization:
// no amount is too small.
func (a *App) InvoiceRemainder(ctx context.Context, org id.Org, period string) ([]billing.Invoice, error) {
	return a.invoiceOrganization(ctx, org, period, true)
}

func (a *App) invoiceOrganization(ctx context.Context, org id.Org, period string, all bool) ([]billing.Invoice, error) {
	window, err := metering.ParsePeriod(period)
	if err != nil {
		return nil, err
	}
	ctx = store.Apart(ctx)
	if err := a.lapseOf(ctx, org); err != nil { // what grants covered until they expired is settled before it is invoiced
		return nil, err
	}
	for range finalizeAttempts {
		err = a.invoiceOnce(ctx, org, window, all)
		if fault.CodeOf(err) != "state.conflict" {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	var out []billing.Invoice
	err = a.Store.InSystem(ctx, "read the documents of a period", func(t *store.SystemTx) error {
		standing, err := t.StandingInvoices(ctx, org, period)
		out = nil
		for _, s := range standing {
			out = append(out, s.Invoice)
		}
		return err
	})
	return out, err
}

// plan is a draft and what becomes of it.
type plan struct {
	v     billing.Invoice
	basis store.Basis
	sale  sale // who sells to whom; of the invoice of a month
	carry bool // too small: never issued
}

// invoiceOnce drafts and finalizes the invoice of a month, or what late usage changes.
func (a *App) invoiceOnce(ctx context.Context, org id.Org, window metering.Interval, all bool) error {
	var p plan
	var billed bool
	err := a.Store.InSystem(ctx, "draft an invoice", func(t *store.SystemTx) (err error) {
		if err := a.ready(ctx, t, window); err != nil {
			return err
		}
		if err := notParked(ctx, t, org, window); err != nil {
			return err
		}
		p, billed, err = a.draft(ctx, t, org, window, all)
		return err
	})
	if err != nil {
		return err
	}
	if billed {
		return a.Store.InSystem(ctx, "invoice late usage", func(t *store.SystemTx) error {
			return a.invoiceLate(ctx, t, org, window, all)
		})
	}
	if p.v.ID.IsZero() {
		return nil
	}
	return a.Store.InSystem(ctx, "finalize an invoice", func(t *store.SystemTx) error { return a.finalize(ctx, t, p) })
}

// notParked refuses an organization that an open discrepancy holds back.
func notParked(ctx context.Context, t *store.SystemTx, org id.Org, window metering.Interval) error {
	parked, err := t.Parked(ctx, org, metering.PeriodOf(window.From))
	if err != nil || !parked {
		return err
	}
	return fault.New(fault.Conflict, "billing.parked", "A discrepancy of the organization's usage is open.").
		Suggest("Resolve it, or wait until the fifth day: then the undisputed part is invoiced.")
}

// ready refuses a month that is not over with its grace.
func (a *App) ready(ctx context.Context, t *store.SystemTx, window metering.Interval) error {
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	if end := window.To.Add(a.grace()); now.Before(end) {
		return fault.New(fault.Conflict, "state.conflict",
			fmt.Sprintf("Usage of %s may still arrive until %s.", metering.PeriodOf(window.From), end.Format(time.RFC3339))).
			Suggest("Run it after the grace.")
	}
	return nil
}

// draft writes a draft, in place of an older one that was made of other usage. True:
// the period has its invoice already. A zero id: there is nothing to bill.
func (a *App) draft(ctx context.Context, t *store.SystemTx, org id.Org, window metering.Interval, all bool) (plan, bool, error) {
	if err := t.SerializeInvoicing(ctx, org); err != nil {
		return plan{}, false, err
	}
	period := metering.PeriodOf(window.From)
	standing, err := t.StandingInvoices(ctx, org, period)
	if err != nil || len(standing) > 0 {
		return plan{}, len(standing) > 0, err
	}
	live, err := t.LiveInvoice(ctx, org, period, 0)
	if err != nil {
		return plan{}, false, err
	}
	p, err := a.planOf(ctx, t, org, window, all)
	if err != nil {
		return plan{}, false, err
	}
	if live.SameAs(p.v, p.basis) {
		p.v.ID = live.ID
		return p, false, nil
	}
	if live.State == billing.Draft {
		if err := t.DeleteDraft(ctx, org, live.ID); err != nil {
			return plan{}, false, err
		}
	}
	if len(p.v.Lines) == 0 && p.basis.Usage.Segments == 0 {
		return plan{}, false, nil
	}
	p.v.ID = id.New[id.Invoice]()
	return p, false, t.InsertDraft(ctx, p.v, p.basis)
}

// planOf composes the invoice of a month, or what is carried on of it.
func (a *App) planOf(ctx context.Context, t *store.SystemTx, org id.Org, window metering.Interval, all bool) (plan, error) {
	v, basis, s, err := a.composeSale(ctx, t, org, window, window.To)
	if err != nil {
		return plan{}, err
	}
	p := plan{v: v, basis: basis, sale: s}
	if !all && s.small(v) {
		p.carry = true
		if p.v, err = v.OwnUsage(); err != nil {
			return plan{}, err
		}
	}
	p.v.State = billing.Draft
	return p, nil
}

// finalize makes a draft an open invoice, or carries it on: checks that it is made of
// exactly the usage there is and deducts just the advances that are left, posts it, and
// takes the number last. It does nothing if another run was faster, and fails with
// state.conflict if the draft, the usage or the advances changed, and with
// billing.parked.
func (a *App) finalize(ctx context.Context, t *store.SystemTx, p plan) error {
	v := p.v
	if err := t.SerializeInvoicing(ctx, v.Org); err != nil {
		return err
	}
	live, err := t.LiveInvoice(ctx, v.Org, metering.PeriodOf(v.Period.From), v.CloseNo)
	if err != nil || live.State == billing.Open || live.State == billing.Carried {
		return err
	}
	if live.ID != v.ID {
		return usageCame()
	}
	if err := t.LockBillingAccount(ctx, v.Org); err != nil {
		return err
	}
	if err := notParked(ctx, t, v.Org, v.Period); err != nil {
		return err
	}
	check, err := t.CheckUsage(ctx, v.Org, v.Period, *p.basis.AsOf)
	if err != nil {
		return err
	}
	if err := sameUsage(check, v.Period, p.basis); err != nil {
		return err
	}
	if err := billsExactly(check, v.Org, v.Period); err != nil {
		return err
	}
	if err := sameAdvances(ctx, t, p); err != nil {
		return err
	}
	return a.issue(ctx, t, p)
}

// sameAdvances refuses a draft whose advances were deducted by another document, went
// back or came in since it was made. The billing account is locked.
func sameAdvances(ctx context.Context, t *store.SystemTx, p plan) error {
	if p.carry || p.sale.issuer.TaxPoint != billing.AtReceipt {
		return nil
	}
	before, err := p.v.BeforeAdvances()
	if err != nil {
		return err
	}
	now, err := deductAdvances(ctx, t, p.sale, before)
	if err != nil {
		return err
	}
	if !maps.Equal(now.AdvancesTaken(), p.v.AdvancesTaken()) {
		return fault.New(fault.Conflict, "state.conflict", "Prepayments came or went while the invoice was made.").Suggest("Run it again.")
	}
	return nil
}

// issue books a draft of usage, closes its period, and numbers it or carries it on.
// The billing account is locked and the usage checked.
func (a *App) issue(ctx context.Context, t *store.SystemTx, p plan) error {
	if p.carry {
		if err := t.CloseUsageUntil(ctx, p.v.Org, p.v.Period.To); err != nil {
			return err
		}
		return a.carryOn(ctx, t, p.v)
	}
	if err := bookInvoice(ctx, t, p.v); err != nil {
		return err
	}
	_, err := a.number(ctx, t, p.v)
	return err
}

// bookInvoice closes the period of a draft of usage and books it: all of its issue but
// the number.
func bookInvoice(ctx context.Context, t *store.SystemTx, v billing.Invoice) error {
	if err := t.CloseUsageUntil(ctx, v.Org, v.Period.To); err != nil {
		return err
	}
	if err := t.TakeCarried(ctx, v, carriedOf(v)); err != nil {
		return err
	}
	funding, err := fundingOf(ctx, t, v)
	if err != nil {
		return err
	}
	journal, err := ledger.ForInvoice(v, funding)
	if err != nil {
		return err
	}
	if err := t.Post(ctx, journal); err != nil {
		return err
	}
	return t.AppendEvent(ctx, store.Event{Org: v.Org, Type: "invoice.finalized", Subject: v.ID})
}

// fundingOf pays a document out of the wallet. What was invoiced in advance came out
// of the wallet, too: it pays for the document as it was before the deductions.
func fundingOf(ctx context.Context, t *store.SystemTx, v billing.Invoice) (ledger.Funding, error) {
	before, err := v.BeforeAdvances()
	if err != nil {
		return ledger.Funding{}, err
	}
	f, err := settleFunding(ctx, t, before)
	if err != nil || before.Total == v.Total {
		return f, err
	}
	deducted, err := before.Total.Sub(v.Total)
	if err != nil {
		return ledger.Funding{}, err
	}
	net, err := before.Subtotal.Sub(v.Subtotal)
	if err != nil {
		return ledger.Funding{}, err
	}
	if f.AdvanceTax, err = deducted.Sub(net); err != nil {
		return ledger.Funding{}, err
	}
	if f.Prepaid, err = f.Prepaid.Sub(deducted); err == nil && f.Prepaid.Sign() < 0 {
		err = fault.New(fault.Conflict, "state.conflict", "The wallet has less than the prepayments that the invoice deducts.").
			Suggest("Run it again; another month of the organization may have used them: invoice that one first.")
	}
	return f, err
}

// carriedOf lists the carried documents that a document takes on.
func carriedOf(v billing.Invoice) []id.Invoice {
	var out []id.Invoice
	for _, l := range v.Lines {
		if l.Key.Component != billing.CarryOver {
			continue
		}
		if inv, err := id.Parse[id.Invoice](l.Key.Reference); err == nil {
			out = append(out, inv)
		}
	}
	return out
}

// carryOn closes a period without an invoice: a later one takes its net on.
func (a *App) carryOn(ctx context.Context, t *store.SystemTx, v billing.Invoice) error {
	if err := carryFunding(ctx, t, v); err != nil {
		return err
	}
	if err := t.AppendEvent(ctx, store.Event{Org: v.Org, Type: "invoice.carried", Subject: v.ID}); err != nil {
		return err
	}
	done, err := v.CarriedOn()
	if err != nil {
		return err
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	return t.SaveCarried(ctx, done, now)
}

// number takes the next number of the document's series, as the last thing of a
// transaction, and makes the document open.
func (a *App) number(ctx context.Context, t *store.SystemTx, v billing.Invoice) (billing.Invoice, error) {
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return billing.Invoice{}, err
	}
	issuer, err := a.issuerAt(ctx, t, v.Issuer, now)
	if err != nil {
		return billing.Invoice{}, err
	}
	zone, err := issuer.Zone()
	if err != nil {
		return billing.Invoice{}, err
	}
	series := billing.SeriesAt(issuer.Prefix, v.Kind, now, zone)
	n, issued, err := t.TakeNumber(ctx, series, now)
	if err != nil {
		return billing.Invoice{}, err
	}
	done, err := v.Finalized(series.Number(n), issued, zone, issuer.PaymentDays)
	if err != nil {
		return billing.Invoice{}, err
	}
	return done, t.SaveFinalized(ctx, done, series)
}

// sameUsage refuses usage that is open or crosses the bounds of its period, and a draft
// whose usage changed since it was read.
func sameUsage(check store.UsageCheck, window metering.Interval, basis store.Basis) error {
	if check.Open+check.Crossing > 0 {
		return fault.New(fault.Conflict, "state.conflict",
			fmt.Sprintf("%d usage segments of %s are open and %d cross the month.", check.Open, metering.PeriodOf(window.From), check.Crossing)).
			Suggest("Seal the month, then run it again.")
	}
	if check.State != basis.Usage {
		return usageCame()
	}
	return nil
}

// billsExactly asserts that the documents of a period sum to its usage, for each
// subject and meter.
func billsExactly(check store.UsageCheck, org id.Org, window metering.Interval) error {
	if check.Unbilled == 0 {
		return nil
	}
	return fault.New(fault.Internal, "internal", "An invoice does not bill its usage exactly.").
		Because(fmt.Errorf("%d subjects of %s in %s differ from their segments", check.Unbilled, org, metering.PeriodOf(window.From)))
}

func usageCame() error {
	return fault.New(fault.Conflict, "state.conflict", "Usage came in while the invoice was made.").Suggest("Run it again.")
}

// zeroOf is nothing in the currency of a document.
func zeroOf(v billing.Invoice) money.Amount { return money.NewAmount(0, v.Currency) }
