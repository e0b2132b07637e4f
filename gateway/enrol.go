package gateway

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect"

	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
)

// askAgainAfter is how long a pending host waits before it asks again, seconds.
const askAgainAfter = 1

// enrol serves hosts that have no certificate yet, or an old one.
type enrol struct{ g *Gateway }

// Join hands a token and a signing request to internal/app. A refusal is an
// answer; only a failure that may pass is an error.
func (e *enrol) Join(ctx context.Context, r *connect.Request[agentv1.JoinRequest]) (*connect.Response[agentv1.JoinResponse], error) {
	joined, err := e.g.app.Join(ctx, app.JoinRequest{
		Token: r.Msg.GetToken(), CSR: r.Msg.GetCsrDer(), HostName: r.Msg.GetHostName(),
		MachineID: r.Msg.GetMachineId(), AgentVersion: r.Msg.GetAgentVersion(), From: peerOf(ctx).addr,
	})
	if err != nil {
		f := fault.From(err)
		e.g.log.Warn("join refused", "name", r.Msg.GetHostName(), "code", f.Code, "error", err)
		if f.Kind == fault.Unavailable || f.Kind == fault.Internal {
			return nil, connectError(err)
		}
		return connect.NewResponse(&agentv1.JoinResponse{
			Outcome: agentv1.JoinResponse_OUTCOME_REFUSED, Reason: strings.TrimSpace(f.Detail + " " + f.Suggestion),
		}), nil
	}
	m := &agentv1.JoinResponse{
		Outcome: agentv1.JoinResponse_OUTCOME_PENDING, HostId: joined.Host.String(),
		TrustBundlePem: joined.Bundle, RetryAfterS: askAgainAfter,
	}
	if joined.Certificate != nil {
		m.Outcome, m.CertificatePem, m.RetryAfterS = agentv1.JoinResponse_OUTCOME_APPROVED, joined.Certificate, 0
	}
	return connect.NewResponse(m), nil
}

// Renew needs the certificate that is to be replaced, expired or not.
func (e *enrol) Renew(ctx context.Context, _ *connect.Request[agentv1.RenewRequest]) (*connect.Response[agentv1.RenewResponse], error) {
	who := peerOf(ctx).host
	if who == nil {
		return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("renewal needs the host's certificate"))
	}
	renewed, err := e.g.app.Renew(ctx, *who)
	if err != nil {
		return nil, connectError(err)
	}
	return connect.NewResponse(&agentv1.RenewResponse{
		CertificatePem: renewed.Certificate, TrustBundlePem: renewed.Bundle,
	}), nil
}

// connectCodes says how the kinds of failure an agent can meet travel.
var connectCodes = map[fault.Kind]connect.Code{
	fault.Invalid: connect.CodeInvalidArgument, fault.Unauthenticated: connect.CodeUnauthenticated,
	fault.Forbidden: connect.CodePermissionDenied, fault.NotFound: connect.CodeNotFound,
	fault.Conflict: connect.CodeAborted, fault.Unavailable: connect.CodeUnavailable,
}

// connectError shows the public part of a failure.
func connectError(err error) error {
	f := fault.From(err)
	code, ok := connectCodes[f.Kind]
	if !ok {
		code = connect.CodeInternal
	}
	return connect.NewError(code, errors.New(f.Code+": "+f.Detail))
}
