package api

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// UpdateInstance answers PATCH /v1/projects/{project}/instances/{instance}.
func (h *Handlers) UpdateInstance(ctx context.Context, req UpdateInstanceRequestObject) (UpdateInstanceResponseObject, error) {
	change := app.InstancePatch{SSHKeys: req.Body.SshKeys}
	var out UpdateInstance200JSONResponse
	again, err := h.actOnInstance(ctx, req.Instance, req.Params.IfMatch,
		func(ctx context.Context, c app.Caller, p id.Project, i id.Instance, m app.Match) (app.Instance, error) {
			return h.app.UpdateInstance(ctx, c, p, i, m, change)
		},
		func(got app.Instance) visit {
			out = UpdateInstance200JSONResponse{
				Body: instanceOf(got), Headers: UpdateInstance200ResponseHeaders{ETag: etag(got.Generation)},
			}
			return out.VisitUpdateInstanceResponse
		})
	return either[UpdateInstanceResponseObject](out, again, err)
}

// CreateSshCertificate answers POST …/instances/{instance}/ssh-certificates.
func (h *Handlers) CreateSshCertificate(ctx context.Context, req CreateSshCertificateRequestObject) (CreateSshCertificateResponseObject, error) {
	which, err := parse[id.Instance](req.Instance)
	if err != nil {
		return nil, err
	}
	in := app.NewSSHCertificate{PublicKey: req.Body.PublicKey, Purpose: app.SSHPurpose(req.Body.Purpose)}
	var out CreateSshCertificate201JSONResponse
	again, err := h.once(ctx, func(ctx context.Context) (visit, error) {
		made, err := h.app.CreateSSHCertificate(ctx, caller(ctx), callFrom(ctx).resource.Project, which, in)
		if err != nil {
			return nil, err
		}
		out = CreateSshCertificate201JSONResponse{Body: wire.SshCertificate{
			Certificate: made.Certificate, ValidUntil: wire.At(made.ValidUntil), Host: made.Host, Port: int32(made.Port),
			User: made.User, HostKey: made.HostKey,
		}}
		return out.VisitCreateSshCertificateResponse, nil
	})
	return either[CreateSshCertificateResponseObject](out, again, err)
}

// ListSamples answers GET …/instances/{instance}/samples.
func (h *Handlers) ListSamples(ctx context.Context, req ListSamplesRequestObject) (ListSamplesResponseObject, error) {
	which, err := parse[id.Instance](req.Instance)
	if err != nil {
		return nil, err
	}
	p, err := h.pageOf(ctx, req.Params.PageSize, req.Params.PageToken)
	if err != nil {
		return nil, err
	}
	f := app.SampleFilter{From: instant(req.Params.From), To: instant(req.Params.To)}
	l, err := h.app.ListSamples(ctx, caller(ctx), callFrom(ctx).resource.Project, which, f, p)
	if err != nil {
		return nil, err
	}
	items, next, err := listed(ctx, h, l, sampleOf)
	return ListSamples200JSONResponse{Items: items, NextPageToken: next}, err
}

// instant is the zero time for a parameter that is not given.
func instant(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

func sampleOf(s app.Sample) wire.Sample {
	out := wire.Sample{
		At: wire.At(s.At), IntervalMs: int32(s.Interval.Milliseconds()), Source: s.Source, Gap: textOrNull(s.Gap), Readings: s.Readings,
	}
	if out.Readings == nil {
		out.Readings = map[string]int64{}
	}
	return out
}

func endpointsOf(in []app.Endpoint) []wire.Endpoint {
	out := make([]wire.Endpoint, len(in))
	for n, e := range in {
		out[n] = wire.Endpoint{
			Kind: wire.EndpointKind(e.Kind), Protocol: wire.PortProtocol(e.Protocol), Host: e.Host, Port: int32(e.Port),
			ContainerPort: numberOrNull(e.ContainerPort), User: textOrNull(e.User), HostKey: textOrNull(e.HostKey),
		}
	}
	return out
}

func portsOf(in []store.Port) []wire.Port {
	out := make([]wire.Port, len(in))
	for n, p := range in {
		protocol := wire.PortProtocol(p.Protocol)
		out[n] = wire.Port{ContainerPort: int32(p.Port), Protocol: &protocol}
	}
	return out
}

func interruptionsOf(in []app.Interruption) []wire.Interruption {
	out := make([]wire.Interruption, len(in))
	for n, i := range in {
		out[n] = wire.Interruption{
			From: wire.At(i.From), To: timeOrNull(i.To), Cause: i.Cause, Detail: textOrNull(i.Detail), Credited: i.Credited,
		}
	}
	return out
}
