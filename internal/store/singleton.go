package store

import (
	"context"
	"errors"
	"time"
)

// singletonRetry is how often a process asks for a duty that another one has, and
// how often a holder checks that its connection, which is the lock, still lives.
const singletonRetry = 2 * time.Second

// Singleton runs work in one process at a time of all that share the database,
// again and again until ctx ends: it waits for the named advisory lock, and cancels
// work's context when the connection that holds it is lost. Errors of work other
// than the end of its context are passed to failed, after which work starts anew.
func (s *Store) Singleton(ctx context.Context, name string, work func(context.Context) error, failed func(error)) {
	for ctx.Err() == nil {
		if err := s.singletonOnce(ctx, name, work); err != nil && ctx.Err() == nil && !errors.Is(err, errHeld) {
			failed(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(singletonRetry):
		}
	}
}

var errHeld = errors.New("another process has this duty")

func (s *Store) singletonOnce(ctx context.Context, name string, work func(context.Context) error) error {
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return unavailable(err)
	}
	conn := pooled.Hijack() // its end gives the lock back, whatever happens
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	var ours bool
	if err := conn.QueryRow(ctx, `select pg_try_advisory_lock(hashtextextended($1, 0))`, "tranche/"+name).Scan(&ours); err != nil {
		return mapError(err)
	}
	if !ours {
		return errHeld
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- work(inner) }()
	tick := time.NewTicker(singletonRetry)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			if err := conn.Ping(inner); err != nil {
				cancel(err)
				return unavailable(errors.Join(err, <-done))
			}
		}
	}
}
