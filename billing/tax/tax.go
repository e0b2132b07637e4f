// Package tax owns which tax a sale bears: an effective-dated decision table of
// rules and rates, the territories it speaks of, and how tax ids are written. It is
// pure. Rates are parts per million; validity is half-open, as a date in UTC.
//
// It does not own sums (package billing computes one tax a group), and it asks
// nobody whether a tax id is valid: the answer is an input. The starter table is a
// beginning for operators and no legal advice: rules and rates are rows, and the
// operator answers for them.
package tax

import (
	"fmt"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
)

// Category is the EN 16931 category of a supply.
type Category string

// The categories.
const (
	Standard      Category = "S"
	ReverseCharge Category = "AE"
	OutsideScope  Category = "O"
	Exempt        Category = "E"
	ZeroRated     Category = "Z"
)

var categories = []Category{Standard, ReverseCharge, OutsideScope, Exempt, ZeroRated}

// Status is what a buyer is.
type Status string

// The statuses.
const (
	Business Status = "business"
	Consumer Status = "consumer"
)

// Question is a sale to be judged. Countries are ISO 3166-1 alpha-2, "" unknown.
type Question struct {
	Seller   string // country of the establishment that sells
	Buyer    string
	Postcode string // of the buyer: special territories are found by it
	Status   Status
	Valid    bool      // the buyer's tax id was confirmed at the tax point
	At       time.Time // the tax point
}

// Decision is what a sale bears.
type Decision struct {
	Category  Category
	RatePPM   int64  // 0 for every category but Standard
	Note      Note   // the legal mention, "" none
	Territory string // whose rate it is, "" none
}

// Place is what a rule may say of a country.
type Place string

// The places beside a territory's own code.
const (
	Anywhere  Place = ""
	Home      Place = "home"    // the other party's territory
	Union     Place = "eu"      // a member state of the EU, at the tax point
	OtherEU   Place = "eu_else" // another member state than the seller's
	Elsewhere Place = "abroad"  // outside the EU, or unknown to it
	Unknown   Place = "unknown" // no country is known
)

// Proof is what a rule may say of the buyer's tax id.
type Proof string

// The proofs.
const (
	AnyProof  Proof = ""
	Confirmed Proof = "confirmed"
	Missing   Proof = "missing" // none, unknown or refused
)

// Rule is one row of the decision: the first that matches decides. Seller and Buyer
// are a Place or a territory's code.
type Rule struct {
	Seller, Buyer Place
	Status        Status // "" any
	Proof         Proof
	From, To      time.Time // half-open; zero: open
	Category      Category
	RateOf        Party // whose territory's rate, of Standard
	Note          Note
}

// Party is a side of a sale.
type Party string

// The parties.
const (
	OfSeller Party = "seller"
	OfBuyer  Party = "buyer"
)

// Rate is the standard rate of a territory over a time.
type Rate struct {
	Territory string
	PPM       int64
	From, To  time.Time // half-open; zero: open
}

// Territory is a part of a country with tax rules of its own, found by the buyer's
// postcode. Union says whether it counts as a member state.
type Territory struct {
	Code      string // ES-CN
	Country   string // ES
	Postcodes []string
	Union     bool
}

// Table is all an issuer's taxes are decided by. The zero value decides nothing.
type Table struct {
	Rules       []Rule
	Rates       []Rate
	Territories []Territory
}

// Empty reports whether there is no rule.
func (t Table) Empty() bool { return len(t.Rules) == 0 }

// Decide judges a sale by the first rule that matches. It fails with fault.Conflict
// and tax.no_rule or tax.no_rate where the table has none: such an invoice must wait
// for the operator, not guess.
func (t Table) Decide(q Question) (Decision, error) {
	seller, buyer := t.territory(q.Seller, ""), t.territory(q.Buyer, q.Postcode)
	for _, r := range t.Rules {
		if !r.matches(q, seller, buyer) {
			continue
		}
		d := Decision{Category: r.Category, Note: r.Note}
		if r.Category != Standard {
			return d, nil
		}
		d.Territory = seller.Code
		if r.RateOf == OfBuyer {
			d.Territory = buyer.Code
		}
		rate, ok := t.rateAt(d.Territory, q.At)
		if !ok {
			return Decision{}, fault.New(fault.Conflict, "tax.no_rate",
				fmt.Sprintf("The tax table has no rate of %.8q at %s.", d.Territory, q.At.Format(time.DateOnly))).
				Suggest("Add the rate to the issuer's tax table.")
		}
		d.RatePPM = rate
		return d, nil
	}
	return Decision{}, fault.New(fault.Conflict, "tax.no_rule",
		fmt.Sprintf("No rule of the tax table fits a sale from %.8q to %.8q.", seller.Code, buyer.Code)).
		Suggest("Add a rule to the issuer's tax table.")
}

// territory returns the special territory of a postcode, or the country itself.
func (t Table) territory(country, postcode string) Territory {
	for _, x := range t.Territories {
		if x.Country == country && slices.ContainsFunc(x.Postcodes, func(p string) bool { return hasPostcode(postcode, p) }) {
			return x
		}
	}
	return Territory{Code: country, Country: country, Union: member(country)}
}

func (t Table) rateAt(territory string, at time.Time) (int64, bool) {
	for _, r := range t.Rates {
		if r.Territory == territory && within(r.From, r.To, at) {
			return r.PPM, true
		}
	}
	return 0, false
}

func (r Rule) matches(q Question, seller, buyer Territory) bool {
	switch {
	case !within(r.From, r.To, q.At), r.Status != "" && r.Status != q.Status:
		return false
	case r.Proof == Confirmed && !q.Valid, r.Proof == Missing && q.Valid:
		return false
	}
	return r.Seller.holds(seller, buyer) && r.Buyer.holds(buyer, seller)
}

// holds reports whether the place describes here, seen from the other party.
func (p Place) holds(here, other Territory) bool {
	switch p {
	case Anywhere:
		return true
	case Unknown:
		return here.Code == ""
	case Home:
		return here.Code != "" && here.Code == other.Code
	case Union:
		return here.Union
	case OtherEU:
		return here.Union && other.Union && here.Country != other.Country
	case Elsewhere:
		return here.Code != "" && !here.Union
	}
	return here.Code == string(p)
}

func within(from, to, at time.Time) bool {
	return (from.IsZero() || !at.Before(from)) && (to.IsZero() || at.Before(to))
}
