package app

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// NewSpotPrice asks for the next price of an offer's spot series, per hour; a zero
// From is now.
type NewSpotPrice struct {
	Offer    string
	Currency string
	PerHour  string
	From     time.Time
}

// SpotPrice is a piece of a spot series: it holds until the next one begins.
type SpotPrice struct {
	Offer  string
	Region string
	During metering.Interval
	Price  money.Price
}

// PublishSpotPrice appends a price to an offer's spot series; the newest one ends
// where it begins. Operators only. It fails with offer.unknown, request.invalid, and
// state.conflict if the series has a price at that instant or later.
func (a *App) PublishSpotPrice(ctx context.Context, c Caller, in NewSpotPrice) (out SpotPrice, err error) {
	if err := operatorOnly(c); err != nil {
		return SpotPrice{}, err
	}
	currency, err := money.ParseCurrency(in.Currency)
	if err != nil {
		return SpotPrice{}, refused("/currency", "unknown", fmt.Sprintf("The currency %.16q is unknown.", in.Currency)).Because(err)
	}
	price, err := readDecimalPrice(in.PerHour, currency, "/price_per_hour")
	if err != nil {
		return SpotPrice{}, err
	}
	err = a.Store.InSystem(ctx, "publish a spot price", func(t *store.SystemTx) error {
		sku, region, err := seriesOf(ctx, t, in.Offer)
		if err != nil {
			return err
		}
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		from := metering.Instant(in.From)
		switch {
		case from.IsZero():
			from = now
		case from.Before(now):
			return refused("/from", "range", "The price would begin in the past.").Suggest("Leave from out to begin now.")
		case from.Sub(now) > maxTerm:
			return refused("/from", "range", "The price would begin more than ten years ahead.")
		}
		if err := t.PublishSpotPrice(ctx, region, sku, from, price, c.actor()); err != nil {
			return err
		}
		out = SpotPrice{Offer: in.Offer, Region: region, During: metering.Interval{From: from}, Price: price}
		return t.Audit(ctx, c.audit(id.Org{}, "spot_price.publish", in.Offer))
	})
	return out, err
}

func seriesOf(ctx context.Context, t interface {
	SeriesOfOffer(context.Context, string) ([16]byte, string, error)
}, offer string) (sku [16]byte, region string, err error) {
	sku, region, err = t.SeriesOfOffer(ctx, offer)
	if fault.KindOf(err) == fault.NotFound {
		err = unknownOffer("/offer", offer)
	}
	return sku, region, err
}

// SpotQuery asks for the spot series of an offer. A zero window is from now on; ""
// for Currency is that of the caller's organization.
type SpotQuery struct {
	Offer    string
	Currency string
	From, To time.Time
}

// SpotPrices returns the pieces of an offer's spot series that touch a window, in
// order; none where the offer has no spot price. It fails with offer.unknown and
// request.invalid.
func (a *App) SpotPrices(ctx context.Context, c Caller, q SpotQuery) (out []SpotPrice, err error) {
	err = a.agreed(ctx, c, c.Org, "read spot prices", func(t agreements) error {
		sku, region, err := seriesOf(ctx, t, q.Offer)
		if err != nil {
			return err
		}
		currency, err := spotCurrency(ctx, t, c, q.Currency)
		if err != nil {
			return err
		}
		window, err := spotWindow(ctx, t, q)
		if err != nil {
			return err
		}
		pieces, err := t.SpotPrices(ctx, region, sku, currency, window)
		out = presentSpot(q.Offer, pieces)
		return err
	})
	return out, err
}

func presentSpot(offer string, pieces []billing.SpotPrice) []SpotPrice {
	out := make([]SpotPrice, 0, len(pieces))
	for _, p := range pieces {
		out = append(out, SpotPrice{Offer: offer, Region: p.Region, During: p.During, Price: p.Price})
	}
	return out
}

func spotCurrency(ctx context.Context, t agreements, c Caller, code string) (money.Currency, error) {
	if code == "" && c.Kind != auth.Operator {
		organization, err := t.Organization(ctx, c.Org)
		return organization.Currency, err
	}
	currency, err := money.ParseCurrency(code)
	if err != nil {
		return currency, refused("currency", "unknown", fmt.Sprintf("The currency %.16q is unknown.", code)).Because(err)
	}
	return currency, nil
}

func spotWindow(ctx context.Context, t agreements, q SpotQuery) (metering.Interval, error) {
	now, err := t.BusinessNow(ctx)
	if err != nil {
		return metering.Interval{}, err
	}
	if q.From.IsZero() {
		q.From = now
	}
	if q.To.IsZero() {
		q.To = q.From.Add(maxTerm)
	}
	window := metering.Between(q.From, q.To)
	if window.Empty() {
		return window, refused("to", "range", "The window must end after it begins.")
	}
	return window, nil
}
