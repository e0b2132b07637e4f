package api

import (
	"context"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// GetGpu answers GET /v1/admin/gpus/{gpu}.
func (h *Handlers) GetGpu(ctx context.Context, req GetGpuRequestObject) (GetGpuResponseObject, error) {
	which, err := parse[id.GPU](req.Gpu)
	if err != nil {
		return nil, err
	}
	got, err := h.app.GetGPU(ctx, caller(ctx), which)
	if err != nil {
		return nil, err
	}
	return GetGpu200JSONResponse{Body: gpuOf(got), Headers: GetGpu200ResponseHeaders{ETag: etag(got.Generation)}}, nil
}

// SetGpuMode answers POST /v1/admin/gpus/{gpu}/actions/set-mode.
func (h *Handlers) SetGpuMode(ctx context.Context, req SetGpuModeRequestObject) (SetGpuModeResponseObject, error) {
	which, err := parse[id.GPU](req.Gpu)
	if err != nil {
		return nil, err
	}
	match, err := ifMatch(req.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	in, err := newModeChange(req.Body)
	if err != nil {
		return nil, err
	}
	if value(req.Body.DryRun) {
		effect, err := h.app.ModeEffect(ctx, caller(ctx), which, match, in)
		if err != nil {
			return nil, err
		}
		return SetGpuMode200JSONResponse{Body: modeEffectOf(effect)}, nil
	}
	var out SetGpuMode202JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.SetMode(ctx, caller(ctx), which, match, in)
		if err != nil {
			return nil, err
		}
		path := "/v1/admin/operations/" + made.ID.String()
		out = SetGpuMode202JSONResponse{
			Body: adminOperationOf(made), Headers: SetGpuMode202ResponseHeaders{Location: &path},
		}
		return out.VisitSetGpuModeResponse, nil
	})
	return either[SetGpuModeResponseObject](out, again, err)
}

func newModeChange(body *wire.GpuModeChange) (app.NewModeChange, error) {
	mode, err := gpu.ParseMode(body.Mode)
	if err != nil {
		return app.NewModeChange{}, invalid(codeInvalid, "There is no such mode.",
			fault.Field{Pointer: "/mode", Code: "format", Detail: "The shares must fit: at most 48 of mps, 32 of timeslice, together at most 100 percent."})
	}
	in := app.NewModeChange{Mode: mode}
	if body.DrainBy != nil {
		at := instant(&body.DrainBy.Time)
		in.DrainBy = &at
	}
	if value(body.WhenEmpty) == (in.DrainBy != nil) {
		return in, invalid(codeInvalid, "Say when: either when_empty or drain_by.",
			fault.Field{Pointer: "/when_empty", Code: "required", Detail: "Exactly one of when_empty (true) and drain_by must be given."})
	}
	return in, nil
}

// CancelGpuMode answers POST /v1/admin/gpus/{gpu}/actions/cancel-set-mode.
func (h *Handlers) CancelGpuMode(ctx context.Context, req CancelGpuModeRequestObject) (CancelGpuModeResponseObject, error) {
	which, err := parse[id.GPU](req.Gpu)
	if err != nil {
		return nil, err
	}
	match, err := ifMatch(req.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	var out CancelGpuMode200JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := h.app.CancelMode(ctx, caller(ctx), which, match)
		if err != nil {
			return nil, err
		}
		out = CancelGpuMode200JSONResponse{Body: adminOperationOf(got)}
		return out.VisitCancelGpuModeResponse, nil
	})
	return either[CancelGpuModeResponseObject](out, again, err)
}

// GetAdminOperation answers GET /v1/admin/operations/{operation}.
func (h *Handlers) GetAdminOperation(ctx context.Context, req GetAdminOperationRequestObject) (GetAdminOperationResponseObject, error) {
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
	got, err := h.app.GetModeChange(ctx, caller(ctx), which, wait)
	if err != nil {
		return nil, err
	}
	return GetAdminOperation200JSONResponse(adminOperationOf(got)), nil
}

func adminOperationOf(m app.ModeChange) wire.AdminOperation {
	var problem *wire.OperationProblem
	if m.Problem != nil {
		problem = &wire.OperationProblem{
			Code: m.Problem.Code, Detail: m.Problem.Detail, Suggestion: textOrNull(m.Problem.Suggestion),
		}
	}
	return wire.AdminOperation{
		Id: m.ID.String(), Kind: "gpu.set_mode", Resource: m.GPU.String(), Status: wire.OperationStatus(m.Status),
		Step: textOrNull(m.Step), Detail: textOrNull(m.Detail), Percent: int32(m.Percent), Problem: orNull(problem),
		ModeChange: nullable.NewNullableWithValue(wire.ModeChange{
			From: m.From.String(), To: m.To.String(), DrainBy: timeOrNull(m.DrainBy),
		}),
		CreatedAt: wire.At(m.CreatedAt), FinishedAt: timeOrNull(m.FinishedAt),
	}
}

func modeEffectOf(e app.ModeEffect) wire.GpuModeEffect {
	out := wire.GpuModeEffect{
		Gpu: e.GPU.String(), From: e.From.String(), To: e.To.String(), Instances: make([]wire.GpuInstance, len(e.Instances)),
		OffersLost: gpuOffersOf(e.Lost), OffersGained: gpuOffersOf(e.Gained), Revenue: make([]wire.GpuRevenue, len(e.Revenue)),
	}
	for n, i := range e.Instances {
		out.Instances[n] = wire.GpuInstance{
			Id: i.ID.String(), Organization: i.Org.String(), Status: wire.InstanceStatus(i.Status), PricePerHour: priceOf(i.Price),
		}
	}
	for n, r := range e.Revenue {
		out.Revenue[n] = wire.GpuRevenue{
			Currency: r.Currency, InstancesPerHour: r.Instances.Decimal(), BeforePerHour: r.Before.Decimal(), AfterPerHour: r.After.Decimal(),
		}
	}
	return out
}

func gpuOffersOf(in []app.GPUOffer) []wire.GpuOffer {
	out := make([]wire.GpuOffer, len(in))
	for n, o := range in {
		var price *wire.Price
		if o.Price != nil {
			p := priceOf(*o.Price)
			price = &p
		}
		out[n] = wire.GpuOffer{Offer: o.Offer, Slots: int32(o.Slots), PricePerHour: orNull(price)}
	}
	return out
}
