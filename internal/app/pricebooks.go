package app

import (
	"cmp"
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

// OfferPrice is the price of an offer per hour, as a decimal of at most 12 places
// in the currency of its book.
type OfferPrice struct {
	Offer   string
	PerHour string
}

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

// CreatePriceBook makes a book whose first version may start now. It fails with
// name.taken, offer.unknown and request.invalid.
func (a *App) CreatePriceBook(ctx context.Context, c Caller, in NewPriceBook) (out PriceBook, err error) {
	book := billing.Book{ID: id.New[id.PriceBook](), Name: in.Name, Currency: in.Currency}
	err = a.Store.InSystem(ctx, "create a price book", func(t *store.SystemTx) error {
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
// returns the book. It fails with resource.not_found, offer.unknown,
// request.invalid and, for two versions with one start, state.conflict.
func (a *App) CreatePriceVersion(ctx context.Context, c Caller, book id.PriceBook, in NewPrices) (out PriceBook, err error) {
	err = a.Store.InSystem(ctx, "announce a price version", func(t *store.SystemTx) error {
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

// publish adds a version to a book by the rules of billing.Book.
func publish(ctx context.Context, t *store.SystemTx, c Caller, book billing.Book, in NewPrices, at time.Time) error {
	prices, err := pricesBySKU(ctx, t, book.Currency, in.Prices)
	if err != nil {
		return err
	}
	v := billing.Version{ID: id.New[id.PriceVersion](), EffectiveFrom: in.EffectiveFrom, Prices: prices}
	next, err := book.Publish(v, at)
	if err != nil {
		return err
	}
	if err := t.InsertPriceVersion(ctx, book.ID, next.Versions[len(next.Versions)-1], c.actor()); err != nil {
		return err
	}
	return t.Audit(ctx, c.audit(id.Org{}, "price_version.create", v.ID.String()))
}

// pricesBySKU turns prices of offers into prices of what the offers sell.
func pricesBySKU(ctx context.Context, t *store.SystemTx, currency money.Currency, in []OfferPrice) (map[billing.PriceKey]money.Price, error) {
	offers := make([]string, 0, len(in))
	for _, p := range in {
		offers = append(offers, p.Offer)
	}
	skus, err := t.SKUsOfOffers(ctx, offers)
	if err != nil {
		return nil, err
	}
	out := map[billing.PriceKey]money.Price{}
	seen := map[string]bool{}
	for i, p := range in {
		sku, ok := skus[p.Offer]
		if !ok {
			return nil, fault.New(fault.Unprocessable, "offer.unknown", fmt.Sprintf("There is no offer %.64q.", p.Offer)).
				Suggest("Make the offer first, then price it.").
				With(fault.Field{Pointer: fmt.Sprintf("/prices/%d/offer", i), Code: "unknown", Detail: "no such offer"})
		}
		price, err := money.ParsePrice(p.PerHour, currency)
		if err != nil {
			return nil, badPrice(i, "price_per_hour", "The price is not a decimal with at most 12 places.").Because(err)
		}
		key := billing.PriceKey{SKU: sku, Meter: metering.GPU}
		if before, twice := out[key]; seen[p.Offer] || twice && before != price {
			return nil, badPrice(i, "offer", "The offer is priced twice, or another offer of the same shape has another price.")
		}
		out[key], seen[p.Offer] = price, true
	}
	return out, nil
}

func badPrice(i int, field, detail string) *fault.Error {
	return fault.New(fault.Invalid, "request.invalid", detail).
		With(fault.Field{Pointer: fmt.Sprintf("/prices/%d/%s", i, field), Code: "rule", Detail: detail})
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

func pricesByOffer(v billing.Version, offers map[[16]byte][]string) []OfferPrice {
	var out []OfferPrice
	for key, price := range v.Prices {
		for _, offer := range offers[key.SKU] {
			out = append(out, OfferPrice{Offer: offer, PerHour: price.Decimal()})
		}
	}
	slices.SortFunc(out, func(a, b OfferPrice) int { return cmp.Compare(a.Offer, b.Offer) })
	return out
}
