package api

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// ListHosts answers GET /v1/admin/hosts.
func (h *Handlers) ListHosts(ctx context.Context, req ListHostsRequestObject) (ListHostsResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	l, err := h.app.ListHosts(ctx, caller(ctx), app.HostFilter{State: host.State(value(req.Params.State))}, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, hostOf)
	return ListHosts200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetHost answers GET /v1/admin/hosts/{host}.
func (h *Handlers) GetHost(ctx context.Context, req GetHostRequestObject) (GetHostResponseObject, error) {
	name, err := parse[id.Host](req.Host)
	if err != nil {
		return nil, err
	}
	got, err := h.app.GetHost(ctx, caller(ctx), name)
	if err != nil {
		return nil, err
	}
	return GetHost200JSONResponse{
		Body: hostOf(got), Headers: GetHost200ResponseHeaders{ETag: etag(got.Generation)},
	}, nil
}

// ApproveHost answers POST /v1/admin/hosts/{host}/actions/approve.
func (h *Handlers) ApproveHost(ctx context.Context, req ApproveHostRequestObject) (ApproveHostResponseObject, error) {
	var out ApproveHost200JSONResponse
	again, err := h.actOnHost(ctx, req.Host, req.Params.IfMatch, h.app.ApproveHost, func(got app.Host) visit {
		out = ApproveHost200JSONResponse{
			Body: hostOf(got), Headers: ApproveHost200ResponseHeaders{ETag: etag(got.Generation)},
		}
		return out.VisitApproveHostResponse
	})
	return either[ApproveHostResponseObject](out, again, err)
}

// CordonHost answers POST /v1/admin/hosts/{host}/actions/cordon.
func (h *Handlers) CordonHost(ctx context.Context, req CordonHostRequestObject) (CordonHostResponseObject, error) {
	var out CordonHost200JSONResponse
	again, err := h.actOnHost(ctx, req.Host, req.Params.IfMatch, h.app.CordonHost, func(got app.Host) visit {
		out = CordonHost200JSONResponse{
			Body: hostOf(got), Headers: CordonHost200ResponseHeaders{ETag: etag(got.Generation)},
		}
		return out.VisitCordonHostResponse
	})
	return either[CordonHostResponseObject](out, again, err)
}

// UncordonHost answers POST /v1/admin/hosts/{host}/actions/uncordon.
func (h *Handlers) UncordonHost(ctx context.Context, req UncordonHostRequestObject) (UncordonHostResponseObject, error) {
	var out UncordonHost200JSONResponse
	again, err := h.actOnHost(ctx, req.Host, req.Params.IfMatch, h.app.UncordonHost, func(got app.Host) visit {
		out = UncordonHost200JSONResponse{
			Body: hostOf(got), Headers: UncordonHost200ResponseHeaders{ETag: etag(got.Generation)},
		}
		return out.VisitUncordonHostResponse
	})
	return either[UncordonHostResponseObject](out, again, err)
}

// actOnHost does what the three actions have in common.
func (h *Handlers) actOnHost(
	ctx context.Context, name wire.HostPath, seen *wire.IfMatch,
	act func(context.Context, app.Caller, id.Host, app.Match) (app.Host, error), answer func(app.Host) visit,
) (*repeated, error) {
	which, err := parse[id.Host](name)
	if err != nil {
		return nil, err
	}
	match, err := ifMatch(seen)
	if err != nil {
		return nil, err
	}
	return h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := act(ctx, caller(ctx), which, match)
		if err != nil {
			return nil, err
		}
		return answer(got), nil
	})
}

func hostOf(h app.Host) wire.Host {
	return wire.Host{
		Id: h.ID.String(), Name: h.Name, State: wire.HostState(h.State), Liveness: wire.HostLiveness(h.Liveness),
		Reason: textOrNull(h.Reason), Pool: h.Pool, Region: h.Region, Cell: h.Cell,
		Organization: textOrNull(h.Organization.String()), GpuCount: int32(h.GPUCount), Vcpu: int32(h.VCPU),
		RamMib: int32(h.RAM), AgentVersion: textOrNull(h.AgentVersion), DriverVersion: textOrNull(h.DriverVersion),
		Runtime: textOrNull(h.Runtime), Reach: orNull(reachOf(h.Reach)), BelowFloor: texts(h.BelowFloor),
		Condition: conditionOf(h.Condition), ConditionCause: textOrNull(h.ConditionCause), Simulated: h.Simulated,
		Generation: h.Generation, LastSeenAt: timeOrNull(h.LastSeenAt), CreatedAt: wire.At(h.CreatedAt),
	}
}

// conditionOf gives the condition that needs no word a name.
func conditionOf(condition string) wire.HostCondition {
	if condition == "" {
		return wire.HostConditionGood
	}
	return wire.HostCondition(condition)
}

// reachOf is nil for a host that tenants cannot reach.
func reachOf(r store.Reach) *wire.HostReach {
	if r.Address == "" {
		return nil
	}
	return &wire.HostReach{
		Address: r.Address, SshPort: numberOrNull(r.SSHPort), FirstPort: numberOrNull(r.FirstPort), LastPort: numberOrNull(r.LastPort),
	}
}
