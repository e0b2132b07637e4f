package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// OfferPrice is the price of what an offer sells on a meter, as decimals of at most
// 12 places in the currency of its book or contract: one price for each priced unit
// (PerHour; a GiB-hour of storage, a GiB of egress), or Tiers instead.
type OfferPrice struct {
	Offer   string
	Meter   metering.Meter // "" is gpu
	PerHour string
	Tiers   *PriceTiers
}

// PriceTiers is a price that depends on the quantity of a month's pool.
type PriceTiers struct {
	Kind        billing.Tiering // graduated, volume or package
	PackageSize string          // priced units in a package; "" of any other kind
	Steps       []PriceStep
}

// PriceStep is a step: up to so many priced units, "" for the last. The price of a
// package's step is for the package.
type PriceStep struct{ UpTo, Price string }

// maxPrices bounds the prices of a version or contract.
const maxPrices = 1000

// maxQuantity bounds what is written as a quantity of priced units.
const maxQuantity = 1_000_000_000_000

// listed is a price as it was read from a request.
type listed struct {
	key   billing.PriceKey
	offer string
	price money.Price // of a tiered price: of its first unit
	tiers billing.Tiers
}

// skusOf is what both kinds of transaction know of offers.
type skusOf interface {
	SKUsOfOffers(context.Context, []string) (map[string][16]byte, error)
}

// readPrices turns prices of offers into prices of what the offers sell. Pointers of
// refusals lie below pointer. It fails with offer.unknown and request.invalid.
func readPrices(ctx context.Context, t skusOf, currency money.Currency, in []OfferPrice, pointer string) ([]listed, error) {
	if len(in) > maxPrices {
		return nil, refused(pointer, "range", fmt.Sprintf("There are more than %d prices.", maxPrices))
	}
	offers := make([]string, 0, len(in))
	for _, p := range in {
		offers = append(offers, p.Offer)
	}
	skus, err := t.SKUsOfOffers(ctx, offers)
	if err != nil {
		return nil, err
	}
	out := make([]listed, 0, len(in))
	for i, p := range in {
		at := fmt.Sprintf("%s/%d", pointer, i)
		sku, ok := skus[p.Offer]
		if !ok {
			return nil, unknownOffer(at+"/offer", p.Offer)
		}
		one, err := readPrice(p, currency, at)
		if err != nil {
			return nil, err
		}
		one.key.SKU, one.offer = sku, p.Offer
		for _, before := range out {
			if before.key == one.key && (before.offer == one.offer || !samePrice(before, one)) {
				return nil, refused(at+"/offer", "rule", "The offer is priced twice, or another offer of the same shape has another price.")
			}
		}
		out = append(out, one)
	}
	return out, nil
}

func unknownOffer(pointer, offer string) error {
	return fault.New(fault.Unprocessable, "offer.unknown", fmt.Sprintf("There is no offer %.64q.", offer)).
		Suggest("Make the offer first, then price it.").
		With(fault.Field{Pointer: pointer, Code: "unknown", Detail: "no such offer"})
}

func samePrice(a, b listed) bool {
	return a.price == b.price && a.tiers.Kind == b.tiers.Kind && presentTiers(a.tiers).equal(presentTiers(b.tiers))
}

func (p *PriceTiers) equal(q *PriceTiers) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.Kind == q.Kind && p.PackageSize == q.PackageSize && slices.Equal(p.Steps, q.Steps)
}

func readPrice(p OfferPrice, currency money.Currency, pointer string) (listed, error) {
	out := listed{key: billing.PriceKey{Meter: cmp.Or(p.Meter, metering.GPU)}}
	if _, err := metering.UnitOf(out.key.Meter); err != nil {
		return listed{}, refused(pointer+"/meter", "enum", fmt.Sprintf("The meter %.32q is unknown.", string(out.key.Meter)))
	}
	if (p.PerHour == "") == (p.Tiers == nil) {
		return listed{}, refused(pointer+"/price_per_hour", "rule", "A price is either one price or tiers.")
	}
	var err error
	if p.Tiers == nil {
		out.price, err = readDecimalPrice(p.PerHour, currency, pointer+"/price_per_hour")
		return out, err
	}
	if out.tiers, err = readTiers(*p.Tiers, currency, pointer+"/tiers"); err != nil {
		return listed{}, err
	}
	if err := out.tiers.Check(pointer+"/tiers", out.key.Meter, currency); err != nil {
		return listed{}, err
	}
	out.price = out.tiers.First()
	return out, nil
}

func readTiers(in PriceTiers, currency money.Currency, pointer string) (out billing.Tiers, err error) {
	out.Kind = in.Kind
	if in.PackageSize != "" {
		if out.PackageSize, err = readQuantity(in.PackageSize, pointer+"/package_size"); err != nil {
			return out, err
		}
	}
	for i, s := range in.Steps {
		at := fmt.Sprintf("%s/steps/%d", pointer, i)
		var step billing.Step
		if s.UpTo != "" {
			if step.UpTo, err = readQuantity(s.UpTo, at+"/up_to"); err != nil {
				return out, err
			}
		}
		if step.Price, err = readDecimalPrice(s.Price, currency, at+"/price"); err != nil {
			return out, err
		}
		out.Steps = append(out.Steps, step)
	}
	return out, nil
}

// readDecimalPrice says which of its rules a price breaks.
func readDecimalPrice(text string, currency money.Currency, pointer string) (money.Price, error) {
	price, err := money.ParsePrice(text, currency)
	switch {
	case err == nil:
		return price, nil
	case errors.Is(err, money.ErrRange):
		return price, refused(pointer, "range", "A price is below 10^12.").Because(err)
	case errors.Is(err, money.ErrCurrency):
		return price, refused("/currency", "unknown", "The currency is unknown.").Because(err)
	}
	return price, refused(pointer, "format", "The price is not a decimal with at most 12 places, zero or more.").Because(err)
}

// readQuantity reads a positive decimal number of priced units.
func readQuantity(text, pointer string) (*big.Rat, error) {
	// A price has the form that is wanted; its currency plays no part.
	p, err := money.ParsePrice(text, money.MustCurrency("USD"))
	if err != nil || p.IsZero() {
		return nil, refused(pointer, "format",
			fmt.Sprintf("The quantity is not a decimal above zero and below %d with at most 12 places.", int64(maxQuantity))).Because(err)
	}
	one := new(big.Int).Exp(big.NewInt(10), big.NewInt(money.PriceDecimals), nil)
	return new(big.Rat).SetFrac(p.Pico(), one), nil
}

// refused is an input that breaks a rule of one field.
func refused(pointer, code, detail string) *fault.Error {
	return fault.New(fault.Invalid, "request.invalid", detail).
		With(fault.Field{Pointer: pointer, Code: code, Detail: detail})
}

// presentPrice is the price of a key as readPrices would take it, of one offer.
func presentPrice(offer string, meter metering.Meter, price money.Price, tiers billing.Tiers) OfferPrice {
	if tiers.Kind != billing.Flat {
		return OfferPrice{Offer: offer, Meter: meter, Tiers: presentTiers(tiers)}
	}
	return OfferPrice{Offer: offer, Meter: meter, PerHour: price.Decimal()}
}

func presentTiers(t billing.Tiers) *PriceTiers {
	if t.Kind == billing.Flat {
		return nil
	}
	out := &PriceTiers{Kind: t.Kind, PackageSize: quantityText(t.PackageSize)}
	for _, s := range t.Steps {
		out.Steps = append(out.Steps, PriceStep{UpTo: quantityText(s.UpTo), Price: s.Price.Decimal()})
	}
	return out
}

// quantityText is a quantity without trailing zeros, "" for none.
func quantityText(r *big.Rat) string {
	if r == nil {
		return ""
	}
	if r.IsInt() {
		return r.Num().String()
	}
	text := r.FloatString(money.PriceDecimals)
	for text[len(text)-1] == '0' {
		text = text[:len(text)-1]
	}
	return text
}

// pricesByOffer shows the prices of a version by offer and meter. A SKU that no offer
// sells any more is left out.
func pricesByOffer(v billing.Version, offers map[[16]byte][]string) []OfferPrice {
	var out []OfferPrice
	for key, price := range v.Prices {
		for _, offer := range offers[key.SKU] {
			out = append(out, presentPrice(offer, key.Meter, price, v.Tiers[key]))
		}
	}
	slices.SortFunc(out, func(a, b OfferPrice) int { return cmp.Or(cmp.Compare(a.Offer, b.Offer), cmp.Compare(a.Meter, b.Meter)) })
	return out
}
