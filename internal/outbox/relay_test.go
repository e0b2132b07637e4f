package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/outbox"
	"github.com/tranche-cloud/tranche/internal/store"
)

// queue hands out its rows once and remembers how they were settled.
type queue struct {
	mu           sync.Mutex
	rows         []store.OutboxRow
	sent, failed []int64
	delay        time.Duration
}

func (q *queue) ClaimOutbox(_ context.Context, size int, _ time.Duration) ([]store.OutboxRow, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(size, len(q.rows))
	out := q.rows[:n]
	q.rows = q.rows[n:]
	return out, nil
}

func (q *queue) SettleOutbox(_ context.Context, sent, failed []int64, delay time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sent, q.failed, q.delay = append(q.sent, sent...), append(q.failed, failed...), delay
	return nil
}

func relay(q *queue, deliver outbox.Deliver) *outbox.Relay {
	return &outbox.Relay{Queue: q, Deliver: deliver, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)}
}

func TestRowsOfOneKeyAreOneDelivery(t *testing.T) {
	t.Parallel()
	q := &queue{rows: []store.OutboxRow{
		{ID: 1, Kind: "instance", Key: "a"},
		{ID: 2, Kind: "instance", Key: "b"},
		{ID: 3, Kind: "instance", Key: "a"},
		{ID: 4, Kind: "host", Key: "a"},
	}}
	var mu sync.Mutex
	var got []string
	n, err := relay(q, func(_ context.Context, kind, key string) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, kind+"/"+key)
		return nil
	}).Once(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, n)
	require.ElementsMatch(t, []string{"instance/a", "instance/b", "host/a"}, got)
	slices.Sort(q.sent)
	require.Equal(t, []int64{1, 2, 3, 4}, q.sent)
}

func TestAFailedDeliveryComesBackAloneAndLater(t *testing.T) {
	t.Parallel()
	q := &queue{rows: []store.OutboxRow{
		{ID: 1, Kind: "instance", Key: "a", Attempt: 3}, {ID: 2, Kind: "instance", Key: "b", Attempt: 1},
	}}
	away := errors.New("away")
	_, err := relay(q, func(_ context.Context, _, key string) error {
		if key == "a" {
			return away
		}
		return nil
	}).Once(t.Context())
	require.ErrorIs(t, err, away)
	require.Equal(t, []int64{2}, q.sent)
	require.Equal(t, []int64{1}, q.failed)
	require.Equal(t, 1500*time.Millisecond, q.delay)
}

func TestTheRelayIsWokenAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	q := &queue{}
	delivered := make(chan string, 1)
	r := relay(q, func(_ context.Context, _, key string) error {
		delivered <- key
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	wake := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, wake) }()
	q.mu.Lock()
	q.rows = []store.OutboxRow{{ID: 7, Kind: "instance", Key: "x"}}
	q.mu.Unlock()
	wake <- struct{}{}
	require.Equal(t, "x", <-delivered)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
