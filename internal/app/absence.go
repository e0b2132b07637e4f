package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/store"
)

// runMissing is the reason of a run that its host has shown not to have.
var runMissing = instance.Problem{Code: "RUN_MISSING", Detail: "complete reports of its host do not name it"}

// inferAbsence ends runs that complete reports of the same boot, at least thirty
// seconds apart, did not name: at most two, or a tenth of what the host holds, at a
// time. Nothing is destroyed by it: the host still gets the tombstone, and capacity
// is free when it acknowledges that.
func (a *App) inferAbsence(ctx context.Context, s store.Session) error {
	var gone []id.Assignment
	heldBack := 0
	err := a.Store.InSystem(ctx, "look for absent runs", func(t *store.SystemTx) (err error) {
		if err := t.Hold(ctx, s); err != nil {
			return err
		}
		gone, heldBack, err = t.Absent(ctx, s)
		return err
	})
	if err != nil {
		return err
	}
	if len(gone) > 0 && heldBack > 0 {
		a.Log.Warn("many runs are missing on one host; they are ended a few at a time",
			"host_id", s.Host.String(), "now", len(gone), "held_back", heldBack)
	}
	for _, asg := range gone {
		if err := a.Store.InSystem(ctx, "record absent run", func(t *store.SystemTx) error {
			return a.recordAbsent(ctx, t, s, asg)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) recordAbsent(ctx context.Context, t *store.SystemTx, s store.Session, absent id.Assignment) error {
	if err := t.Hold(ctx, s); err != nil {
		return err
	}
	asg, found, err := t.AssignmentOn(ctx, s.Host, absent)
	if err != nil || !found {
		return err
	}
	v, row, err := t.LoadView(ctx, asg.Instance, store.Locked)
	if err != nil {
		return err
	}
	o := &observation{asg: asg, view: v, row: row, cur: held(v, absent)}
	if o.cur == nil || !o.live() {
		return nil
	}
	if err := t.MarkAbsent(ctx, s.Host, absent, runMissing); err != nil {
		return err
	}
	o.cur.Seen, o.cur.Reason, o.cur.Credited = instance.RunFailed, runMissing, true
	if err := t.NoteAssignmentReason(ctx, absent, runMissing); err != nil {
		return err
	}
	at, proven, err := t.EndRun(ctx, absent, time.Time{})
	if err != nil {
		return err
	}
	if proven && o.wanted() {
		if err := faulted(ctx, t, o, at); err != nil {
			return err
		}
	}
	if _, err := t.SaveStatus(ctx, &o.row, o.view); err != nil {
		return err
	}
	return t.AppendOutbox(ctx, store.OutboxInstance, row.ID.String(), "absent")
}
