package app

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// interruptBatch is how many instances of silent hosts one round settles.
const interruptBatch = 500

// WatchLiveness grades the silence of hosts once: live, suspect, unknown. Only an
// agent's own report brings an unknown host back. The running instances of unknown
// hosts keep run and slots and show interrupted; their usage ends at the last
// proof. Each round does what a crash left undone in the one before.
func (a *App) WatchLiveness(ctx context.Context) error {
	var silent []store.SilentHost
	err := a.Store.InSystem(ctx, "watch hosts", func(t *store.SystemTx) (err error) {
		silent, err = t.SilentHosts(ctx)
		return err
	})
	if err != nil {
		return err
	}
	for _, h := range silent {
		if err := a.gradeHost(ctx, h); err != nil {
			return err
		}
	}
	return a.interruptSilent(ctx)
}

func (a *App) gradeHost(ctx context.Context, h store.SilentHost) error {
	to := host.LivenessAfter(h.Silence)
	if to == h.Liveness {
		return nil
	}
	changed := false
	err := a.Store.InSystem(ctx, "grade a host", func(t *store.SystemTx) (err error) {
		changed, err = t.SetLiveness(ctx, h, to)
		return err
	})
	if err == nil && changed {
		a.Log.Warn("host liveness", "host_id", h.ID.String(), "liveness", string(to), "silence", h.Silence.String())
	}
	return err
}

func (a *App) interruptSilent(ctx context.Context) error {
	var list []id.Instance
	err := a.Store.InSystem(ctx, "list silent instances", func(t *store.SystemTx) (err error) {
		list, err = t.InstancesOnUnknownHosts(ctx, interruptBatch)
		return err
	})
	if err != nil {
		return err
	}
	for _, i := range list {
		if err := a.Store.InSystem(ctx, "interrupt an instance", func(t *store.SystemTx) error {
			return interrupt(ctx, t, i)
		}); err != nil {
			return err
		}
	}
	return nil
}

// interrupt ends the usage of a run at its last proof and lets the status follow.
func interrupt(ctx context.Context, t *store.SystemTx, i id.Instance) error {
	v, row, err := t.LoadView(ctx, i, store.Locked)
	if err != nil {
		return err
	}
	for _, as := range v.Assignments {
		if !as.HostUnknown {
			continue
		}
		proof, ok, err := t.SettleProof(ctx, as.ID)
		if err != nil {
			return err
		}
		if !ok || as.Run != v.Run {
			continue
		}
		if _, err := t.CloseByEvent(ctx, row.Org, i, metering.Silence, metering.Facts{LastProof: proof}); err != nil {
			return err
		}
	}
	if _, err := t.SaveStatus(ctx, &row, v); err != nil {
		return err
	}
	return t.AppendOutbox(ctx, store.OutboxInstance, i.String(), "host unknown")
}
