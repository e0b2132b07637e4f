package app

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/internal/store"
)

// NewContract asks for a contract. A zero From is now, a zero To means until further
// notice, "" for Currency is the organization's.
type NewContract struct {
	Name     string
	Currency string
	From, To time.Time
	ContractTerms
}

// ContractTerms is what a contract changes. An empty scope selects all usage.
type ContractTerms struct {
	Prices         []OfferPrice
	Discounts      []ContractDiscount
	FreeQuotas     []ContractQuota
	Minimums       []ContractMinimum
	Caps           []ContractCap
	Commitments    []ContractAmount
	FixedDiscounts []ContractAmount
}

// TermScope selects usage; an empty field selects all.
type TermScope struct {
	Meter  metering.Meter
	Family string // GPU model and mode: H200-141/mig
	Offer  string // what the offer sells
}

// ContractDiscount takes a percentage off, at most 4 decimals; several multiply.
type ContractDiscount struct {
	Name    string
	Scope   TermScope
	Percent string
}

// ContractQuota is free each month: so many priced units of the meter, GPU-hours
// where the scope names none.
type ContractQuota struct {
	Name     string
	Scope    TermScope
	Quantity string
}

// ContractMinimum is the least GPU time, in seconds, a start is charged for.
type ContractMinimum struct {
	Scope   TermScope
	Seconds int64
}

// ContractCap bounds a calendar month: the hours each slot is charged for, or else
// the amount charged for the scope.
type ContractCap struct {
	Scope  TermScope
	Hours  int64
	Amount string
}

// ContractAmount is an amount of each calendar month, in the contract's currency.
type ContractAmount struct {
	Name   string
	Scope  TermScope
	Amount string
}

// Contract is a contract as its parties see it. Instants are business time.
type Contract struct {
	ID          id.Contract
	Org         id.Org
	Name        string
	Currency    money.Currency
	During      metering.Interval
	CreatedBy   string
	CreatedAt   time.Time
	CancelledAt *time.Time // before it began; nil: never
	EndedBy     string     // who ended or cancelled it early
	ContractTerms
}

const (
	maxTermName = 120
	// maxTerm bounds the length of a contract or reservation with an end.
	maxTerm = 10 * 366 * 24 * time.Hour
	// million parts are one whole; percent has so many of them.
	partsPerPercent = 10_000
	microsPerSecond = 1_000_000
	maxMinimum      = 31 * 24 * 3600 // seconds
	hoursOfMonth    = 31 * 24
)

// agreements is what both kinds of transaction know of what an organization agreed.
type agreements interface {
	skusOf
	usageReader
	Organization(context.Context, id.Org) (org.Organization, error)
	Project(context.Context, id.Org, id.Project) (org.Project, error)
	BookAssignments(context.Context, id.Org) ([]store.BookAssignment, error)
	Contract(context.Context, id.Org, id.Contract) (store.Contract, error)
	Contracts(context.Context, id.Org, store.Keyset) ([]store.Contract, error)
	Reservation(context.Context, id.Org, id.Reservation) (store.Reservation, error)
	Reservations(context.Context, id.Org, store.Keyset) ([]store.Reservation, error)
	InsertReservation(context.Context, store.Reservation) error
	PriceBook(context.Context, id.PriceBook) (store.PriceBook, error)
	OffersOfOrg(context.Context, id.Org, store.OfferFilter) ([]store.PricedOffer, error)
	OfferEnabled(context.Context, string) (bool, error)
	SeriesOfOffer(context.Context, string) ([16]byte, string, error)
	SpotPrices(context.Context, string, [16]byte, money.Currency, metering.Interval) ([]billing.SpotPrice, error)
	Audit(context.Context, store.AuditRow) error
}

// agreed runs fn on an organization: the caller's own, or any for an operator. It
// fails with resource.not_found for another's.
func (a *App) agreed(ctx context.Context, c Caller, o id.Org, reason string, fn func(agreements) error) error {
	if c.Kind == auth.Operator {
		return a.Store.InSystem(ctx, reason, func(t *store.SystemTx) error { return fn(t) })
	}
	if o != c.Org {
		return store.NotFound()
	}
	return a.Store.InOrg(ctx, o, func(t *store.OrgTx) error { return fn(t) })
}

// CreateContract makes a contract of an organization; it binds from its start on and
// can then only be ended early. Operators only. It fails with resource.not_found,
// request.invalid, offer.unknown, and state.conflict where a term of the same kind
// and scope is in force at the same time.
func (a *App) CreateContract(ctx context.Context, c Caller, o id.Org, in NewContract) (out Contract, err error) {
	if err := operatorOnly(c); err != nil {
		return Contract{}, err
	}
	err = a.Store.InSystem(ctx, "make a contract", func(t *store.SystemTx) error {
		organization, err := t.Organization(ctx, o)
		if err != nil {
			return err
		}
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		row := store.Contract{
			ID: id.New[id.Contract](), Org: o, Name: strings.TrimSpace(in.Name), Currency: organization.Currency, CreatedBy: c.actor(), CreatedAt: now,
		}
		if err := in.check(organization.Currency); err != nil {
			return err
		}
		if row.During, err = termOf(in.From, in.To, now); err != nil {
			return err
		}
		if row.Terms, err = in.read(ctx, t, organization.Currency); err != nil {
			return err
		}
		if err := row.BillingTerms().Check(row.Currency); err != nil {
			return err
		}
		if err := t.InsertContract(ctx, row); err != nil {
			return err
		}
		out = presentContract(row)
		return t.Audit(ctx, c.audit(o, "contract.create", row.ID.String()))
	})
	return out, err
}

func (in NewContract) check(currency money.Currency) error {
	if err := checkTermName(in.Name, "/name"); err != nil {
		return err
	}
	if in.Currency == "" {
		return nil
	}
	got, err := money.ParseCurrency(in.Currency)
	if err != nil {
		return refused("/currency", "unknown", fmt.Sprintf("The currency %.16q is unknown.", in.Currency)).Because(err)
	}
	if got != currency {
		return refused("/currency", "rule", fmt.Sprintf("The organization pays in %s.", currency))
	}
	return nil
}

func checkTermName(name, pointer string) error {
	if name = strings.TrimSpace(name); name == "" || len(name) > maxTermName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return refused(pointer, "length", fmt.Sprintf("A name has 1 to %d characters on one line.", maxTermName))
	}
	return nil
}

// termOf checks the time something is agreed for; a zero from is now.
func termOf(from, to, now time.Time) (metering.Interval, error) {
	during := metering.Between(from, to)
	switch {
	case from.IsZero():
		during.From = now
	case during.From.Before(now):
		return during, refused("/from", "range", "It would begin in the past.").Suggest("Leave from out to begin now.")
	}
	if during.From.Sub(now) > maxTerm || !to.IsZero() && during.To.Sub(during.From) > maxTerm {
		return during, refused("/to", "range", "It would reach more than ten years ahead.")
	}
	if !to.IsZero() && !during.To.After(during.From) {
		return during, refused("/to", "range", "It would end before it begins.")
	}
	return during, nil
}

// EndContract ends a contract at an instant that is not past, a zero one being now;
// one that has not begun by then is cancelled. Operators only. It fails with
// resource.not_found, request.invalid, and state.conflict if it ended already.
func (a *App) EndContract(ctx context.Context, c Caller, o id.Org, contract id.Contract, at time.Time) (out Contract, err error) {
	if err := operatorOnly(c); err != nil {
		return Contract{}, err
	}
	err = a.Store.InSystem(ctx, "end a contract", func(t *store.SystemTx) error {
		row, err := t.LockContract(ctx, o, contract)
		if err != nil {
			return err
		}
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		end, cancel, err := earlyEnd(row.During, row.CancelledAt, at, now)
		if err != nil {
			return err
		}
		if cancel {
			err = t.CancelContract(ctx, o, contract, now, c.actor())
		} else {
			err = t.EndContract(ctx, o, contract, end, c.actor())
		}
		if err != nil {
			return err
		}
		if row, err = t.Contract(ctx, o, contract); err != nil {
			return err
		}
		out = presentContract(row)
		return t.Audit(ctx, c.audit(o, "contract.end", contract.String()))
	})
	return out, err
}

// earlyEnd decides when what was agreed for a time ends instead, and whether it is
// cancelled because it has not begun.
func earlyEnd(during metering.Interval, cancelled *time.Time, at, now time.Time) (end time.Time, cancel bool, err error) {
	end = metering.Instant(at)
	if at.IsZero() {
		end = now
	}
	switch {
	case cancelled != nil, !during.Open() && !during.To.After(now):
		return end, false, fault.New(fault.Conflict, "state.conflict", "It has ended already.")
	case end.Before(now):
		return end, false, refused("/at", "range", "The end would be in the past: what was in force stays.").
			Suggest("Leave at out to end it now.")
	case !during.Open() && end.After(during.To):
		return end, false, refused("/at", "range", "It ends earlier than that.")
	}
	return end, !during.From.Before(end), nil
}

// GetContract reads a contract of the caller's organization, of any for an operator.
// It fails with resource.not_found.
func (a *App) GetContract(ctx context.Context, c Caller, o id.Org, contract id.Contract) (out Contract, err error) {
	err = a.agreed(ctx, c, o, "read a contract", func(t agreements) error {
		row, err := t.Contract(ctx, o, contract)
		out = presentContract(row)
		return err
	})
	return out, err
}

// ListContracts lists the contracts of the caller's organization, of any for an
// operator, newest first.
func (a *App) ListContracts(ctx context.Context, c Caller, o id.Org, p Page) (List[Contract], error) {
	k, err := keyset[id.Contract](p)
	if err != nil {
		return List[Contract]{}, err
	}
	var items []Contract
	err = a.agreed(ctx, c, o, "list contracts", func(t agreements) error {
		if _, err := t.Organization(ctx, o); err != nil {
			return err
		}
		rows, err := t.Contracts(ctx, o, k)
		for _, r := range rows {
			items = append(items, presentContract(r))
		}
		return err
	})
	return paged(items, p.Size, func(c Contract) string { return c.ID.String() }), err
}

// perUnit is how many units of its quantity a priced unit of a meter has.
func perUnit(m metering.Meter) (*big.Rat, error) {
	unit, err := metering.UnitOf(m)
	if err != nil {
		return nil, err
	}
	return new(big.Rat).SetInt64(unit.Divisor), nil
}
