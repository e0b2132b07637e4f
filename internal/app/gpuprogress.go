package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// drained is why the platform ends a run for a change of mode.
var drained = instance.Problem{Code: "GPU_DRAINED", Detail: "its operator changes the mode of the GPU"}

// AdvanceGPU carries out what host.NextMode says for the change of mode that is under
// way on a GPU, until there is something to wait for. Running it twice, or two at
// once, changes nothing more. It fails with fault.NotFound for an unknown GPU and
// fault.Unavailable when trying again later may help.
func (a *App) AdvanceGPU(ctx context.Context, g id.GPU) (Outcome, error) {
	for range maxSteps {
		step, holders, err := a.modeStep(ctx, g)
		if err != nil {
			return Outcome{}, err
		}
		switch step.Do {
		case host.DoNothing:
			return Outcome{Done: true}, nil
		case host.DoWait:
			return Outcome{WaitUntil: step.Until}, nil
		case host.DoDrain:
			if err := a.drain(ctx, g, holders); err != nil {
				return Outcome{}, err
			}
		default:
		}
	}
	return Outcome{Again: true}, nil
}

// modeStep carries out one step in one transaction, except DoDrain: runs are ended one
// by one, each under the lock of its instance alone.
func (a *App) modeStep(ctx context.Context, g id.GPU) (step host.ModeStep, holders []store.ModeHolder, err error) {
	err = a.Store.InSystem(ctx, "advance a mode change", func(t *store.SystemTx) error {
		step, holders = host.ModeStep{Do: host.DoNothing}, nil
		m, found, err := t.OpenModeChange(ctx, g, store.Locked)
		if err != nil || !found {
			return err
		}
		sight, err := t.ModeSight(ctx, g)
		if err != nil {
			return err
		}
		now := a.Clock.Now()
		step, holders = host.NextMode(modeView(m, sight), now), sight.Holders
		switch step.Do {
		case host.DoSwitch:
			m.Status = host.ModeSwitching
		case host.DoSucceed:
			m.Status, m.NextWakeAt = host.ModeSucceeded, nil
		case host.DoFail:
			m.Status, m.NextWakeAt = host.ModeFailed, nil
			m.Problem = instance.Problem{Code: step.Code, Detail: step.Detail}
		case host.DoWait:
			m.NextWakeAt = &step.Until
		default:
			return nil
		}
		return t.SaveModeChange(ctx, &m)
	})
	return step, holders, err
}

func modeView(m store.ModeChange, s store.ModeSight) host.ModeView {
	v := host.ModeView{
		Status: m.Status, Wanted: m.Mode, DrainBy: m.DrainBy, Observed: s.Observed, State: s.State,
		Problem: s.Problem, Present: s.Present,
	}
	if m.SwitchedAt != nil {
		v.SwitchedAt = *m.SwitchedAt
	}
	for _, h := range s.Holders {
		if h.State == instance.Claimed || h.State == instance.Applied {
			v.Live++
		} else {
			v.Leaving++
		}
	}
	return v
}

// drain ends the runs that are still on a GPU.
func (a *App) drain(ctx context.Context, g id.GPU, holders []store.ModeHolder) error {
	for _, h := range holders {
		if h.State != instance.Claimed && h.State != instance.Applied {
			continue
		}
		err := a.Store.InSystem(ctx, "drain a gpu", func(t *store.SystemTx) error { return a.drainOne(ctx, t, g, h) })
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return err
		}
	}
	return nil
}

// drainOne ends one run as a fault of the platform would: the meter stops, the
// interruption is credited, and the instance's recovery decides whether it is started
// on another GPU or stays stopped.
func (a *App) drainOne(ctx context.Context, t *store.SystemTx, g id.GPU, h store.ModeHolder) error {
	v, row, err := t.LoadView(ctx, h.Instance, store.Locked)
	if err != nil {
		return err
	}
	held, live := liveAssignment(v, h.Assignment)
	if !live {
		return nil
	}
	at, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	if _, err := t.CloseByEvent(ctx, row.Org, row.ID, metering.OurFault, metering.Facts{FirstSymptom: at, LastProof: at}); err != nil {
		return err
	}
	held.Reason, held.Credited = drained, true
	p := &progress{app: a, tx: t, view: v, row: row}
	if err := p.endDrained(ctx, held, at); err != nil {
		return err
	}
	wake := a.Clock.Now().Add(wakeWithin)
	p.row.NextWakeAt = &wake
	if _, err := t.SaveStatus(ctx, &p.row, p.view); err != nil {
		return err
	}
	err = t.AppendEvent(ctx, store.Event{
		Org: row.Org, Project: row.Project, Cell: row.Cell, Type: "instance.drained", Subject: row.ID,
		Data: map[string]any{"gpu": g.String(), "run": held.Run, "credited": true},
	})
	if err != nil {
		return err
	}
	return t.AppendOutbox(ctx, store.OutboxInstance, row.ID.String(), "drain")
}

// endDrained decides what follows for the instance, and orders its run away.
func (p *progress) endDrained(ctx context.Context, held instance.Assignment, at time.Time) error {
	public := instance.Public(drained)
	reached := p.view.Converged == p.view.Generation && !p.view.Recovering
	switch {
	case !reached:
		// It was still being prepared: its request goes on elsewhere.
		return p.retryHost(ctx, instance.Step{Do: instance.DoRetryHost, Assignment: held, Problem: drained})
	case p.view.Recovery == instance.Restart || p.view.Recovery == instance.RestartUnfenced:
		err := p.tx.OpenInterruption(ctx, &p.row, held.ID, public.Code, public.Detail, true, at)
		if err != nil {
			return err
		}
		if err := p.recoverRun(instance.Step{Do: instance.DoRecover, Assignment: held, Problem: public}); err != nil {
			return err
		}
	default:
		p.view.Desired, p.view.Failure = instance.WantStopped, public
	}
	return p.release(ctx, held)
}

func liveAssignment(v instance.View, which id.Assignment) (instance.Assignment, bool) {
	for _, x := range v.Assignments {
		if x.ID == which && (x.State == instance.Claimed || x.State == instance.Applied) {
			return x, true
		}
	}
	return instance.Assignment{}, false
}
