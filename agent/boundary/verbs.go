package boundary

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/callwire"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/remote"
	"github.com/tranche-cloud/tranche/nodeagent/meter"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// The verbs by name; the package's documentation says what each does.
const (
	hostFacts    = "host.facts"
	gpuRead      = "gpu.read"
	gpuWatch     = "gpu.watch"
	gpuReset     = "gpu.reset"
	gpuTest      = "gpu.test"
	carveEnsure  = "carve.ensure"
	carveRemove  = "carve.remove"
	carveObserve = "carve.observe"
	carveQuiet   = "carve.quiet"
	carveScrub   = "carve.scrub"
	carveProve   = "carve.prove"
	modeEnsure   = "mode.ensure"
	runStart     = "run.start"
	runStop      = "run.stop"
	runList      = "run.list"
	runStats     = "run.stats"
	runPIDs      = "run.pids"
	netTraffic   = "net.traffic"
	guardSync    = "guard.sync"
	doorOpen     = "door.open"
)

// Bounds of what goes on without anybody who waits.
const (
	startWithin  = 2 * time.Hour // images may be large
	changeWithin = 10 * time.Minute
	// repeats is how often a change is made again whose gpu-worker ended under it.
	repeats = 3
)

// request is one call with its two contexts: call ends with the connection, base with
// the helper.
type request struct {
	callwire.Call
	base, call context.Context
}

type verb struct {
	do    func(*Server, request) (any, error)
	check func(body []byte) (any, error)
}

type checked interface{ check() error }

// taking makes a verb whose arguments are a T.
func taking[T checked](do func(*Server, request, T) (any, error)) verb {
	read := func(body []byte) (T, error) {
		var a T
		if err := callwire.Strictly(body, &a); err != nil {
			return a, invalid("the arguments are not those of the verb")
		}
		return a, a.check()
	}
	return verb{
		do: func(s *Server, r request) (any, error) {
			a, err := read(r.Body)
			if err != nil {
				return nil, err
			}
			return do(s, r, a)
		},
		check: func(body []byte) (any, error) { return read(body) },
	}
}

var verbs = map[string]verb{
	hostFacts: taking(func(s *Server, _ request, _ nothing) (any, error) { return s.facts(), nil }),
	gpuRead: taking(func(s *Server, r request, a readArgs) (any, error) {
		return remote.Read(r.call, s.cfg.Host.Driver, a.Op, a.Args)
	}),
	gpuWatch: taking(func(s *Server, r request, _ nothing) (any, error) {
		return nil, remote.Forward(r.call, s.cfg.Host.Driver, r.Note)
	}),
	gpuReset:    taking((*Server).reset),
	gpuTest:     taking((*Server).test),
	carveEnsure: taking((*Server).ensure),
	carveRemove: taking((*Server).remove),
	carveObserve: taking(func(s *Server, r request, a gpuArgs) (any, error) {
		return s.cfg.Host.Carve.Observe(r.call, a.GPU)
	}),
	carveQuiet: taking(func(s *Server, r request, a sliceArgs) (any, error) {
		return nil, s.cfg.Host.Carve.Quiet(r.call, a.slice(), a.PIDs)
	}),
	carveScrub: taking((*Server).scrub),
	carveProve: taking((*Server).prove),
	modeEnsure: taking((*Server).mode),
	runStart:   taking((*Server).start),
	runStop:    taking((*Server).stop),
	runList:    taking(func(s *Server, r request, _ nothing) (any, error) { return s.cfg.Host.Runtime.List(r.call) }),
	runStats: taking(func(s *Server, r request, a nameArgs) (any, error) {
		return s.cfg.Host.Runtime.Stats(r.call, a.Name)
	}),
	runPIDs: taking(func(s *Server, _ request, a nameArgs) (any, error) {
		if s.cfg.Host.PIDs == nil {
			return []int{}, nil
		}
		return s.cfg.Host.PIDs(a.Name)
	}),
	netTraffic: taking(func(s *Server, r request, _ nothing) (any, error) {
		if s.cfg.Traffic == nil {
			return map[string]meter.Traffic{}, nil
		}
		return s.cfg.Traffic(r.call)
	}),
	guardSync: taking(func(s *Server, _ request, a guardArgs) (any, error) { return s.watch.sync(a), nil }),
	doorOpen:  taking((*Server).door),
}

// Check reads the arguments of a verb as the helper does, and does nothing.
func Check(name string, body []byte) (args any, err error) {
	v, ok := verbs[name]
	if !ok {
		return nil, invalid("no such verb")
	}
	return v.check(body)
}

// Verbs lists the verbs.
func Verbs() []string {
	out := make([]string, 0, len(verbs))
	for name := range verbs {
		out = append(out, name)
	}
	return out
}

// facts is what the host is.
type facts struct {
	RuntimeName string              `json:"runtime"`
	Modes       map[string]gpu.Mode `json:"modes"`
	VCPU        int                 `json:"vcpu"`
	RAM         units.MiB           `json:"ram_mib"`
	Reach       agentlink.Reach     `json:"reach"`
	BootID      string              `json:"boot_id"`
	Floors      []string            `json:"floors"`
	// Which ports the host has beside the others.
	Door, Scrub, SelfTest, PIDs, Reset, Guard, Traffic bool
	// ComputeMode is the one that GPUs in mps mode are kept in; "" is left alone.
	ComputeMode string
}

func (s *Server) facts() facts {
	h := s.cfg.Host
	f := facts{
		RuntimeName: h.RuntimeName, Modes: h.Modes, VCPU: h.VCPU, RAM: h.RAM, Reach: h.Reach, BootID: h.BootID,
		Door: h.Door != nil, Scrub: h.Scrub != nil, SelfTest: h.SelfTest != nil, PIDs: h.PIDs != nil, Reset: s.cfg.Reset != nil,
		Guard: s.cfg.Guard != nil, Traffic: s.cfg.Traffic != nil, ComputeMode: s.cfg.ComputeMode,
	}
	if h.Floors != nil {
		f.Floors = h.Floors()
	}
	return f
}

// settle makes a change of something named to its end, one at a time. Whoever asked may
// go away meanwhile. A gpu-worker that ends under it lets it begin anew.
func (s *Server) settle(r request, name string, within time.Duration, change func(context.Context) error) error {
	leave, err := s.queues.enter(r.call, name)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.base, within)
	defer cancel()
	for try := 1; ; try++ {
		err = change(ctx)
		if !errors.Is(err, remote.ErrLost) || try == repeats {
			return err
		}
	}
}

func (s *Server) reset(r request, a gpuArgs) (any, error) {
	if s.cfg.Reset == nil {
		return nil, gpudrv.Refuse(gpudrv.Unsupported, "reset", a.GPU, "this host resets no GPU")
	}
	return nil, s.settle(r, a.GPU, changeWithin, func(ctx context.Context) error { return s.cfg.Reset(ctx, a.GPU) })
}

func (s *Server) test(r request, a gpuArgs) (any, error) {
	if s.cfg.Host.SelfTest == nil {
		return nil, nil
	}
	return nil, s.settle(r, a.GPU, changeWithin, func(ctx context.Context) error { return s.cfg.Host.SelfTest(ctx, a.GPU) })
}

func (s *Server) ensure(r request, a sliceArgs) (out any, err error) {
	err = s.settle(r, a.Slot.GPU, changeWithin, func(ctx context.Context) (err error) {
		out, err = s.cfg.Host.Carve.Ensure(ctx, a.slice())
		return err
	})
	return out, err
}

func (s *Server) remove(r request, a sliceArgs) (any, error) {
	return nil, s.settle(r, a.Slot.GPU, changeWithin, func(ctx context.Context) error { return s.cfg.Host.Carve.Remove(ctx, a.slice()) })
}

func (s *Server) scrub(r request, a sliceArgs) (any, error) {
	if s.cfg.Host.Scrub == nil {
		return nil, gpudrv.Refuse(gpudrv.Unsupported, "scrub", a.Slot.GPU, "this host scrubs nothing")
	}
	evidence := ""
	err := s.settle(r, a.Slot.GPU, changeWithin, func(ctx context.Context) (err error) {
		evidence, err = s.cfg.Host.Scrub.Scrub(ctx, a.slice())
		return err
	})
	return evidence, err
}

// prover is a carver that can show that slices work.
type prover interface {
	Prove(ctx context.Context, uuid string) error
}

func (s *Server) prove(r request, a gpuArgs) (any, error) {
	p, ok := s.cfg.Host.Carve.(prover)
	if !ok {
		return nil, nil
	}
	return nil, s.settle(r, a.GPU, changeWithin, func(ctx context.Context) error { return p.Prove(ctx, a.GPU) })
}

func (s *Server) mode(r request, a gpuArgs) (any, error) {
	if !a.Mode.Valid() {
		return nil, invalid("the mode is none")
	}
	return nil, s.settle(r, a.GPU, changeWithin, func(ctx context.Context) error { return s.cfg.Host.Carve.EnsureMode(ctx, a.GPU, a.Mode) })
}

func (s *Server) start(r request, a runArgs) (any, error) {
	progress, done := lossy(r.Note)
	defer done()
	var out runtime.Container
	err := s.settle(r, a.Name, startWithin, func(ctx context.Context) (err error) {
		ctx, end := s.starts.begin(ctx, a.Name)
		defer end()
		out, err = s.cfg.Host.Runtime.Start(ctx, a.spec(progress))
		return err
	})
	return out, err
}

// starts are under way; a stop ends the one of its name, so that a delete does not
// wait for an image that nobody wants any more.
type starts struct {
	mu      sync.Mutex
	running map[string]context.CancelFunc
}

func (s *starts) begin(ctx context.Context, name string) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[name] = cancel
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, name)
		cancel()
	}
}

func (s *starts) abort(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.running[name]; cancel != nil {
		cancel()
	}
}

// lossy tells the newest text and never waits for who hears it.
func lossy(note func(any) error) (tell func(string), done func()) {
	newest, end := make(chan string, 1), make(chan struct{})
	go func() {
		for {
			select {
			case text := <-newest:
				_ = note(text) // who has gone away hears nothing
			case <-end:
				return
			}
		}
	}()
	tell = func(text string) {
		select {
		case newest <- text:
		default:
		}
	}
	return tell, func() { close(end) }
}

func (s *Server) stop(r request, a nameArgs) (any, error) {
	s.starts.abort(a.Name)
	return nil, s.settle(r, a.Name, changeWithin, func(ctx context.Context) error { return s.cfg.Host.Runtime.Stop(ctx, a.Name) })
}

func (s *Server) door(r request, a doorArgs) (any, error) {
	if s.cfg.Host.Door == nil {
		return nil, nil
	}
	return nil, s.settle(r, doorOpen, changeWithin, func(ctx context.Context) error {
		return s.cfg.Host.Door.Open(ctx, a.Authorities, a.List)
	})
}
