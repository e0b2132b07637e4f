package metrics_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
	"github.com/tranche-cloud/tranche/nodeagent/health"
	"github.com/tranche-cloud/tranche/nodeagent/journal"
	"github.com/tranche-cloud/tranche/nodeagent/meter"
	"github.com/tranche-cloud/tranche/nodeagent/metrics"
	"github.com/tranche-cloud/tranche/nodeagent/simhost"
	"github.com/tranche-cloud/tranche/nodeagent/spool"
)

type full struct{}

func (full) Len() int        { return 12 }
func (full) Dropped() uint64 { return 3 }

func config() metrics.Config {
	return metrics.Config{
		Slices: func() []meter.Latest { return nil },
		Healths: func() map[string]nodeagent.GPUHealth {
			return map[string]nodeagent.GPUHealth{"GPU-1": {State: nodeagent.Failing, Cause: "XID_79"}, "GPU-2": {State: nodeagent.Healthy}}
		},
		Condition: func() (agentlink.Condition, string) { return agentlink.ConditionCordon, `odd "cause"\` + "\n" },
		Spool:     full{}, Linked: func() bool { return true }, Broken: func() error { return errors.New("disk full") },
	}
}

func TestWhatAScrapeSays(t *testing.T) {
	a, i := id.New[id.Assignment](), id.New[id.Instance]()
	c := config()
	c.Slices = func() []meter.Latest {
		return []meter.Latest{{
			Tenancy: nodeagent.Tenancy{Assignment: a, Instance: i, Slots: []journal.Slot{
				{Slot: gpu.Slot{GPU: "GPU-1", Mode: gpu.MIGMode(), Profile: 19, Start: 3, Size: 1}},
			}},
			Readings: map[string]int64{meter.SM: 495_000, meter.GPUMemory: 512, meter.CPU: 5},
			Totals:   map[string]int64{meter.CPU: 61_000_007},
		}}
	}
	text := metrics.New(c).Text()
	who := `assignment="` + a.String() + `",instance="` + i.String() + `",gpu="GPU-1",mode="mig",profile="19"`
	for _, line := range []string{
		"tranche_agent_linked 1", "tranche_agent_journal_failed 1", "tranche_agent_spool_records 12", "tranche_agent_spool_dropped_total 3",
		`tranche_host_cordoned{cause="odd \"cause\"\\\n"} 1`,
		`tranche_gpu_health{gpu="GPU-1",state="failed",cause="XID_79"} 1`, `tranche_gpu_health{gpu="GPU-2",state="failed"} 0`,
		"tranche_slice_info{" + who + "} 1", "tranche_slice_sm_ratio{" + who + "} 0.495000",
		"tranche_slice_gpu_memory_bytes{" + who + "} 512", "tranche_slice_cpu_seconds_total{" + who + "} 61.000007",
		"tranche_slice_metric_reported{" + who + `,metric="tranche_slice_sm_ratio"} 1`,
		"tranche_slice_metric_reported{" + who + `,metric="tranche_slice_busy_ratio"} 0`,
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, "tranche_slice_busy_ratio{", "what is not reported has no series")
	require.Equal(t, len(meter.Names()), strings.Count(text, "tranche_slice_metric_reported{"), "every reading has a metric")
	form := regexp.MustCompile(`^(# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)+\})? [0-9.]+)$`)
	for line := range strings.Lines(text) {
		require.Regexp(t, form, strings.TrimSuffix(line, "\n"))
	}
}

func TestScrapesAreAnsweredUntilTheEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- metrics.New(config()).ServeOn(ctx, l) }()
	got, err := http.Get("http://" + l.Addr().String() + "/metrics")
	require.NoError(t, err)
	text, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	require.NoError(t, got.Body.Close())
	require.Equal(t, http.StatusOK, got.StatusCode)
	require.Contains(t, got.Header.Get("Content-Type"), "version=0.0.4")
	require.Contains(t, string(text), "tranche_agent_linked 1")
	require.ErrorContains(t, metrics.New(config()).Serve(ctx, l.Addr().String()), "--metrics-listen")
	cancel()
	require.NoError(t, <-done)
}

// processorTime is what this process has used of the CPUs.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts))
	return time.Duration(ts.Nano())
}

// Watching, measuring and answering scrapes cost at most one per cent of a core on a
// host of eight GPUs, full of slices. The rounds are made one after the other and their
// cost is spread over the intervals at which they come.
func TestTheCostOfWatching(t *testing.T) {
	fleet := sim.FleetHost{Name: "eight", VCPU: 64, RAM: 524288, GPUs: []sim.FleetGPU{{Model: "H200-141", Mode: gpu.MIGMode(), Count: 8}}}
	dir := t.TempDir()
	h, err := simhost.Open(t.Context(), simhost.Config{Dir: dir, Host: fleet, Clock: clock.Real()})
	require.NoError(t, err)
	defer func() { require.NoError(t, h.Sim.Close()) }()
	k, err := nodeagent.NewKeeper(t.Context(), h.Host)
	require.NoError(t, err)
	defer func() { require.NoError(t, k.Close()) }()
	require.NoError(t, k.Adopt(t.Context()))
	var orders []agentlink.Order
	for _, d := range fleet.Devices() {
		for unit := range 7 {
			orders = append(orders, agentlink.Order{
				Assignment: id.New[id.Assignment](), Fence: 1, Instance: id.New[id.Instance](), Run: 1, Image: "img",
				Slots: []gpu.Slot{{GPU: d.UUID, Mode: d.Mode, Profile: 19, Start: unit, Size: 1}},
			})
		}
	}
	k.Obey(agentlink.Desired{Version: 1, Timeline: 1, Orders: orders})
	k.Settle()
	for _, s := range k.Observe(true).Slices {
		require.Equal(t, instance.RunRunning, s.RunState, "%+v", s)
	}
	s, err := spool.Open(spool.Config{Path: dir + "/spool", Uptime: nodeagent.Uptime, Now: time.Now})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	watch, err := health.New(health.Config{Driver: h.Sim, Keeper: k, Spool: s, Dir: dir, Uptime: nodeagent.Uptime, Clock: clock.Real()})
	require.NoError(t, err)
	measure, err := meter.New(meter.Config{
		Driver: h.Sim, Tenants: k.Tenancies, Spool: s, Stats: h.Runtime.Stats, Dir: dir, Uptime: nodeagent.Uptime, Clock: clock.Real(),
	})
	require.NoError(t, err)
	measure.Away(t.Context())
	c := config()
	c.Slices, c.Healths, c.Condition, c.Broken, c.Spool = measure.Latest, k.Healths, k.Condition, k.Broken, s
	out := metrics.New(c)
	const rounds, scrapeEvery = 20, 15 * time.Second
	cost := func(do func()) time.Duration {
		do()
		before := processorTime(t)
		for range rounds {
			do()
		}
		return (processorTime(t) - before) / rounds
	}
	a := cost(func() { watch.Round(t.Context()) })
	b := cost(func() { measure.Tick(t.Context()) })
	d := cost(func() { require.Contains(t, out.Text(), "tranche_slice_info") })
	const most = 10_000 // millionths
	ppm := a*1e6/health.DefaultEvery + b*1e6/meter.DefaultEvery + d*1e6/scrapeEvery
	t.Logf("8 GPUs, %d slices: a look %v, a measurement %v, a scrape %v: %d millionths of a core", len(orders), a, b, d, ppm)
	require.LessOrEqual(t, ppm, time.Duration(most))
}
