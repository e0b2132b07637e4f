package billing

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Notice is how far ahead a change of prices is announced; the first version of a
// book may start at once.
const Notice = 7 * 24 * time.Hour

// PriceKey is what has a price: a SKU on a meter.
type PriceKey struct {
	SKU   [16]byte
	Meter metering.Meter
}

// Version is an immutable, complete list of prices. It is in force from
// EffectiveFrom until the next version starts.
type Version struct {
	ID            id.PriceVersion
	Number        int // 1… within the book
	EffectiveFrom time.Time
	Prices        map[PriceKey]money.Price // of a tiered key: what its first unit costs
	Tiers         map[PriceKey]Tiers       // keys whose price depends on the quantity
}

// Book is a sequence of versions in one currency, oldest first.
type Book struct {
	ID       id.PriceBook
	Name     string
	Currency money.Currency
	Versions []Version
}

// Publish returns the book with one more version, numbered and, where
// EffectiveFrom is zero, started at the earliest instant allowed: now for a first
// version, Notice later for any other. It fails with fault.Invalid if the
// version starts in the past, too soon or not after the newest, has a price in
// another currency, has none, has tiers that fail Tiers.Check, or drops a key the
// newest has: what runs must stay priceable. Prices of tiered keys are filled.
func (b Book) Publish(v Version, at time.Time) (Book, error) {
	at = metering.Instant(at)
	earliest := at
	if len(b.Versions) > 0 {
		earliest = at.Add(Notice)
	}
	if v.EffectiveFrom.IsZero() {
		v.EffectiveFrom = earliest
	}
	v.EffectiveFrom = metering.Instant(v.EffectiveFrom)
	v.Number = len(b.Versions) + 1
	if v.EffectiveFrom.Before(earliest) {
		return Book{}, refuse("/effective_from", fmt.Sprintf("The version would start before %s.", earliest.Format(time.RFC3339))).
			Suggest("Prices change seven days ahead; leave effective_from out for the earliest instant.")
	}
	v, err := b.completed(v)
	if err != nil {
		return Book{}, err
	}
	if err := b.checkPrices(v); err != nil {
		return Book{}, err
	}
	if n := len(b.Versions); n > 0 && !v.EffectiveFrom.After(b.Versions[n-1].EffectiveFrom) {
		return Book{}, refuse("/effective_from", "The newest version starts at that instant or later.").
			Suggest("Versions are immutable and follow each other; choose a later start.")
	}
	b.Versions = append(slices.Clone(b.Versions), v)
	return b, nil
}

// completed returns the version with the first unit's price of every tiered key.
func (b Book) completed(v Version) (Version, error) {
	if len(v.Tiers) == 0 {
		return v, nil
	}
	v.Prices = maps.Clone(v.Prices)
	if v.Prices == nil {
		v.Prices = map[PriceKey]money.Price{}
	}
	for key, tiers := range v.Tiers {
		if err := tiers.Check("/prices", key.Meter, b.Currency); err != nil {
			return Version{}, err
		}
		v.Prices[key] = tiers.First()
	}
	return v, nil
}

func (b Book) checkPrices(v Version) error {
	if len(v.Prices) == 0 {
		return refuse("/prices", "The version has no price.").Suggest("List the price of each offer that is sold.")
	}
	for _, p := range v.Prices {
		if p.Currency() != b.Currency {
			return refuse("/prices", fmt.Sprintf("A price is in another currency than the book's %s.", b.Currency))
		}
	}
	if len(b.Versions) == 0 {
		return nil
	}
	for key := range b.Versions[len(b.Versions)-1].Prices {
		if _, ok := v.Prices[key]; !ok {
			return refuse("/prices", "The version drops a price that the newest version has.").
				Suggest("Repeat every price; to stop selling an offer, disable the offer.")
		}
	}
	return nil
}

func refuse(pointer, detail string) *fault.Error {
	return fault.New(fault.Invalid, "request.invalid", detail).
		With(fault.Field{Pointer: pointer, Code: "rule", Detail: detail})
}

// At returns the version in force at an instant; false before the first.
func (b Book) At(t time.Time) (Version, bool) {
	for _, v := range slices.Backward(b.Versions) {
		if !v.EffectiveFrom.After(t) {
			return v, true
		}
	}
	return Version{}, false
}

// Lock is the price an instance was accepted with: a ceiling, never a floor.
type Lock struct {
	Version id.PriceVersion
	Price   money.Price
}

// Lock returns the price of a version of this book, to be held as a ceiling; false
// if the version is not here or does not price the key.
func (b Book) Lock(version id.PriceVersion, key PriceKey) (Lock, bool) {
	for _, v := range b.Versions {
		if v.ID == version {
			p, ok := v.Prices[key]
			return Lock{Version: version, Price: p}, ok
		}
	}
	return Lock{}, false
}

// Piece is a part of an interval with one price.
type Piece struct {
	During  metering.Interval
	Price   money.Price
	Version id.PriceVersion // whose price it is: the list's, or the lock's
}

// Pieces cuts a closed interval where the list changes and prices each part: the
// list price, or the lock where it is lower. Parts are ordered and together are
// the interval. It fails with fault.Internal if a part has neither price, with
// money.ErrMismatch if the lock is in another currency.
func (b Book) Pieces(key PriceKey, during metering.Interval, lock *Lock) ([]Piece, error) {
	var out []Piece
	for from := during.From; from.Before(during.To); {
		list, listed := b.At(from)
		to := b.nextStart(from, during.To)
		piece := Piece{During: metering.Interval{From: from, To: to}}
		price, priced := list.Prices[key]
		switch {
		case listed && priced:
			piece.Price, piece.Version = price, list.ID
		case lock == nil:
			return nil, fault.New(fault.Internal, "internal",
				fmt.Sprintf("The price book %s has no price for a SKU at %s.", b.ID, from.Format(time.RFC3339)))
		}
		if lock != nil {
			lower, err := capped(piece, *lock)
			if err != nil {
				return nil, err
			}
			piece = lower
		}
		out = append(out, piece)
		from = to
	}
	return out, nil
}

// capped returns the piece at the lock's price where that is lower, or the only one.
func capped(p Piece, lock Lock) (Piece, error) {
	if p.Version.IsZero() {
		p.Price, p.Version = lock.Price, lock.Version
		return p, nil
	}
	lower, err := p.Price.Lower(lock.Price)
	if err != nil {
		return Piece{}, fmt.Errorf("capping a price by its lock: %w", err)
	}
	if lower != p.Price {
		p.Price, p.Version = lock.Price, lock.Version
	}
	return p, nil
}

func (b Book) nextStart(after, limit time.Time) time.Time {
	for _, v := range b.Versions {
		if v.EffectiveFrom.After(after) && v.EffectiveFrom.Before(limit) {
			return v.EffectiveFrom
		}
	}
	return limit
}
