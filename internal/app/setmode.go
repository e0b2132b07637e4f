package app

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// NewModeChange asks for a mode of a GPU: when it is empty by itself, or by an instant
// (machine time) at which what is there is stopped.
type NewModeChange struct {
	Mode    gpu.Mode
	DrainBy *time.Time // nil: when empty
}

// ModeChange is the operation gpu.set_mode as operators read it. Instants are machine
// time.
type ModeChange struct {
	ID         id.Operation
	GPU        id.GPU
	From, To   gpu.Mode
	DrainBy    *time.Time
	Status     string // of an operation
	Step       string // draining, switching, verifying; "" when it is over
	Detail     string // what it waits for
	Percent    int
	Problem    *store.OperationProblem // of a failed one
	CreatedAt  time.Time
	FinishedAt *time.Time
	Revision   int64
}

// GetGPU reads one GPU. It fails with resource.not_found.
func (a *App) GetGPU(ctx context.Context, _ Caller, g id.GPU) (GPU, error) {
	var out GPU
	err := a.Store.InSystem(ctx, "get a gpu", func(t *store.SystemTx) (err error) {
		out, err = t.GPU(ctx, g, store.Unlocked)
		return err
	})
	return out, err
}

// SetMode accepts a change of a GPU's mode: from here on nothing new is placed on it.
// The rest is done by AdvanceGPU. It needs the generation that the caller has seen,
// and fails with resource.not_found, precondition.required, precondition.failed,
// state.conflict when a change is under way or the GPU is in the mode already, and
// request.invalid for a mode that the GPU cannot be in.
func (a *App) SetMode(ctx context.Context, c Caller, g id.GPU, m Match, in NewModeChange) (ModeChange, error) {
	if in.DrainBy != nil && !in.DrainBy.After(a.Clock.Now()) {
		return ModeChange{}, fault.New(fault.Invalid, "request.invalid", "The drain would be over already.").
			With(fault.Field{Pointer: "/drain_by", Code: "range", Detail: "must be in the future"})
	}
	n := store.NewModeChange{
		ID: id.New[id.Operation](), GPU: g, Mode: in.Mode, Policy: store.WhenEmpty, DrainBy: in.DrainBy, RequestedBy: c.actor(),
	}
	if in.DrainBy != nil {
		n.Policy = store.DrainBy
	}
	var out ModeChange
	err := a.Store.InSystem(ctx, "set a mode", func(t *store.SystemTx) error {
		seen, err := t.GPU(ctx, g, store.Locked)
		if err != nil {
			return err
		}
		if err := m.require(seen.Generation); err != nil {
			return err
		}
		if err := a.maySwitch(ctx, t, seen, in.Mode); err != nil {
			return err
		}
		made, err := t.InsertModeChange(ctx, n)
		if err != nil {
			return err
		}
		if err := announceDrain(ctx, t, made); err != nil {
			return err
		}
		if err := t.Audit(ctx, c.audit(id.Org{}, "gpu.set_mode", g.String())); err != nil {
			return err
		}
		out, err = showModeChange(ctx, t, made)
		return err
	})
	return out, err
}

// maySwitch refuses what cannot work, so that nobody is driven out for nothing.
func (a *App) maySwitch(ctx context.Context, t *store.SystemTx, g GPU, to gpu.Mode) error {
	switch {
	case !g.ModeChange.IsZero():
		return modeConflict("Another change of its mode is under way: "+g.ModeChange.String()+".",
			"Wait for it, or cancel it with cancel-set-mode.")
	case !g.Present:
		return modeConflict("Its host does not report the GPU any more.", "Look at the host.")
	case g.Mode == to && g.ModeState == "settled":
		return modeConflict("The GPU is in that mode.", "Nothing is to be done.")
	}
	device, _, err := deviceOf(ctx, t, g)
	if err != nil {
		return err
	}
	if device.Units(to) == 0 || to.Kind == gpu.MPS && !device.Capabilities.MPS {
		return fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("A %s cannot be in the mode %s.", g.Model, to)).
			With(fault.Field{Pointer: "/mode", Code: "unsupported", Detail: "its driver reports no such capability"})
	}
	return nil
}

func modeConflict(detail, suggestion string) error {
	return fault.New(fault.Conflict, "state.conflict", detail).Suggest(suggestion)
}

// announceDrain tells the tenants on a GPU that their runs end at an instant.
func announceDrain(ctx context.Context, t *store.SystemTx, m store.ModeChange) error {
	if m.DrainBy == nil {
		return nil
	}
	tenants, err := t.GPUTenants(ctx, m.GPU)
	if err != nil {
		return err
	}
	for _, i := range tenants {
		err := t.AppendEvent(ctx, store.Event{
			Org: i.Org, Project: i.Project, Cell: m.Cell, Type: "instance.drain_scheduled", Subject: i.ID,
			Data: map[string]any{"at": m.DrainBy.UTC().Format(time.RFC3339), "operation": m.ID.String()},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// CancelMode ends a change of mode that has not been ordered from the host yet; the
// GPU is sold in its old mode again. Runs that the drain has ended stay ended. It
// fails with resource.not_found, precondition.failed, and state.conflict when the
// switch has begun or no change is under way.
func (a *App) CancelMode(ctx context.Context, c Caller, g id.GPU, m Match) (ModeChange, error) {
	var out ModeChange
	err := a.Store.InSystem(ctx, "cancel a mode change", func(t *store.SystemTx) error {
		seen, err := t.GPU(ctx, g, store.Locked)
		if err != nil {
			return err
		}
		if err := m.check(seen.Generation); err != nil {
			return err
		}
		change, found, err := t.OpenModeChange(ctx, g, store.Locked)
		if err != nil {
			return err
		}
		if !found {
			return modeConflict("No change of its mode is under way.", "Read the GPU.")
		}
		if change.Status != host.ModeDraining {
			return modeConflict("The switch has begun.", "Wait for its end, then set the old mode again.")
		}
		change.Status, change.CancelAsked, change.NextWakeAt = host.ModeCancelled, true, nil
		if err := t.SaveModeChange(ctx, &change); err != nil {
			return err
		}
		if err := t.Audit(ctx, c.audit(id.Org{}, "gpu.cancel_set_mode", g.String())); err != nil {
			return err
		}
		if change, err = t.ModeChange(ctx, change.ID, store.Unlocked); err != nil {
			return err
		}
		out, err = showModeChange(ctx, t, change)
		return err
	})
	return out, err
}

// GetModeChange reads the operation of a change of mode, waiting up to wait (at most a
// minute) for its end. It fails with resource.not_found.
func (a *App) GetModeChange(ctx context.Context, _ Caller, op id.Operation, wait time.Duration) (ModeChange, error) {
	timer := a.Clock.NewTimer(min(wait, maxWait))
	defer timer.Stop()
	for {
		var got ModeChange
		err := a.Store.InSystem(ctx, "get a mode change", func(t *store.SystemTx) error {
			change, err := t.ModeChange(ctx, op, store.Unlocked)
			if err != nil {
				return err
			}
			got, err = showModeChange(ctx, t, change)
			return err
		})
		if err != nil || wait <= 0 || got.FinishedAt != nil {
			return got, err
		}
		if !a.watch.changed(ctx, op, got.Revision, timer.C()) {
			return got, nil
		}
	}
}

func showModeChange(ctx context.Context, t *store.SystemTx, m store.ModeChange) (ModeChange, error) {
	out := ModeChange{
		ID: m.ID, GPU: m.GPU, From: m.From, To: m.Mode, DrainBy: m.DrainBy, Status: store.OperationRunning,
		CreatedAt: m.CreatedAt, FinishedAt: m.FinishedAt, Revision: m.Revision,
	}
	switch m.Status {
	case host.ModeSucceeded:
		out.Status, out.Percent = store.OperationSucceeded, 100
		return out, nil
	case host.ModeCancelled:
		out.Status = store.OperationCancelled
		return out, nil
	case host.ModeFailed:
		out.Status = store.OperationFailed
		out.Problem = &store.OperationProblem{
			Code: m.Problem.Code, Detail: m.Problem.Detail, Suggestion: "Read the GPU and its host, then set the mode again.",
		}
		return out, nil
	default:
	}
	sight, err := t.ModeSight(ctx, m.GPU)
	if err != nil {
		return ModeChange{}, err
	}
	if m.Status == host.ModeDraining {
		out.Step, out.Percent, out.Detail = "draining", 10, drainDetail(m, sight)
		return out, nil
	}
	out.Step, out.Percent, out.Detail = "switching", 50, sight.Problem
	if sight.State == "verifying" {
		out.Step, out.Percent = "verifying", 80
	}
	return out, nil
}

func drainDetail(m store.ModeChange, s store.ModeSight) string {
	switch n := len(s.Holders); {
	case !s.Present:
		return "Its host does not report the GPU."
	case n == 0:
		return ""
	case m.DrainBy != nil:
		return fmt.Sprintf("%d on the GPU, which are stopped at %s.", n, m.DrainBy.UTC().Format(time.RFC3339))
	default:
		return fmt.Sprintf("%d on the GPU.", n)
	}
}
