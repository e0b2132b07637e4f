package api

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreatePriceBook answers POST /v1/admin/price-books.
func (h *Handlers) CreatePriceBook(ctx context.Context, req CreatePriceBookRequestObject) (CreatePriceBookResponseObject, error) {
	currency, err := currencyOf(req.Body.Currency)
	if err != nil {
		return nil, err
	}
	in := app.NewPriceBook{
		Name: req.Body.Name, Currency: currency, Default: req.Body.Default,
		NewPrices: newPrices(req.Body.Prices, value(req.Body.EffectiveFrom).Time),
	}
	var out CreatePriceBook201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.CreatePriceBook(ctx, caller(ctx), in)
		if err != nil {
			return nil, err
		}
		out = CreatePriceBook201JSONResponse{
			Body: priceBookOf(made), Headers: CreatePriceBook201ResponseHeaders{Location: priceBookPath(made)},
		}
		return out.VisitCreatePriceBookResponse, nil
	})
	return either[CreatePriceBookResponseObject](out, again, err)
}

// CreatePriceVersion answers POST /v1/admin/price-books/{price_book}/versions.
func (h *Handlers) CreatePriceVersion(ctx context.Context, req CreatePriceVersionRequestObject) (CreatePriceVersionResponseObject, error) {
	book, err := parse[id.PriceBook](req.PriceBook)
	if err != nil {
		return nil, err
	}
	in := newPrices(req.Body.Prices, req.Body.EffectiveFrom.Time)
	var out CreatePriceVersion201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.CreatePriceVersion(ctx, caller(ctx), book, in)
		if err != nil {
			return nil, err
		}
		out = CreatePriceVersion201JSONResponse{
			Body: priceBookOf(made), Headers: CreatePriceVersion201ResponseHeaders{Location: priceBookPath(made)},
		}
		return out.VisitCreatePriceVersionResponse, nil
	})
	return either[CreatePriceVersionResponseObject](out, again, err)
}

// ListPriceBooks answers GET /v1/admin/price-books.
func (h *Handlers) ListPriceBooks(ctx context.Context, req ListPriceBooksRequestObject) (ListPriceBooksResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListPriceBooks(ctx, caller(ctx), p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, priceBookOf)
	return ListPriceBooks200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetPriceBook answers GET /v1/admin/price-books/{price_book}.
func (h *Handlers) GetPriceBook(ctx context.Context, req GetPriceBookRequestObject) (GetPriceBookResponseObject, error) {
	book, err := parse[id.PriceBook](req.PriceBook)
	if err != nil {
		return nil, err
	}
	got, err := h.app.GetPriceBook(ctx, caller(ctx), book)
	if err != nil {
		return nil, err
	}
	return GetPriceBook200JSONResponse(priceBookOf(got)), nil
}

func newPrices(prices []wire.OfferPrice, from time.Time) app.NewPrices {
	out := app.NewPrices{EffectiveFrom: from.UTC().Truncate(time.Microsecond), Prices: newOfferPrices(prices)}
	if from.IsZero() {
		out.EffectiveFrom = time.Time{}
	}
	return out
}

func newOfferPrices(prices []wire.OfferPrice) []app.OfferPrice {
	return each(prices, func(p wire.OfferPrice) app.OfferPrice {
		out := app.OfferPrice{Offer: p.Offer, Meter: metering.Meter(value(p.Meter)), PerHour: p.PricePerHour}
		if p.Tiers != nil {
			out.Tiers = &app.PriceTiers{
				Kind: billing.Tiering(p.Tiers.Kind), PackageSize: value(p.Tiers.PackageSize),
				Steps: each(p.Tiers.Steps, func(s wire.PriceStep) app.PriceStep {
					return app.PriceStep{UpTo: value(s.UpTo), Price: s.Price}
				}),
			}
		}
		return out
	})
}

func offerPricesOf(prices []app.OfferPrice) []wire.OfferPrice {
	return each(prices, func(p app.OfferPrice) wire.OfferPrice {
		meter := wire.Meter(p.Meter)
		out := wire.OfferPrice{Offer: p.Offer, Meter: &meter, PricePerHour: p.PerHour}
		if p.Tiers == nil {
			return out
		}
		out.Tiers = &wire.PriceTiers{
			Kind: wire.Tiering(p.Tiers.Kind), PackageSize: orAbsent(p.Tiers.PackageSize),
			Steps: each(p.Tiers.Steps, func(s app.PriceStep) wire.PriceStep {
				return wire.PriceStep{UpTo: orAbsent(s.UpTo), Price: s.Price}
			}),
		}
		if out.PricePerHour == "" && len(p.Tiers.Steps) > 0 {
			out.PricePerHour = p.Tiers.Steps[0].Price
		}
		return out
	})
}

func priceBookPath(b app.PriceBook) *string {
	path := "/v1/admin/price-books/" + b.ID.String()
	return &path
}

func priceBookOf(b app.PriceBook) wire.PriceBook {
	out := wire.PriceBook{
		Id: b.ID.String(), Name: b.Name, Currency: b.Currency.Code(), Default: b.Default, CreatedAt: wire.At(b.CreatedAt),
		Versions: make([]wire.PriceVersion, len(b.Versions)),
	}
	for i, v := range b.Versions {
		out.Versions[i] = wire.PriceVersion{
			Id: v.ID.String(), Version: int32(v.Number), EffectiveFrom: wire.At(v.EffectiveFrom),
			Prices:    offerPricesOf(v.Prices),
			CreatedAt: wire.At(v.CreatedAt),
		}
	}
	return out
}

// AssignPriceBook answers POST /v1/admin/organizations/{organization}/price-books.
func (h *Handlers) AssignPriceBook(ctx context.Context, req AssignPriceBookRequestObject) (AssignPriceBookResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	book, err := named[id.PriceBook](req.Body.PriceBook, "/price_book")
	if err != nil {
		return nil, err
	}
	var out AssignPriceBook201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.AssignPriceBook(ctx, caller(ctx), o, app.BookChange{Book: book, From: instantOf(req.Body.From)})
		if err != nil {
			return nil, err
		}
		out.Body = wire.PriceBookAssignments{Items: each(got, bookAssignmentOf)}
		return out.VisitAssignPriceBookResponse, nil
	})
	return either[AssignPriceBookResponseObject](out, again, err)
}

// ListPriceBookAssignments answers GET /v1/admin/organizations/{organization}/price-books.
func (h *Handlers) ListPriceBookAssignments(ctx context.Context, req ListPriceBookAssignmentsRequestObject) (ListPriceBookAssignmentsResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	got, err := h.app.ListBookAssignments(ctx, caller(ctx), o)
	if err != nil {
		return nil, err
	}
	return ListPriceBookAssignments200JSONResponse{Items: each(got, bookAssignmentOf)}, nil
}

func bookAssignmentOf(a store.BookAssignment) wire.PriceBookAssignment {
	return wire.PriceBookAssignment{PriceBook: a.Book.String(), Name: a.Name, From: wire.At(a.During.From), To: endOf(a.During)}
}
