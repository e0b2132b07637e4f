package store

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Channels of NOTIFY. A notice only shortens a wait: every listener also polls.
const (
	ChannelOutbox = "tranche_outbox"
	ChannelHost   = "tranche_host" // payload: the host's typed id
)

// coalesceFor is how long notices gather; inside a transaction NOTIFY costs most
// of the throughput (10-domain §5), so they go out after commit, once a window.
const coalesceFor = 10 * time.Millisecond

type notice struct{ channel, payload string }

// tell asks for a NOTIFY after this transaction commits.
func (t *tx) tell(channel, payload string) { t.told = append(t.told, notice{channel, payload}) }

type notifier struct {
	pool *pgxpool.Pool
	log  *slog.Logger
	in   chan []notice
	end  chan struct{} // closed when nothing more will be told
	done sync.WaitGroup
	stop sync.Once
}

// newNotifier starts the sender. It ends with close and not with ctx, because
// what was committed before a shutdown is still to be told.
func newNotifier(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) *notifier {
	n := &notifier{pool: pool, log: log, in: make(chan []notice, 256), end: make(chan struct{})}
	n.done.Go(func() { n.run(context.WithoutCancel(ctx)) })
	return n
}

// send never blocks: a full queue drops notices, and pollers find the rows.
func (n *notifier) send(told []notice) {
	if len(told) == 0 {
		return
	}
	select {
	case <-n.end: // a transaction that commits during shutdown
	case n.in <- told:
	default:
	}
}

func (n *notifier) close() {
	n.stop.Do(func() { close(n.end) })
	n.done.Wait()
}

func (n *notifier) run(ctx context.Context) {
	for {
		select {
		case first := <-n.in:
			// The first of a quiet time goes at once, what follows in the window together.
			n.flush(ctx, distinct(first))
			n.flush(ctx, n.gather())
		case <-n.end:
			select {
			case last := <-n.in:
				n.flush(ctx, distinct(last))
				n.flush(ctx, n.gather())
			default:
			}
			return
		}
	}
}

// gather collects what is told within the window.
func (n *notifier) gather() map[notice]bool {
	pending := map[notice]bool{}
	timer := time.NewTimer(coalesceFor)
	defer timer.Stop()
	for {
		select {
		case told := <-n.in:
			for _, t := range told {
				pending[t] = true
			}
		case <-timer.C:
			return pending
		}
	}
}

func distinct(told []notice) map[notice]bool {
	out := map[notice]bool{}
	for _, t := range told {
		out[t] = true
	}
	return out
}

func (n *notifier) flush(ctx context.Context, pending map[notice]bool) {
	if len(pending) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var channels, payloads []string
	for t := range pending {
		channels, payloads = append(channels, t.channel), append(payloads, t.payload)
	}
	_, err := n.pool.Exec(ctx, `select pg_notify(c, p) from unnest($1::text[], $2::text[]) as t(c, p)`, channels, payloads)
	if err != nil {
		n.log.Debug("notify was lost, pollers will find the rows", "error", err)
	}
}

// Listen calls wake for each NOTIFY on the channels until ctx ends. It reconnects
// by itself and calls wake with an empty payload after each reconnect, because
// notices may have been lost.
func (s *Store) Listen(ctx context.Context, channels []string, wake func(channel, payload string)) error {
	for ctx.Err() == nil {
		if err := s.listenOnce(ctx, channels, wake); err != nil && ctx.Err() == nil {
			s.log.Debug("listening again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	}
	return ctx.Err()
}

func (s *Store) listenOnce(ctx context.Context, channels []string, wake func(channel, payload string)) error {
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack() // a listening connection must not go back to the pool
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, c := range channels {
		if _, err := conn.Exec(ctx, "listen "+c); err != nil {
			return err
		}
		wake(c, "")
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		wake(n.Channel, n.Payload)
	}
}
