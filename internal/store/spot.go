package store

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// SeriesOfOffer returns what an offer sells and in which region: the spot series of
// the offer, one in each currency. It fails with resource.not_found.
func (t *tx) SeriesOfOffer(ctx context.Context, offer string) (sku [16]byte, region string, err error) {
	r, err := t.q.SeriesOfOffer(ctx, t.raw, offer)
	return r.SkuID, r.RegionID, mapError(err)
}

// PublishSpotPrice appends a price to a series; it holds from an instant on until
// the next one. It fails with state.conflict if the series has one at that
// instant or later, or the instant is past.
func (t *SystemTx) PublishSpotPrice(ctx context.Context, region string, sku [16]byte, from time.Time, price money.Price, by string) error {
	err := t.q.SerializeSpotSeries(ctx, t.raw, db.SerializeSpotSeriesParams{Region: region, SkuID: sku, Currency: price.Currency().Code()})
	if err != nil {
		return mapError(err)
	}
	return mapError(t.q.InsertSpotPrice(ctx, t.raw, db.InsertSpotPriceParams{
		Region: region, SkuID: sku, Currency: price.Currency().Code(), EffectiveFrom: from, Amount: price.Decimal(), CreatedBy: by,
	}))
}

// SpotPrices reads the pieces of one series that touch a closed window, in order.
func (t *tx) SpotPrices(ctx context.Context, region string, sku [16]byte, c money.Currency, window metering.Interval) ([]billing.SpotPrice, error) {
	rows, err := t.q.SpotPrices(ctx, t.raw, db.SpotPricesParams{
		Region: region, SkuID: sku, Currency: c.Code(), FromAt: window.From, ToAt: window.To,
	})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.SpotPricesRow) (billing.SpotPrice, error) {
		price, err := money.ParsePrice(r.Amount, c)
		return billing.SpotPrice{Region: region, SKU: sku, During: intervalOf(r.FromAt, r.ToAt, r.IsLast), Price: price}, err
	})
}
