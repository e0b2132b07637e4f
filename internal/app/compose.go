package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/billing/tax"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// billReader is what composing an invoice reads.
type billReader interface {
	partyReader
	BillableUsage(context.Context, id.Org, metering.Interval, *int) (store.Usage, store.UsageState, error)
	TermsOf(context.Context, id.Org, metering.Interval, time.Time) (billing.Terms, error)
	PromosOf(context.Context, id.Org, metering.Interval) ([]billing.Promo, error)
	WaitingCarried(context.Context, id.Org) ([]billing.Invoice, error)
	AdvancesLeft(context.Context, id.Org) ([]store.AdvanceLeft, error)
}

// compose rates the usage of a window up to at into an invoice without id or state,
// with amounts carried over and advances deducted: what it would be if it were made
// now.
func (a *App) compose(ctx context.Context, t billReader, org id.Org, window metering.Interval, at time.Time) (billing.Invoice, store.Basis, error) {
	v, basis, _, err := a.composeSale(ctx, t, org, window, at)
	return v, basis, err
}

// composeSale is compose that also says who sells to whom.
func (a *App) composeSale(
	ctx context.Context, t billReader, org id.Org, window metering.Interval, at time.Time,
) (v billing.Invoice, basis store.Basis, s sale, err error) {
	in, basis, err := a.inputs(ctx, t, org, window, at, nil)
	if err != nil {
		return v, basis, s, err
	}
	if basis.Result, err = rating.Rate(in); err != nil {
		return v, basis, s, err
	}
	if s, err = a.sale(ctx, t, org, lastInstant(window)); err != nil {
		return v, basis, s, err
	}
	if v, err = s.document(window, basis.Result.Lines); err != nil {
		return v, basis, s, err
	}
	if v, err = a.carryOver(ctx, t, s, v); err != nil {
		return v, basis, s, err
	}
	v, err = deductAdvances(ctx, t, s, v)
	return v, basis, s, err
}

// lastInstant is the tax point of a service period: its last microsecond.
func lastInstant(window metering.Interval) time.Time { return window.To.Add(-time.Microsecond) }

// inputs reads what rating needs for a window, as of a close (nil: everything known).
func (a *App) inputs(
	ctx context.Context, t billReader, org id.Org, window metering.Interval, at time.Time, asOf *int,
) (rating.Inputs, store.Basis, error) {
	usage, state, err := t.BillableUsage(ctx, org, window, asOf)
	if err != nil {
		return rating.Inputs{}, store.Basis{}, err
	}
	terms, err := t.TermsOf(ctx, org, window, at)
	if err != nil {
		return rating.Inputs{}, store.Basis{}, err
	}
	if terms.Promos, err = t.PromosOf(ctx, org, window); err != nil {
		return rating.Inputs{}, store.Basis{}, err
	}
	encoded, err := billing.EncodeTerms(terms)
	if err != nil {
		return rating.Inputs{}, store.Basis{}, fmt.Errorf("encoding terms: %w", err)
	}
	_, currency, err := t.BillingProfile(ctx, org)
	if err != nil {
		return rating.Inputs{}, store.Basis{}, err
	}
	in := rating.Inputs{Period: window, At: at, Currency: currency, Books: usage.Books, Usage: usage.Segments, Terms: terms}
	return in, store.Basis{Terms: encoded, Usage: state, AsOf: &state.CloseNo}, nil
}

// partyReader is what says who sells to whom, and at what tax.
type partyReader interface {
	BillingProfile(context.Context, id.Org) (store.BillingProfile, money.Currency, error)
	IssuerAt(context.Context, string, time.Time) (billing.Issuer, bool, error)
	TaxTable(context.Context, string) (tax.Table, int, error)
	TaxIDCheckAt(context.Context, id.Org, tax.ID, time.Time) (store.TaxIDCheck, error)
}

// sale is who sells to whom at a tax point.
type sale struct {
	reader   partyReader
	org      id.Org
	issuer   billing.Issuer
	table    tax.Table
	buyer    store.BillingProfile
	currency money.Currency
	locale   string
	at       time.Time // the tax point
	decision tax.Decision
}

func (a *App) sale(ctx context.Context, t partyReader, org id.Org, at time.Time) (sale, error) {
	s := sale{reader: t, org: org, at: at}
	var err error
	if s.buyer, s.currency, err = t.BillingProfile(ctx, org); err != nil {
		return sale{}, err
	}
	if s.issuer, err = a.issuerAt(ctx, t, s.buyer.Issuer, at); err != nil {
		return sale{}, err
	}
	s.locale = s.buyer.Locale
	if s.locale == "" {
		s.locale = s.issuer.Locale
	}
	if s.table, _, err = t.TaxTable(ctx, s.issuer.Slug); err != nil {
		return sale{}, err
	}
	s.decision, err = s.decide(ctx, at)
	return s, err
}

// decide judges the sale at a tax point. Without a tax table everything is outside of
// its scope.
func (s sale) decide(ctx context.Context, at time.Time) (tax.Decision, error) {
	if s.table.Empty() {
		return tax.Decision{Category: tax.OutsideScope, Note: tax.NoteNoTable}, nil
	}
	valid := false
	if s.buyer.TaxID != "" {
		check, err := s.reader.TaxIDCheckAt(ctx, s.org, s.buyer.TaxID, at)
		if err != nil {
			return tax.Decision{}, err
		}
		valid = check.Outcome == outcomeValid
	}
	return s.table.Decide(tax.Question{
		Seller: s.issuer.Country, Buyer: s.buyer.Country, Postcode: s.buyer.Postcode, Status: s.buyer.Status, Valid: valid, At: at,
	})
}

// document composes lines into an invoice of a window, with the tax of the sale.
func (s sale) document(window metering.Interval, lines []billing.Line) (billing.Invoice, error) {
	v := billing.Invoice{
		Kind: billing.UsageInvoice, Org: s.org, Issuer: s.issuer.Slug, Locale: s.locale, TaxPoint: s.at, Period: window,
		Currency: s.currency, Seller: s.issuer.Party(), Buyer: s.buyer.Party(), Lines: lines,
	}
	d := s.decision
	return composed(v.WithTax(string(d.Category), d.RatePPM, d.Note.Text(s.locale)))
}

// composed is a document with its sums and legal mentions.
func composed(v billing.Invoice) (billing.Invoice, error) {
	v, err := v.Compose()
	if err != nil {
		return billing.Invoice{}, err
	}
	v.Notes = nil
	for _, t := range v.Taxes {
		if t.Note != "" && !slices.Contains(v.Notes, t.Note) {
			v.Notes = append(v.Notes, t.Note)
		}
	}
	return v, nil
}

// carryOver adds a line for each carried document that no invoice has taken on, at
// the tax of its own time. Where the sum stays below what the issuer bills, the
// document is left without: it is carried on itself.
func (a *App) carryOver(ctx context.Context, t billReader, s sale, v billing.Invoice) (billing.Invoice, error) {
	waiting, err := t.WaitingCarried(ctx, s.org)
	if err != nil || len(waiting) == 0 {
		return v, err
	}
	with := v
	with.Lines = slices.Clone(v.Lines)
	for _, c := range waiting {
		if !c.Period.From.Before(v.Period.From) { // a carried month's preview has its usage already
			continue
		}
		d, err := s.decide(ctx, c.TaxPoint)
		if err != nil {
			return billing.Invoice{}, err
		}
		with.Lines = append(with.Lines, billing.CarriedLine(c, len(with.Lines)+1, s.locale, string(d.Category), d.RatePPM))
		with.Taxes = append(with.Taxes[:len(with.Taxes):len(with.Taxes)], billing.Tax{
			Category: string(d.Category), RatePPM: d.RatePPM, Note: d.Note.Text(s.locale),
		})
	}
	return composed(with)
}

// deductAdvances takes what was invoiced in advance off a document, oldest first, as
// far as its total reaches. Only issuers whose tax point is the receipt have any.
func deductAdvances(ctx context.Context, t billReader, s sale, v billing.Invoice) (billing.Invoice, error) {
	if s.issuer.TaxPoint != billing.AtReceipt || v.Total.Sign() <= 0 {
		return v, nil
	}
	advances, err := t.AdvancesLeft(ctx, s.org)
	if err != nil {
		return billing.Invoice{}, err
	}
	for _, x := range advances {
		if v.Total.Sign() <= 0 || x.Net.Currency() != v.Currency {
			continue
		}
		if v, err = billing.Deduct(v, x.ID, x.Number, x.Net, x.Category, x.RatePPM); err != nil {
			return billing.Invoice{}, err
		}
	}
	return v, nil
}

// small reports whether a document is below what the issuer bills: then the period is
// carried on. What has waited for a year is billed at any amount, and so is what
// promotional credit paid for: a grant is spent by an invoice alone.
func (s sale) small(v billing.Invoice) bool {
	for _, l := range v.Lines {
		switch l.Key.Component {
		case billing.AdvanceOffset, billing.PromoCredit:
			return false
		case billing.CarryOver:
			if l.During.From.AddDate(1, 0, 0).Before(v.Period.To) {
				return false
			}
		}
	}
	return v.Subtotal.Sign() >= 0 && v.Subtotal.Minor() < s.issuer.Small(v.Currency).Minor()
}
