package app

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/offer"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/units"
)

// PriceRequest asks what something would cost: an offer, or the cheapest one of a
// shape, for so many instances and hours from now on.
type PriceRequest struct {
	Offer         string
	Shape         *PriceShape // instead of Offer
	Count         int64       // instances; 0 is 1
	Hours         string      // a decimal; "" is 1
	PriorityClass string      // "" or standard, reserved, spot
	StopBehavior  string      // "" or release, retain: with retain, the price of a kept slice must exist
}

// PriceShape is what an offer has to have at least.
type PriceShape struct {
	Model     string
	Mode      gpu.Kind
	Profile   string    // "" any
	Memory    units.MiB // 0 any
	SMPercent int       // 0 any
	Count     int       // GPUs of an instance; 0 is 1
	Region    string    // "" any
}

// PricePreview is what an organization would pay. Nothing is held or locked by it.
type PricePreview struct {
	Offer    string
	SKU      string // its code
	Family   string
	Region   string
	Currency money.Currency
	At       time.Time                  // business time
	Rules    []billing.PriceRule        // of one instance in each state, now
	Lock     *billing.Lock              // the ceiling that an instance made now would have; nil for spot
	InForce  PricedVersion              // of the price book, without Rules
	Next     *PricedVersion             // the announced one that comes first; nil: none
	Reserved []billing.ReservedCapacity // what covers usage of this family in this region now
	Estimate PriceEstimate
}

// PricedVersion is a version of a price book with what it would charge.
type PricedVersion struct {
	ID            id.PriceVersion
	Number        int
	EffectiveFrom time.Time
	Rules         []billing.PriceRule
}

// PriceEstimate is what running would add to the organization's usage, everything
// else going on as it is: tiers, coverage, discounts, minimum and the cap of hours
// included; amounts of whole months, promotions and tax not. Amount is Exact rounded.
type PriceEstimate struct {
	Count  int64
	Hours  string
	During metering.Interval
	Exact  money.Exact
	Amount money.Amount
}

const (
	maxPreviewCount = 10_000
	maxPreviewHours = 366 * 24
)

// classes are the priority classes with how each is priced.
var classes = map[string]billing.PricingKind{
	"": billing.OnDemand, "standard": billing.OnDemand, "reserved": billing.OnDemand, "spot": billing.Spot,
}

// PricePreview tells the prices of a request by state and what it would cost, for the
// caller's organization or any for an operator. It only reads. It fails with
// resource.not_found, request.invalid, offer.unknown and offer.unavailable.
func (a *App) PricePreview(ctx context.Context, c Caller, o id.Org, in PriceRequest) (out PricePreview, err error) {
	ask, err := in.check()
	if err != nil {
		return PricePreview{}, err
	}
	err = a.agreed(ctx, c, o, "preview a price", func(t agreements) error {
		organization, err := t.Organization(ctx, o)
		if err != nil {
			return err
		}
		p := pricing{ask: ask, org: o, currency: organization.Currency}
		if p.now, err = t.BusinessNow(ctx); err != nil {
			return err
		}
		if err := p.read(ctx, t, in); err != nil {
			return err
		}
		out, err = p.preview(ctx, t)
		return err
	})
	return out, err
}

// ask is a request that was checked.
type ask struct {
	class   string
	retain  bool
	count   int64
	hours   string
	micros  int64
	pricing billing.PricingKind
}

func (in PriceRequest) check() (ask, error) {
	out := ask{class: in.PriorityClass, count: cmp.Or(in.Count, 1), hours: cmp.Or(in.Hours, "1")}
	kind, known := classes[in.PriorityClass]
	switch {
	case !known:
		return out, refused("/priority_class", "enum", "The priority class is standard, reserved or spot.")
	case (in.Offer == "") == (in.Shape == nil):
		return out, refused("/offer", "rule", "Ask for an offer or for a shape.")
	case out.count < 1 || out.count > maxPreviewCount:
		return out, refused("/count", "range", fmt.Sprintf("The count is 1 to %d.", maxPreviewCount))
	case in.StopBehavior != "" && in.StopBehavior != "release" && in.StopBehavior != "retain":
		return out, refused("/stop_behavior", "enum", "The stop behavior is release or retain.")
	}
	out.pricing, out.retain = kind, in.StopBehavior == "retain"
	hours, err := readQuantity(out.hours, "/hours")
	if err != nil {
		return out, err
	}
	hours.Mul(hours, new(big.Rat).SetInt64(time.Hour.Microseconds()))
	if !hours.IsInt() || hours.Cmp(new(big.Rat).SetInt64(maxPreviewHours*time.Hour.Microseconds())) > 0 {
		return out, refused("/hours", "range", fmt.Sprintf("The hours are at most %d and a whole number of microseconds.", maxPreviewHours))
	}
	out.micros = hours.Num().Int64()
	return out, nil
}

// pricing is a preview being made.
type pricing struct {
	ask
	org      id.Org
	currency money.Currency
	now      time.Time
	offered  store.PricedOffer
	book     store.PriceBook
	terms    billing.Terms // from the month's first instant to the end of what is asked
	until    time.Time
	rules    []billing.PriceRule
}

func (p *pricing) read(ctx context.Context, t agreements, in PriceRequest) (err error) {
	if p.offered, err = pricedOffer(ctx, t, p.org, in); err != nil {
		return err
	}
	if p.book, err = t.PriceBook(ctx, p.offered.Book); err != nil {
		return err
	}
	p.until = p.now.Add(time.Duration(p.micros) * time.Microsecond)
	if p.terms, err = t.TermsOf(ctx, p.org, metering.Interval{From: startOfMonth(p.now), To: p.until}, p.now); err != nil {
		return err
	}
	if p.pricing != billing.Spot {
		return nil
	}
	series, err := t.SpotPrices(ctx, p.offered.Region, p.offered.SKU.ID, p.currency, metering.Interval{From: p.now, To: p.until})
	if err != nil {
		return err
	}
	if len(series) == 0 || series[0].During.From.After(p.now) {
		return unavailableOffer("The offer has no spot price now.")
	}
	p.terms.SpotSeries = slices.DeleteFunc(p.terms.SpotSeries, func(s billing.SpotPrice) bool {
		return s.Region == p.offered.Region && s.SKU == p.offered.SKU.ID && s.During.Overlaps(metering.Interval{From: p.now, To: p.until})
	})
	p.terms.SpotSeries = append(p.terms.SpotSeries, series...)
	return nil
}

// pricedOffer finds the offer by its id, or the cheapest one that has the shape.
func pricedOffer(ctx context.Context, t agreements, o id.Org, in PriceRequest) (store.PricedOffer, error) {
	if in.Shape == nil {
		found, err := t.OffersOfOrg(ctx, o, store.OfferFilter{ID: in.Offer, Size: 1})
		if err == nil && len(found) == 0 {
			err = whyNotOffered(ctx, t, in.Offer)
		}
		if err != nil {
			return store.PricedOffer{}, err
		}
		return found[0], nil
	}
	s := *in.Shape
	found, err := t.OffersOfOrg(ctx, o, store.OfferFilter{Model: s.Model, Mode: s.Mode, Region: s.Region, Size: maxPrices})
	if err != nil {
		return store.PricedOffer{}, err
	}
	found = slices.DeleteFunc(found, func(p store.PricedOffer) bool { return !s.fits(p.SKU.Shape) })
	if len(found) == 0 {
		return store.PricedOffer{}, fault.New(fault.Unprocessable, "offer.unknown", "No offer has this shape.").
			Suggest("List the offers and choose one of them.").
			With(fault.Field{Pointer: "/shape", Code: "offer.unknown", Detail: "no such offer"})
	}
	return slices.MinFunc(found, func(a, b store.PricedOffer) int {
		return cmp.Or(a.Price.Pico().Cmp(b.Price.Pico()), cmp.Compare(a.ID, b.ID))
	}), nil
}

func (s PriceShape) fits(o offer.Shape) bool {
	return o.Count == cmp.Or(s.Count, 1) && (s.Profile == "" || s.Profile == o.Profile) && o.Memory >= s.Memory &&
		(s.SMPercent == 0 || o.SMPercent >= s.SMPercent || o.Mode.Kind == gpu.Whole)
}

func (p *pricing) preview(ctx context.Context, t agreements) (PricePreview, error) {
	o := p.offered
	out := PricePreview{
		Offer: o.ID, SKU: o.SKU.Code, Family: p.sku().Family, Region: o.Region, Currency: p.currency, At: p.now, Lock: p.lock(),
	}
	var err error
	if p.rules, err = p.rulesAt(p.now, nil); err != nil {
		return out, err
	}
	if p.retain && !slices.ContainsFunc(p.rules, func(r billing.PriceRule) bool { return r.State == billing.StoppedRetain }) {
		return out, refused("/stop_behavior", "rule", "The offer has no price for keeping a stopped slice.")
	}
	out.Rules = p.rules
	for _, r := range p.terms.Reservations {
		if r.Family == out.Family && r.Region == o.Region && !r.During.From.After(p.now) && r.During.To.After(p.now) {
			out.Reserved = append(out.Reserved, r)
		}
	}
	if p.class == "reserved" && len(out.Reserved) == 0 {
		return out, refused("/priority_class", "rule", "The organization has no reservation of this family and region now.")
	}
	for _, v := range p.book.Versions {
		shown := PricedVersion{ID: v.ID, Number: v.Number, EffectiveFrom: v.EffectiveFrom}
		if !v.EffectiveFrom.After(p.now) {
			out.InForce = shown
			continue
		}
		if shown.Rules, err = p.rulesAt(v.EffectiveFrom, p.lock()); err != nil {
			return out, err
		}
		out.Next = &shown
		break
	}
	out.Estimate, err = p.estimate(ctx, t)
	return out, err
}

func (p *pricing) sku() billing.SKU {
	k := p.offered.SKU
	return billing.SKU{
		ID: k.ID, Code: k.Code, Name: k.Code, Family: billing.FamilyOf(k.Shape.Model, string(k.Shape.Mode.Kind)),
		IsolationGPU: string(k.Isolation.GPU), IsolationHost: string(k.Isolation.Host),
	}
}

// lock is the ceiling of an instance that is made now; spot has none.
func (p *pricing) lock() *billing.Lock {
	if p.pricing == billing.Spot {
		return nil
	}
	return &billing.Lock{Version: p.offered.Version, Price: *p.offered.Price}
}

func (p *pricing) rulesAt(at time.Time, lock *billing.Lock) ([]billing.PriceRule, error) {
	return rating.PreviewPrice(rating.PriceInputs{
		At: at, Currency: p.currency, Book: p.book.Book, SKU: p.sku(), Region: p.offered.Region, Pricing: p.pricing, Lock: lock, Terms: p.terms,
	})
}

// estimate rates the month so far and what runs, with and without what is asked for.
func (p *pricing) estimate(ctx context.Context, t agreements) (PriceEstimate, error) {
	out := PriceEstimate{Count: p.count, Hours: p.hours, During: metering.Interval{From: p.now, To: p.until}}
	in := rating.Inputs{
		Period: metering.Interval{From: startOfMonth(p.now), To: p.until}, Currency: p.currency, Terms: p.terms,
		Books: map[id.PriceBook]billing.Book{p.book.ID: p.book.Book},
	}
	for _, r := range p.rules {
		if r.State == billing.Running && r.Minimum > out.During.To.Sub(p.now) {
			in.Period.To = p.now.Add(r.Minimum)
		}
	}
	in.At = in.Period.To
	before := money.ZeroExact(p.currency)
	if pooled(p.terms, in.Books) && p.pricing != billing.Spot {
		usage, err := t.UsageOf(ctx, p.org, store.UsageFilter{Window: in.Period})
		if err != nil {
			return out, err
		}
		in.Usage = usage.Segments
		for b, book := range usage.Books {
			in.Books[b] = book
		}
		if before, err = rating.Cost(in); err != nil {
			return out, err
		}
	}
	in.Usage = append(in.Usage, p.imagined(in.Period.To)...)
	after, err := rating.Cost(in)
	if err != nil {
		return out, err
	}
	if out.Exact, err = after.Sub(before); err != nil {
		return out, err
	}
	out.Amount, err = out.Exact.Round()
	return out, err
}

// imagined is the usage of what is asked for, as if it started now: in each calendar
// month no more than a cap of hours lets be charged.
func (p *pricing) imagined(until time.Time) []rating.Usage {
	capped := int64(0)
	for _, r := range p.rules {
		if r.State == billing.Running {
			capped = r.CapHours
		}
	}
	subject := metering.Subject{Kind: "instance", ID: [16]byte(id.New[id.Instance]())}
	var out []rating.Usage
	for from := p.now; from.Before(until); {
		end := startOfMonth(from).AddDate(0, 1, 0)
		if end.After(until) {
			end = until
		}
		during := metering.Interval{From: from, To: end}
		if most := from.Add(time.Duration(capped) * time.Hour); capped > 0 && most.Before(end) {
			during.To = most
		}
		out = append(out, rating.Usage{
			Segment: metering.Segment{
				ID: id.New[id.Segment](), Org: p.org, Subject: subject, Meter: metering.GPU, StartID: subject.ID,
				Seq: int64(len(out) + 1), Units: p.count, During: during,
			},
			SKU: p.sku(), Book: p.book.ID, Region: p.offered.Region, Pricing: p.pricing, Lock: p.lock(), Started: p.now,
		})
		from = end
	}
	return out
}
