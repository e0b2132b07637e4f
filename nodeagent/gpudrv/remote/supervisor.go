package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/nodeagent/callwire"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// ErrLost is the cause of a change that a worker was asked for and did not answer
// before it ended: whether it was made is not known, and it is safe to repeat.
var ErrLost = callwire.ErrLost

// Config says how workers are started and how long they may take. Start and Clock are
// needed; zero times take the default.
type Config struct {
	Start Start
	// StartWithin is how long a worker may take until its driver is open; 30 s.
	StartWithin time.Duration
	// ReadWithin is after how long a read's GPU is taken for hung, whoever waits; 10 s.
	ReadWithin time.Duration
	// WriteWithin is the same for changes (60 s), ResetWithin for resets (2 min).
	WriteWithin, ResetWithin time.Duration
	// Hung hears of every GPU that is newly taken for hung, and of all that are; "" among
	// them is the driver as a whole. It must not call the Supervisor. Nil hears nothing.
	Hung  func(uuid string, all []string)
	Clock clock.Clock
	Log   *slog.Logger
}

// restAfter is the pause after a worker that could not be started.
const restAfter = time.Second

// Supervisor is a driver whose calls run in a worker. It is safe for concurrent use.
type Supervisor struct {
	Reads
	writes
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	now      *worker           // nil: none that may be used
	starting chan struct{}     // closed when the start under way has ended; nil: none
	failure  error             // of the last start
	failedAt time.Time         // of it
	hung     map[string]string // what happened, by UUID; "" is the driver as a whole
	stuck    map[string]int    // abandoned workers that have not ended, by what they hang on
	refs     []gpudrv.Ref      // as listed last
}

var _ gpudrv.Driver = (*Supervisor)(nil)

// worker is one process that serves.
type worker struct {
	proc   Process
	client *callwire.Client
	// calls are under way; retire is what ends the worker once there are none, nil while
	// it serves. The Supervisor's lock guards both.
	calls  int
	retire func()
}

func (w *worker) ended() bool {
	select {
	case <-w.client.Done():
		return true
	default:
		return false
	}
}

// Supervise starts the first worker and returns when its driver is open. It fails as
// opening the driver does.
func Supervise(ctx context.Context, cfg Config) (*Supervisor, error) {
	cfg.StartWithin = cmp.Or(cfg.StartWithin, 30*time.Second)
	cfg.ReadWithin = cmp.Or(cfg.ReadWithin, 10*time.Second)
	cfg.WriteWithin = cmp.Or(cfg.WriteWithin, time.Minute)
	cfg.ResetWithin = cmp.Or(cfg.ResetWithin, 2*time.Minute)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Supervisor{cfg: cfg, hung: map[string]string{}, stuck: map[string]int{}}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.Ask = s.read
	s.ask = s.write
	if _, err := s.worker(ctx, opOpen, ""); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the worker. What exists on the GPUs stays.
func (s *Supervisor) Close() error {
	s.cancel()
	s.mu.Lock()
	w := s.now
	s.now = nil
	s.mu.Unlock()
	if w != nil {
		w.client.Close()
		s.see(w.proc)
	}
	return nil
}

// Status is what is known about the workers.
type Status struct {
	PID   int               // of the worker that serves; 0 without one
	Hung  map[string]string // what happened, by UUID; "" is the driver as a whole
	Stuck map[string]int    // abandoned processes that have not ended, by what they hang on
}

// Status returns what is known about the workers now.
func (s *Supervisor) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Hung: maps.Clone(s.hung), Stuck: maps.Clone(s.stuck)}
	if s.now != nil && !s.now.ended() {
		st.PID = s.now.proc.PID()
	}
	return st
}

// Readmit lets a GPU that hung be asked again; "" is the driver as a whole. It is
// refused as Hung while a process is still stuck on it: another would be stuck too.
func (s *Supervisor) Readmit(uuid string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, hangs := s.hung[uuid]; !hangs {
		return nil
	}
	if s.stuck[uuid] > 0 {
		return gpudrv.Refuse(gpudrv.Hung, "readmit", uuid, "an abandoned process still hangs on it")
	}
	delete(s.hung, uuid)
	if w := s.now; w != nil {
		s.now = nil // it was told to leave the GPU alone
		w.retire = w.client.Close
		s.settle(w, 0)
	}
	return nil
}

// settle counts the calls of a worker, and ends one that is to retire when the last of
// them has: what it does for other GPUs is not cut short. The caller holds s.mu.
func (s *Supervisor) settle(w *worker, by int) {
	if w.calls += by; w.calls == 0 && w.retire != nil {
		w.retire()
	}
}

// refused is the answer to calls that would hang. A reset asked for by name readmits
// its GPU: it is how a hung one comes back.
func (s *Supervisor) refused(op, uuid string) error {
	s.mu.Lock()
	why, hangs := s.hung[uuid]
	host, all := s.hung[""]
	s.mu.Unlock()
	switch {
	case all:
		return gpudrv.Refuse(gpudrv.Hung, op, uuid, "the driver hangs: %s", host)
	case !hangs:
		return nil
	case op == opReset:
		return s.Readmit(uuid)
	}
	return gpudrv.Refuse(gpudrv.Hung, op, uuid, "it is not asked: %s", why)
}

func (s *Supervisor) read(ctx context.Context, op string, a Args, out any) error {
	if refs, ok := s.listed(op); ok {
		*(out.(*[]gpudrv.Ref)) = refs //nolint:forcetypeassert // what GPUs asks for
		return nil
	}
	err := s.call(ctx, op, a, out, s.cfg.ReadWithin)
	if errors.Is(err, ErrLost) {
		err = s.call(ctx, op, a, out, s.cfg.ReadWithin)
	}
	if refs, ok := out.(*[]gpudrv.Ref); ok && err == nil {
		s.mu.Lock()
		s.refs = slices.Clone(*refs)
		s.mu.Unlock()
	}
	return err
}

// listed answers the list of GPUs while one hangs: listing would touch it, and the list
// does not change while the driver is loaded.
func (s *Supervisor) listed(op string) ([]gpudrv.Ref, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op != opGPUs || len(s.hung) == 0 || len(s.refs) == 0 {
		return nil, false
	}
	return slices.Clone(s.refs), true
}

func (s *Supervisor) write(ctx context.Context, op string, a Args, out any) error {
	within := s.cfg.WriteWithin
	if op == opReset {
		within = s.cfg.ResetWithin
	}
	return s.call(ctx, op, a, out, within)
}

// call asks a worker. The GPU is taken for hung by the Supervisor's own measure: a
// caller with less patience gets Hung and nothing else happens.
func (s *Supervisor) call(ctx context.Context, op string, a Args, out any, within time.Duration) error {
	if err := ctx.Err(); err != nil {
		return gpudrv.Refuse(gpudrv.Hung, op, a.GPU, "no time left").Because(err)
	}
	if err := s.refused(op, a.GPU); err != nil {
		return err
	}
	w, err := s.worker(ctx, op, a.GPU)
	if err != nil {
		return err
	}
	type result struct {
		body json.RawMessage
		err  error
	}
	done := make(chan result, 1)
	s.mu.Lock()
	s.settle(w, 1)
	s.mu.Unlock()
	go func() {
		defer func() { s.mu.Lock(); defer s.mu.Unlock(); s.settle(w, -1) }()
		measure, cancel := context.WithTimeout(s.ctx, within)
		defer cancel()
		body, err := w.client.Call(measure, op, a, nil)
		if s.hangs(measure, err) {
			s.abandon(w, a.GPU, fmt.Sprintf("%s had no answer within %s", op, within))
			err = gpudrv.Refuse(gpudrv.Hung, op, a.GPU, "no answer within %s", within)
		}
		done <- result{body, err}
	}()
	select {
	case r := <-done:
		if r.err == nil && out != nil {
			r.err = json.Unmarshal(r.body, out)
		}
		return typed(op, a.GPU, r.err)
	case <-ctx.Done():
		return gpudrv.Refuse(gpudrv.Hung, op, a.GPU, "no answer in time").Because(ctx.Err())
	}
}

// hangs says whether a call that nobody took back had no answer from the driver, by our
// measure or by the worker's, which are the same and may end in either order.
func (s *Supervisor) hangs(measure context.Context, err error) bool {
	if err == nil || s.ctx.Err() != nil {
		return false
	}
	return measure.Err() != nil || gpudrv.KindOf(err) == gpudrv.Hung ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// typed makes every error a driver's.
func typed(op, uuid string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*gpudrv.Error](err); ok {
		return err
	}
	if errors.Is(err, ErrLost) {
		return gpudrv.Refuse(gpudrv.Broken, op, uuid, "the gpu worker ended during the call").Because(err)
	}
	return gpudrv.Refuse(gpudrv.Broken, op, uuid, "ask the gpu worker").Because(err)
}

// abandon gives a worker up because it hangs on a GPU; nobody waits for it.
func (s *Supervisor) abandon(w *worker, uuid, why string) {
	s.mu.Lock()
	_, known := s.hung[uuid]
	s.hung[uuid] = why
	if s.now == w {
		s.now = nil
	}
	if !known {
		s.stuck[uuid]++
	}
	all := slices.Sorted(maps.Keys(s.hung))
	s.mu.Unlock()
	if known {
		return // its worker was abandoned by the first call that found out
	}
	s.cfg.Log.Error("gpu worker abandoned", "gpu", uuid, "pid", w.proc.PID(), "reason", why)
	s.mu.Lock()
	w.retire = sync.OnceFunc(func() { go s.bury(w, uuid) })
	s.settle(w, 0)
	s.mu.Unlock()
	if s.cfg.Hung != nil {
		s.cfg.Hung(uuid, all)
	}
}

// bury ends an abandoned worker. Best effort: a process that is stuck in the kernel
// outlives its kill, and is counted for as long.
func (s *Supervisor) bury(w *worker, uuid string) {
	w.client.Close()
	_ = w.proc.Kill()
	_ = w.proc.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck[uuid]--; s.stuck[uuid] == 0 {
		delete(s.stuck, uuid)
	}
}

// worker returns one that serves, and starts it if there is none.
func (s *Supervisor) worker(ctx context.Context, op, uuid string) (*worker, error) {
	for {
		s.mu.Lock()
		if s.ctx.Err() != nil {
			s.mu.Unlock()
			return nil, gpudrv.Refuse(gpudrv.Broken, op, uuid, "the driver is closed")
		}
		if s.now != nil && !s.now.ended() {
			defer s.mu.Unlock()
			return s.now, nil
		}
		if s.starting == nil && s.failure != nil && s.cfg.Clock.Now().Sub(s.failedAt) < restAfter {
			defer s.mu.Unlock()
			return nil, typed(op, uuid, s.failure)
		}
		if s.starting == nil {
			s.starting = make(chan struct{})
			go s.start(slices.Sorted(maps.Keys(s.hung)))
		}
		started := s.starting
		s.mu.Unlock()
		select {
		case <-started:
		case <-ctx.Done():
			return nil, gpudrv.Refuse(gpudrv.Hung, op, uuid, "no gpu worker in time").Because(ctx.Err())
		}
	}
}

// start starts one worker; it ends a start that others wait for.
func (s *Supervisor) start(excluded []string) {
	w, err := s.spawn(excluded)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.failure, s.failedAt = w, err, s.cfg.Clock.Now()
	close(s.starting)
	s.starting = nil
	if w != nil && (s.ctx.Err() != nil || s.readmitted(excluded)) {
		s.now = nil
		w.client.Close()
	}
}

// readmitted says whether a GPU that was left out is asked again. The caller holds
// s.mu.
func (s *Supervisor) readmitted(excluded []string) bool {
	return slices.ContainsFunc(excluded, func(uuid string) bool {
		_, hangs := s.hung[uuid]
		return !hangs
	})
}

func (s *Supervisor) spawn(excluded []string) (*worker, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.StartWithin)
	defer cancel()
	proc, err := s.cfg.Start(excluded)
	if err != nil {
		return nil, err
	}
	client, err := callwire.NewClient(ctx, proc)
	if err != nil {
		go s.see(proc)
		return nil, err
	}
	w := &worker{proc: proc, client: client}
	_, err = client.Call(ctx, opOpen, Args{}, nil)
	if s.hangs(ctx, err) {
		why := fmt.Sprintf("the driver did not open within %s", s.cfg.StartWithin)
		s.abandon(w, "", why)
		return nil, gpudrv.Refuse(gpudrv.Hung, opOpen, "", "%s", why)
	}
	if err != nil {
		client.Close()
		go s.see(proc)
		return nil, err
	}
	s.cfg.Log.Info("gpu worker started", "pid", proc.PID(), "without", excluded)
	go func() {
		<-client.Done()
		s.endOf(w)
	}()
	return w, nil
}

// endOf sees to a worker whose pipe has ended. One that was abandoned is seen to
// already.
func (s *Supervisor) endOf(w *worker) {
	s.mu.Lock()
	serves := s.now == w
	if serves {
		s.now = nil
	}
	s.mu.Unlock()
	if serves {
		s.cfg.Log.Warn("gpu worker ended", "pid", w.proc.PID())
	}
	s.see(w.proc)
}

// endWithin is how long a worker whose pipe has ended may take to end.
const endWithin = 2 * time.Second

// see waits a little for the end of a process and kills it otherwise.
func (s *Supervisor) see(p Process) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = p.Wait() // how it ended does not matter
	}()
	timer := s.cfg.Clock.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C():
		_ = p.Kill()
	}
}

// Watch implements gpudrv.Observer.
func (s *Supervisor) Watch(ctx context.Context) (gpudrv.Watcher, error) {
	return NewWatcher(ctx, s.cfg.Clock, func(ctx context.Context, told func(json.RawMessage)) error {
		if err := s.refused(opWatch, ""); err != nil {
			return err
		}
		w, err := s.worker(ctx, opWatch, "")
		if err != nil {
			return err
		}
		_, err = w.client.Call(ctx, opWatch, Args{}, told)
		return typed(opWatch, "", err)
	})
}
