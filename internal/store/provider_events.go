package store

import (
	"bytes"
	"context"
	"time"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// ProviderEvent is a verified message of a payment provider, waiting to be worked on.
type ProviderEvent struct {
	Provider string
	payment.Event
	Attempts int
}

// InsertProviderEvent takes an event in, once; fresh is false for one that is known.
// The caller works on it for as long as the lease; after that the loop does. It fails
// with webhook.mismatch when the id is known with another meaning, of which hash is.
func (t *SystemTx) InsertProviderEvent(ctx context.Context, provider string, e payment.Event, hash [32]byte, lease time.Duration) (fresh bool, err error) {
	n, err := t.q.InsertProviderEvent(ctx, t.raw, db.InsertProviderEventParams{
		Provider: provider, EventID: e.ID, Type: e.Type, Object: string(e.Object), ObjectRef: e.Ref, BodyHash: hash[:], LeaseSeconds: lease.Seconds(),
	})
	if err != nil || n == 1 {
		return n == 1, mapError(err)
	}
	known, err := t.q.ProviderEventHash(ctx, t.raw, provider, e.ID)
	if err != nil {
		return false, mapError(err)
	}
	if !bytes.Equal(known.BodyHash, hash[:]) {
		return false, fault.New(fault.Conflict, "webhook.mismatch", "An event with this id and another type or object was received before.").
			Suggest("Look at the event at the provider; nothing was done about this one.")
	}
	return false, nil
}

// ClaimProviderEvents takes up to size events that were received and not worked on.
func (t *SystemTx) ClaimProviderEvents(ctx context.Context, size int, lease time.Duration) ([]ProviderEvent, error) {
	rows, err := t.q.ClaimProviderEvents(ctx, t.raw, lease.Seconds(), int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]ProviderEvent, 0, len(rows))
	for _, r := range rows {
		out = append(out, ProviderEvent{Provider: r.Provider, Attempts: int(r.Attempts), Event: payment.Event{
			ID: r.EventID, Type: r.Type, Object: payment.Object(r.Object), Ref: r.ObjectRef,
		}})
	}
	return out, nil
}

// EndProviderEvent says what became of an event: done, ignored, or received, to be
// tried again after the wait.
func (t *SystemTx) EndProviderEvent(ctx context.Context, provider, event, state, problem string, wait time.Duration) error {
	return mapError(t.q.EndProviderEvent(ctx, t.raw, db.EndProviderEventParams{
		State: state, Problem: problem, WaitSeconds: wait.Seconds(), Provider: provider, EventID: event,
	}))
}
