package api

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// GetOperation answers GET /v1/operations/{operation}.
func (h *Handlers) GetOperation(ctx context.Context, req GetOperationRequestObject) (GetOperationResponseObject, error) {
	which, err := parse[id.Operation](req.Operation)
	if err != nil {
		return nil, err
	}
	var wait time.Duration
	if req.Params.Wait != nil {
		if wait, err = waitOf("wait", *req.Params.Wait); err != nil {
			return nil, err
		}
	}
	got, err := h.app.GetOperation(ctx, caller(ctx), which, wait)
	if err != nil {
		return nil, err
	}
	return GetOperation200JSONResponse(operationOf(got)), nil
}

// ListOperations answers GET /v1/projects/{project}/operations.
func (h *Handlers) ListOperations(ctx context.Context, req ListOperationsRequestObject) (ListOperationsResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	f := app.OperationFilter{Status: string(value(req.Params.Status))}
	if req.Params.Resource != nil {
		if f.Resource, err = id.Parse[id.Instance](*req.Params.Resource); err != nil {
			return nil, invalid(codeInvalid, "The resource is no instance id.",
				fault.Field{Pointer: "resource", Code: "format", Detail: "The value must be an instance id."})
		}
	}
	l, err := h.app.ListOperations(ctx, caller(ctx), callFrom(ctx).resource.Project, f, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, operationOf)
	return ListOperations200JSONResponse{Items: items, NextPageToken: next}, err
}

func operationOf(o app.Operation) wire.Operation {
	var problem *wire.OperationProblem
	if o.Problem != nil {
		problem = &wire.OperationProblem{
			Code: o.Problem.Code, Detail: o.Problem.Detail, Suggestion: textOrNull(o.Problem.Suggestion),
		}
	}
	return wire.Operation{
		Id: o.ID.String(), Project: o.Project.String(), Kind: o.Kind, Resource: o.Subject.String(),
		Status: wire.OperationStatus(o.Status), Generation: o.Generation, Step: textOrNull(o.Step), Percent: int32(o.Percent),
		Problem: orNull(problem), SupersededBy: textOrNull(o.SupersededBy.String()), CreatedAt: wire.At(o.CreatedAt),
		DeadlineAt: timeOrNull(o.DeadlineAt), FinishedAt: timeOrNull(o.FinishedAt),
	}
}
