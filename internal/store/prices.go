package store

import (
	"context"
	"fmt"
	"math/big"
	"slices"
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
	prices, steps := priceRows(v)
	if err := t.q.InsertPrices(ctx, t.raw, prices); err != nil || len(steps.Steps) == 0 {
		return mapError(err)
	}
	return mapError(t.q.InsertPriceSteps(ctx, t.raw, steps))
}

// priceRows lays the prices of a version out in columns, and the steps of its tiers.
func priceRows(v billing.Version) (db.InsertPricesParams, db.InsertPriceStepsParams) {
	prices, steps := db.InsertPricesParams{VersionID: uuid.UUID(v.ID)}, db.InsertPriceStepsParams{VersionID: uuid.UUID(v.ID)}
	for key, price := range v.Prices {
		tiers := v.Tiers[key]
		prices.SkuIds = append(prices.SkuIds, key.SKU)
		prices.Meters = append(prices.Meters, string(key.Meter))
		prices.Amounts = append(prices.Amounts, price.Decimal())
		prices.Tierings = append(prices.Tierings, string(tiers.Kind))
		prices.PackageSizes = append(prices.PackageSizes, ratText(tiers.PackageSize))
		for i, step := range tiers.Steps {
			steps.SkuIds = append(steps.SkuIds, key.SKU)
			steps.Meters = append(steps.Meters, string(key.Meter))
			steps.Steps = append(steps.Steps, int32(i+1))
			steps.UpTos = append(steps.UpTos, ratText(step.UpTo))
			steps.Amounts = append(steps.Amounts, step.Price.Decimal())
		}
	}
	return prices, steps
}

// quantityDecimals is the finest step of a tier's bound.
const quantityDecimals = 12

// ratText is a quantity as a decimal, "" for none.
func ratText(r *big.Rat) string {
	if r == nil {
		return ""
	}
	return r.FloatString(quantityDecimals)
}

// textRat reads what ratText wrote.
func textRat(text string) (*big.Rat, error) {
	if text == "" {
		return nil, nil
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, fmt.Errorf("the quantity %q is no decimal", text)
	}
	return r, nil
}

// stepFrom is one step of a stored tiered price.
func stepFrom(upTo, amount string, c money.Currency) (billing.Step, error) {
	bound, err := textRat(upTo)
	if err != nil {
		return billing.Step{}, err
	}
	price, err := money.ParsePrice(amount, c)
	return billing.Step{UpTo: bound, Price: price}, err
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
	steps, err := t.priceSteps(ctx, ids, prices)
	if err != nil {
		return nil, err
	}
	byVersion := map[uuid.UUID][]db.PricesOfBooksRow{}
	for _, p := range prices {
		byVersion[p.VersionID] = append(byVersion[p.VersionID], p)
	}
	for _, v := range versions {
		b := &books[at[v.PriceBookID]]
		version := billing.Version{ID: id.PriceVersion(v.ID), Number: int(v.Version), EffectiveFrom: v.EffectiveFrom.UTC()}
		if err := fillVersion(&version, byVersion[v.ID], steps, b.Currency); err != nil {
			return nil, fmt.Errorf("reading a price of version %s: %w", version.ID, err)
		}
		b.VersionCreated[version.ID] = v.CreatedAt
		b.Versions = append(b.Versions, version)
	}
	return books, nil
}

type stepKey struct {
	version uuid.UUID
	price   billing.PriceKey
}

// priceSteps reads the steps of tiered prices; no statement without any.
func (t *tx) priceSteps(ctx context.Context, books []uuid.UUID, prices []db.PricesOfBooksRow) (map[stepKey][]db.PriceStepsOfBooksRow, error) {
	if !slices.ContainsFunc(prices, func(p db.PricesOfBooksRow) bool { return p.Tiering != string(billing.Flat) }) {
		return nil, nil
	}
	rows, err := t.q.PriceStepsOfBooks(ctx, t.raw, books)
	if err != nil {
		return nil, mapError(err)
	}
	out := map[stepKey][]db.PriceStepsOfBooksRow{}
	for _, r := range rows {
		k := stepKey{r.VersionID, billing.PriceKey{SKU: r.SkuID, Meter: metering.Meter(r.Meter)}}
		out[k] = append(out[k], r)
	}
	return out, nil
}

func fillVersion(v *billing.Version, prices []db.PricesOfBooksRow, steps map[stepKey][]db.PriceStepsOfBooksRow, c money.Currency) error {
	v.Prices = make(map[billing.PriceKey]money.Price, len(prices))
	for _, p := range prices {
		key := billing.PriceKey{SKU: p.SkuID, Meter: metering.Meter(p.Meter)}
		price, err := money.ParsePrice(p.Amount, c)
		if err != nil {
			return err
		}
		v.Prices[key] = price
		if p.Tiering == string(billing.Flat) {
			continue
		}
		tiers := billing.Tiers{Kind: billing.Tiering(p.Tiering)}
		if tiers.PackageSize, err = textRat(p.PackageSize); err != nil {
			return err
		}
		for _, s := range steps[stepKey{p.VersionID, key}] {
			step, err := stepFrom(s.UpTo, s.Amount, c)
			if err != nil {
				return err
			}
			tiers.Steps = append(tiers.Steps, step)
		}
		if v.Tiers == nil {
			v.Tiers = map[billing.PriceKey]billing.Tiers{}
		}
		v.Tiers[key] = tiers
	}
	return nil
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

// BookAssignment says which price book an organization has, and when.
type BookAssignment struct {
	Book   id.PriceBook
	Name   string
	During metering.Interval
}

// BookAssignments lists the price books of an organization in order of time.
func (t *tx) BookAssignments(ctx context.Context, o id.Org) ([]BookAssignment, error) {
	rows, err := t.q.BookAssignments(ctx, t.raw, uuid.UUID(o))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]BookAssignment, 0, len(rows))
	for _, r := range rows {
		out = append(out, BookAssignment{Book: id.PriceBook(r.PriceBookID), Name: r.Name, During: intervalOf(r.FromAt, r.ToAt, r.IsOpen)})
	}
	return out, nil
}

// LockBookAssignments returns when the newest price book of an organization begins,
// zero for none, and keeps others from assigning one.
func (t *SystemTx) LockBookAssignments(ctx context.Context, o id.Org) (newest time.Time, err error) {
	if err := t.q.LockOrganizationBooks(ctx, t.raw, uuid.UUID(o)); err != nil {
		return time.Time{}, mapError(err)
	}
	at, err := t.q.NewestBookAssignment(ctx, t.raw, uuid.UUID(o))
	if err != nil || at.Unix() == 0 {
		return time.Time{}, mapError(err)
	}
	return at.UTC(), nil
}

// AssignPriceBook gives an organization a book from an instant on; the newest one
// before it ends there. The caller holds LockBookAssignments.
func (t *SystemTx) AssignPriceBook(ctx context.Context, o id.Org, b id.PriceBook, from time.Time) error {
	if err := t.q.EndBookAssignment(ctx, t.raw, from, uuid.UUID(o)); err != nil {
		return mapError(err)
	}
	return mapError(t.q.InsertBookAssignment(ctx, t.raw, db.InsertBookAssignmentParams{
		OrgID: uuid.UUID(o), PriceBookID: uuid.UUID(b), Since: from,
	}))
}

// intervalOf is a range as its query shows it.
func intervalOf(from, to time.Time, open bool) metering.Interval {
	if open {
		to = time.Time{}
	}
	return metering.Between(from, to)
}
