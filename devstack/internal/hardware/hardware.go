// Package hardware owns the run on real hardware: a whole installation on one GPU
// machine, used through the public API, with CUDA programs in its instances and
// hostile ones among them, and the figures that come of it.
//
// It starts everything it needs and takes everything away again; what is left is a
// finding. It changes none of the machine's settings. Times are in milliseconds,
// rates in iterations a second of the program `spin`, memory in MiB.
package hardware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
)

// Config says what is on the machine.
type Config struct {
	Stack stack.Config
	// Programs is the folder of the CUDA programs, built on this machine.
	Programs string
	// AgentArgs are the agent's arguments beside those that every agent has.
	AgentArgs []string
	// Report is the file for the figures, one JSON object a line.
	Report string
}

// Figure is one measured value. Want is what it should be, in words; OK says
// whether it is.
type Figure struct {
	Step  string  `json:"step"`
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Want  string  `json:"want,omitempty"`
	OK    bool    `json:"ok"`
	Note  string  `json:"note,omitempty"`
}

// run is one run under way.
type run struct {
	Config
	out    io.Writer
	report *os.File
	step   string
	failed int

	stack    *stack.Stack
	admin    client.Admin
	registry *registry
	buyers   [2]market.Buyer
	gpu      client.GPU
	made     map[string]madeInstance // by name

	soloRate, soloSMs, bareFirst float64
}

// step is one part of the run. A step that fails is a finding, and the next is
// tried, unless it is needed by all others.
type step struct {
	name   string
	do     func(*run, context.Context) error
	within time.Duration
	needed bool
}

var steps = []step{
	{"bare program", (*run).bare, 30 * time.Second, true},
	{"installation", (*run).install, 2 * time.Minute, true},
	{"whole", (*run).whole, 90 * time.Second, false},
	{"residue", (*run).residue, 90 * time.Second, false},
	{"metering", (*run).metering, 2 * time.Minute, false},
	{"mps:1x100", (*run).lone, time.Minute, false},
	{"mps:2x50", (*run).halves, 90 * time.Second, false},
	{"hostile: hides from the daemon", (*run).bypass, time.Minute, false},
	{"hostile: again after a restart", (*run).bypassAgain, time.Minute, false},
	{"kill -9 of a client", (*run).killClient, time.Minute, false},
	{"mps:4x25", (*run).quarters, 2 * time.Minute, false},
	{"hostile: two processes", (*run).twice, time.Minute, false},
	{"kill -9 of the agent", (*run).killAgent, time.Minute, false},
	{"timeslice:2", (*run).turns, 90 * time.Second, false},
	{"hostile: too much memory", (*run).hog, time.Minute, false},
	{"teardown", (*run).teardown, 2 * time.Minute, false},
}

// Run plays all steps and returns an error if any figure is not as it should be.
func Run(ctx context.Context, c Config, out io.Writer) (err error) {
	r := &run{Config: c, out: out, made: map[string]madeInstance{}}
	if r.report, err = os.Create(c.Report); err != nil {
		return fmt.Errorf("make the report: %w", err)
	}
	defer func() { err = errors.Join(err, r.report.Close()) }()
	for _, s := range steps {
		if broken := r.play(ctx, s); broken != nil && s.needed {
			return errors.Join(broken, r.close(ctx))
		}
	}
	if err := r.close(ctx); err != nil {
		return err
	}
	if r.failed > 0 {
		return fmt.Errorf("%d figures are not as they should be", r.failed)
	}
	return nil
}

func (r *run) play(ctx context.Context, s step) error {
	r.step = s.name
	fmt.Fprintf(r.out, "\n── %s\n", s.name)
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	err := s.do(r, ctx)
	if err != nil {
		r.add(Figure{Name: "step", Unit: "ok", Want: "no error", Note: err.Error()})
	}
	fmt.Fprintf(r.out, "   %.1f s\n", time.Since(began).Seconds())
	return err
}

// add writes a figure down.
func (r *run) add(f Figure) {
	f.Step = r.step
	verdict := "ok"
	if !f.OK {
		r.failed++
		verdict = "NOT AS IT SHOULD BE"
	}
	fmt.Fprintf(r.out, "   %-44s %12.2f %-6s %-24s %s %s\n", f.Name, f.Value, f.Unit, f.Want, verdict, f.Note)
	line, err := json.Marshal(f)
	if err == nil {
		_, err = r.report.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(r.out, "   the report cannot be written:", err)
	}
}

// told adds a value that nothing is asked of.
func (r *run) told(name string, value float64, unit, note string) {
	r.add(Figure{Name: name, Value: value, Unit: unit, OK: true, Note: note})
}

// atMost and atLeast add a value with its bound.
func (r *run) atMost(name string, value, bound float64, unit string) {
	r.add(Figure{Name: name, Value: value, Unit: unit, Want: fmt.Sprintf("at most %g", bound), OK: value <= bound})
}

func (r *run) atLeast(name string, value, bound float64, unit string) {
	r.add(Figure{Name: name, Value: value, Unit: unit, Want: fmt.Sprintf("at least %g", bound), OK: value >= bound})
}

// holds adds something that is true or not.
func (r *run) holds(name string, ok bool, note string) {
	value := 0.0
	if ok {
		value = 1
	}
	r.add(Figure{Name: name, Value: value, Unit: "ok", Want: "1", OK: ok, Note: note})
}

// close ends what still runs.
func (r *run) close(ctx context.Context) error {
	if r.registry != nil {
		r.registry.close()
	}
	if r.stack == nil {
		return nil
	}
	s := r.stack
	r.stack = nil
	return s.Stop(context.WithoutCancel(ctx))
}
