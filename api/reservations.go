package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreateReservation answers POST /v1/organization/reservations.
func (h *Handlers) CreateReservation(ctx context.Context, req CreateReservationRequestObject) (CreateReservationResponseObject, error) {
	c, err := payer(ctx)
	if err != nil {
		return nil, err
	}
	project, err := named[id.Project](req.Body.Project, "/project")
	if err != nil {
		return nil, err
	}
	in := app.NewReservation{
		Project: project, Name: value(req.Body.Name), Offer: req.Body.Offer, Units: int64(req.Body.Units),
		From: instantOf(req.Body.From), To: instantOf(&req.Body.To),
	}
	var out CreateReservation201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.CreateReservation(ctx, c, c.Org, in)
		if err != nil {
			return nil, err
		}
		location := "/v1/organization/reservations/" + made.ID.String()
		out.Body, out.Headers.Location = reservationOf(made), &location
		return out.VisitCreateReservationResponse, nil
	})
	return either[CreateReservationResponseObject](out, again, err)
}

// ListReservations answers GET /v1/organization/reservations.
func (h *Handlers) ListReservations(ctx context.Context, req ListReservationsRequestObject) (ListReservationsResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	c := caller(ctx)
	l, err := h.app.ListReservations(ctx, c, c.Org, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, reservationOf)
	return ListReservations200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetReservation answers GET /v1/organization/reservations/{reservation}.
func (h *Handlers) GetReservation(ctx context.Context, req GetReservationRequestObject) (GetReservationResponseObject, error) {
	r, err := parse[id.Reservation](req.Reservation)
	if err != nil {
		return nil, err
	}
	c := caller(ctx)
	got, err := h.app.GetReservation(ctx, c, c.Org, r)
	if err != nil {
		return nil, err
	}
	return GetReservation200JSONResponse(reservationOf(got)), nil
}

// ListOrganizationReservations answers GET /v1/admin/organizations/{organization}/reservations.
func (h *Handlers) ListOrganizationReservations(ctx context.Context, req ListOrganizationReservationsRequestObject) (ListOrganizationReservationsResponseObject, error) {
	o, err := parse[id.Org](req.Organization)
	if err != nil {
		return nil, err
	}
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListReservations(ctx, caller(ctx), o, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, reservationOf)
	return ListOrganizationReservations200JSONResponse{Items: items, NextPageToken: next}, err
}

// EndReservation answers POST …/reservations/{reservation}/actions/end.
func (h *Handlers) EndReservation(ctx context.Context, req EndReservationRequestObject) (EndReservationResponseObject, error) {
	o, r, err := parse2[id.Org, id.Reservation](req.Organization, req.Reservation)
	if err != nil {
		return nil, err
	}
	var out EndReservation200JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.EndReservation(ctx, caller(ctx), o, r, instantOf(req.Body.At))
		if err != nil {
			return nil, err
		}
		out.Body = reservationOf(got)
		return out.VisitEndReservationResponse, nil
	})
	return either[EndReservationResponseObject](out, again, err)
}

func reservationOf(r store.Reservation) wire.Reservation {
	out := wire.Reservation{
		Id: r.ID.String(), Project: r.Project.String(), Name: r.Name, Offer: r.Offer, Family: r.Family, Region: r.Region,
		Units: int32(r.Units), From: wire.At(r.During.From), To: wire.At(r.During.To), PricePerHour: orNull[wire.Price](nil),
		Simulated: r.Simulated, CreatedAt: wire.At(r.CreatedAt), CancelledAt: timeOrNull(r.CancelledAt), EndedBy: textOrNull(r.EndedBy),
	}
	if r.Price != nil {
		price := priceOf(*r.Price)
		out.PricePerHour = orNull(&price)
	}
	return out
}
