package app

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/placement"
	"github.com/tranche-cloud/tranche/internal/store"
)

// errBeaten says that the planned host filled up, or was cordoned, between looking
// and locking.
var errBeaten = fault.New(fault.Conflict, "state.conflict", "Another claim was faster.")

// place claims slots for the wanted run. The plan over the pool is a guess from a
// snapshot; the plan over the locked host decides.
func (p *progress) place(ctx context.Context) error {
	shape, err := p.tx.LoadShape(ctx, p.row, p.view.Attempts)
	if err != nil {
		return err
	}
	pool, err := p.tx.Snapshot(ctx, p.row, shape)
	if err != nil {
		return err
	}
	guess, why := placement.Plan(pool, shape.Request)
	if !guess.Placed() {
		return p.failNoCapacity(ctx, why)
	}
	// Whatever can be done before the host is locked is: others wait for it.
	if err := p.tx.StepOperation(ctx, p.row, "preparing", 50); err != nil {
		return err
	}
	locked, err := p.tx.LockHost(ctx, p.row, shape, guess.Host)
	if err != nil {
		return err
	}
	decision, _ := placement.Plan(locked, shape.Request)
	if !decision.Placed() {
		return errBeaten
	}
	a, err := p.tx.Claim(ctx, p.row, p.view.Run, shape, decision, locked.Hosts[0])
	if err != nil {
		return err
	}
	p.view.Assignments = append(p.view.Assignments, a)
	return nil
}

func (p *progress) failNoCapacity(ctx context.Context, why placement.Explanation) error {
	if p.view.Recovering {
		p.patient = true // room may come, and nothing is billed meanwhile
		return nil
	}
	p.app.Log.Info("no capacity", "instance_id", p.row.ID.String(), "offer", p.row.Offer, "filters", why.String())
	if p.view.Attempts > 0 && !p.view.Failure.IsZero() {
		// Hosts were tried and failed: their reason tells more than that none is left.
		return p.fail(ctx, store.OperationProblem{
			Code: p.view.Failure.Code, Detail: p.view.Failure.Detail, Suggestion: why.Suggestion(),
		})
	}
	suggestion := why.Suggestion()
	if len(p.row.Ports) > 0 {
		suggestion += " Hosts have a limited number of ports: ask for none, or for fewer."
	}
	return p.fail(ctx, store.OperationProblem{Code: "capacity.none", Detail: why.Public(), Suggestion: suggestion})
}

// retryHost gives up on a host for this request and orders the tombstone there.
func (p *progress) retryHost(ctx context.Context, s instance.Step) error {
	p.row.Excluded = append(p.row.Excluded, s.Assignment.Host)
	p.view.Attempts++
	p.view.Failure = s.Problem
	if s.Assignment.Seen == instance.RunExited || s.Assignment.Seen == instance.RunFailed {
		p.view.Failure = runProblem(s.Assignment, false)
	}
	return p.release(ctx, s.Assignment)
}
