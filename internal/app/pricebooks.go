package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// NewPrices asks for a version of a price book; a zero EffectiveFrom is the
// earliest instant allowed.
type NewPrices struct {
	Prices        []OfferPrice
	EffectiveFrom time.Time
}

// NewPriceBook asks for a book with its first version. A nil Default makes the
// first book of a currency its default.
type NewPriceBook struct {
	Name     string
	Currency money.Currency
	Default  *bool
	NewPrices
}

// PriceBook is a book as operators see it: versions newest first, prices by offer.
type PriceBook struct {
	ID        id.PriceBook
	Name      string
	Currency  money.Currency
	Default   bool
	CreatedAt time.Time
	Versions  []PriceVersion
}

// PriceVersion is one immutable version of a book.
type PriceVersion struct {
	ID            id.PriceVersion
	Number        int
	EffectiveFrom time.Time
	CreatedAt     time.Time
	Prices        []OfferPrice // ordered by offer
}

// CreatePriceBook makes a book whose first version may start now. Operators only. It fails with
// name.taken, offer.unknown, request.invalid and, where price books need a second
// operator, approval.required.
func (a *App) CreatePriceBook(ctx context.Context, c Caller, in NewPriceBook) (out PriceBook, err error) {
	if err := operatorOnly(c); err != nil {
		return PriceBook{}, err
	}
	permit, err := a.RequireApproval(ctx, c, ApprovePriceBook, struct {
		Currency string
		NewPriceBook
	}{in.Currency.Code(), in}, money.Amount{})
	if err != nil {
		return PriceBook{}, err
	}
	book := billing.Book{ID: id.New[id.PriceBook](), Name: in.Name, Currency: in.Currency}
	err = a.Store.InSystem(ctx, "create a price book", func(t *store.SystemTx) error {
		if err := permit.Spend(ctx, t); err != nil {
			return err
		}
		at, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		if err := t.InsertPriceBook(ctx, book, in.Default, at); err != nil {
			return err
		}
		if err := publish(ctx, t, c, book, in.NewPrices, at); err != nil {
			return err
		}
		out, err = readPriceBook(ctx, t, book.ID)
		return err
	})
	return out, err
}

// CreatePriceVersion announces a version of a book, seven days ahead at least, and
// returns the book. Operators only. It fails with resource.not_found, offer.unknown,
// request.invalid, for two versions with one start state.conflict and, where price
// books need a second operator, approval.required.
func (a *App) CreatePriceVersion(ctx context.Context, c Caller, book id.PriceBook, in NewPrices) (out PriceBook, err error) {
	if err := operatorOnly(c); err != nil {
		return PriceBook{}, err
	}
	permit, err := a.RequireApproval(ctx, c, ApprovePriceBook, struct {
		Book id.PriceBook
		NewPrices
	}{book, in}, money.Amount{})
	if err != nil {
		return PriceBook{}, err
	}
	err = a.Store.InSystem(ctx, "announce a price version", func(t *store.SystemTx) error {
		if err := permit.Spend(ctx, t); err != nil {
			return err
		}
		if err := t.LockPriceBook(ctx, book); err != nil {
			return err
		}
		existing, err := t.PriceBook(ctx, book)
		if err != nil {
			return err
		}
		at, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		if err := publish(ctx, t, c, existing.Book, in, at); err != nil {
			return err
		}
		out, err = readPriceBook(ctx, t, book)
		return err
	})
	return out, err
}

// GetPriceBook reads a book with all its versions. It fails with
// resource.not_found.
func (a *App) GetPriceBook(ctx context.Context, _ Caller, book id.PriceBook) (out PriceBook, err error) {
	err = a.Store.InSystem(ctx, "read a price book", func(t *store.SystemTx) error {
		out, err = readPriceBook(ctx, t, book)
		return err
	})
	return out, err
}

// ListPriceBooks lists books, newest first.
func (a *App) ListPriceBooks(ctx context.Context, _ Caller, p Page) (List[PriceBook], error) {
	k, err := keyset[id.PriceBook](p)
	if err != nil {
		return List[PriceBook]{}, err
	}
	var items []PriceBook
	err = a.Store.InSystem(ctx, "list price books", func(t *store.SystemTx) error {
		books, err := t.PriceBooks(ctx, k)
		if err != nil {
			return err
		}
		items, err = presentBooks(ctx, t, books)
		return err
	})
	return paged(items, p.Size, func(b PriceBook) string { return b.ID.String() }), err
}

// BookChange gives an organization a price book from an instant on; a zero From is
// the earliest allowed.
type BookChange struct {
	Book id.PriceBook
	From time.Time
}

// AssignPriceBook gives an organization a book in its currency: its first one from
// now on at the earliest, any other from the first instant of a calendar month (UTC)
// that is seven days ahead at least, so that no usage spans two books. Operators only.
// It fails with
// resource.not_found, request.invalid, and state.conflict if a later change is
// announced.
func (a *App) AssignPriceBook(ctx context.Context, c Caller, o id.Org, in BookChange) (out []store.BookAssignment, err error) {
	if err := operatorOnly(c); err != nil {
		return nil, err
	}
	err = a.Store.InSystem(ctx, "assign a price book", func(t *store.SystemTx) error {
		organization, err := t.Organization(ctx, o)
		if err != nil {
			return err
		}
		book, err := t.PriceBook(ctx, in.Book)
		if err != nil {
			return err
		}
		if book.Currency != organization.Currency {
			return refused("/price_book", "rule", fmt.Sprintf("The price book is in %s, the organization pays in %s.", book.Currency, organization.Currency))
		}
		newest, err := t.LockBookAssignments(ctx, o)
		if err != nil {
			return err
		}
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		from, err := changeOfBook(in.From, newest, now)
		if err != nil {
			return err
		}
		if err := t.AssignPriceBook(ctx, o, in.Book, from); err != nil {
			return err
		}
		if out, err = t.BookAssignments(ctx, o); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(o, "price_book.assign", in.Book.String()))
	})
	return out, err
}

// changeOfBook decides when a book is assigned; newest is when the newest assignment
// begins, zero for none.
func changeOfBook(from, newest, now time.Time) (time.Time, error) {
	from = metering.Instant(from)
	if newest.IsZero() {
		if from.IsZero() {
			return now, nil
		}
		if from.Before(now) {
			return from, refused("/from", "range", "The price book would be assigned in the past.")
		}
		return from, nil
	}
	earliest := now.Add(billing.Notice)
	if from.IsZero() {
		from = monthFrom(earliest)
	}
	switch {
	case from.Before(earliest):
		return from, refused("/from", "range", fmt.Sprintf("The price book would change before %s.", earliest.Format(time.RFC3339))).
			Suggest("Prices change seven days ahead; leave from out for the earliest instant.")
	case !from.Equal(monthFrom(from)):
		return from, refused("/from", "rule", "The price book of an organization changes at the first instant of a calendar month.").
			Suggest("Choose the first day of a month, 00:00 UTC.")
	case !from.After(newest):
		return from, fault.New(fault.Conflict, "state.conflict", "A change of the price book is announced for that instant or later.").
			Suggest("Choose a later month.")
	}
	return from, nil
}

// monthFrom is the first instant of a calendar month at an instant or after it.
func monthFrom(t time.Time) time.Time {
	first := startOfMonth(t)
	if first.Before(t) {
		first = first.AddDate(0, 1, 0)
	}
	return first
}

// ListBookAssignments lists the price books of an organization in order of time: the
// caller's own, or any for an operator. It fails with resource.not_found.
func (a *App) ListBookAssignments(ctx context.Context, c Caller, o id.Org) (out []store.BookAssignment, err error) {
	err = a.agreed(ctx, c, o, "list the price books of an organization", func(t agreements) error {
		if _, err := t.Organization(ctx, o); err != nil {
			return err
		}
		out, err = t.BookAssignments(ctx, o)
		return err
	})
	return out, err
}

// publish adds a version to a book by the rules of billing.Book.
func publish(ctx context.Context, t *store.SystemTx, c Caller, book billing.Book, in NewPrices, at time.Time) error {
	prices, err := readPrices(ctx, t, book.Currency, in.Prices, "/prices")
	if err != nil {
		return err
	}
	v := billing.Version{
		ID: id.New[id.PriceVersion](), EffectiveFrom: in.EffectiveFrom,
		Prices: map[billing.PriceKey]money.Price{}, Tiers: map[billing.PriceKey]billing.Tiers{},
	}
	for _, p := range prices {
		v.Prices[p.key] = p.price
		if p.tiers.Kind != billing.Flat {
			v.Tiers[p.key] = p.tiers
		}
	}
	next, err := book.Publish(v, at)
	if err != nil {
		return err
	}
	if err := t.InsertPriceVersion(ctx, book.ID, next.Versions[len(next.Versions)-1], c.actor()); err != nil {
		return err
	}
	return t.Audit(ctx, c.audit(id.Org{}, "price_version.create", v.ID.String()))
}

func readPriceBook(ctx context.Context, t *store.SystemTx, book id.PriceBook) (PriceBook, error) {
	b, err := t.PriceBook(ctx, book)
	if err != nil {
		return PriceBook{}, err
	}
	out, err := presentBooks(ctx, t, []store.PriceBook{b})
	if err != nil {
		return PriceBook{}, err
	}
	if len(out) != 1 {
		return PriceBook{}, errors.New("one price book became another number of them")
	}
	return out[0], nil
}

// presentBooks names prices by offer. A SKU that no offer sells any more is left out.
func presentBooks(ctx context.Context, t *store.SystemTx, books []store.PriceBook) ([]PriceBook, error) {
	var skus [][16]byte
	for _, b := range books {
		for _, v := range b.Versions {
			for key := range v.Prices {
				skus = append(skus, key.SKU)
			}
		}
	}
	offers, err := t.OffersOfSKUs(ctx, skus)
	if err != nil {
		return nil, err
	}
	out := make([]PriceBook, 0, len(books))
	for _, b := range books {
		p := PriceBook{ID: b.ID, Name: b.Name, Currency: b.Currency, Default: b.Default, CreatedAt: b.CreatedAt}
		for _, v := range slices.Backward(b.Versions) {
			p.Versions = append(p.Versions, PriceVersion{
				ID: v.ID, Number: v.Number, EffectiveFrom: v.EffectiveFrom, CreatedAt: b.VersionCreated[v.ID], Prices: pricesByOffer(v, offers),
			})
		}
		out = append(out, p)
	}
	return out, nil
}
