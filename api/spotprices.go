package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// ListSpotPrices answers GET /v1/spot-prices.
func (h *Handlers) ListSpotPrices(ctx context.Context, req ListSpotPricesRequestObject) (ListSpotPricesResponseObject, error) {
	q := app.SpotQuery{
		Offer: req.Params.Offer, Currency: value(req.Params.Currency), From: instant(req.Params.From), To: instant(req.Params.To),
	}
	got, err := h.app.SpotPrices(ctx, caller(ctx), q)
	if err != nil {
		return nil, err
	}
	return ListSpotPrices200JSONResponse{Items: each(got, spotPriceOf)}, nil
}

// PublishSpotPrice answers POST /v1/admin/spot-prices.
func (h *Handlers) PublishSpotPrice(ctx context.Context, req PublishSpotPriceRequestObject) (PublishSpotPriceResponseObject, error) {
	in := app.NewSpotPrice{
		Offer: req.Body.Offer, Currency: req.Body.Currency, PerHour: req.Body.PricePerHour, From: instantOf(req.Body.From),
	}
	var out PublishSpotPrice201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.PublishSpotPrice(ctx, caller(ctx), in)
		if err != nil {
			return nil, err
		}
		out.Body = spotPriceOf(made)
		return out.VisitPublishSpotPriceResponse, nil
	})
	return either[PublishSpotPriceResponseObject](out, again, err)
}

func spotPriceOf(p app.SpotPrice) wire.SpotPrice {
	return wire.SpotPrice{
		Offer: p.Offer, Region: p.Region, From: wire.At(p.During.From), To: endOf(p.During), PricePerHour: priceOf(p.Price),
	}
}
