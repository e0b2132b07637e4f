package meter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Sources of readings.
const (
	GPM     = gpudrv.UsageGPM
	NVML    = gpudrv.UsageNVML
	Cgroup  = "cgroup"
	Network = "network"
)

// Reasons of gaps. A driver's own are its kinds behind "gpu: ".
const (
	GapAway     = "AGENT_AWAY"   // nobody measured
	GapFirst    = "NO_REFERENCE" // a counter that was not read before
	GapUnread   = "NOT_READ"     // the source failed
	GapSlow     = "NO_ANSWER"    // the GPU has not answered yet
	GapSilent   = "NOT_REPORTED" // the source has nothing to say about this slice
	gapOfDriver = "gpu: "
)

const (
	// DefaultEvery is the length of an interval.
	DefaultEvery = 10 * time.Second
	// readWithin bounds the reading of one source.
	readWithin = 3 * time.Second
)

// stretches make intervals longer the more records wait, so that days without a control
// plane do not fill the machine's memory: of a host full of slices a record takes some
// hundred kilobytes.
var stretches = []struct{ above, times int }{{500, 60}, {200, 6}, {-1, 1}}

func stretch(depth int) int {
	for _, s := range stretches {
		if depth > s.above {
			return s.times
		}
	}
	return 1
}

// Driver is what the meter asks of GPUs; gpudrv.Driver has it.
type Driver interface {
	Usage(ctx context.Context, uuid string) ([]gpudrv.SliceUsage, error)
	Processes(ctx context.Context, uuid string) ([]gpudrv.Process, error)
	GPUInstances(ctx context.Context, uuid string) ([]gpudrv.GPUInstance, error)
}

// Traffic is what passed an instance's network since it was attached, in bytes.
type Traffic struct{ In, Out int64 }

// Spool takes records; spool.Spool does.
type Spool interface {
	Samples(x agentlink.Samples) error
}

// Config is what a meter works with. Driver, Tenants, Spool, Clock and Uptime are
// needed.
type Config struct {
	Driver  Driver
	Tenants func() []nodeagent.Tenancy
	Spool   Spool
	// Depth is how many records wait in the spool; nil is few.
	Depth func() int
	// Stats reads the counters of a run's container; nil measures none.
	Stats func(ctx context.Context, name string) (runtime.Stats, error)
	// SliceOf returns the assignment whose container a process runs in; nil knows none.
	SliceOf func(pid int) (assignment string, ok bool)
	// Traffic returns the counters of each instance by assignment; nil measures none.
	Traffic func(ctx context.Context) (map[string]Traffic, error)
	Dir     string // for meter.json; "" keeps nothing
	BootID  string
	Uptime  func() time.Duration
	Clock   clock.Clock
	Log     *slog.Logger
	Every   time.Duration // 0 is DefaultEvery
}

// mark is up to when was measured, and the counters by then.
type mark struct {
	BootID string               `json:"boot_id"`
	UpTo   time.Duration        `json:"up_to_ns"` // uptime
	Runs   map[string]*counters `json:"runs"`     // by assignment, those that ran then
}

// counters are the last values of what only rises, by reading, and who spoke for the
// GPU.
type counters struct {
	Values map[string]int64 `json:"values,omitempty"`
	GPU    string           `json:"gpu,omitempty"`
	// fresh: the run began within the interval, its counters with it at zero.
	fresh bool
}

// Meter measures the slices of one host.
type Meter struct {
	c Config

	mu     sync.Mutex
	mark   mark
	slow   map[string]bool // GPUs that have not answered
	latest map[id.Assignment]*Latest
}

// Latest is what was measured last of a run.
type Latest struct {
	Tenancy nodeagent.Tenancy
	// Readings are those of the last interval; Totals the sums of counters since the
	// agent started.
	Readings, Totals map[string]int64
	Gaps             map[string]string // by source
}

// New makes a meter. It fails if meter.json cannot be read.
func New(c Config) (*Meter, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Every <= 0 {
		c.Every = DefaultEvery
	}
	m := &Meter{c: c, slow: map[string]bool{}, latest: map[id.Assignment]*Latest{}}
	if err := m.load(); err != nil {
		return nil, err
	}
	return m, nil
}

// Run measures at intervals until ctx ends, and returns nil then. It first tells of the
// time in which no agent measured.
func (m *Meter) Run(ctx context.Context) error {
	m.Away(ctx)
	for tick := 1; ; tick++ {
		timer := m.c.Clock.NewTimer(m.c.Every)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		depth := 0
		if m.c.Depth != nil {
			depth = m.c.Depth()
		}
		if tick%stretch(depth) == 0 {
			m.Tick(ctx)
		}
	}
}

// Away tells of the time since the last interval of an earlier process in this boot:
// counters over all of it, gaps for the rest.
func (m *Meter) Away(ctx context.Context) {
	m.mu.Lock()
	known := m.mark.BootID == m.c.BootID && m.mark.UpTo > 0
	if !known {
		m.mark = mark{BootID: m.c.BootID, UpTo: m.c.Uptime(), Runs: map[string]*counters{}}
		m.save()
	}
	m.mu.Unlock()
	if known {
		m.measure(ctx, true)
	}
}

// Tick measures the interval that ends now.
func (m *Meter) Tick(ctx context.Context) { m.measure(ctx, false) }

// measure puts one record for the time since the last into the spool.
func (m *Meter) measure(ctx context.Context, away bool) {
	runs := m.running()
	r := m.read(ctx, runs, !away)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.c.Uptime()
	interval := now - m.mark.UpTo
	if interval <= 0 {
		return
	}
	out := agentlink.Samples{Interval: interval}
	next := map[string]*counters{}
	latest := map[id.Assignment]*Latest{}
	for _, t := range runs {
		key := t.Assignment.String()
		last := m.mark.Runs[key]
		if last == nil && t.Started >= m.mark.UpTo {
			last = &counters{fresh: true}
		}
		l := m.latest[t.Assignment]
		if l == nil {
			l = &Latest{Totals: map[string]int64{}}
		}
		l.Tenancy, latest[t.Assignment] = t, l
		next[key] = &counters{Values: map[string]int64{}}
		out.Slices = append(out.Slices, m.samples(t, r, last, next[key], away)...)
	}
	if len(out.Slices) > 0 {
		if err := m.c.Spool.Samples(out); err != nil {
			m.c.Log.Error("readings not spooled", "error", err) // the next interval covers this one too
			return
		}
	}
	for _, l := range latest {
		l.Readings, l.Gaps = map[string]int64{}, map[string]string{}
	}
	for _, s := range out.Slices {
		latest[s.Assignment].note(s)
	}
	m.mark, m.latest = mark{BootID: m.c.BootID, UpTo: now, Runs: next}, latest
	m.save()
}

// running lists the runs that are on the host now, in a fixed order.
func (m *Meter) running() []nodeagent.Tenancy {
	var out []nodeagent.Tenancy
	for _, t := range m.c.Tenants() {
		if t.Running {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b nodeagent.Tenancy) int {
		return strings.Compare(a.Assignment.String(), b.Assignment.String())
	})
	return out
}

// note keeps a sample for those who look.
func (l *Latest) note(s agentlink.SliceSample) {
	if s.Gap != "" {
		l.Gaps[s.Source] = s.Gap
	}
	for k, v := range s.Readings {
		l.Readings[k] = v
		if rising[k] {
			l.Totals[k] += v
		}
	}
}

// Latest lists what was measured last, by run.
func (m *Meter) Latest() []Latest {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Latest, 0, len(m.latest))
	for _, l := range m.latest {
		c := *l
		c.Totals = map[string]int64{}
		for k, v := range l.Totals {
			c.Totals[k] = v
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Latest) int {
		return strings.Compare(a.Tenancy.Assignment.String(), b.Tenancy.Assignment.String())
	})
	return out
}

func (m *Meter) path() string { return filepath.Join(m.c.Dir, "meter.json") }

// load reads up to when an earlier process measured. What it says of another boot is
// of no use: the runs of that boot are gone. So is what a crash of the machine left of
// the file.
func (m *Meter) load() error {
	if m.c.Dir == "" {
		return nil
	}
	text, err := os.ReadFile(m.path())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the meter's mark %s: %w", m.path(), err)
	}
	if err := json.Unmarshal(text, &m.mark); err != nil {
		m.mark = mark{}
		m.c.Log.Warn("the meter's mark is damaged; the time since is not measured", "file", m.path(), "error", err)
	}
	return nil
}

// save replaces the mark. It need not survive a crash of the machine, after which the
// boot is another one.
func (m *Meter) save() {
	if m.c.Dir == "" {
		return
	}
	text, err := json.Marshal(m.mark)
	if err == nil {
		err = os.WriteFile(m.path()+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(m.path()+".new", m.path())
	}
	if err != nil {
		m.c.Log.Error("the meter's mark not written", "error", err)
	}
}
