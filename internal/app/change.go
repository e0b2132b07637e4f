package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// wakeWithin is when the sweeper looks at a changed row, should its wake-up be lost.
const wakeWithin = 30 * time.Second

// intent is what a verb wants of an instance.
type intent struct {
	kind    string           // of the operation
	desired instance.Desired // what it asks for
	ends    metering.Event   // what it means for the meter; "" where nothing runs
}

var (
	startIntent  = intent{kind: "instance.start", desired: instance.WantRunning}
	stopIntent   = intent{kind: "instance.stop", desired: instance.WantStopped, ends: metering.StopRelease}
	deleteIntent = intent{kind: "instance.delete", desired: instance.WantDeleted, ends: metering.DeleteAccepted}
)

// StartInstance accepts a start of a stopped or failed instance: a new run, at the
// locked price. It fails with resource.not_found, state.conflict when the instance
// is meant to run already or is deleted, precondition.failed and offer.unavailable.
func (a *App) StartInstance(ctx context.Context, c Caller, p id.Project, i id.Instance, m Match) (Instance, error) {
	return a.change(ctx, c, p, i, m, startIntent)
}

// StopInstance accepts a stop: billing ends at this instant, the slots go back when
// the agent acknowledges. An instance that is stopped already, or about to be, is
// answered as it is. It fails with resource.not_found, state.conflict when it is
// deleted, and precondition.failed.
func (a *App) StopInstance(ctx context.Context, c Caller, p id.Project, i id.Instance, m Match) (Instance, error) {
	return a.change(ctx, c, p, i, m, stopIntent)
}

// DeleteInstance accepts a delete from any state; it is idempotent and ends with
// the tombstone. It fails with resource.not_found and precondition.failed.
func (a *App) DeleteInstance(ctx context.Context, c Caller, p id.Project, i id.Instance, m Match) (Instance, error) {
	return a.change(ctx, c, p, i, m, deleteIntent)
}

func (a *App) change(ctx context.Context, c Caller, p id.Project, i id.Instance, m Match, want intent) (Instance, error) {
	var out Instance
	err := a.Store.ShareOrg(ctx, c.Org, func(ctx context.Context, t *store.OrgTx) error {
		row, err := t.Instance(ctx, p, i) // before the lock: what is not visible is not locked
		if err != nil {
			return err
		}
		v, r, err := t.LoadView(ctx, i, store.Locked)
		if err != nil {
			return err
		}
		needed, err := want.needed(v.Desired)
		if err != nil {
			return err
		}
		if needed {
			if err := a.mayChange(ctx, t, c, m, want, v, row); err != nil {
				return err
			}
			if err := a.carry(ctx, t, c, want, v, r); err != nil {
				return err
			}
		}
		if row, err = t.Instance(ctx, p, i); err != nil {
			return err
		}
		out, err = showInstance(ctx, t, row)
		return err
	})
	return out, err
}

// needed says whether the intent changes anything, or is refused in this state.
func (w intent) needed(now instance.Desired) (bool, error) {
	switch {
	case now == w.desired && w.desired == instance.WantRunning:
		return false, conflict("The instance is running or on its way there.")
	case now == w.desired:
		return false, nil
	case now == instance.WantDeleted:
		return false, conflict("The instance is deleted.")
	}
	return true, nil
}

func conflict(detail string) error {
	return fault.New(fault.Conflict, "state.conflict", detail).
		Suggest("Read the instance; its actions say what is possible now.")
}

func (a *App) mayChange(ctx context.Context, t *store.OrgTx, c Caller, m Match, want intent, v instance.View, row store.Instance) error {
	if err := m.check(v.Generation); err != nil {
		return err
	}
	if want.desired != instance.WantRunning {
		return nil
	}
	ok, _, err := a.sellable(ctx, row.Pool, row.SKU.Shape)
	if err != nil {
		return err
	}
	if !ok {
		return unavailableOffer("No host of this installation could hold this offer.")
	}
	admitted, err := a.admitStart(ctx, t, c, row.Project, row.ID, row.Price)
	if err != nil {
		return err
	}
	return admitted.keep(ctx, t, row.ID, false)
}

// carry writes a new intent: the meter stops at this instant, live assignments are
// ordered back, an operation follows it and overtakes the older ones.
func (a *App) carry(ctx context.Context, t *store.OrgTx, c Caller, want intent, v instance.View, r store.InstanceRow) error {
	at, err := t.BusinessNow(ctx)
	if err != nil {
		return err
	}
	if want.ends != "" {
		if _, err := t.CloseByEvent(ctx, c.Org, r.ID, want.ends, metering.Facts{At: at}); err != nil {
			return err
		}
	}
	v.Desired, v.Generation, v.Attempts, v.Failure = want.desired, v.Generation+1, 0, instance.Problem{}
	if want.desired == instance.WantRunning {
		v.Run++
	} else if err := releaseLive(ctx, t, v.Assignments); err != nil {
		return err
	}
	now := a.Clock.Now()
	wake, deadline := now.Add(wakeWithin), now.Add(requestWithin)
	op := store.Operation{
		ID: id.New[id.Operation](), Project: r.Project, Kind: want.kind, Subject: r.ID, Generation: v.Generation,
		CreatedAt: at, DeadlineAt: &deadline,
	}
	r.Excluded, r.Operation, r.NextWakeAt, r.DeadlineAt = nil, op.ID, &wake, &deadline
	if err := t.InsertOperation(ctx, op, c.RequestID); err != nil {
		return err
	}
	if err := t.SupersedeOperations(ctx, r, op.ID, at); err != nil {
		return err
	}
	status, err := t.SaveStatus(ctx, &r, v)
	if err != nil {
		return err
	}
	if err := wakeAfter(ctx, t, status, r.ID, want.kind); err != nil {
		return err
	}
	return t.Audit(ctx, c.audit(c.Org, want.kind, r.ID.String()))
}

// tombstoneWithin is how long the acknowledgement of a tombstone usually takes at
// most: its wake-up makes that of the stop or delete needless.
const tombstoneWithin = 2 * time.Second

// wakeAfter wakes the instance's workflow: at once if it can finish the request or
// has to place a run, late if it can only wait for the host.
func wakeAfter(ctx context.Context, t *store.OrgTx, s instance.Status, i id.Instance, reason string) error {
	if s == instance.Stopping || s == instance.Deleting {
		return t.AppendOutboxLater(ctx, store.OutboxInstance, i.String(), reason, tombstoneWithin)
	}
	return t.AppendOutbox(ctx, store.OutboxInstance, i.String(), reason)
}

// releaseLive orders the tombstone of each live assignment, in the rows and in the
// view that the status is derived from.
func releaseLive(ctx context.Context, t *store.OrgTx, held []instance.Assignment) error {
	for n := range held {
		released, err := t.ReleaseAssignment(ctx, held[n].ID)
		if err != nil {
			return err
		}
		if released {
			held[n].State, held[n].Seen = instance.Releasing, instance.RunNone
			held[n].Fence++
		}
	}
	return nil
}
