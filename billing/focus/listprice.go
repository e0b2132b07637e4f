package focus

import (
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/money"
)

// ListPrices looks up what price books ask for a line when its usage began, whatever a
// contract, a lock or a reservation made of it; for Input. A line's book is the one
// that has its price version, the first that prices it where it has none. Spot prices
// are in no book.
func ListPrices(books []billing.Book) func(billing.Line) (money.Price, bool) {
	return func(l billing.Line) (money.Price, bool) {
		if l.Key.Pricing == billing.Spot {
			return money.Price{}, false
		}
		for _, b := range books {
			v, ok := versionOf(b, l)
			if !ok {
				continue
			}
			if p, ok := listPrice(v, l); ok && p.Currency() == l.Amount.Currency() {
				return p, true
			}
		}
		return money.Price{}, false
	}
}

// versionOf is the version of a book in force when the usage of a line began.
func versionOf(b billing.Book, l billing.Line) (billing.Version, bool) {
	var own billing.Version
	found := l.Key.PriceVersion.IsZero()
	for _, v := range b.Versions {
		if v.ID == l.Key.PriceVersion {
			own, found = v, true
		}
	}
	if !found {
		return billing.Version{}, false
	}
	if began := l.During.From; began != (time.Time{}) {
		if v, ok := b.At(began); ok {
			return v, true
		}
	}
	return own, !own.ID.IsZero()
}

// listPrice is the price of a line's step, per unit that the line is priced in.
func listPrice(v billing.Version, l billing.Line) (money.Price, bool) {
	key := billing.PriceKey{SKU: l.Key.SKU, Meter: l.Key.Meter}
	tiers, tiered := v.Tiers[key]
	if !tiered {
		p, ok := v.Prices[key]
		return p, ok && !packaged(&l)
	}
	if packaged(&l) != (tiers.Kind == billing.Package) || len(tiers.Steps) == 0 {
		return money.Price{}, false
	}
	step := max(min(l.Key.Tier, len(tiers.Steps)), 1)
	return tiers.Steps[step-1].Price, true
}

// packaged reports whether the unit price of a line is that of a package.
func packaged(l *billing.Line) bool {
	return l.Packages > 0 || strings.HasPrefix(l.PricedUnit, "package of ")
}
