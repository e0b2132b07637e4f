package sim

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// runner takes the steps of a script: by time in a goroutine of its own, by calls
// in the call that they wait for.
type runner struct {
	drv  *Driver
	log  *slog.Logger
	uuid []string // of the host's GPUs by their position in the fleet file

	done chan struct{}
	work sync.WaitGroup

	mu      sync.Mutex
	waiting []*waiting // for calls
}

// waiting is a step that waits for calls.
type waiting struct {
	step
	left int
}

// due is a step that waits for its time.
type due struct {
	step
	at   time.Duration
	left int
}

func newRunner(d *Driver, c Config) *runner {
	r := &runner{drv: d, log: c.Log, done: make(chan struct{})}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	for _, dev := range c.Host.Devices() {
		r.uuid = append(r.uuid, dev.UUID)
	}
	var timed []due
	for _, s := range c.Faults.steps {
		if s.host != "" && s.host != c.Host.Name {
			continue
		}
		if s.on != "" {
			r.waiting = append(r.waiting, &waiting{step: s, left: s.call})
			continue
		}
		left := 1
		if s.every > 0 {
			left = s.times
		}
		timed = append(timed, due{step: s, at: s.at, left: left})
	}
	if len(timed) > 0 {
		r.work.Go(func() { r.run(timed) })
	}
	return r
}

// run takes timed steps until none is left.
func (r *runner) run(list []due) {
	begin := time.Now()
	for len(list) > 0 {
		slices.SortStableFunc(list, func(a, b due) int { return cmp.Compare(a.at, b.at) })
		timer := time.NewTimer(list[0].at - time.Since(begin))
		select {
		case <-r.done:
			timer.Stop()
			return
		case <-timer.C:
		}
		r.take(list[0].step)
		list[0].at += list[0].every
		if list[0].left--; list[0].left == 0 {
			list = list[1:]
		}
	}
}

// stop ends the script; steps not taken by then are not taken.
func (r *runner) stop() {
	if r == nil {
		return
	}
	r.mu.Lock()
	select {
	case <-r.done:
	default:
		close(r.done)
	}
	r.mu.Unlock()
	r.work.Wait()
}

// called counts a driver call before it does anything, and takes the steps that
// waited for it.
func (r *runner) called(op, uuid string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	var now []step
	r.waiting = slices.DeleteFunc(r.waiting, func(w *waiting) bool {
		if !(Fault{GPU: r.named(w.gpu), Op: w.on}).hits(op, uuid) {
			return false
		}
		w.left--
		if w.left == 0 {
			now = append(now, w.step)
		}
		return w.left == 0
	})
	r.mu.Unlock()
	for _, s := range now {
		r.take(s)
	}
}

// named is the UUID of a GPU by its position; "" is every GPU.
func (r *runner) named(position int) string {
	if position < 0 || position >= len(r.uuid) {
		return ""
	}
	return r.uuid[position]
}

// take does what a step orders: once for the host, for a call fault, or for each
// GPU that it names.
func (r *runner) take(s step) {
	a := actions()[s.do]
	targets := []string{r.named(s.gpu)}
	if targets[0] == "" && !a.host && !s.isCallFault() {
		targets = r.uuid
	}
	for _, uuid := range targets {
		if err := a.take(r.drv, uuid, s); err != nil {
			r.log.Error("fault step not taken", "line", s.line, "do", s.do, "gpu", uuid, "error", err)
			continue
		}
		r.log.Info("fault step taken", "line", s.line, "do", s.do, "gpu", uuid)
	}
}

// isCallFault says whether the step makes calls fail, so that no GPU means any.
func (s step) isCallFault() bool {
	switch s.do {
	case "fail", "hang", "in_use", "ci_fails", "needs_reset", "mps_stuck":
		return true
	default:
		return false
	}
}

// Play takes every step of a script now, whenever it is due by itself.
func (d *Driver) Play(s Script) {
	for _, st := range s.steps {
		d.script.take(st)
	}
}
