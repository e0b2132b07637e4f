package app

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

const (
	// flightWait bounds how long a repeated request waits in memory for the first.
	flightWait = 2 * time.Second
	// keyLife is how long an idempotency key answers.
	keyLife = 72 * time.Hour
)

// Once names a repeatable request; a zero Key makes it an ordinary one. Org is
// zero for operators, whose keys live in one scope. Fingerprint is that of the
// canonical body.
type Once = store.IdempotencyKey

// Answer is what a repeated request gets again: status, headers and a JSON body
// with secrets already cut out.
type Answer struct {
	Status  int
	Headers map[string]string
	Body    []byte
}

// Idempotent runs work at most once for a key and stores its answer in the same
// transaction: use cases called with the context that work gets join it. A
// repetition gets the stored answer and replayed = true.
//
// It fails with idempotency.mismatch when the body differs from the first one,
// with idempotency.in_flight when the first is still at work after two seconds,
// and with what work fails with; failures are not stored.
func (a *App) Idempotent(
	ctx context.Context, once Once, work func(context.Context) (Answer, error),
) (answer Answer, replayed bool, err error) {
	return a.keyed(ctx, once, work, a.once)
}

// IdempotentApart is Idempotent for work that takes long or asks somebody outside: no
// transaction is open while it lasts, and its answer is stored afterwards. A process
// that dies in between, or a repetition at another process, does the work again: only
// for work that is idempotent by its content.
func (a *App) IdempotentApart(
	ctx context.Context, once Once, work func(context.Context) (Answer, error),
) (answer Answer, replayed bool, err error) {
	return a.keyed(ctx, once, work, a.onceApart)
}

// keyed lets one of a burst in this process run, by whichever way.
func (a *App) keyed(ctx context.Context, once Once, work func(context.Context) (Answer, error), run keyedRun) (answer Answer, replayed bool, err error) {
	if once.Key == "" {
		answer, err = work(ctx)
		return answer, false, err
	}
	deadline := a.Clock.NewTimer(flightWait)
	defer deadline.Stop()
	for {
		f, first := a.flights.join(once)
		if first {
			return a.fly(ctx, once, f, work, run)
		}
		select {
		case <-f.done:
		case <-deadline.C():
			return Answer{}, false, store.KeyInFlight()
		case <-ctx.Done():
			return Answer{}, false, ctx.Err()
		}
		if f.err == nil {
			if !bytes.Equal(f.fingerprint, once.Fingerprint) {
				return Answer{}, false, keyMismatch()
			}
			return f.answer, true, nil
		}
	}
}

// fly is once for the first of a burst: however it ends, the others go on.
func (a *App) fly(
	ctx context.Context, once Once, f *flight, work func(context.Context) (Answer, error), run keyedRun,
) (answer Answer, replayed bool, err error) {
	err = errors.New("the work did not return")
	defer func() { a.flights.land(once, f, answer, err) }()
	return run(ctx, once, work)
}

// keyedRun does the work of a key unless its answer is there.
type keyedRun func(context.Context, Once, func(context.Context) (Answer, error)) (answer Answer, replayed bool, err error)

// keys is what a transaction can do with idempotency keys.
type keys interface {
	IdempotentAnswer(context.Context, store.IdempotencyKey) (*store.IdempotentAnswer, error)
	ClaimIdempotencyKey(context.Context, store.IdempotencyKey) (*store.IdempotentAnswer, error)
	SaveIdempotentAnswer(context.Context, store.IdempotencyKey, store.IdempotentAnswer) error
}

// once claims the key, works and stores the answer, in one transaction.
func (a *App) once(
	ctx context.Context, once Once, work func(context.Context) (Answer, error),
) (answer Answer, replayed bool, err error) {
	run := func(ctx context.Context, t keys) error {
		stored, err := t.ClaimIdempotencyKey(ctx, once)
		if err != nil {
			return err
		}
		if stored != nil {
			replayed = true
			answer, err = replay(once, *stored)
			return err
		}
		if answer, err = work(ctx); err != nil {
			return err
		}
		return t.SaveIdempotentAnswer(ctx, once, store.IdempotentAnswer{
			Status: answer.Status, Headers: answer.Headers, Body: answer.Body,
		})
	}
	if err = a.withKeys(ctx, once.Org, run); err != nil {
		return Answer{}, false, err
	}
	return answer, replayed, nil
}

// onceApart looks for the answer, works, and stores the answer: the two transactions
// around the work are short. Who stores first answers for all.
func (a *App) onceApart(
	ctx context.Context, once Once, work func(context.Context) (Answer, error),
) (answer Answer, replayed bool, err error) {
	ctx = store.Apart(ctx)
	var stored *store.IdempotentAnswer
	err = a.withKeys(ctx, once.Org, func(ctx context.Context, t keys) error {
		stored, err = t.IdempotentAnswer(ctx, once)
		return err
	})
	if err != nil {
		return Answer{}, false, err
	}
	if stored == nil {
		if answer, err = work(ctx); err != nil {
			return Answer{}, false, err
		}
		err = a.withKeys(ctx, once.Org, func(ctx context.Context, t keys) error {
			if stored, err = t.ClaimIdempotencyKey(ctx, once); err != nil || stored != nil {
				return err
			}
			return t.SaveIdempotentAnswer(ctx, once, store.IdempotentAnswer{
				Status: answer.Status, Headers: answer.Headers, Body: answer.Body,
			})
		})
		if err != nil || stored == nil {
			return answer, false, err
		}
	}
	answer, err = replay(once, *stored)
	return answer, err == nil, err
}

// replay is the stored answer, for the body that it was given to.
func replay(once Once, stored store.IdempotentAnswer) (Answer, error) {
	if !bytes.Equal(stored.Fingerprint, once.Fingerprint) {
		return Answer{}, keyMismatch()
	}
	return Answer{Status: stored.Status, Headers: stored.Headers, Body: stored.Body}, nil
}

// withKeys runs fn in a transaction that the use cases called with its context join:
// of an organization, or of the system for operators.
func (a *App) withKeys(ctx context.Context, org id.Org, fn func(context.Context, keys) error) error {
	if org.IsZero() {
		return a.Store.ShareSystem(ctx, "idempotent operator request", func(ctx context.Context, t *store.SystemTx) error {
			return fn(ctx, t)
		})
	}
	return a.Store.ShareOrg(ctx, org, func(ctx context.Context, t *store.OrgTx) error { return fn(ctx, t) })
}

// ForgetKeys deletes idempotency keys past their life and returns how many.
func (a *App) ForgetKeys(ctx context.Context) (n int64, err error) {
	err = a.Store.InSystem(ctx, "forget idempotency keys", func(t *store.SystemTx) error {
		n, err = t.ForgetIdempotencyKeys(ctx, keyLife)
		return err
	})
	return n, err
}

func keyMismatch() error {
	return fault.New(fault.Unprocessable, "idempotency.mismatch",
		"This Idempotency-Key was used with another body.").
		Suggest("Use a fresh key for a different request.")
}

// flights keep repetitions of one key in memory while the first is at work, so
// that a burst of them takes one connection of the pool, not all.
type flights struct {
	mu sync.Mutex
	by map[flightKey]*flight
}

type flightKey struct{ org, method, path, key string }

// flight is one request at work; the other fields are set when done is closed.
type flight struct {
	done        chan struct{}
	fingerprint []byte
	answer      Answer
	err         error
}

func newFlights() *flights { return &flights{by: map[flightKey]*flight{}} }

func keyOf(o Once) flightKey { return flightKey{o.Org.String(), o.Method, o.Path, o.Key} }

// join returns the flight of the key and whether the caller is the first.
func (fs *flights) join(o Once) (*flight, bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f, ok := fs.by[keyOf(o)]; ok {
		return f, false
	}
	f := &flight{done: make(chan struct{}), fingerprint: o.Fingerprint}
	fs.by[keyOf(o)] = f
	return f, true
}

func (fs *flights) land(o Once, f *flight, answer Answer, err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.by, keyOf(o))
	f.answer, f.err = answer, err
	close(f.done)
}
