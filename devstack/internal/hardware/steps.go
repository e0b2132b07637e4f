package hardware

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

const (
	// detectWithin is how soon a hostile program has to be ended, in ms.
	detectWithin = 2000
	// shareError is how far a share of the SMs may be off, in points.
	shareError = 1.5
	second     = 1000.0
)

// bare runs the program alone, without any of ours: what everything is compared
// with. The second run counts, for caches to be warm.
func (r *run) bare(ctx context.Context) error {
	for range 2 {
		began := time.Now()
		out, err := exec.CommandContext(ctx, filepath.Join(r.Programs, "spin"), "4").Output()
		if err != nil {
			return fmt.Errorf("run spin: %w: %s", err, out)
		}
		var rates []float64
		for _, l := range parse(out) {
			switch l.Event {
			case "first":
				r.bareFirst = float64(l.At - began.UnixMilli())
			case "rate":
				rates = append(rates, l.PerSecond)
			}
		}
		if len(rates) == 0 {
			return errors.New("spin printed no rate")
		}
		r.soloRate = mean(rates)
	}
	r.told("bare program: start to first kernel", r.bareFirst, "ms", "")
	r.told("bare program: rate", r.soloRate, "it/s", "")
	return nil
}

// install brings everything up and lets this machine in.
func (r *run) install(ctx context.Context) error {
	began := time.Now()
	c := r.Config.Stack
	c.Stage = func(what string, took time.Duration) { r.told("start "+what, millis(took), "ms", "") }
	var err error
	if r.registry, err = serve(r.Programs); err != nil {
		return err
	}
	if r.stack, err = stack.Start(ctx, c); err != nil {
		return err
	}
	r.admin = r.stack.Admin()
	r.told("installation up", millis(time.Since(began)), "ms", "")
	began = time.Now()
	args := append([]string{"--image-allow", r.registry.prefix()}, r.AgentArgs...)
	if err := r.stack.StartHost(ctx, hostName, args...); err != nil {
		return err
	}
	if err := errors.Join(r.awaitHost(ctx), r.awaitGPU(ctx), r.stock(ctx)); err != nil {
		return err
	}
	r.told("host enrolled and ready", millis(time.Since(began)), "ms", "")
	r.holds("the GPU is real", !r.gpu.Simulated, r.gpu.Model+" in mode "+r.gpu.Mode)
	return nil
}

// begin creates an instance and waits for its first kernel. It returns the first
// kernel's line and the time from the request to it.
func (r *run) begin(ctx context.Context, buyer int, offer, name string, command ...string) (line, float64, error) {
	if err := r.create(ctx, r.buyers[buyer], offer, name, command...); err != nil {
		return line{}, 0, err
	}
	first, err := r.await(ctx, name, "first", 1)
	return first, float64(first.At - r.made[name].asked.UnixMilli()), err
}

// whole compares a whole GPU in a container with the bare program.
func (r *run) whole(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.clear(ctx)) }()
	if r.gpu.Mode != "whole" {
		if err := r.setMode(ctx, "whole"); err != nil {
			return err
		}
	}
	for _, name := range []string{"cold", "warm"} {
		_, took, err := r.begin(ctx, 0, "h200-whole", "whole-"+name, "spin", "6")
		if err != nil {
			return err
		}
		if name == "cold" {
			r.told("create to first kernel, image pulled", took, "ms", "")
		} else {
			r.atMost("create to first kernel", took, 2*r.bareFirst, "ms")
		}
		ran, err := r.running(ctx, "whole-"+name)
		if err != nil {
			return err
		}
		r.told("create to running, as the API says", millis(ran), "ms", name)
		if _, err := r.await(ctx, "whole-"+name, "rate", 4); err != nil {
			return err
		}
		r.atLeast("rate against the bare program", 100*mean(r.rates("whole-"+name, 0, 0))/r.soloRate, 99, "%")
		if err := r.clear(ctx); err != nil {
			return err
		}
	}
	return nil
}

// residue lets one organization write and the next one look.
func (r *run) residue(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.clear(ctx)) }()
	const written, scanned = "120000", "130000"
	if err := r.create(ctx, r.buyers[0], "h200-whole", "writer", "pattern", written, "--hold", "1"); err != nil {
		return err
	}
	l, err := r.await(ctx, "writer", "pattern", 1)
	if err != nil {
		return err
	}
	r.told("words written by the first organization", l.Words, "words", "")
	if err := r.clear(ctx); err != nil {
		return err
	}
	if err := r.create(ctx, r.buyers[1], "h200-whole", "scanner", "scan", scanned); err != nil {
		return err
	}
	if l, err = r.await(ctx, "scanner", "scan", 1); err != nil {
		return err
	}
	r.told("words looked at by the second", l.Words, "words", "")
	r.atMost("words of the pattern found", l.Pattern, 0, "words")
	r.atMost("words that are not zero", l.NotZero, 0, "words")
	return nil
}

// metering compares what was measured with what was done.
func (r *run) metering(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.clear(ctx)) }()
	const duty, tolerance = 30.0, 5.0
	if _, _, err := r.begin(ctx, 0, "h200-whole", "duty", "spin", "25", "30"); err != nil {
		return err
	}
	end, err := r.await(ctx, "duty", "end", 1)
	if err != nil {
		return err
	}
	r.told("duty as the program counts it", end.Busy*100, "%", "")
	m := r.made["duty"]
	from, to := time.UnixMilli(end.At-20_000), time.UnixMilli(end.At)
	var samples []client.Sample
	for len(samples) == 0 {
		if samples, err = client.Collect(r.stack.Client(m.buyer.Key).Samples(ctx, m.buyer.Project, m.Id, from, to)); err != nil {
			return err
		}
		if err := pause(ctx, "no sample arrived"); err != nil {
			return err
		}
	}
	sums, counts := map[string]float64{}, map[string]float64{}
	for _, s := range samples {
		for name, v := range s.Readings {
			sums[s.Source+" "+name] += float64(v)
			counts[s.Source+" "+name]++
		}
	}
	busy := -1.0
	for name := range sums {
		average := sums[name] / counts[name]
		r.told("sampled: "+name, average, "mean", fmt.Sprintf("%.0f samples", counts[name]))
		if strings.Contains(name, "busy") || strings.Contains(name, "gpu_util") {
			busy = average
		}
	}
	if busy > 100 {
		busy /= 10 // in thousandths
	}
	r.add(Figure{Name: "metered use", Value: busy, Unit: "%", Want: fmt.Sprintf("%g ± %g", duty, tolerance),
		OK: busy >= duty-tolerance && busy <= duty+tolerance})
	return nil
}

// halves runs two equal shares beside each other. They stay for the next steps.
func (r *run) halves(ctx context.Context) error {
	if err := r.setMode(ctx, "mps:2x50"); err != nil {
		return err
	}
	_, took, err := r.begin(ctx, 0, "h200-half", "left", "spin", "600")
	if err != nil {
		return err
	}
	r.told("create to first kernel, first share", took, "ms", "")
	if _, err := r.await(ctx, "left", "rate", 3); err != nil {
		return err
	}
	alone := 100 * mean(r.rates("left", 0, 0)) / r.soloRate
	r.share("rate of a half, alone", alone, 50)
	second, took, err := r.begin(ctx, 0, "h200-half", "right", "spin", "8")
	if err != nil {
		return err
	}
	r.atMost("create to first kernel", took, 2*r.bareFirst, "ms")
	end, err := r.await(ctx, "right", "end", 1)
	if err != nil {
		return err
	}
	a, b := mean(r.rates("left", second.At, end.At)), mean(r.rates("right", 0, 0))
	r.share("rate of a half beside another", 100*a/r.soloRate, 50)
	r.share("rate of the other", 100*b/r.soloRate, 50)
	r.told("sum of both", 100*(a+b)/r.soloRate, "%", "of the bare program")
	return r.remove(ctx, "right")
}

// share adds a share of the bare rate.
func (r *run) share(name string, got, want float64) {
	r.add(Figure{Name: name, Value: got, Unit: "%", Want: fmt.Sprintf("%g ± %g", want, shareError),
		OK: got >= want-shareError && got <= want+shareError})
}

// caught waits until a hostile instance is ended, and says how soon after the
// program's first kernel, why, and what its neighbour lost.
func (r *run) caught(ctx context.Context, name string, since int64, reason, neighbour string) error {
	i, err := r.gone(ctx, name)
	if err != nil {
		return err
	}
	lines := r.lines(name)
	last := since
	for _, l := range lines {
		last = max(last, l.At)
	}
	why := ""
	if got, err := i.StatusReason.Get(); err == nil {
		why = got.Code + ": " + got.Detail
	}
	r.told("its last line after its first kernel", float64(last-since), "ms", "")
	r.holds("the tenant is told why", strings.Contains(strings.ToUpper(strings.ReplaceAll(why, ".", "_")), reason), why)
	events, err := r.events(ctx, name)
	if err != nil {
		return err
	}
	told := false
	for _, e := range events {
		text := fmt.Sprint(e.Type, e.Data)
		if strings.Contains(strings.ToUpper(text), reason) {
			told = true
			r.atMost("first kernel to its end, as the event says", float64(e.At.UnixMilli()-since), detectWithin, "ms")
			r.told("event", 1, "seen", text)
			break
		}
	}
	r.holds("the operator is told", told, "")
	if neighbour == "" {
		return nil
	}
	before := mean(r.rates(neighbour, since-4000, since-500))
	during := least(r.rates(neighbour, since-1000, last+2000))
	r.told("neighbour before", before, "it/s", "")
	r.told("neighbour at its worst", during, "it/s", fmt.Sprintf("%.0f %% of before", 100*during/before))
	now := time.Now().UnixMilli()
	for len(r.rates(neighbour, now, 0)) < 2 {
		if err := pause(ctx, "the neighbour does not go on"); err != nil {
			return err
		}
	}
	r.atLeast("neighbour afterwards, against before", 100*mean(r.rates(neighbour, now, 0))/before, 97, "%")
	return nil
}

// bypass hides from the daemon.
func (r *run) bypass(ctx context.Context) error {
	first, _, err := r.begin(ctx, 0, "h200-half", "hider", "spin", "--hide", "40")
	if err != nil {
		return err
	}
	return errors.Join(r.caught(ctx, "hider", first.At, "MPS_BYPASS", "left"), r.remove(ctx, "hider"))
}

// killClient kills a tenant's program from outside, with work under way.
func (r *run) killClient(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.clear(ctx)) }()
	first, _, err := r.begin(ctx, 0, "h200-half", "victim", "spin", "60")
	if err != nil {
		return err
	}
	pid, err := hostPID("victim", "spin")
	if err != nil {
		return err
	}
	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	i, err := r.gone(ctx, "victim")
	if err != nil {
		return err
	}
	why := ""
	if got, err := i.StatusReason.Get(); err == nil {
		why = got.Code + ": " + got.Detail
	}
	r.told("kill to the API's word", millis(time.Since(killed)), "ms", string(i.Status)+" "+why)
	alive := len(r.rates("left", first.At, 0)) > 0 && r.stillRuns(ctx, "left")
	r.told("the neighbour lives", map[bool]float64{true: 1}[alive], "0/1", "a signal without the daemon's help is a race")
	return nil
}

func (r *run) stillRuns(ctx context.Context, name string) bool {
	i, err := r.look(ctx, name)
	return err == nil && i.Status == wire.InstanceStatusRunning
}

// quarters runs four equal shares, and asks for more memory than one has.
func (r *run) quarters(ctx context.Context) error {
	if err := r.setMode(ctx, "mps:4x25"); err != nil {
		return err
	}
	if err := r.create(ctx, r.buyers[0], "h200-quarter", "asker", "allocate", "36000", "30000", "5700", "--hold", "1"); err != nil {
		return err
	}
	start, err := r.await(ctx, "asker", "start", 1)
	if err != nil {
		return err
	}
	r.told("SMs of a quarter", start.SMs, "SMs", "")
	r.told("memory that a quarter sees as free", start.Free, "MiB", "of 35942 sold")
	for n, want := range []bool{false, true, true} {
		l, err := r.await(ctx, "asker", "allocate", n+1)
		if err != nil {
			return err
		}
		r.holds(fmt.Sprintf("%.0f MiB: granted is %t", l.MiB, want), l.OK == want, l.Code)
	}
	if err := r.remove(ctx, "asker"); err != nil {
		return err
	}
	names := []string{"q1", "q2", "q3", "q4"}
	from := int64(0)
	for _, name := range names {
		first, took, err := r.begin(ctx, 0, "h200-quarter", name, "spin", "600")
		if err != nil {
			return err
		}
		r.told("create to first kernel", took, "ms", name)
		from = max(from, first.At)
	}
	for _, name := range names {
		for len(r.rates(name, from, 0)) < 5 {
			if err := pause(ctx, name+" prints no rates"); err != nil {
				return err
			}
		}
	}
	sum := 0.0
	for _, name := range names {
		rate := mean(r.rates(name, from, 0))
		sum += rate
		r.share("rate of "+name, 100*rate/r.soloRate, 25)
	}
	r.told("sum of four", 100*sum/r.soloRate, "%", "of the bare program")
	return r.remove(ctx, "q4")
}

// twice computes in two processes of one slice.
func (r *run) twice(ctx context.Context) error {
	first, _, err := r.begin(ctx, 0, "h200-quarter", "forker", "spin", "--twice", "40")
	if err != nil {
		return err
	}
	if second, err := r.await(ctx, "forker", "first", 2); err == nil {
		first = second
	}
	return errors.Join(r.caught(ctx, "forker", first.At, "PROCESS_LIMIT", "q1"), r.remove(ctx, "forker"))
}

// killAgent kills the agent while shares are in use.
func (r *run) killAgent(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.clear(ctx)) }()
	before := len(r.lines("q1"))
	pid, err := hostPID("q1", "spin")
	if err != nil {
		return err
	}
	began := time.Now()
	if err := r.stack.Kill(stack.AgentName(hostName)); err != nil {
		return err
	}
	process, err := r.stack.Process(stack.AgentName(hostName))
	if err != nil {
		return err
	}
	for process.Starts() < 2 {
		if err := pause(ctx, "the agent is not started again"); err != nil {
			return err
		}
	}
	if err := r.awaitHost(ctx); err != nil {
		return err
	}
	r.told("kill to the host being ready", millis(time.Since(began)), "ms", "")
	for len(r.lines("q1")) < before+4 {
		if err := pause(ctx, "the program does not go on"); err != nil {
			return err
		}
	}
	again, err := hostPID("q1", "spin")
	r.holds("the same program runs on", err == nil && again == pid, "")
	for _, name := range []string{"q1", "q2", "q3"} {
		i, err := r.look(ctx, name)
		r.holds(name+" was not interrupted", err == nil && i.Status == wire.InstanceStatusRunning && len(i.Interruptions) == 0, "")
	}
	_, took, err := r.begin(ctx, 0, "h200-quarter", "after", "spin", "3")
	if err == nil {
		r.told("create to first kernel afterwards", took, "ms", "")
	}
	return err
}

// turns runs two programs in turns.
func (r *run) turns(ctx context.Context) error {
	if err := r.setMode(ctx, "timeslice:2"); err != nil {
		return err
	}
	if _, _, err := r.begin(ctx, 0, "h200-turn", "tick", "spin", "600"); err != nil {
		return err
	}
	first, _, err := r.begin(ctx, 0, "h200-turn", "tock", "spin", "8")
	if err != nil {
		return err
	}
	end, err := r.await(ctx, "tock", "end", 1)
	if err != nil {
		return err
	}
	a, b := mean(r.rates("tick", first.At, end.At)), mean(r.rates("tock", 0, 0))
	r.told("rate of one", 100*a/r.soloRate, "%", "")
	r.told("rate of the other", 100*b/r.soloRate, "%", "")
	r.atLeast("sum of two turns", 100*(a+b)/r.soloRate, 88, "%")
	return r.remove(ctx, "tock")
}

// hog takes more memory than a turn has: nothing but the guard stands against it.
func (r *run) hog(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.clear(ctx)) }()
	if err := r.create(ctx, r.buyers[0], "h200-turn", "hog", "allocate", "80000", "--hold", "40"); err != nil {
		return err
	}
	l, err := r.await(ctx, "hog", "allocate", 1)
	if err != nil {
		return err
	}
	return r.caught(ctx, "hog", l.At, "MEMORY_LIMIT", "tick")
}
