package app

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Bounds of a join token's life.
const (
	defaultTokenLife = 15 * time.Minute
	maxTokenLife     = 24 * time.Hour
	maxTokenHosts    = 10_000
)

// NewJoinToken asks for a join token; the zero value is a token for one host of
// the default pool, of any name, for 15 minutes.
type NewJoinToken struct {
	Pool, HostName, CIDR string
	TTL                  time.Duration
	MaxHosts             int
	AutoApprove          bool
}

// JoinToken is a join token as operators see it.
type JoinToken = store.JoinToken

// Host is a host as operators see it.
type Host = store.Host

// GPU is a GPU as operators see it.
type GPU = store.GPU

// CreateJoinToken makes a token with which hosts may ask to join. Its text is
// returned once. It fails with resource.not_found for an unknown pool.
func (a *App) CreateJoinToken(ctx context.Context, c Caller, in NewJoinToken) (JoinToken, auth.Secret, error) {
	if a.TrustRoot.IsZero() {
		return JoinToken{}, auth.Secret{}, fault.New(fault.Unavailable, "service.unavailable", "This installation has no agent CA.").
			Suggest("Run `tranched admin init-keys` and restart.")
	}
	in, err := in.complete()
	if err != nil {
		return JoinToken{}, auth.Secret{}, err
	}
	token := agentlink.MintJoinToken(a.TrustRoot)
	var out JoinToken
	err = a.Store.InSystem(ctx, "create join token", func(t *store.SystemTx) error {
		var err error
		out, err = t.InsertJoinToken(ctx, JoinToken{
			ID: token.ID, Pool: in.Pool, HostName: in.HostName, CIDR: in.CIDR, AutoApprove: in.AutoApprove,
			MaxHosts: in.MaxHosts, CreatedBy: c.actor(),
		}, token.Hash(), in.TTL)
		if err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "join_token.create", token.ID.String()))
	})
	return out, auth.NewSecret(token.Text()), err
}

// complete fills the defaults in and checks the rest.
func (in NewJoinToken) complete() (NewJoinToken, error) {
	if in.Pool == "" {
		in.Pool = "default"
	}
	if in.TTL == 0 {
		in.TTL = defaultTokenLife
	}
	if in.MaxHosts == 0 {
		in.MaxHosts = 1
	}
	bad := func(pointer, detail string) (NewJoinToken, error) {
		return in, fault.New(fault.Invalid, "request.invalid", "The join token cannot be made like that.").
			With(fault.Field{Pointer: pointer, Code: "invalid", Detail: detail})
	}
	if in.TTL < 0 || in.TTL > maxTokenLife {
		return bad("/ttl_s", "at most 24 hours")
	}
	if in.MaxHosts < 0 || in.MaxHosts > maxTokenHosts {
		return bad("/max_hosts", "1 to 10000")
	}
	if in.HostName != "" && in.MaxHosts != 1 {
		return bad("/max_hosts", "a token bound to a host name is for one host")
	}
	if in.CIDR != "" {
		if _, err := netip.ParsePrefix(in.CIDR); err != nil {
			return bad("/cidr", "not an address range such as 10.0.0.0/8")
		}
	}
	return in, nil
}

// ListJoinTokens lists tokens without their secrets, newest first.
func (a *App) ListJoinTokens(ctx context.Context, _ Caller, p Page) (List[JoinToken], error) {
	k, err := keyset[id.JoinToken](p)
	if err != nil {
		return List[JoinToken]{}, err
	}
	var items []JoinToken
	err = a.Store.InSystem(ctx, "list join tokens", func(t *store.SystemTx) error {
		items, err = t.JoinTokens(ctx, k)
		return err
	})
	return paged(items, p.Size, func(j JoinToken) string { return j.ID.String() }), err
}

// RevokeJoinToken ends a token; hosts that joined by it stay. It is idempotent.
func (a *App) RevokeJoinToken(ctx context.Context, c Caller, token id.JoinToken) (JoinToken, error) {
	var out JoinToken
	err := a.Store.InSystem(ctx, "revoke join token", func(t *store.SystemTx) error {
		var err error
		if out, err = t.RevokeJoinToken(ctx, token); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "join_token.revoke", token.String()))
	})
	return out, err
}

// HostFilter picks hosts; State "" means all.
type HostFilter struct{ State host.State }

// ListHosts lists hosts by name.
func (a *App) ListHosts(ctx context.Context, _ Caller, f HostFilter, p Page) (List[Host], error) {
	var items []Host
	err := a.Store.InSystem(ctx, "list hosts", func(t *store.SystemTx) error {
		var err error
		items, err = t.Hosts(ctx, f.State, p.Cursor, p.Size+1)
		return err
	})
	return paged(items, p.Size, func(h Host) string { return h.Name }), err
}

// GetHost reads one host.
func (a *App) GetHost(ctx context.Context, _ Caller, h id.Host) (Host, error) {
	var out Host
	err := a.Store.InSystem(ctx, "get host", func(t *store.SystemTx) error {
		var err error
		out, err = t.Host(ctx, h)
		return err
	})
	return out, err
}

// ApproveHost lets a pending host join. A host that is past that is returned as
// it is; a retired one fails with state.conflict.
func (a *App) ApproveHost(ctx context.Context, c Caller, h id.Host, m Match) (Host, error) {
	return a.moveHost(ctx, c, h, "host.approve", func(t *store.SystemTx, now host.State, generation int64) error {
		if err := m.check(generation); err != nil {
			return err
		}
		if now == host.Pending {
			return t.MoveHost(ctx, h, host.Approved, "", c.actor())
		}
		if now == host.Retired || now == host.Lost {
			return conflictIn(now, "approved")
		}
		return nil
	})
}

// CordonHost sells nothing more on a host; its instances stay. It needs the
// generation that the caller has seen. A cordoned host is returned as it is.
func (a *App) CordonHost(ctx context.Context, c Caller, h id.Host, m Match) (Host, error) {
	return a.moveHost(ctx, c, h, "host.cordon", func(t *store.SystemTx, now host.State, generation int64) error {
		if err := m.require(generation); err != nil {
			return err
		}
		return a.turn(ctx, t, h, now, host.Cordoned, "cordoned by an operator")
	})
}

// UncordonHost sells on a host again.
func (a *App) UncordonHost(ctx context.Context, c Caller, h id.Host, m Match) (Host, error) {
	return a.moveHost(ctx, c, h, "host.uncordon", func(t *store.SystemTx, now host.State, generation int64) error {
		if err := m.check(generation); err != nil {
			return err
		}
		return a.turn(ctx, t, h, now, host.Ready, "")
	})
}

// turn moves a host between ready and cordoned only.
func (a *App) turn(ctx context.Context, t *store.SystemTx, h id.Host, now, to host.State, reason string) error {
	if now == to {
		return nil
	}
	if now != host.Ready && now != host.Cordoned {
		return conflictIn(now, string(to))
	}
	if err := t.MoveHost(ctx, h, to, reason, ""); err != nil {
		return err
	}
	return t.AppendEvent(ctx, store.Event{Type: "host." + string(to), Subject: h, Data: map[string]any{"reason": reason}})
}

func conflictIn(now host.State, to string) error {
	return fault.New(fault.Conflict, "state.conflict", fmt.Sprintf("A %s host cannot become %s.", now, to)).
		Suggest("Read the host's state; only ready and cordoned hosts turn into each other.")
}

func (a *App) moveHost(ctx context.Context, c Caller, h id.Host, operation string,
	move func(*store.SystemTx, host.State, int64) error,
) (Host, error) {
	var out Host
	err := a.Store.InSystem(ctx, operation, func(t *store.SystemTx) error {
		now, generation, err := t.HoldHostState(ctx, h)
		if err != nil {
			return err
		}
		if err := move(t, now, generation); err != nil {
			return err
		}
		if err := t.Audit(ctx, c.audit(id.Org{}, operation, h.String())); err != nil {
			return err
		}
		out, err = t.Host(ctx, h)
		return err
	})
	return out, err
}

// GPUFilter picks GPUs; a zero Host means all.
type GPUFilter struct{ Host id.Host }

// ListGPUs lists GPUs by host and index.
func (a *App) ListGPUs(ctx context.Context, _ Caller, f GPUFilter, p Page) (List[GPU], error) {
	after, err := gpuPlace(p.Cursor)
	if err != nil {
		return List[GPU]{}, err
	}
	var items []GPU
	err = a.Store.InSystem(ctx, "list gpus", func(t *store.SystemTx) error {
		items, err = t.GPUs(ctx, f.Host, after, p.Size+1)
		return err
	})
	return paged(items, p.Size, func(g GPU) string {
		return g.Host.String() + "/" + strconv.Itoa(g.Index) + "/" + g.ID.String()
	}), err
}

// gpuPlace reads the cursor that ListGPUs makes.
func gpuPlace(cursor string) (store.GPUKeyset, error) {
	if cursor == "" {
		return store.GPUKeyset{}, nil
	}
	parts := strings.Split(cursor, "/")
	if len(parts) == 3 {
		h, err1 := id.Parse[id.Host](parts[0])
		i, err2 := strconv.Atoi(parts[1])
		g, err3 := id.Parse[id.GPU](parts[2])
		if err1 == nil && err2 == nil && err3 == nil {
			return store.GPUKeyset{Host: h, Index: i, GPU: g}, nil
		}
	}
	return store.GPUKeyset{}, fault.New(fault.Invalid, "page_token.invalid", "The page token is not one of this list.").
		Suggest("Start the list again without page_token.")
}

// require is check for operations that must not be done blindly.
func (m Match) require(generation int64) error {
	if m.Generation == nil {
		return fault.New(fault.PreconditionRequired, "precondition.required", "This operation needs If-Match.").
			Suggest("Read the resource and send its ETag as If-Match.")
	}
	return m.check(generation)
}
