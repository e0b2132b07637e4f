package hardware

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
)

const (
	// detectWithin is how soon a hostile program has to be ended, in ms.
	detectWithin = 2000
	// shareError is how far a share of the SMs may be off, in points.
	shareError = 1.5
	// repetitions is how often a start is measured; the median counts.
	repetitions = 5
	second      = 1000.0
)

// bare runs the program alone, without any of ours: what everything is compared
// with. The first start does not count, for caches to be warm.
func (r *run) bare(ctx context.Context) error {
	var firsts []float64
	for n := range repetitions + 1 {
		seconds := "1"
		if n == repetitions {
			seconds = "4"
		}
		began := time.Now()
		out, err := exec.CommandContext(ctx, filepath.Join(r.Programs, "spin"), seconds).Output()
		if err != nil {
			return fmt.Errorf("run spin: %w: %s", err, out)
		}
		var rates []float64
		for _, l := range parse(out) {
			switch l.Event {
			case "start":
				r.soloSMs = l.SMs
			case "first":
				firsts = append(firsts, float64(l.At-began.UnixMilli()))
			case "rate":
				rates = append(rates, l.PerSecond)
			}
		}
		if len(rates) == 0 {
			return errors.New("spin printed no rate")
		}
		r.soloRate = mean(rates)
	}
	r.bareFirst = median(firsts[1:])
	r.told("bare program: start to first kernel, median", r.bareFirst, "ms", spread(firsts[1:]))
	r.told("bare program: rate", r.soloRate, "it/s", fmt.Sprintf("%.0f SMs", r.soloSMs))
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
	_, took, err := r.begin(ctx, 0, "h200-whole", "whole-cold", "spin", "6")
	if err != nil {
		return err
	}
	r.told("create to first kernel, image pulled", took, "ms", "")
	ran, err := r.running(ctx, "whole-cold")
	if err != nil {
		return err
	}
	r.told("create to running, as the API says", millis(ran), "ms", "")
	if _, err := r.await(ctx, "whole-cold", "rate", 5); err != nil {
		return err
	}
	r.atLeast("rate against the bare program", 100*mean(r.rates("whole-cold", 0, 0))/r.soloRate, 99, "%")
	if err := r.clear(ctx); err != nil {
		return err
	}
	return r.starts(ctx, "h200-whole")
}

// starts measures how long instances of an offer take to their first kernel, one
// after the other, against twice the bare program's start.
func (r *run) starts(ctx context.Context, offer string) error {
	var took []float64
	for n := range repetitions {
		name := fmt.Sprintf("%s-start-%d", offer, n)
		_, first, err := r.begin(ctx, 0, offer, name, "spin", "60")
		if err != nil {
			return err
		}
		took = append(took, first)
		if err := r.remove(ctx, name); err != nil {
			return err
		}
	}
	r.add(Figure{
		Name: "create to first kernel, median", Value: median(took), Unit: "ms", Want: fmt.Sprintf("at most %.0f", 2*r.bareFirst),
		OK: median(took) <= 2*r.bareFirst, Note: spread(took),
	})
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

// metering compares what was measured with what was done, at two loads.
func (r *run) metering(ctx context.Context) error {
	return errors.Join(r.meter(ctx, 30), r.meter(ctx, 70))
}

// meter computes for a share of the time and reads the samples of it. The intervals
// that count lie within the program's life.
func (r *run) meter(ctx context.Context, duty float64) (err error) {
	defer func() { err = errors.Join(err, r.clear(ctx)) }()
	const tolerance = 5.0
	name := fmt.Sprintf("duty-%.0f", duty)
	first, _, err := r.begin(ctx, 0, "h200-whole", name, "spin", "33", strconv.Itoa(int(duty)))
	if err != nil {
		return err
	}
	end, err := r.await(ctx, name, "end", 1)
	if err != nil {
		return err
	}
	r.told(name+": as the program counts it", end.Busy*100, "%", "")
	within, cancel := context.WithTimeout(ctx, 25*time.Second)
	defer cancel()
	sums, counts := map[string]float64{}, map[string]float64{}
	for counts[gpuBusy] < 2 {
		if err := pause(within, "no samples of "+name+" arrived"); err != nil {
			return err
		}
		if sums, counts, err = r.sampled(within, name, first.At, end.At); err != nil {
			return err
		}
	}
	for reading := range sums {
		r.told(name+": sampled "+reading, sums[reading]/counts[reading], "mean", fmt.Sprintf("%.0f samples", counts[reading]))
	}
	const perPercent = 10_000 // in millionths
	busy := sums[gpuBusy] / counts[gpuBusy] / perPercent
	r.add(Figure{Name: name + ": metered use", Value: busy, Unit: "%", Want: fmt.Sprintf("%g ± %g", duty, tolerance),
		OK: busy >= duty-tolerance && busy <= duty+tolerance})
	return nil
}

// gpuBusy is the reading that tells for which share of the time a slice computed.
const gpuBusy = "gpu_busy_ppm"

// sampled adds up the readings of an instance whose intervals lie between two
// instants, in ms since 1970.
func (r *run) sampled(ctx context.Context, name string, from, to int64) (sums, counts map[string]float64, err error) {
	m := r.made[name]
	list, err := client.Collect(r.stack.Client(m.buyer.Key).Samples(ctx, m.buyer.Project, m.Id, time.UnixMilli(from), time.UnixMilli(to)))
	sums, counts = map[string]float64{}, map[string]float64{}
	for _, s := range list {
		at := s.At.UnixMilli()
		if at-int64(s.IntervalMs) < from || at > to {
			continue
		}
		for reading, v := range s.Readings {
			sums[reading] += float64(v)
			counts[reading]++
		}
	}
	return sums, counts, err
}

// lone compares a share that is the whole GPU, behind the daemon, with the bare
// program.
func (r *run) lone(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.clear(ctx)) }()
	if err := r.setMode(ctx, "mps:1x100"); err != nil {
		return err
	}
	if _, _, err := r.begin(ctx, 0, "h200-client", "lone", "spin", "600"); err != nil {
		return err
	}
	if _, err := r.await(ctx, "lone", "rate", 5); err != nil {
		return err
	}
	r.atLeast("rate of one client against the bare program", 100*mean(r.rates("lone", 0, 0))/r.soloRate, 99, "%")
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
	if err := r.granted(ctx, "left", 50); err != nil {
		return err
	}
	if err := r.starts(ctx, "h200-half"); err != nil {
		return err
	}
	second, _, err := r.begin(ctx, 0, "h200-half", "right", "spin", "8")
	if err != nil {
		return err
	}
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

// granted compares the SMs that a program sees with what was sold.
func (r *run) granted(ctx context.Context, name string, percent float64) error {
	start, err := r.await(ctx, name, "start", 1)
	if err != nil {
		return err
	}
	r.share(fmt.Sprintf("SMs that %s sees, %.0f of %.0f", name, start.SMs, r.soloSMs), 100*start.SMs/r.soloSMs, percent)
	r.told("memory that "+name+" sees as free", start.Free, "MiB", "")
	return nil
}

// share adds a share of the bare rate.
func (r *run) share(name string, got, want float64) {
	r.add(Figure{Name: name, Value: got, Unit: "%", Want: fmt.Sprintf("%g ± %g", want, shareError),
		OK: got >= want-shareError && got <= want+shareError})
}

// quarters runs four equal shares, and asks for more memory than one has.
func (r *run) quarters(ctx context.Context) error {
	if err := r.setMode(ctx, "mps:4x25"); err != nil {
		return err
	}
	if err := r.create(ctx, r.buyers[0], "h200-quarter", "asker", "allocate", "36000", "30000", "5500", "--hold", "1"); err != nil {
		return err
	}
	start, err := r.await(ctx, "asker", "start", 1)
	if err != nil {
		return err
	}
	r.share(fmt.Sprintf("SMs of a quarter, %.0f of %.0f", start.SMs, r.soloSMs), 100*start.SMs/r.soloSMs, 25)
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
