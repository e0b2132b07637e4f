package guard

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
	"github.com/tranche-cloud/tranche/nodeagent/process"
)

const (
	// every and closer are the times between two looks: closer while somebody is
	// suspected.
	every  = time.Second
	closer = 250 * time.Millisecond
	// lookFor bounds one look at one GPU, so that a GPU that hangs does not blind
	// the guard on the others.
	lookFor = 700 * time.Millisecond
	// settingsEvery is the time between two looks at the compute mode.
	settingsEvery = time.Minute
	// serverName is the process of an MPS server, as the kernel shortens it.
	serverName = "nvidia-cuda-mps"
)

// Target is one GPU to be guarded.
type Target struct {
	GPU string // UUID
	// Kind is the technique: mps and timeslice are guarded, others ignored.
	Kind   gpu.Kind
	Slices []Slice
	// ComputeMode is the compute mode that the GPU should be in; "" is not checked.
	ComputeMode string
}

// Driver is what the guard asks of GPUs; gpudrv.Driver has it.
type Driver interface {
	Processes(ctx context.Context, uuid string) ([]gpudrv.Process, error)
	Settings(ctx context.Context, uuid string) (gpudrv.Settings, error)
}

// Daemons is what the guard asks of MPS; mpsd.Control has it.
type Daemons interface {
	Clients(ctx context.Context, uuid string) ([]mpsd.Client, error)
	Terminate(ctx context.Context, uuid string, c mpsd.Client) error
}

// Ended tells that a program is being ended.
type Ended struct {
	GPU        string
	Assignment string
	Process    process.Identity
	Name       string
	Reason     Reason
	Detail     string
	Victims    []string // assignments of the other slices with work on the GPU
	At         time.Time
}

// Holder is a process on a guarded GPU that is in no slice.
type Holder struct {
	GPU     string
	Process process.Identity
	Name    string
}

// Drift tells that a GPU is not in the compute mode it should be in.
type Drift struct{ GPU, Want, Got string }

// Sink takes what the guard did and found. Calls come one at a time.
type Sink interface {
	Ended(Ended)
	// Held comes once for each holder.
	Held(Holder)
	Drifted(Drift)
}

// Config is what a guard works with; every field is needed.
type Config struct {
	Driver  Driver
	Daemons Daemons
	// Targets lists the GPUs to look at now.
	Targets func() []Target
	// SliceOf returns the assignment whose container a process runs in.
	SliceOf func(pid int) (assignment string, ok bool)
	Sink    Sink
	Clock   clock.Clock
	Log     *slog.Logger
}

// Guard looks after the GPUs of one host.
type Guard struct {
	c Config

	mu       sync.Mutex
	gpus     map[string]*memory
	settings time.Time // of the last look
}

// memory is what the guard knows about one GPU from earlier looks.
type memory struct {
	suspects Suspects
	ended    map[process.Identity]bool
	holders  map[process.Identity]bool
}

// New makes a guard; it does nothing until Run.
func New(c Config) *Guard { return &Guard{c: c, gpus: map[string]*memory{}} }

// Run looks until ctx ends, and returns its error.
func (g *Guard) Run(ctx context.Context) error {
	for {
		pause := every
		if g.Look(ctx) {
			pause = closer
		}
		timer := g.c.Clock.NewTimer(pause)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// Look looks once at every GPU, all at the same time, and ends who has been in
// breach for long enough. It returns whether somebody is suspected, so that the
// next look should come soon.
func (g *Guard) Look(ctx context.Context) bool {
	targets := g.c.Targets()
	g.forget(targets)
	now := g.c.Clock.Now()
	withSettings := now.Sub(g.settings) >= settingsEvery
	if withSettings {
		g.settings = now
	}
	var wg sync.WaitGroup
	suspected := make([]bool, len(targets))
	for i, t := range targets {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, lookFor)
			defer cancel()
			if t.Kind == gpu.MPS || t.Kind == gpu.TimeSlice {
				suspected[i] = g.look(ctx, t)
			}
			if withSettings && t.ComputeMode != "" {
				g.checkComputeMode(ctx, t)
			}
		})
	}
	wg.Wait()
	for _, s := range suspected {
		if s {
			return true
		}
	}
	return false
}

// forget drops what is known about GPUs that are no target any more.
func (g *Guard) forget(targets []Target) {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := make(map[string]*memory, len(targets))
	for _, t := range targets {
		next[t.GPU] = g.gpus[t.GPU]
		if next[t.GPU] == nil {
			next[t.GPU] = &memory{ended: map[process.Identity]bool{}, holders: map[process.Identity]bool{}}
		}
	}
	g.gpus = next
}

// look judges one GPU.
func (g *Guard) look(ctx context.Context, t Target) bool {
	scene, clients, err := g.scene(ctx, t)
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			g.c.Log.WarnContext(ctx, "guard cannot look at gpu", "gpu", t.GPU, "error", err)
		}
		return false
	}
	g.mu.Lock()
	m := g.gpus[t.GPU]
	g.mu.Unlock()
	verdicts, suspects := Judge(scene, m.suspects)
	m.suspects = suspects
	g.report(t, scene, m)
	for _, v := range verdicts {
		g.end(ctx, t, v, clients, m)
	}
	return len(suspects) > 0
}

// scene reads who is on the GPU and then who is connected to its daemon: in this
// order an honest client is never seen on the GPU but not yet at the daemon.
func (g *Guard) scene(ctx context.Context, t Target) (Scene, map[process.Identity]mpsd.Client, error) {
	list, err := g.c.Driver.Processes(ctx, t.GPU)
	if err != nil {
		return Scene{}, nil, err
	}
	s := Scene{At: g.c.Clock.Now(), Kind: t.Kind, Slices: t.Slices}
	ours := false
	for _, p := range list {
		id, err := process.Of(p.PID)
		if err != nil {
			continue // it has ended
		}
		slice, _ := g.c.SliceOf(p.PID)
		if id.Ending() {
			continue // it runs no more, and its successor is not to blame
		}
		ours = ours || slice != ""
		s.Seen = append(s.Seen, Seen{Process: id, Name: p.Name, Used: p.UsedBytes, Slice: slice})
	}
	if t.Kind != gpu.MPS || !ours {
		return s, nil, nil
	}
	clients := map[process.Identity]mpsd.Client{}
	connected, err := g.c.Daemons.Clients(ctx, t.GPU)
	if err != nil && gpudrv.KindOf(err) != gpudrv.NotFound {
		g.c.Log.WarnContext(ctx, "guard cannot ask the MPS daemon", "gpu", t.GPU, "error", err)
		return s, clients, nil
	}
	s.ClientsKnown = true // without a daemon everybody is outside of it
	for _, c := range connected {
		clients[c.Process] = c
	}
	for i := range s.Seen {
		_, s.Seen[i].Client = clients[s.Seen[i].Process]
	}
	return s, clients, nil
}

// report tells of processes in no slice of this GPU, each once.
func (g *Guard) report(t Target, s Scene, m *memory) {
	mine := map[string]bool{}
	for _, sl := range t.Slices {
		mine[sl.Assignment] = true
	}
	now, ended := map[process.Identity]bool{}, map[process.Identity]bool{}
	for _, p := range s.Seen {
		if m.ended[p.Process] {
			ended[p.Process] = true
		}
		if mine[p.Slice] || (p.Slice == "" && strings.HasPrefix(p.Name, serverName)) {
			continue
		}
		now[p.Process] = true
		if !m.holders[p.Process] {
			g.tell(func(k Sink) { k.Held(Holder{GPU: t.GPU, Process: p.Process, Name: p.Name}) })
		}
	}
	m.holders, m.ended = now, ended
}

func (g *Guard) tell(f func(Sink)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(g.c.Sink)
}

// end tells the sink, cuts a client off its daemon and kills its process, in this
// order: told afterwards, the end could be taken for the program's own; and a signal
// alone, with work under way, can take its neighbours along.
func (g *Guard) end(ctx context.Context, t Target, v Verdict, clients map[process.Identity]mpsd.Client, m *memory) {
	id := v.Seen.Process
	if slice, _ := g.c.SliceOf(id.PID); slice != v.Seen.Slice || !id.Alive() {
		return
	}
	if !m.ended[id] { // else it is slow to go and was told of
		m.ended[id] = true
		g.tell(func(k Sink) {
			k.Ended(Ended{
				GPU: t.GPU, Assignment: v.Seen.Slice, Process: id, Name: v.Seen.Name,
				Reason: v.Reason, Detail: v.Detail, Victims: v.Victims, At: g.c.Clock.Now(),
			})
		})
	}
	if c, ok := clients[id]; ok {
		if err := g.c.Daemons.Terminate(ctx, t.GPU, c); err != nil {
			g.c.Log.WarnContext(ctx, "MPS daemon did not cut a client off", "gpu", t.GPU, "process", id.String(), "error", err)
		}
	}
	if err := id.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, process.ErrGone) {
		g.c.Log.ErrorContext(ctx, "guard cannot end a process", "gpu", t.GPU, "process", id.String(), "error", err)
	}
}

func (g *Guard) checkComputeMode(ctx context.Context, t Target) {
	s, err := g.c.Driver.Settings(ctx, t.GPU)
	if err != nil {
		g.c.Log.WarnContext(ctx, "guard cannot read the compute mode", "gpu", t.GPU, "error", err)
		return
	}
	if got, ok := s.ComputeMode.Get(); ok && got != t.ComputeMode {
		g.tell(func(k Sink) { k.Drifted(Drift{GPU: t.GPU, Want: t.ComputeMode, Got: got}) })
	}
}
