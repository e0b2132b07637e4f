package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// ListGpus answers GET /v1/admin/gpus.
func (h *Handlers) ListGpus(ctx context.Context, req ListGpusRequestObject) (ListGpusResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	var f app.GPUFilter
	if req.Params.Host != nil {
		if f.Host, err = id.Parse[id.Host](*req.Params.Host); err != nil {
			return nil, invalid(codeInvalid, "The host is no host id.",
				fault.Field{Pointer: "host", Code: "format", Detail: "The value must be a host id."})
		}
	}
	l, err := h.app.ListGPUs(ctx, caller(ctx), f, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, gpuOf)
	return ListGpus200JSONResponse{Items: items, NextPageToken: next}, err
}

func gpuOf(g app.GPU) wire.Gpu {
	return wire.Gpu{
		Id: g.ID.String(), Host: g.Host.String(), Index: int32(g.Index), Uuid: g.UUID, Model: g.Model,
		Mode: g.Mode.String(), ModeDesired: g.ModeDesired.String(), ModeState: wire.GpuModeState(g.ModeState),
		ModeProblem: textOrNull(g.ModeProblem), ModeChange: textOrNull(g.ModeChange.String()),
		Health: wire.GpuHealth(g.Health), HealthCause: textOrNull(g.HealthCause), HealthDetail: textOrNull(g.HealthDetail),
		MemoryMib: int32(g.Memory), Organization: textOrNull(g.Organization.String()),
		UnitsTotal: int32(g.UnitsTotal), UnitsClaimed: int32(g.UnitsClaimed), Present: g.Present,
		Generation: g.Generation, Simulated: g.Simulated,
	}
}
