// Package blocking runs calls that cannot be interrupted, such as those into a
// driver's library, for callers with a deadline. A call that does not come back
// costs its thread and no more: it is abandoned, and what it is about is not
// asked again once several calls hang there.
package blocking

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// MaxHung is how many abandoned calls a subject may have before it is not asked
// any more: each holds a thread until it returns.
const MaxHung = 3

// lookAgain is how often a busy session is asked for.
const lookAgain = 10 * time.Millisecond

// Calls is the calls of one session with a library. The zero Calls is ready.
type Calls struct {
	session    sync.RWMutex
	generation atomic.Uint64
	wanted     atomic.Int64

	mu   sync.Mutex
	hung map[string]int // abandoned calls by subject
}

// Generation counts how often somebody was alone in the session: handles of an
// older generation may be dead.
func (c *Calls) Generation() uint64 { return c.generation.Load() }

// Wanted says that somebody waits to be alone, so that who calls again and again
// makes room.
func (c *Calls) Wanted() bool { return c.wanted.Load() > 0 }

// Shared runs f in the session, beside others, in the caller's thread.
func (c *Calls) Shared(f func()) {
	c.session.RLock()
	defer c.session.RUnlock()
	f()
}

func (c *Calls) count(subject string, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hung == nil {
		c.hung = map[string]int{}
	}
	c.hung[subject] += by
}

func (c *Calls) hangs(subject string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hung[subject] >= MaxHung
}

// Do runs f in the session, beside others, in a thread of its own. The subject
// is the UUID of the GPU that it is about, or "". A *gpudrv.Error with Hung tells
// that the context ended first, or that MaxHung earlier calls have not come back.
func Do[T any](ctx context.Context, c *Calls, op, subject string, f func() (T, error)) (T, error) {
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, gpudrv.Refuse(gpudrv.Hung, op, subject, "no time left").Because(err)
	}
	if c.hangs(subject) {
		return zero, gpudrv.Refuse(gpudrv.Hung, op, subject, "%d earlier calls have not come back", MaxHung)
	}
	return abandonable(ctx, c, op, subject, func() (out T, err error) {
		c.Shared(func() { out, err = f() })
		return out, err
	})
}

// abandonable runs f in a goroutine and counts it while it runs on without
// anybody who waits.
func abandonable[T any](ctx context.Context, c *Calls, op, subject string, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	const running, abandoned, finished = 0, 1, 2
	var state atomic.Int32
	done := make(chan result, 1)
	go func() {
		v, err := f()
		if !state.CompareAndSwap(running, finished) {
			c.count(subject, -1)
		}
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		c.count(subject, 1)
		if !state.CompareAndSwap(running, abandoned) {
			c.count(subject, -1)
			r := <-done
			return r.v, r.err
		}
		var zero T
		return zero, gpudrv.Refuse(gpudrv.Hung, op, subject, "no answer in time").Because(ctx.Err())
	}
}

// Alone runs f while no other call is in the session. Hung if the others do not
// come back, or f does not, before the context ends.
func (c *Calls) Alone(ctx context.Context, op, subject string, f func() error) error {
	if !c.lock(ctx.Done()) {
		return gpudrv.Refuse(gpudrv.Hung, op, subject, "other calls do not come back").Because(ctx.Err())
	}
	_, err := abandonable(ctx, c, op, subject, func() (struct{}, error) {
		defer c.session.Unlock()
		defer c.generation.Add(1)
		return struct{}{}, f()
	})
	return err
}

// Finish runs f alone, as the last call of all; Hung if the others do not come
// back within the time.
func (c *Calls) Finish(within time.Duration, op string, f func() error) error {
	expired := make(chan struct{})
	timer := time.AfterFunc(within, func() { close(expired) })
	defer timer.Stop()
	if !c.lock(expired) {
		return gpudrv.Refuse(gpudrv.Hung, op, "", "other calls do not come back")
	}
	defer c.session.Unlock()
	c.generation.Add(1)
	return f()
}

func (c *Calls) lock(done <-chan struct{}) bool {
	c.wanted.Add(1)
	defer c.wanted.Add(-1)
	for !c.session.TryLock() {
		timer := time.NewTimer(lookAgain)
		select {
		case <-timer.C:
		case <-done:
			timer.Stop()
			return false
		}
	}
	return true
}
