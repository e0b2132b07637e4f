package app

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Desired is all that shall be on a host now. The caller numbers the version.
// Secrets are not in it: a host asks for them when it needs them.
func (a *App) Desired(ctx context.Context, h id.Host) (agentlink.Desired, error) {
	var out agentlink.Desired
	err := a.Store.InSystem(ctx, "desired set", func(t *store.SystemTx) error {
		// Orders first: an assignment that turns into a tombstone in between is then
		// in both lists, and its higher fence wins; it is never in neither.
		orders, err := t.HostOrders(ctx, h)
		if err != nil {
			return err
		}
		tombstones, err := t.HostTombstones(ctx, h)
		if err != nil {
			return err
		}
		modes, err := t.ModeOrders(ctx, h)
		if err != nil {
			return err
		}
		authorities, err := t.SSHAuthorities(ctx)
		if err != nil {
			return err
		}
		for _, o := range orders {
			out.Orders = append(out.Orders, orderOf(o))
		}
		for _, x := range tombstones {
			out.Tombstones = append(out.Tombstones, agentlink.Tombstone(x))
		}
		for _, m := range modes {
			out.Modes = append(out.Modes, agentlink.ModeOrder{GPU: m.UUID, Mode: m.Mode, Epoch: m.Epoch})
		}
		for _, x := range authorities {
			out.SSHAuthorities = append(out.SSHAuthorities, x.PublicKey)
		}
		return nil
	})
	return out, err
}

func orderOf(o store.HostOrder) agentlink.Order {
	out := agentlink.Order{
		Assignment: o.Assignment, Fence: o.Fence, Instance: o.Instance, Run: o.Run, Slots: o.Slots,
		Image: o.Image, Command: o.Command, VCPU: o.VCPU, RAM: o.RAM,
		Org: o.Org, Name: o.Name, SSHKeys: o.SSHKeys, Shm: o.Shm, HasSecrets: o.HasSecrets,
	}
	for _, e := range o.Env {
		if e.Fingerprint != "" {
			continue
		}
		if out.Env == nil {
			out.Env = map[string]string{}
		}
		out.Env[e.Name] = e.Value
	}
	for _, p := range o.Ports {
		out.Ports = append(out.Ports, agentlink.Port{Container: p.Port.Port, Host: p.Host, Protocol: p.Protocol})
	}
	return out
}
