package app

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// What a host may say of itself: its name as in a join token, and two short texts
// that a database keeps and a terminal shows.
var (
	hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$`)
	hostText = regexp.MustCompile(`^[ -~]{0,255}$`)
)

// JoinRequest is a host that asks to join; From is the address it calls from.
type JoinRequest struct {
	Token                             string
	CSR                               []byte
	HostName, MachineID, AgentVersion string
	From                              netip.Addr
}

// Joined is the answer to a join. Certificate is nil while the host is pending.
type Joined struct {
	Host        id.Host
	Certificate []byte // PEM, leaf first
	Bundle      []byte // PEM, what to trust
}

// Join takes a host in: pending until an operator approves it, unless its token or
// pool approves by itself. The signing request proves the key; calling again with
// the same key needs no token and brings the certificate once there is approval.
// It fails with auth.invalid for a token that is not good for this host, with
// auth.forbidden for a revoked host, with name.taken, and with request.invalid for
// a request or a description of the host that is not acceptable.
func (a *App) Join(ctx context.Context, in JoinRequest) (Joined, error) {
	key, err := agentlink.PublicKeyOf(in.CSR)
	if err != nil {
		return Joined{}, fault.New(fault.Invalid, "request.invalid", "The signing request cannot be read.").Because(err)
	}
	out := Joined{Bundle: a.Authority.Bundle()}
	err = a.Store.InSystem(ctx, "join host", func(t *store.SystemTx) error {
		s, found, err := t.HoldHostByKey(ctx, key)
		if err == nil && !found {
			s, err = a.takeIn(ctx, t, in, key)
		}
		if err != nil {
			return err
		}
		out.Host = s.ID
		if s.State == host.Pending {
			return nil
		}
		out.Certificate, err = a.certify(ctx, t, s, key)
		return err
	})
	return out, err
}

// takeIn checks the token and writes the host.
func (a *App) takeIn(ctx context.Context, t *store.SystemTx, in JoinRequest, key []byte) (store.Standing, error) {
	token, err := agentlink.ParseJoinToken(in.Token)
	if err != nil {
		return store.Standing{}, badToken(err)
	}
	held, err := t.HoldJoinToken(ctx, token.ID)
	if fault.KindOf(err) == fault.NotFound {
		return store.Standing{}, badToken(err)
	}
	if err != nil {
		return store.Standing{}, err
	}
	if why := refuses(held, token, in); why != "" {
		return store.Standing{}, badToken(fmt.Errorf("token %s: %s", token, why))
	}
	if !hostName.MatchString(in.HostName) {
		return store.Standing{}, fault.New(fault.Invalid, "request.invalid",
			"A host needs a name of at most 63 letters, digits, dots and hyphens.")
	}
	if !hostText.MatchString(in.MachineID) || !hostText.MatchString(in.AgentVersion) {
		return store.Standing{}, fault.New(fault.Invalid, "request.invalid",
			"Machine id and agent version are printable ASCII of at most 255 characters.")
	}
	h := store.NewHost{
		ID: id.New[id.Host](), Name: in.HostName, Cell: held.Cell, Pool: held.Pool, State: host.Pending,
		MachineID: in.MachineID, AgentVersion: in.AgentVersion, PublicKey: key, Request: in.CSR, Token: token.ID,
	}
	if held.AutoApprove || held.PoolApproves {
		h.State, h.ApprovedBy = host.Approved, token.ID.String()
	}
	if err := t.InsertHost(ctx, h); err != nil {
		return store.Standing{}, err
	}
	err = t.AppendEvent(ctx, store.Event{Cell: held.Cell, Type: "host.pending", Subject: h.ID, Data: map[string]any{"name": h.Name}})
	if err != nil {
		return store.Standing{}, err
	}
	err = t.Audit(ctx, store.AuditRow{
		Actor: "host/" + h.Name, Credential: token.ID.String(), Operation: "host.join", Resource: h.ID.String(), Result: accepted,
	})
	if err != nil {
		return store.Standing{}, err
	}
	return store.Standing{ID: h.ID, Name: h.Name, State: h.State, PublicKey: key}, t.AppendOutbox(ctx, store.OutboxHost, h.ID.String(), "joined")
}

// refuses says why a token is not good for a host, "" if it is. The host is not
// told: it would help whoever found a token.
func refuses(held store.HeldToken, token agentlink.JoinToken, in JoinRequest) string {
	switch {
	case !token.Matches(held.Hash):
		return "wrong secret"
	case held.RevokedAt != nil:
		return "revoked"
	case held.Expired:
		return "expired"
	case held.Used >= held.MaxHosts:
		return "used up"
	case held.HostName != "" && held.HostName != in.HostName:
		return "bound to another host name"
	}
	if held.CIDR == "" {
		return ""
	}
	within, err := netip.ParsePrefix(held.CIDR)
	if err != nil || !within.Contains(in.From.Unmap()) {
		return "called from " + in.From.String()
	}
	return ""
}

func badToken(cause error) error {
	return fault.New(fault.Unauthenticated, "auth.invalid", "The join token is not valid for this host.").
		Suggest("Ask an operator for a new join token.").Because(cause)
}

// Renew returns a fresh certificate for the key of a verified certificate, which
// may have expired up to ca.RenewGrace ago. It fails with auth.forbidden for a
// revoked host or another key than the one that joined.
func (a *App) Renew(ctx context.Context, who ca.Identity) (Joined, error) {
	out := Joined{Host: who.Host, Bundle: a.Authority.Bundle()}
	err := a.Store.InSystem(ctx, "renew host certificate", func(t *store.SystemTx) error {
		s, found, err := t.HoldHostByKey(ctx, who.PublicKey)
		if err != nil {
			return err
		}
		if !found || s.ID != who.Host || s.State == host.Pending {
			return notServed()
		}
		out.Certificate, err = a.certify(ctx, t, s, who.PublicKey)
		return err
	})
	return out, err
}

// certify issues a certificate to a host that stands well.
func (a *App) certify(ctx context.Context, t *store.SystemTx, s store.Standing, key []byte) ([]byte, error) {
	if s.Revoked || s.State == host.Retired {
		return nil, notServed()
	}
	installation, _, err := t.Installation(ctx)
	if err != nil {
		return nil, err
	}
	issued, err := a.Authority.IssueHost(key, installation, s.ID, a.Clock.Now())
	if err != nil {
		return nil, fmt.Errorf("certify host %s: %w", s.ID, err)
	}
	return issued.PEM, t.SetHostCertificate(ctx, s.ID, issued.Serial, issued.NotAfter)
}

func notServed() error {
	return fault.New(fault.Forbidden, "auth.forbidden", "This host is not, or no longer, admitted.").
		Suggest("Ask an operator whether the host was revoked or retired.")
}
