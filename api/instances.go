package api

import (
	"context"
	"strings"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// CreateInstance answers POST /v1/projects/{project}/instances.
func (h *Handlers) CreateInstance(ctx context.Context, req CreateInstanceRequestObject) (CreateInstanceResponseObject, error) {
	in, err := newInstance(callFrom(ctx).resource.Project, req.Body)
	if err != nil {
		return nil, err
	}
	var out CreateInstance202JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.CreateInstance(ctx, caller(ctx), in)
		if err != nil {
			return nil, err
		}
		out = CreateInstance202JSONResponse{
			Body:    instanceOf(made),
			Headers: CreateInstance202ResponseHeaders{ETag: etag(made.Generation), Location: operationPath(made.Operation.ID)},
		}
		return out.VisitCreateInstanceResponse, nil
	})
	return either[CreateInstanceResponseObject](out, again, err)
}

func newInstance(project id.Project, body *wire.InstanceCreate) (app.NewInstance, error) {
	in := app.NewInstance{
		Project: project, Name: value(body.Name), Offer: body.Offer, Image: body.Image, Command: value(body.Command),
		Labels: value(body.Labels), ClientToken: value(body.ClientToken), Recovery: string(value(body.Recovery)),
		SSHKeys: value(body.SshKeys), Shm: units.MiB(value(body.ShmMib)),
	}
	if body.RegistryLogin != nil {
		var err error
		if in.Login, err = id.Parse[id.RegistryLogin](*body.RegistryLogin); err != nil {
			return in, invalid(codeInvalid, "The registry login is no id of one.",
				fault.Field{Pointer: "/registry_login", Code: "format", Detail: "The value must be a registry login id."})
		}
	}
	for _, v := range value(body.Env) {
		if value(v.Secret) {
			in.Env = append(in.Env, app.EnvVar{Name: v.Name, Secret: auth.NewSecret(v.Value)})
		} else {
			in.Env = append(in.Env, app.EnvVar{Name: v.Name, Value: v.Value})
		}
	}
	for _, p := range value(body.Ports) {
		in.Ports = append(in.Ports, app.Port{Container: int(p.ContainerPort), Protocol: string(value(p.Protocol))})
	}
	return in, nil
}

// ListInstances answers GET /v1/projects/{project}/instances.
func (h *Handlers) ListInstances(ctx context.Context, req ListInstancesRequestObject) (ListInstancesResponseObject, error) {
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	f := app.InstanceFilter{
		Status: instance.Status(value(req.Params.Status)), Name: value(req.Params.Name), ClientToken: value(req.Params.ClientToken),
	}
	l, err := h.app.ListInstances(ctx, caller(ctx), callFrom(ctx).resource.Project, f, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, instanceOf)
	return ListInstances200JSONResponse{Items: items, NextPageToken: next}, err
}

// GetInstance answers GET /v1/projects/{project}/instances/{instance}.
func (h *Handlers) GetInstance(ctx context.Context, req GetInstanceRequestObject) (GetInstanceResponseObject, error) {
	which, err := parse[id.Instance](req.Instance)
	if err != nil {
		return nil, err
	}
	wait := app.Wait{For: instance.Status(value(req.Params.WaitFor)), Timeout: 30 * time.Second}
	if req.Params.Timeout != nil {
		if wait.Timeout, err = waitOf("timeout", *req.Params.Timeout); err != nil {
			return nil, err
		}
	}
	got, err := h.app.GetInstance(ctx, caller(ctx), callFrom(ctx).resource.Project, which, wait)
	if err != nil {
		return nil, err
	}
	return GetInstance200JSONResponse{
		Body: instanceOf(got), Headers: GetInstance200ResponseHeaders{ETag: etag(got.Generation)},
	}, nil
}

// DeleteInstance answers DELETE /v1/projects/{project}/instances/{instance}.
func (h *Handlers) DeleteInstance(ctx context.Context, req DeleteInstanceRequestObject) (DeleteInstanceResponseObject, error) {
	var out DeleteInstanceResponseObject
	again, err := h.actOnInstance(ctx, req.Instance, req.Params.IfMatch, h.app.DeleteInstance, func(got app.Instance) visit {
		body, tag := instanceOf(got), etag(got.Generation)
		if got.Accepted {
			headers := DeleteInstance202ResponseHeaders{ETag: tag, Location: operationPath(got.Operation.ID)}
			out = DeleteInstance202JSONResponse{Body: body, Headers: headers}
		} else {
			out = DeleteInstance200JSONResponse{Body: body, Headers: DeleteInstance200ResponseHeaders{ETag: tag}}
		}
		return out.VisitDeleteInstanceResponse
	})
	return either[DeleteInstanceResponseObject](out, again, err)
}

// StartInstance answers POST …/instances/{instance}/actions/start.
func (h *Handlers) StartInstance(ctx context.Context, req StartInstanceRequestObject) (StartInstanceResponseObject, error) {
	var out StartInstance202JSONResponse
	again, err := h.actOnInstance(ctx, req.Instance, req.Params.IfMatch, h.app.StartInstance, func(got app.Instance) visit {
		out = StartInstance202JSONResponse{
			Body:    instanceOf(got),
			Headers: StartInstance202ResponseHeaders{ETag: etag(got.Generation), Location: operationPath(got.Operation.ID)},
		}
		return out.VisitStartInstanceResponse
	})
	return either[StartInstanceResponseObject](out, again, err)
}

// StopInstance answers POST …/instances/{instance}/actions/stop.
func (h *Handlers) StopInstance(ctx context.Context, req StopInstanceRequestObject) (StopInstanceResponseObject, error) {
	var out StopInstanceResponseObject
	again, err := h.actOnInstance(ctx, req.Instance, req.Params.IfMatch, h.app.StopInstance, func(got app.Instance) visit {
		body, tag := instanceOf(got), etag(got.Generation)
		if got.Accepted {
			headers := StopInstance202ResponseHeaders{ETag: tag, Location: operationPath(got.Operation.ID)}
			out = StopInstance202JSONResponse{Body: body, Headers: headers}
		} else {
			out = StopInstance200JSONResponse{Body: body, Headers: StopInstance200ResponseHeaders{ETag: tag}}
		}
		return out.VisitStopInstanceResponse
	})
	return either[StopInstanceResponseObject](out, again, err)
}

// actOnInstance does what the verbs on one instance have in common.
func (h *Handlers) actOnInstance(
	ctx context.Context, name wire.InstancePath, seen *wire.IfMatch,
	act func(context.Context, app.Caller, id.Project, id.Instance, app.Match) (app.Instance, error),
	answer func(app.Instance) visit,
) (*repeated, error) {
	which, err := parse[id.Instance](name)
	if err != nil {
		return nil, err
	}
	match, err := ifMatch(seen)
	if err != nil {
		return nil, err
	}
	return h.once(ctx, func(ctx context.Context) (visit, error) {
		got, err := act(ctx, caller(ctx), callFrom(ctx).resource.Project, which, match)
		if err != nil {
			return nil, err
		}
		return answer(got), nil
	})
}

// waitOf reads a wait such as 30s; the specification bounds its digits.
func waitOf(name, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d > time.Minute || !strings.HasSuffix(text, "s") {
		return 0, invalid(codeInvalid, "A wait is at most 60s.",
			fault.Field{Pointer: name, Code: "maximum", Detail: "The value must be at most 60s."})
	}
	return d, nil
}

func operationPath(op id.Operation) *string {
	path := "/v1/operations/" + op.String()
	return &path
}

func instanceOf(i app.Instance) wire.Instance {
	out := wire.Instance{
		Id: i.ID.String(), Project: i.Project.String(), Name: i.Name, Offer: i.Offer, Image: i.Image, Command: texts(i.Command),
		Env: make([]wire.EnvVarView, len(i.Env)), Labels: i.Labels, ClientToken: textOrNull(i.ClientToken),
		Recovery: wire.Recovery(i.Recovery), Status: wire.InstanceStatus(i.Status), Ready: i.Ready(),
		Transitioning: i.Transitioning(), Generation: i.Generation, Gpus: make([]wire.InstanceGpu, len(i.GPUs)),
		Isolation: isolationOf(i.SKU.Isolation), PricePerHour: priceOf(i.Price), Requested: orNull[wire.Shape](nil),
		Sold: orNull[wire.Shape](nil), Billed: make([]wire.Interval, len(i.Billed)), CostSoFar: exactOf(i.CostSoFar),
		Actions: make([]wire.InstanceAction, len(i.Actions)), Simulated: i.Simulated, CreatedAt: wire.At(i.CreatedAt),
		SshKeys: texts(i.SSHKeys), Ports: portsOf(i.Ports), ShmMib: numberOrNull(int(i.Shm)),
		RegistryLogin: textOrNull(i.Login.String()), Progress: textOrNull(i.Progress), Endpoints: endpointsOf(i.Endpoints),
		Interruptions: interruptionsOf(i.Interruptions),
		DeletedAt:     timeOrNull(i.DeletedAt), StatusReason: orNull[wire.Reason](nil), Operation: orNull[wire.OperationRef](nil),
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	if why := instance.Explain(i.Status, i.Failure); !why.IsZero() {
		out.StatusReason = nullable.NewNullableWithValue(wire.Reason{Code: why.Code, Detail: why.Detail})
	}
	if op := i.Operation; !op.ID.IsZero() {
		out.Operation = nullable.NewNullableWithValue(wire.OperationRef{
			Id: op.ID.String(), Kind: op.Kind, Status: wire.OperationStatus(op.Status),
		})
	}
	for n, v := range i.Env {
		view := wire.EnvVarView{Name: v.Name, Value: nullable.NewNullableWithValue(v.Value), Fingerprint: textOrNull(v.Fingerprint)}
		if v.Fingerprint != "" {
			view.Value = nullable.NewNullNullable[string]()
		}
		out.Env[n] = view
	}
	for n, g := range i.GPUs {
		out.Gpus[n] = instanceGPUOf(g)
	}
	for n, b := range i.Billed {
		out.Billed[n] = wire.Interval{From: wire.At(b.From), To: timeOrNull(&b.To)}
	}
	for n, a := range i.Actions {
		out.Actions[n] = wire.InstanceAction{Name: wire.ActionName(a.Name), Allowed: a.Allowed, Code: textOrNull(a.Code)}
	}
	return out
}

func instanceGPUOf(g app.InstanceGPU) wire.InstanceGpu {
	var placement *wire.Placement
	if g.Placement != nil {
		placement = &wire.Placement{Start: int32(g.Placement.Start), Size: int32(g.Placement.Size)}
	}
	return wire.InstanceGpu{
		Model: g.Model, Mode: wire.GpuMode(g.Mode.Kind), Profile: textOrNull(g.Profile), Placement: orNull(placement),
		SmPercent: numberOrNull(g.SMPercent), MemoryMib: int32(g.Memory), SmCount: numberOrNull(g.SMs), Uuid: textOrNull(g.UUID),
	}
}
