package app

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/store"
)

// RecordInventory writes what a host has and how it is: sizes, GPUs and their
// health, its condition, floors and reach. An inventory that could not be read, or
// that lists no GPU where there were some, changes nothing but the host's reason. A
// changed set of GPUs cordons the host until an operator uncordons it; ill health
// takes a GPU out of placement until its host says that it is well. It fails with
// state.conflict for a superseded session.
func (a *App) RecordInventory(ctx context.Context, s store.Session, in agentlink.Inventory) error {
	return a.Store.InSystem(ctx, "record inventory", func(t *store.SystemTx) error {
		if err := t.Hold(ctx, s); err != nil {
			return err
		}
		if in.Failed {
			return t.NoteHostReason(ctx, s.Host, "inventory: "+in.Failure)
		}
		if len(in.GPUs) == 0 {
			known, err := t.KnownGPUs(ctx, s.Host)
			if err != nil {
				return err
			}
			if known > 0 {
				return t.NoteHostReason(ctx, s.Host, "inventory: no GPU is listed where there were some; nothing was changed")
			}
		}
		change, err := t.RecordInventory(ctx, s.Host, reported(in))
		if err != nil {
			return err
		}
		if err := tellChange(ctx, t, s, in, change); err != nil {
			return err
		}
		if err := t.WakeModeChanges(ctx, s.Host, "inventory"); err != nil {
			return err
		}
		return t.AppendOutbox(ctx, store.OutboxHost, s.Host.String(), "inventory")
	})
}

// tellChange tells operators what an inventory changed, and instances that wait for
// room that there is some.
func tellChange(ctx context.Context, t *store.SystemTx, s store.Session, in agentlink.Inventory, c store.InventoryChange) error {
	room := c.Condition && in.Condition == agentlink.ConditionGood
	for _, g := range c.GPUs {
		kind := "gpu.unhealthy"
		if g.Health == "healthy" {
			kind, room = "gpu.healthy", true
		}
		err := t.AppendEvent(ctx, store.Event{Cell: c.Cell, Type: kind, Subject: g.ID, Data: map[string]any{
			"host": s.Host.String(), "uuid": g.UUID, "health": g.Health, "was": g.Was, "cause": g.Reason, "detail": g.Detail,
		}})
		if err != nil {
			return err
		}
	}
	if c.Condition {
		err := t.AppendEvent(ctx, store.Event{Cell: c.Cell, Type: "host.condition", Subject: s.Host, Data: map[string]any{
			"condition": string(in.Condition), "cause": in.ConditionCause, "below_floor": in.BelowFloor,
		}})
		if err != nil {
			return err
		}
	}
	if room {
		if err := t.WakeRecovering(ctx, s.Host, "room"); err != nil {
			return err
		}
	}
	if c.SetChanged {
		return t.AlarmCordon(ctx, s.Host, "the set of GPUs has changed")
	}
	return nil
}

// gpuHealth are the healths that an agent may report; anything else is degraded.
var gpuHealth = map[string]bool{"healthy": true, "degraded": true, "failed": true, "resetting": true, "quarantined": true}

// modeStates are the states of a mode change that an agent may report; nothing is
// settled, and anything else failed.
var modeStates = map[string]bool{"settled": true, "draining": true, "switching": true, "verifying": true, "failed": true}

func reported(in agentlink.Inventory) store.ReportedHost {
	out := store.ReportedHost{
		VCPU: in.VCPU, RAM: in.RAM, Simulated: in.Simulated, DriverVersion: in.Driver + " " + in.DriverVersion,
		Runtime: in.Runtime, Reach: store.Reach(in.Reach), BelowFloor: in.BelowFloor,
		Condition: string(in.Condition), Cause: in.ConditionCause,
	}
	for _, g := range in.GPUs {
		health, mode := g.Health, g.ModeState
		if !gpuHealth[health] {
			health = "degraded"
		}
		if mode == "" {
			mode = "settled"
		}
		if !modeStates[mode] {
			mode = "failed"
		}
		problem := g.ModeProblem
		if mode == "settled" && g.Desired != (gpu.Mode{}) && g.Desired != g.Mode {
			// A difference is not sold: the driver has forgotten, or does not obey.
			mode, problem = "failed", "the host's settings ask for "+g.Desired.String()
		}
		out.GPUs = append(out.GPUs, store.ReportedGPU{
			Device: g.Device, Ordinal: g.Ordinal, Mode: g.Mode, Desired: g.Desired, ModeState: mode, ModeProblem: problem,
			Health: health, HealthCause: g.HealthCause, HealthDetail: g.HealthDetail,
		})
	}
	return out
}
