package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Outcome is what a call of Advance leaves to its caller: to call Again at once, to
// wait for a wake-up or WaitUntil (machine clock), or nothing because it is Done.
type Outcome struct {
	Again     bool
	WaitUntil time.Time
	Done      bool
}

// maxConflicts is how often one call of Advance plans again after another claim
// was faster.
const maxConflicts = 5

// maxSteps bounds the steps of one transaction; a view that needs more is looked
// at again in the next one.
const maxSteps = 8

// glance is how soon a waiting row is looked at again although a report should
// wake it: the cure for a wake-up that was lost with Temporal's database.
const glance = 30 * time.Second

// Advance carries out what instance.Next says until there is something to wait
// for, all under the instance's lock in one transaction. Running it twice, or two
// at once, changes nothing more. It fails with fault.NotFound for an unknown
// instance and fault.Unavailable when trying again later may help.
func (a *App) Advance(ctx context.Context, inst id.Instance) (Outcome, error) {
	var err error
	for range maxConflicts {
		var out Outcome
		out, err = a.advanceOnce(ctx, inst)
		if fault.KindOf(err) != fault.Conflict {
			return out, err
		}
	}
	a.Log.Debug("claims keep colliding, trying again", "instance_id", inst.String(), "error", err)
	return Outcome{Again: true}, nil
}

func (a *App) advanceOnce(ctx context.Context, inst id.Instance) (Outcome, error) {
	var out Outcome
	err := a.Store.InSystem(ctx, "advance an instance", func(t *store.SystemTx) error {
		v, row, err := t.LoadView(ctx, inst, store.Locked)
		if err != nil {
			return err
		}
		p := &progress{app: a, tx: t, view: v, row: row}
		if out, err = p.run(ctx, a.Clock.Now()); err != nil {
			return err
		}
		_, err = t.SaveStatus(ctx, &p.row, p.view)
		return err
	})
	return out, err
}

// progress is one transaction's work on one instance: the steps edit the view and
// the row, which are saved once at the end.
type progress struct {
	app  *App
	tx   *store.SystemTx
	view instance.View
	row  store.InstanceRow
	// patient says that nothing can be done now, and that this is no failure.
	patient bool
}

// recoverEvery is how often an interrupted instance is tried to be placed again.
const recoverEvery = time.Minute

func (p *progress) run(ctx context.Context, at time.Time) (Outcome, error) {
	for range maxSteps {
		step := instance.Next(p.view, at)
		switch step.Do {
		case instance.DoNothing:
			p.row.NextWakeAt = nil
			return Outcome{Done: true}, nil
		case instance.DoWait:
			if err := p.tellProgress(ctx); err != nil {
				return Outcome{}, err
			}
			until := p.wakeAt(step.Until, at)
			p.row.NextWakeAt = &until
			return Outcome{WaitUntil: until}, nil
		default:
		}
		if err := p.carryOut(ctx, step); err != nil {
			return Outcome{}, err
		}
		if p.patient {
			until := at.Add(recoverEvery)
			p.row.NextWakeAt = &until
			return Outcome{WaitUntil: until}, nil
		}
	}
	soon := at.Add(time.Second)
	p.row.NextWakeAt = &soon
	return Outcome{Again: true}, nil
}

// tellProgress shows in the operation what a host says it is busy with.
func (p *progress) tellProgress(ctx context.Context) error {
	for _, a := range p.view.Assignments {
		if a.Progress != "" && a.Run == p.view.Run && a.Seen == instance.RunPreparing {
			return p.tx.StepOperation(ctx, p.row, a.Progress, 50)
		}
	}
	return nil
}

// wakeAt dates the row: soon while its hosts answer, patiently while one is
// silent, because nothing can come of a glance then.
func (p *progress) wakeAt(until, at time.Time) time.Time {
	for _, a := range p.view.Assignments {
		if a.HostUnknown {
			return until
		}
	}
	if soon := at.Add(glance); soon.Before(until) {
		return soon
	}
	return until
}

func (p *progress) carryOut(ctx context.Context, s instance.Step) error {
	switch s.Do {
	case instance.DoPlace:
		return p.place(ctx)
	case instance.DoRelease:
		return p.release(ctx, s.Assignment)
	case instance.DoRetryHost:
		return p.retryHost(ctx, s)
	case instance.DoStop:
		p.view.Desired, p.view.Failure = instance.WantStopped, runProblem(s.Assignment, true)
		return nil
	case instance.DoFail:
		return p.fail(ctx, store.OperationProblem{
			Code: s.Problem.Code, Detail: s.Problem.Detail, Suggestion: instance.RemedyOf(s.Problem.Code),
		})
	case instance.DoRecover:
		return p.recoverRun(s)
	case instance.DoReleaseQuota:
		p.view.QuotaHeld = false
		return p.tx.ReleaseQuota(ctx, p.row)
	case instance.DoFinish:
		return p.finish(ctx)
	default:
	}
	return fault.New(fault.Internal, "internal", "There is a step that nobody carries out.")
}

// finish ends the operation of the reached generation.
func (p *progress) finish(ctx context.Context) error {
	p.view.Converged = p.view.Generation
	switch p.view.Desired {
	case instance.WantRunning:
		p.view.Failure, p.row.Excluded, p.view.Recovering = instance.Problem{}, nil, false
	case instance.WantDeleted:
		p.view.QuotaHeld = false
		if err := p.tx.ReleaseQuota(ctx, p.row); err != nil {
			return err
		}
	case instance.WantStopped:
	}
	return p.tx.EndOperation(ctx, p.row, nil)
}

// recoverRun asks for another run in place of one that the platform ended. The next
// steps release the old one and place the new.
func (p *progress) recoverRun(s instance.Step) error {
	p.app.Log.Info("recovering an instance", "instance_id", p.row.ID.String(), "run", p.view.Run, "code", s.Problem.Code)
	p.view.Run++
	p.view.Recovering, p.view.Attempts, p.view.Failure, p.row.Excluded = true, 0, s.Problem, nil
	return nil
}

// fail ends the request: nothing was charged for it, and the instance may be
// started again or deleted.
func (p *progress) fail(ctx context.Context, problem store.OperationProblem) error {
	p.view.Desired, p.view.Recovering = instance.WantStopped, false
	p.view.Converged = p.view.Generation
	p.view.Failure = instance.Problem{Code: problem.Code, Detail: problem.Detail}
	return p.tx.EndOperation(ctx, p.row, &problem)
}
