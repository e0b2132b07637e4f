package api

import (
	"context"
	"time"

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
	q := usageQuery(req.Params.From, req.Params.To, req.Params.Bucket, req.Params.GroupBy)
	l, err := h.app.Usage(ctx, caller(ctx), callFrom(ctx).resource.Project, q, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, usageItemOf)
	return GetUsage200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetOrganizationUsage answers GET /v1/organization/usage.
func (h *Handlers) GetOrganizationUsage(ctx context.Context, req GetOrganizationUsageRequestObject) (GetOrganizationUsageResponseObject, error) {
	c, err := payer(ctx)
	if err != nil {
		return nil, err
	}
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	q := usageQuery(req.Params.From, req.Params.To, req.Params.Bucket, req.Params.GroupBy)
	l, err := h.app.OrganizationUsage(ctx, c, q, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, usageItemOf)
	return GetOrganizationUsage200JSONResponse{Items: items, NextPageToken: next}, err
}

func usageQuery(from, to *time.Time, bucket *wire.Bucket, by *[]wire.UsageGroup) app.UsageQuery {
	return app.UsageQuery{From: value(from), To: value(to), Bucket: metering.Bucket(value(bucket)), GroupBy: texts(value(by))}
}

func usageItemOf(u app.UsageItem) wire.UsageItem {
	return wire.UsageItem{
		From: wire.At(u.From), To: wire.At(u.To), Group: u.Group,
		Quantity: wire.Quantity{Value: u.Quantity.String(), Unit: u.Unit}, Exact: exactOf(u.Exact),
	}
}
