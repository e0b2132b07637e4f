package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// OutboxRow is a wake-up to deliver: Kind and Key say whose. Attempt counts from 1.
type OutboxRow struct {
	ID      int64
	Kind    string
	Key     string
	Attempt int
}

// ClaimOutbox takes up to size unsent rows, oldest first, that no other relay has,
// for as long as the lease (machine time): rows that are neither sent nor postponed
// by then come back.
func (t *SystemTx) ClaimOutbox(ctx context.Context, size int, lease time.Duration) ([]OutboxRow, error) {
	rows, err := t.q.ClaimOutbox(ctx, t.raw, lease.Seconds(), int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]OutboxRow, len(rows))
	for i, r := range rows {
		out[i] = OutboxRow{ID: r.ID, Kind: r.Kind, Key: r.Key, Attempt: int(r.Attempts)}
	}
	return out, nil
}

// MarkSent notes that the rows were delivered.
func (t *SystemTx) MarkSent(ctx context.Context, ids []int64) error {
	return mapError(t.q.MarkOutboxSent(ctx, t.raw, ids))
}

// Postpone gives rows back, to be tried again after the delay.
func (t *SystemTx) Postpone(ctx context.Context, ids []int64, delay time.Duration) error {
	return mapError(t.q.PostponeOutbox(ctx, t.raw, delay.Seconds(), ids))
}

// PruneOutbox deletes up to size rows that were sent longer than age ago, and
// returns how many.
func (t *SystemTx) PruneOutbox(ctx context.Context, age time.Duration, size int) (int64, error) {
	n, err := t.q.PruneOutbox(ctx, t.raw, age.Seconds(), int32(size))
	return n, mapError(err)
}

// OldestUnsent is the age of the oldest wake-up not delivered, 0 when there is none.
func (t *SystemTx) OldestUnsent(ctx context.Context) (time.Duration, error) {
	age, err := t.q.OldestUnsent(ctx, t.raw)
	return time.Duration(age * float64(time.Second)), mapError(err)
}

// Sweep writes wake-ups for up to size instances, hosts, changes of mode and invoice runs each that
// have not reached their generation, or asked to be looked at by now, and dates them
// 30 seconds on. It returns how many.
func (t *SystemTx) Sweep(ctx context.Context, size int) (int, error) {
	instances, err := t.q.SweepInstances(ctx, t.raw, int32(size))
	if err != nil {
		return 0, mapError(err)
	}
	if err := t.wakeAll(ctx, OutboxInstance, texts[id.Instance](instances)); err != nil {
		return 0, err
	}
	hosts, err := t.q.SweepHosts(ctx, t.raw, int32(size))
	if err != nil {
		return 0, mapError(err)
	}
	if err := t.wakeAll(ctx, OutboxHost, texts[id.Host](hosts)); err != nil {
		return 0, err
	}
	gpus, err := t.q.SweepModeChanges(ctx, t.raw, int32(size))
	if err != nil {
		return 0, mapError(err)
	}
	if err := t.wakeAll(ctx, OutboxGPU, texts[id.GPU](gpus)); err != nil {
		return 0, err
	}
	runs, err := t.q.SweepInvoiceRuns(ctx, t.raw, int32(size))
	if err != nil {
		return 0, mapError(err)
	}
	return len(instances) + len(hosts) + len(gpus) + len(runs), t.wakeAll(ctx, OutboxInvoiceRun, texts[id.Request](runs))
}

func (t *SystemTx) wakeAll(ctx context.Context, kind string, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	t.tell(ChannelOutbox, "")
	return mapError(t.q.AppendOutboxMany(ctx, t.raw, db.AppendOutboxManyParams{Kind: kind, Keys: keys, Reason: "sweep"}))
}

// texts writes database ids as typed ids.
func texts[I interface {
	~[16]byte
	String() string
}](ids []uuid.UUID) []string {
	out := make([]string, len(ids))
	for i, x := range ids {
		out[i] = I(x).String()
	}
	return out
}
