package api

import (
	"context"
	"regexp"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/offer"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// slug is what an offer may be called; a path outside it names nothing.
var slug = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ListOffers answers GET /v1/offers.
func (h *Handlers) ListOffers(ctx context.Context, req ListOffersRequestObject) (ListOffersResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	f := app.OfferFilter{Model: value(req.Params.GpuModel), Mode: gpu.Kind(value(req.Params.Mode)), Region: value(req.Params.Region)}
	l, err := h.app.ListOffers(ctx, caller(ctx), f, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, offerOf)
	return ListOffers200JSONResponse{Items: items, NextPageToken: next}, err
}

// ListAdminOffers answers GET /v1/admin/offers.
func (h *Handlers) ListAdminOffers(ctx context.Context, req ListAdminOffersRequestObject) (ListAdminOffersResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListAdminOffers(ctx, caller(ctx), p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, adminOfferOf)
	return ListAdminOffers200JSONResponse{Items: items, NextPageToken: next}, err
}

// PutOffer answers PUT /v1/admin/offers/{offer}.
func (h *Handlers) PutOffer(ctx context.Context, req PutOfferRequestObject) (PutOfferResponseObject, error) {
	if !slug.MatchString(req.Offer) {
		return nil, auth.NotFound()
	}
	b := req.Body
	got, err := h.app.PutOffer(ctx, caller(ctx), app.OfferSpec{
		ID: req.Offer, Kind: gpu.Kind(b.Mode), Region: value(b.Region), Pool: value(b.Pool),
		Enabled: b.Enabled == nil || *b.Enabled,
		Shape: offer.Shape{
			Model: b.GpuModel, Profile: value(b.Profile), Count: int(value(b.GpuCount)), Memory: units.MiB(b.MemoryMib),
			SMs: int(value(b.SmCount)), SMPercent: int(value(b.SmPercent)), VCPU: int(b.Vcpu), RAM: units.MiB(b.RamMib),
		},
	})
	if err != nil {
		return nil, err
	}
	return PutOffer200JSONResponse(adminOfferOf(got)), nil
}

func isolationOf(i offer.Isolation) wire.Isolation {
	return wire.Isolation{Gpu: wire.GpuIsolation(i.GPU), Host: wire.HostIsolation(i.Host)}
}

func offerOf(o app.Offer) wire.Offer {
	s := o.SKU.Shape
	out := wire.Offer{
		Id: o.ID, GpuModel: s.Model, Mode: wire.GpuMode(s.Mode.Kind), Profile: textOrNull(s.Profile), GpuCount: int32(s.Count),
		MemoryMib: int32(s.Memory), SmCount: numberOrNull(s.SMs), SmPercent: numberOrNull(s.SMPercent),
		Isolation: isolationOf(o.SKU.Isolation), Vcpu: int32(s.VCPU), RamMib: int32(s.RAM), Region: o.Region,
		Available: int32(o.Available), Simulated: o.Simulated,
	}
	if o.Price != nil {
		out.PricePerHour = priceOf(*o.Price)
	}
	return out
}

func adminOfferOf(o app.Offer) wire.AdminOffer {
	shown := offerOf(o)
	out := wire.AdminOffer{
		Id: shown.Id, GpuModel: shown.GpuModel, Mode: shown.Mode, Profile: shown.Profile, GpuCount: shown.GpuCount,
		MemoryMib: shown.MemoryMib, SmCount: shown.SmCount, SmPercent: shown.SmPercent, Isolation: shown.Isolation,
		Vcpu: shown.Vcpu, RamMib: shown.RamMib, Region: shown.Region, Available: shown.Available, Simulated: shown.Simulated,
		Pool: o.Pool, Enabled: o.Enabled, UpdatedAt: wire.At(o.UpdatedAt), PricePerHour: orNull[wire.Price](nil),
	}
	if o.Price != nil {
		out.PricePerHour = orNull(&shown.PricePerHour)
	}
	return out
}
