// Package metrics shows one host to a Prometheus server in its text format: what each
// slice uses, the health of each GPU, and the agent's own state.
//
// It measures nothing itself: readings are the meter's, health is the keeper's. A
// reading that nobody reports has no series; tranche_slice_metric_reported says for
// each whether it has one. Counters begin at zero with the agent and never fall while
// it lives. Labels hold ids and names, never a secret; who may see them is who can
// reach the address, which is the loopback unless told otherwise.
//
// Ratios are from 0 to 1, memory and traffic in bytes, times in seconds.
package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/meter"
)

// DefaultListen is the address unless told otherwise.
const DefaultListen = "127.0.0.1:8084"

// Config is where the figures come from; every field is needed.
type Config struct {
	Slices    func() []meter.Latest
	Healths   func() map[string]nodeagent.GPUHealth
	Condition func() (agentlink.Condition, string)
	Spool     interface {
		Len() int
		Dropped() uint64
	}
	Linked func() bool  // to the control plane
	Broken func() error // the journal's failure; nil while it works
}

// Exporter answers scrapes.
type Exporter struct{ c Config }

// New makes an exporter.
func New(c Config) *Exporter { return &Exporter{c: c} }

// Serve answers on an address until ctx ends, and returns nil then. It fails if the
// address cannot be listened on.
func (e *Exporter) Serve(ctx context.Context, address string) error {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", cmp.Or(address, DefaultListen))
	if err != nil {
		return fmt.Errorf("listen for metrics (--metrics-listen names another address): %w", err)
	}
	return e.ServeOn(ctx, l)
}

// Bounds of a scrape.
const (
	headerWithin = 5 * time.Second
	answerWithin = 10 * time.Second
	maxHeader    = 16 << 10
)

// ServeOn is Serve on an open listener, which it closes.
func (e *Exporter) ServeOn(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", e)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: headerWithin, ReadTimeout: headerWithin, WriteTimeout: answerWithin, MaxHeaderBytes: maxHeader,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	err := server.Close()
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// ServeHTTP implements http.Handler.
func (e *Exporter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	// A scraper that went away needs no answer.
	_, _ = io.WriteString(w, e.Text())
}

// Text is one scrape.
func (e *Exporter) Text() string {
	var b strings.Builder
	e.agent(&b)
	e.gpus(&b)
	e.slices(&b)
	return b.String()
}

func (e *Exporter) agent(b *strings.Builder) {
	family(b, "tranche_agent_linked", "gauge", "Whether the control plane is connected.")
	sample(b, "tranche_agent_linked", nil, flag(e.c.Linked()))
	family(b, "tranche_agent_journal_failed", "gauge", "Whether the journal failed: the agent does nothing any more.")
	sample(b, "tranche_agent_journal_failed", nil, flag(e.c.Broken() != nil))
	family(b, "tranche_agent_spool_records", "gauge", "Events and readings that the control plane has not taken yet.")
	sample(b, "tranche_agent_spool_records", nil, strconv.Itoa(e.c.Spool.Len()))
	family(b, "tranche_agent_spool_dropped_total", "counter", "Records dropped because the spool was full.")
	sample(b, "tranche_agent_spool_dropped_total", nil, strconv.FormatUint(e.c.Spool.Dropped(), 10))
	is, cause := e.c.Condition()
	family(b, "tranche_host_cordoned", "gauge", "Whether the host takes no new work because of its own state.")
	sample(b, "tranche_host_cordoned", []label{{"cause", cause}}, flag(is != agentlink.ConditionGood))
}

var healthStates = []nodeagent.HealthState{
	nodeagent.Healthy, nodeagent.Degraded, nodeagent.Failing, nodeagent.Resetting, nodeagent.Quarantined,
}

func (e *Exporter) gpus(b *strings.Builder) {
	family(b, "tranche_gpu_health", "gauge", "The health of a GPU: 1 for the state that it is in.")
	all := e.c.Healths()
	for _, uuid := range slices.Sorted(maps.Keys(all)) {
		h := all[uuid]
		for _, s := range healthStates {
			l := []label{{"gpu", uuid}, {"state", string(s)}}
			if s == h.State {
				l = append(l, label{"cause", h.Cause})
			}
			sample(b, "tranche_gpu_health", l, flag(s == h.State))
		}
	}
}

// shown is a reading as a metric.
type shown struct{ name, reading, help string }

var metrics = []shown{
	{"tranche_slice_busy_ratio", meter.Busy, "Share of the time in which any work ran on the slice's GPU."},
	{"tranche_slice_sm_ratio", meter.SM, "Share of the SMs with work, over time."},
	{"tranche_slice_sm_occupancy_ratio", meter.Occupancy, "Share of the warps that the SMs could hold, over time."},
	{"tranche_slice_dram_ratio", meter.DRAM, "Share of the memory's bandwidth."},
	{"tranche_slice_gpu_memory_bytes", meter.GPUMemory, "GPU memory in use."},
	{"tranche_slice_gpu_processes", meter.GPUPrograms, "Programs of the slice on the GPU."},
	{"tranche_slice_cpu_seconds_total", meter.CPU, "CPU time since the agent started."},
	{"tranche_slice_cpu_throttled_seconds_total", meter.Throttled, "Time in which the CPU limit held the slice back."},
	{"tranche_slice_memory_bytes", meter.Memory, "Memory in use."},
	{"tranche_slice_memory_limit_bytes", meter.MemoryLimit, "Memory limit."},
	{"tranche_slice_processes", meter.Processes, "Processes and threads."},
	{"tranche_slice_oom_kills_total", meter.OOMKills, "Processes ended for want of memory."},
	{"tranche_slice_disk_read_bytes_total", meter.DiskRead, "Bytes read from disks."},
	{"tranche_slice_disk_written_bytes_total", meter.DiskWritten, "Bytes written to disks."},
	{"tranche_slice_network_receive_bytes_total", meter.NetworkIn, "Bytes received."},
	{"tranche_slice_network_transmit_bytes_total", meter.NetworkOut, "Bytes sent."},
}

func (e *Exporter) slices(b *strings.Builder) {
	list := e.c.Slices()
	family(b, "tranche_slice_info", "gauge", "A slice that is measured.")
	for _, l := range list {
		sample(b, "tranche_slice_info", labels(l), "1")
	}
	for _, m := range metrics {
		kind := "gauge"
		if meter.Rising(m.reading) {
			kind = "counter"
		}
		family(b, m.name, kind, m.help)
		for _, l := range list {
			values := l.Readings
			if kind == "counter" {
				values = l.Totals
			}
			if v, ok := values[m.reading]; ok {
				sample(b, m.name, labels(l), value(m.name, v))
			}
		}
	}
	family(b, "tranche_slice_metric_reported", "gauge", "Whether somebody reports the metric of the slice.")
	for _, l := range list {
		for _, m := range metrics {
			_, now := l.Readings[m.reading]
			sample(b, "tranche_slice_metric_reported", append(labels(l), label{"metric", m.name}), flag(now))
		}
	}
}

// million is how many of the meter's units of shares and times make one.
const million = 1_000_000

// value writes a reading in the metric's unit.
func value(name string, v int64) string {
	if strings.HasSuffix(name, "_ratio") || strings.Contains(name, "_seconds") {
		return fmt.Sprintf("%d.%06d", v/million, v%million)
	}
	return strconv.FormatInt(v, 10)
}

type label struct{ name, value string }

// labels name a slice: its GPUs, and the first one's mode and profile, which all share.
func labels(l meter.Latest) []label {
	t := l.Tenancy
	gpus := make([]string, 0, len(t.Slots))
	mode, profile := "", ""
	for i, s := range t.Slots {
		gpus = append(gpus, s.Slot.GPU)
		if i == 0 {
			mode = s.Slot.Mode.String()
			if s.Slot.Profile != 0 {
				profile = strconv.Itoa(s.Slot.Profile)
			}
		}
	}
	return []label{
		{"assignment", t.Assignment.String()},
		{"instance", t.Instance.String()},
		{"gpu", strings.Join(gpus, ",")},
		{"mode", mode},
		{"profile", profile},
	}
}

func family(b *strings.Builder, name, kind, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// escape is what the format wants of label values.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func sample(b *strings.Builder, name string, labels []label, v string) {
	b.WriteString(name)
	sep := "{"
	for _, l := range labels {
		if l.value == "" {
			continue // an empty label is none
		}
		b.WriteString(sep + l.name + `="` + escape.Replace(l.value) + `"`)
		sep = ","
	}
	if sep == "," {
		b.WriteString("}")
	}
	b.WriteString(" " + v + "\n")
}

func flag(is bool) string {
	if is {
		return "1"
	}
	return "0"
}
