package workflows

import (
	"context"
	"log/slog"
	"time"

	"github.com/tranche-cloud/tranche/internal/group"
)

// loops runs what exactly one process does: the sweeper, the watch over hosts, the
// tidying. A failing round is reported once a stretch and repeated.
func (w *Worker) loops(ctx context.Context) error {
	var jobs []group.Job
	for _, l := range []struct {
		name  string
		every time.Duration
		do    func(context.Context) error
	}{
		{"sweep", time.Second, func(ctx context.Context) error {
			_, err := w.App.Sweep(ctx)
			return err
		}},
		{"liveness", 2 * time.Second, w.App.WatchLiveness},
		{"tidy", 10 * time.Minute, w.App.Tidy},
		{"reservations", 5 * time.Second, w.App.ProgressReservations},
		{"seal", 5 * time.Second, func(ctx context.Context) error {
			_, err := w.App.SealDue(ctx)
			return err
		}},
		{"checkpoint", time.Minute, w.App.Checkpoint},
		{"reconcile", 10 * time.Minute, w.App.ReconcileDue},
		{"burn down", time.Second, w.App.BurnDown},
		{"accrual", time.Minute, w.App.AccrueAll},
		{"grant expiry", time.Minute, w.App.ExpireGrants},
		{"collection", 10 * time.Second, w.App.CollectPayments},
		{"provider events", 5 * time.Second, w.App.ProcessProviderEvents},
		{"dunning", time.Minute, w.App.RunDunning},
		{"originals", 5 * time.Second, w.storeOriginals},
	} {
		jobs = append(jobs, func(ctx context.Context) error { return w.loop(ctx, l.name, l.every, l.do) })
	}
	return group.Run(ctx, jobs...)
}

// storeOriginals stores originals until no document lacks one.
func (w *Worker) storeOriginals(ctx context.Context) error {
	for {
		if n, err := w.App.StoreOriginals(ctx); n == 0 || err != nil {
			return err
		}
	}
}

func (w *Worker) loop(ctx context.Context, name string, every time.Duration, do func(context.Context) error) error {
	failing := false
	for {
		err := do(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			w.Log.Warn("loop fails", "loop", name, "error", err)
		}
		failing = err != nil
		timer := w.App.Clock.NewTimer(every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
	}
}

// quiet lets only warnings and worse of the Temporal client through: it tells of
// each poller that starts and each call it repeats.
type quiet struct{ slog.Handler }

// Enabled implements slog.Handler.
func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && q.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(a []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(a)} }

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
