package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// PriceBook is a book with what only storage knows of it.
type PriceBook struct {
	billing.Book
	Default        bool // new organizations of the currency get it
	CreatedAt      time.Time
	VersionCreated map[id.PriceVersion]time.Time
}

// InsertPriceBook writes a book without versions. It becomes the default of its
// currency if asked, or if isDefault is nil and there is none yet; organizations of
// the currency without any book then get it from the business instant at on. It
// fails with name.taken.
func (t *SystemTx) InsertPriceBook(ctx context.Context, b billing.Book, isDefault *bool, at time.Time) error {
	has, err := t.q.HasDefaultPriceBook(ctx, t.raw, b.Currency.Code())
	if err != nil {
		return mapError(err)
	}
	becomes := !has
	if isDefault != nil {
		becomes = *isDefault
	}
	if becomes && has {
		if err := t.q.UnsetDefaultPriceBook(ctx, t.raw, b.Currency.Code()); err != nil {
			return mapError(err)
		}
	}
	_, err = t.q.InsertPriceBook(ctx, t.raw, db.InsertPriceBookParams{
		PriceBookID: uuid.UUID(b.ID), Name: b.Name, Currency: b.Currency.Code(), IsDefault: becomes,
	})
	if err != nil || !becomes {
		return mapError(err)
	}
	return mapError(t.q.AttachPriceBook(ctx, t.raw, db.AttachPriceBookParams{
		PriceBookID: uuid.UUID(b.ID), Since: at, Currency: b.Currency.Code(),
	}))
}

// LockPriceBook keeps others from adding a version. It fails with
// resource.not_found.
func (t *SystemTx) LockPriceBook(ctx context.Context, b id.PriceBook) error {
	_, err := t.q.LockPriceBook(ctx, t.raw, uuid.UUID(b))
	return mapError(err)
}

// InsertPriceVersion writes a version and its prices; both are immutable from then
// on. It fails with state.conflict if another version starts at that instant.
func (t *SystemTx) InsertPriceVersion(ctx context.Context, b id.PriceBook, v billing.Version, by string) error {
	_, err := t.q.InsertPriceVersion(ctx, t.raw, db.InsertPriceVersionParams{
		VersionID: uuid.UUID(v.ID), PriceBookID: uuid.UUID(b), Version: int32(v.Number), EffectiveFrom: v.EffectiveFrom, CreatedBy: by,
	})
	if err != nil {
		return mapError(err)
	}
	for key, price := range v.Prices {
		err := t.q.InsertPrice(ctx, t.raw, db.InsertPriceParams{
			VersionID: uuid.UUID(v.ID), SkuID: key.SKU, Meter: string(key.Meter), Amount: price.Decimal(),
		})
		if err != nil {
			return mapError(err)
		}
	}
	return nil
}

// PriceBooks lists books with all their versions.
func (t *tx) PriceBooks(ctx context.Context, k Keyset) ([]PriceBook, error) {
	rows, err := t.q.ListPriceBooks(ctx, t.raw, k.before(), int32(k.Size))
	if err != nil {
		return nil, mapError(err)
	}
	return t.fillBooks(ctx, rows)
}

// PriceBook reads one book with all its versions. It fails with resource.not_found.
func (t *tx) PriceBook(ctx context.Context, b id.PriceBook) (PriceBook, error) {
	rows, err := t.q.PriceBooks(ctx, t.raw, []uuid.UUID{uuid.UUID(b)})
	if err != nil {
		return PriceBook{}, mapError(err)
	}
	if len(rows) == 0 {
		return PriceBook{}, NotFound()
	}
	books, err := t.fillBooks(ctx, rows)
	if err != nil {
		return PriceBook{}, err
	}
	return books[0], nil
}

func (t *tx) bookMap(ctx context.Context, ids []id.PriceBook) (map[id.PriceBook]billing.Book, error) {
	out := map[id.PriceBook]billing.Book{}
	if len(ids) == 0 {
		return out, nil
	}
	raw := make([]uuid.UUID, 0, len(ids))
	for _, b := range ids {
		raw = append(raw, uuid.UUID(b))
	}
	rows, err := t.q.PriceBooks(ctx, t.raw, raw)
	if err != nil {
		return nil, mapError(err)
	}
	books, err := t.fillBooks(ctx, rows)
	if err != nil {
		return nil, err
	}
	for _, b := range books {
		out[b.ID] = b.Book
	}
	return out, nil
}

// fillBooks adds versions and prices to books, keeping their order.
func (t *tx) fillBooks(ctx context.Context, rows []db.PriceBook) ([]PriceBook, error) {
	books, at, ids := make([]PriceBook, len(rows)), map[uuid.UUID]int{}, make([]uuid.UUID, len(rows))
	for i, r := range rows {
		currency, err := money.ParseCurrency(r.Currency)
		if err != nil {
			return nil, fmt.Errorf("reading price book %s: %w", r.ID, err)
		}
		books[i] = PriceBook{
			Book:    billing.Book{ID: id.PriceBook(r.ID), Name: r.Name, Currency: currency},
			Default: r.IsDefault, CreatedAt: r.CreatedAt, VersionCreated: map[id.PriceVersion]time.Time{},
		}
		at[r.ID], ids[i] = i, r.ID
	}
	prices, err := t.q.PricesOfBooks(ctx, t.raw, ids)
	if err != nil {
		return nil, mapError(err)
	}
	versions, err := t.q.PriceVersions(ctx, t.raw, ids)
	if err != nil {
		return nil, mapError(err)
	}
	byVersion := map[uuid.UUID][]db.PricesOfBooksRow{}
	for _, p := range prices {
		byVersion[p.VersionID] = append(byVersion[p.VersionID], p)
	}
	for _, v := range versions {
		b := &books[at[v.PriceBookID]]
		version := billing.Version{
			ID: id.PriceVersion(v.ID), Number: int(v.Version), EffectiveFrom: v.EffectiveFrom.UTC(),
			Prices: map[billing.PriceKey]money.Price{},
		}
		for _, p := range byVersion[v.ID] {
			price, err := money.ParsePrice(p.Amount, b.Currency)
			if err != nil {
				return nil, fmt.Errorf("reading a price of version %s: %w", version.ID, err)
			}
			version.Prices[billing.PriceKey{SKU: p.SkuID, Meter: metering.Meter(p.Meter)}] = price
		}
		b.VersionCreated[version.ID] = v.CreatedAt
		b.Versions = append(b.Versions, version)
	}
	return books, nil
}

// SKUsOfOffers returns the SKU of each offer that exists.
func (t *tx) SKUsOfOffers(ctx context.Context, offers []string) (map[string][16]byte, error) {
	rows, err := t.q.SKUsOfOffers(ctx, t.raw, offers)
	if err != nil {
		return nil, mapError(err)
	}
	out := map[string][16]byte{}
	for _, r := range rows {
		out[r.ID] = r.SkuID
	}
	return out, nil
}

// OffersOfSKUs returns the offers that sell each SKU, ordered by id.
func (t *tx) OffersOfSKUs(ctx context.Context, skus [][16]byte) (map[[16]byte][]string, error) {
	ids := make([]uuid.UUID, 0, len(skus))
	for _, s := range skus {
		ids = append(ids, s)
	}
	rows, err := t.q.OffersOfSKUs(ctx, t.raw, ids)
	if err != nil {
		return nil, mapError(err)
	}
	out := map[[16]byte][]string{}
	for _, r := range rows {
		out[r.SkuID] = append(out[r.SkuID], r.ID)
	}
	return out, nil
}
