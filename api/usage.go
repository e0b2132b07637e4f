package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// GetUsage answers GET /v1/projects/{project}/usage.
func (h *Handlers) GetUsage(ctx context.Context, req GetUsageRequestObject) (GetUsageResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	q := app.UsageQuery{
		From: value(req.Params.From), To: value(req.Params.To),
		Bucket: metering.Bucket(value(req.Params.Bucket)), GroupBy: texts(value(req.Params.GroupBy)),
	}
	l, err := h.app.Usage(ctx, caller(ctx), callFrom(ctx).resource.Project, q, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, usageItemOf)
	return GetUsage200JSONResponse{Items: items, NextPageToken: next}, err
}

func usageItemOf(u app.UsageItem) wire.UsageItem {
	return wire.UsageItem{
		From: wire.At(u.From), To: wire.At(u.To), Group: u.Group,
		Quantity: wire.Quantity{Value: u.Quantity.String(), Unit: u.Unit}, Exact: exactOf(u.Exact),
	}
}
