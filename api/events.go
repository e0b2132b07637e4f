package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// ListAdminEvents answers GET /v1/admin/events.
func (h *Handlers) ListAdminEvents(ctx context.Context, req ListAdminEventsRequestObject) (ListAdminEventsResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	f := app.EventFilter{Type: value(req.Params.Type), Subject: value(req.Params.Subject)}
	l, err := h.app.ListEvents(ctx, caller(ctx), f, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, eventOf)
	return ListAdminEvents200JSONResponse{Items: items, NextPageToken: next}, err
}

func eventOf(e app.Event) wire.Event {
	out := wire.Event{
		Id: e.ID.String(), Type: e.Type, Subject: e.Subject, Organization: textOrNull(e.Org.String()),
		Project: textOrNull(e.Project.String()), Data: e.Data, At: wire.At(e.At),
	}
	if out.Data == nil {
		out.Data = map[string]any{}
	}
	return out
}
