package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// hostGlance is how soon a host that waits for its operator or agent is looked at
// again although a report should wake it.
const hostGlance = 5 * time.Minute

// AdvanceHost carries out what host.Next says until there is something to wait
// for, under the host's lock in one transaction. Running it twice changes nothing
// more. It fails with fault.NotFound for an unknown host and fault.Unavailable
// when trying again later may help.
func (a *App) AdvanceHost(ctx context.Context, h id.Host) (Outcome, error) {
	var out Outcome
	err := a.Store.InSystem(ctx, "advance a host", func(t *store.SystemTx) error {
		v, row, err := t.LockHostView(ctx, h)
		if err != nil {
			return err
		}
		before, dated := v, row.NextWakeAt
		v, out = stepHost(v, a.Clock.Now())
		row.NextWakeAt = nil
		if !out.Done {
			row.NextWakeAt = &out.WaitUntil
		}
		if v == before && out.Done && dated == nil {
			return nil
		}
		if err := t.SaveHostView(ctx, row, v); err != nil {
			return err
		}
		if before.State != v.State && v.State == host.Ready {
			return t.AppendEvent(ctx, store.Event{Cell: row.Cell, Type: "host.ready", Subject: h})
		}
		return nil
	})
	return out, err
}

// stepHost applies steps to the view until it waits or nothing is due.
func stepHost(v host.View, at time.Time) (host.View, Outcome) {
	for {
		switch host.Next(v).Do {
		case host.DoValidate:
			v.State = host.Validating
		case host.DoAdmit:
			v.State = host.Ready
		case host.DoFinish:
			v.Converged = v.Generation
		case host.DoWait:
			return v, Outcome{WaitUntil: at.Add(hostGlance)}
		default:
			return v, Outcome{Done: true}
		}
	}
}
