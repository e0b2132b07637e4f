package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Evidence says that the run of an assignment was on during closed intervals of
// business time, wherever that became known.
type Evidence struct {
	Assignment id.Assignment
	On         []metering.Interval
}

// TakeEvidence bills what late evidence proves and nobody recorded, each assignment in
// a transaction of its own. Order, repetition and delay make no difference to what is
// billed. An unknown assignment has no usage.
func (a *App) TakeEvidence(ctx context.Context, list []Evidence) error {
	for _, e := range list {
		err := a.Store.InSystem(ctx, "take evidence", func(t *store.SystemTx) error {
			return t.FillUsage(ctx, e.Assignment, e.On)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// countersProve takes spooled readings as evidence of runs that were up while their
// host could not be heard: readings never start a meter, they close gaps in one.
func countersProve(ctx context.Context, t *store.SystemTx, h id.Host, at time.Time, interval time.Duration, list []store.SliceReading) error {
	read := metering.Between(at.Add(-interval), at)
	missing, err := t.UnbilledReadings(ctx, h, read, list)
	if err != nil || len(missing) == 0 {
		return err
	}
	scale, err := t.BusinessScale(ctx)
	if err != nil {
		return err
	}
	read.From = metering.Instant(at.Add(-interval * time.Duration(scale))) // intervals are the machine's time
	for _, asg := range missing {
		if err := t.FillUsage(ctx, asg, []metering.Interval{read}); err != nil {
			return err
		}
	}
	return nil
}

// provenUntil takes the end of a run, which the agent saw, as proof that it was on until
// then: since its last proof, or since its process started if that was later.
func (a *App) provenUntil(ctx context.Context, t *store.SystemTx, s agentlink.Slice, o *observation, ended time.Time) error {
	proven, found, err := t.LastProof(ctx, s.Assignment)
	if err != nil || !found || s.Age <= 0 {
		return err
	}
	m, err := t.BusinessAgo(ctx, o.age+s.Age, 0, 0)
	if err != nil {
		return err
	}
	if m.Received.Sub(proven) > startJitter {
		proven = m.Received // another process of the run: it was not up in between
	}
	return t.FillUsage(ctx, s.Assignment, []metering.Interval{metering.Between(proven, ended)})
}
