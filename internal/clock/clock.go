// Package clock owns the machine clock: what time it is, and timers, real in
// production and steered by hand in tests.
//
// It does not own business time (segments, prices, periods): that clock lives in
// the database, may be scaled and jumped in development, and is read by the
// store. Pure packages take neither; they get `at time.Time` as an argument.
package clock

import (
	"sync"
	"time"
)

// Clock tells machine time and makes timers on it.
type Clock interface {
	// Now returns the current instant in UTC.
	Now() time.Time
	// NewTimer returns a timer that fires once, d from now; at once when d ≤ 0.
	NewTimer(d time.Duration) Timer
}

// Timer is one pending wake-up.
type Timer interface {
	// C receives the instant of firing, once.
	C() <-chan time.Time
	// Stop prevents the timer from firing. It reports false when the timer
	// has fired or was stopped before.
	Stop() bool
}

// Real returns the clock of this machine.
func Real() Clock { return machine{} }

type machine struct{}

func (machine) Now() time.Time                 { return time.Now().UTC() }
func (machine) NewTimer(d time.Duration) Timer { return realTimer{time.NewTimer(d)} }

type realTimer struct{ timer *time.Timer }

func (t realTimer) C() <-chan time.Time { return t.timer.C }
func (t realTimer) Stop() bool          { return t.timer.Stop() }

// Fake is a clock that moves only when told to. It is safe for concurrent use.
type Fake struct {
	mu     sync.Mutex
	moved  *sync.Cond // signalled whenever a timer is added
	now    time.Time
	timers []*fakeTimer
}

// NewFake returns a clock that stands at the given instant.
func NewFake(at time.Time) *Fake {
	f := &Fake{now: at.UTC()}
	f.moved = sync.NewCond(&f.mu)
	return f
}

// Now returns the instant the clock stands at, in UTC.
func (f *Fake) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// NewTimer returns a timer that fires when the clock is moved to d from now or
// past it; at once when d ≤ 0.
func (f *Fake) NewTimer(d time.Duration) Timer {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &fakeTimer{clock: f, due: f.now.Add(d), c: make(chan time.Time, 1)}
	f.timers = append(f.timers, t)
	f.fire()
	f.moved.Broadcast()
	return t
}

// Advance moves the clock forward by d and fires every timer that came due. A
// negative d moves it backward, as a corrected machine clock does.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
	f.fire()
}

// Set moves the clock to the given instant and fires every timer that came due.
func (f *Fake) Set(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = at.UTC()
	f.fire()
}

// WaitTimers returns once n timers are pending, so that a test moves the clock
// only after the code under test has begun to wait.
func (f *Fake) WaitTimers(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.timers) < n {
		f.moved.Wait()
	}
}

// fire sends to every due timer and forgets it. The caller holds the lock; the
// channels have room for their one value, so no send blocks.
func (f *Fake) fire() {
	pending := f.timers[:0]
	for _, t := range f.timers {
		if t.due.After(f.now) {
			pending = append(pending, t)
			continue
		}
		t.c <- f.now
	}
	f.timers = pending
}

type fakeTimer struct {
	clock *Fake
	due   time.Time
	c     chan time.Time
}

func (t *fakeTimer) C() <-chan time.Time { return t.c }

func (t *fakeTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	for i, pending := range t.clock.timers {
		if pending == t {
			t.clock.timers = append(t.clock.timers[:i], t.clock.timers[i+1:]...)
			return true
		}
	}
	return false
}
