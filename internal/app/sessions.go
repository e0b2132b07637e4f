package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// BeginSession admits a host's agent, fencing whatever stream it had before. The
// host is the one that the certificate names. It fails with auth.forbidden for a
// host that is not admitted, and with state.conflict while another stream has the
// better right; RetryAfter then says when to try again. A Hello of another boot
// beside a living stream cordons the host and leaves its instances alone.
func (a *App) BeginSession(ctx context.Context, h id.Host, gateway string, hello agentlink.Hello) (agentlink.Welcome, error) {
	w := agentlink.Welcome{ProofEvery: agentlink.ProofEvery, FullEvery: agentlink.FullEvery}
	verdict := agentlink.Admitted
	err := a.Store.InSystem(ctx, "begin session", func(t *store.SystemTx) error {
		standing, err := t.HostStanding(ctx, h)
		if fault.KindOf(err) == fault.NotFound {
			return notServed()
		}
		if err != nil {
			return err
		}
		if standing.Revoked || standing.State == host.Pending || standing.State == host.Retired {
			return notServed()
		}
		old, err := t.HoldStream(ctx, h)
		if err != nil {
			return err
		}
		verdict = agentlink.Admit(agentlink.Incumbent(old), hello)
		switch verdict {
		case agentlink.Admitted:
		case agentlink.Contradict:
			return t.AlarmCordon(ctx, h, "another machine connects as this host: boot id "+hello.BootID)
		default:
			return nil
		}
		s, timeline, err := t.BeginSession(ctx, store.NewStream{
			Host: h, BootID: hello.BootID, Nonce: hello.Nonce, Counter: hello.Counter, Gateway: gateway,
			AgentVersion: hello.AgentVersion, MachineID: hello.MachineID,
		})
		w.Session, w.Timeline = s.Number, timeline
		return err
	})
	if err != nil {
		return agentlink.Welcome{}, err
	}
	return w, refusal(verdict)
}

// refusal is what an agent that is not admitted now is told.
func refusal(v agentlink.Admission) error {
	conflict := func(detail string, after time.Duration) error {
		return fault.New(fault.Conflict, "state.conflict", detail).After(after)
	}
	switch v {
	case agentlink.Admitted:
		return nil
	case agentlink.Outdated:
		return conflict("A later stream of this process has taken over.", time.Second)
	case agentlink.Occupied:
		return conflict("Another agent of this host is still alive.", 2*time.Second)
	case agentlink.Contradict:
	}
	return conflict("Another machine is alive as this host; an operator has to look at it.", 30*time.Second)
}

// EndSession notes that a stream is closed.
func (a *App) EndSession(ctx context.Context, s store.Session) error {
	return a.Store.InSystem(ctx, "end session", func(t *store.SystemTx) error { return t.EndSession(ctx, s) })
}

// EndGateway notes that no stream of a gateway is open: at its start and end.
func (a *App) EndGateway(ctx context.Context, gateway string) error {
	return a.Store.InSystem(ctx, "end gateway", func(t *store.SystemTx) error { return t.EndGateway(ctx, gateway) })
}

// RecordProofs writes a gateway's proofs of life in one batch, and that proofs are
// being written; call it every five seconds, with none too.
func (a *App) RecordProofs(ctx context.Context, proofs []store.LifeProof) error {
	return a.Store.InSystem(ctx, "record proofs", func(t *store.SystemTx) error { return t.RecordProofs(ctx, proofs) })
}

// SessionsToEnd picks from open streams those that may not go on.
func (a *App) SessionsToEnd(ctx context.Context, open []store.Session) ([]store.Ended, error) {
	var out []store.Ended
	err := a.Store.InSystem(ctx, "check sessions", func(t *store.SystemTx) (err error) {
		out, err = t.SessionsToEnd(ctx, open)
		return err
	})
	return out, err
}

// Installation returns the domain of this installation's certificates.
func (a *App) Installation(ctx context.Context) (string, error) {
	var out string
	err := a.Store.InSystem(ctx, "read installation", func(t *store.SystemTx) (err error) {
		out, _, err = t.Installation(ctx)
		return err
	})
	return out, err
}

// DesiredFeed reads which hosts' desired sets changed, in commit order.
type DesiredFeed struct {
	app *App
	at  *store.DesiredCursor
}

// DesiredFeed returns a reader of changes from its first Next on.
func (a *App) DesiredFeed() *DesiredFeed { return &DesiredFeed{app: a} }

// Next lists the hosts that changed since the last call; the first call lists none.
func (f *DesiredFeed) Next(ctx context.Context) ([]id.Host, error) {
	var out []id.Host
	err := f.app.Store.InSystem(ctx, "desired feed", func(t *store.SystemTx) error {
		if f.at == nil {
			at, err := t.DesiredStart(ctx)
			if err == nil {
				f.at = &at
			}
			return err
		}
		hosts, at, err := t.DesiredSince(ctx, *f.at)
		if err == nil {
			out, f.at = hosts, &at
		}
		return err
	})
	return out, err
}

// PruneDesiredFeed drops rows of the feed that no reader can want any more.
func (a *App) PruneDesiredFeed(ctx context.Context) error {
	return a.Store.InSystem(ctx, "prune desired feed", func(t *store.SystemTx) error { return t.PruneDesired(ctx) })
}

// WatchHosts calls wake for each host whose desired set may have changed, with the
// zero id when notices may have been lost, until ctx ends.
func (a *App) WatchHosts(ctx context.Context, wake func(id.Host)) error {
	return a.Store.Listen(ctx, []string{store.ChannelHost}, func(_, payload string) {
		h, err := id.Parse[id.Host](payload)
		if err != nil {
			h = id.Host{}
		}
		wake(h)
	})
}
