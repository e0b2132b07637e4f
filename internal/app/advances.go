package app

import (
	"context"
	"fmt"
	"math/big"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// IssueAdvance invoices a prepayment at its receipt, where the issuer's tax point is
// that: gross is what was received, its tax is inside. It is idempotent a payment. With
// an issuer that taxes at consumption it makes nothing and answers the zero value. It
// joins the transaction that the payment is booked in.
func (a *App) IssueAdvance(ctx context.Context, t *store.SystemTx, org id.Org, p id.Payment, gross money.Amount) (billing.Invoice, error) {
	if gross.Sign() <= 0 {
		return billing.Invoice{}, fault.New(fault.Invalid, "request.invalid", "An advance is a positive amount.").
			With(fault.Field{Pointer: "/amount", Code: "range", Detail: "more than 0"})
	}
	if err := t.LockBillingAccount(ctx, org); err != nil {
		return billing.Invoice{}, err
	}
	made, found, err := t.AdvanceOf(ctx, org, p)
	if err != nil {
		return billing.Invoice{}, err
	}
	if found {
		return t.Invoice(ctx, org, made)
	}
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return billing.Invoice{}, err
	}
	s, err := a.sale(ctx, t, org, metering.Instant(now))
	if err != nil || s.issuer.TaxPoint != billing.AtReceipt {
		return billing.Invoice{}, err
	}
	d := s.decision
	v, err := billing.Advance(billing.Invoice{
		ID: id.New[id.Invoice](), Org: org, Issuer: s.issuer.Slug, Locale: s.locale, TaxPoint: s.at,
		Seller: s.issuer.Party(), Buyer: s.buyer.Party(),
	}, gross, string(d.Category), d.RatePPM, d.Note.Text(s.locale), p)
	if err != nil {
		return billing.Invoice{}, err
	}
	if err := t.InsertDraft(ctx, v, store.Basis{Source: p}); err != nil {
		return billing.Invoice{}, err
	}
	if !v.TaxTotal.IsZero() { // the money itself is posted with its payment
		journal, err := ledger.ForInvoice(v, ledger.Funding{})
		if err != nil {
			return billing.Invoice{}, err
		}
		if err := t.Post(ctx, journal); err != nil {
			return billing.Invoice{}, err
		}
	}
	if err := t.AppendEvent(ctx, store.Event{Org: org, Type: "invoice.finalized", Subject: v.ID}); err != nil {
		return billing.Invoice{}, err
	}
	return a.number(ctx, t, v)
}

// advanceReturned is why an advance invoice is credited by the money's way back.
const advanceReturned = "The prepayment was returned."

// creditAdvance takes the tax of a returned prepayment back: a credit note on its
// advance invoice over as much of it, if it has one. The billing account is locked.
func (a *App) creditAdvance(ctx context.Context, t *store.SystemTx, org id.Org, p id.Payment, gross money.Amount) error {
	made, found, err := t.AdvanceOf(ctx, org, p)
	if err != nil || !found {
		return err
	}
	if err := t.LockInvoice(ctx, org, made); err != nil {
		return err
	}
	original, err := t.Invoice(ctx, org, made)
	if err != nil {
		return err
	}
	notes, err := t.CreditNotesOf(ctx, org, made)
	if err != nil {
		return err
	}
	left, err := billing.CreditLeft(original, notes)
	if err != nil {
		return err
	}
	line := original.Lines[0]
	net, err := gross.Exact().Scale(big.NewRat(1_000_000, 1_000_000+line.TaxRatePPM)).Round()
	if err != nil {
		return fmt.Errorf("crediting an advance: %w", err)
	}
	if net.Minor() >= left.Net.Minor() || gross.Minor() >= left.Gross.Minor() {
		net = left.Net
	}
	if net.Sign() <= 0 {
		return nil
	}
	note, err := billing.Credit(original, notes, []billing.LineCredit{{No: line.No, Net: &net}})
	if err == nil && -note.Total.Minor() < gross.Minor() && net.Minor() < left.Net.Minor() {
		more := money.NewAmount(net.Minor()+1, net.Currency()) // never less than what went back: an invoice deducts what is left
		note, err = billing.Credit(original, notes, []billing.LineCredit{{No: line.No, Net: &more}})
	}
	if err != nil {
		return err
	}
	note.Reason = advanceReturned
	_, err = a.book(ctx, t, Caller{}, correction{original: original, note: note})
	return err
}
