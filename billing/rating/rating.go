// Package rating owns how usage becomes money: what 37 seconds cost. Rate makes
// the lines of an invoice, each rounded once; Views makes the exact, unrounded
// figures that people watch; Adjust makes what late usage changes; PreviewPrice
// says what a state of an instance costs. All are pure and ignore the order of
// their input.
//
// An engine cuts segments into charges: parts with one price. Reservations cover
// first, free quotas next, tiers price what is left (pooled), and discounts are part
// of a rate. A bill sums charges into lines and derives minimum charges and caps from
// them; a purse applies what is agreed about the month's money. Views and traces are
// other sums of the same charges.
//
// It does not own prices and terms (billing), documents (billing.Invoice), when a
// meter runs (internal/metering) or tax. Quantities are unit·microseconds.
package rating

import (
	"math/big"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Engine names this version of the arithmetic. It is stored with every document;
// a change that could alter a line takes a new name and keeps the old one.
const Engine = "2"

// Usage is a segment with all that prices it, as recorded with the segment.
type Usage struct {
	metering.Segment
	SubjectName string
	ProjectName string
	SKU         billing.SKU
	Book        id.PriceBook
	Lock        *billing.Lock // nil: no ceiling
	Pricing     billing.PricingKind
	Simulated   bool
	Region      string
	Slot        [16]byte  // the instance's place, for monthly caps; zero: the subject itself
	Started     time.Time // the first instant of the start, over all months; zero: the earliest given
}

// Inputs is everything a result depends on.
type Inputs struct {
	Period    metering.Interval // only usage inside it counts
	At        time.Time         // segments still open are rated up to here
	Currency  money.Currency
	Books     map[id.PriceBook]billing.Book
	Usage     []Usage
	Discounts []billing.Discount // of everything
	Terms     billing.Terms
}

// Result is the lines of an invoice in their fixed order, and the record of what
// they were made from.
type Result struct {
	Lines        []billing.Line
	Document     string // of the inputs, one fact a line
	DocumentHash [32]byte
	Segments     int64  // how many segments contributed
	Engine       string // which arithmetic it was
	Reservations []ReservationUse
	Promos       []PromoUse
}

// ReservationUse is how much of a reservation the period's usage covered, in
// unit·microseconds: Used + Unused = Reserved. Nothing carries over.
type ReservationUse struct {
	ID                     id.Reservation
	Name, Family, Region   string
	Reserved, Used, Unused *big.Int
}

// PromoUse is what a promotional grant paid, and what is left of it.
type PromoUse struct {
	Grant      id.Grant
	Used, Left money.Amount
}

// engines are all versions of the arithmetic by name. A closed invoice names its own.
var engines = map[string]func(Inputs) (Result, error){"1": firstRate, Engine: Rate}

// RateWith is Rate by the named engine. It fails with fault.Internal for a name
// that this build does not know.
func RateWith(engine string, in Inputs) (Result, error) {
	rate, ok := engines[engine]
	if !ok {
		return Result{}, internal("The rating engine %.32q is not in this build.", engine)
	}
	return rate(in)
}
