package api

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// buckets are the upper bounds of the latency histogram, in seconds.
var buckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60}

// metrics counts requests. An operation's name and a status class are the only
// labels, so their number is bounded.
type metrics struct {
	inFlight atomic.Int64
	panics   atomic.Int64

	mu     sync.Mutex
	series map[series]*histogram
}

type series struct{ operation, status string }

type histogram struct {
	counts []uint64 // one a bucket, not cumulative; the last is +Inf
	sum    float64
	total  uint64
}

func newMetrics() *metrics { return &metrics{series: map[series]*histogram{}} }

func (m *metrics) observe(operation string, status int, took time.Duration) {
	s := series{operation, fmt.Sprintf("%dxx", status/100)}
	at := slices.IndexFunc(buckets, func(bound float64) bool { return took.Seconds() <= bound })
	if at < 0 {
		at = len(buckets)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.series[s]
	if !ok {
		h = &histogram{counts: make([]uint64, len(buckets)+1)}
		m.series[s] = h
	}
	h.counts[at]++
	h.sum += took.Seconds()
	h.total++
}

// ServeHTTP writes the Prometheus text format.
func (m *metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprintf(w, "# HELP tranche_api_in_flight Requests being served.\n# TYPE tranche_api_in_flight gauge\ntranche_api_in_flight %d\n", m.inFlight.Load())
	fmt.Fprintf(w, "# HELP tranche_api_panics_total Requests that ended in a panic.\n# TYPE tranche_api_panics_total counter\ntranche_api_panics_total %d\n", m.panics.Load())
	io.WriteString(w, "# HELP tranche_api_request_seconds Time of a request.\n# TYPE tranche_api_request_seconds histogram\n")
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(m.series), func(a, b series) int {
		return slices.Compare([]string{a.operation, a.status}, []string{b.operation, b.status})
	})
	for _, k := range keys {
		h := m.series[k]
		labels := fmt.Sprintf(`operation=%q,status=%q`, k.operation, k.status)
		var sum uint64
		for i, bound := range buckets {
			sum += h.counts[i]
			fmt.Fprintf(w, "tranche_api_request_seconds_bucket{%s,le=\"%g\"} %d\n", labels, bound, sum)
		}
		fmt.Fprintf(w, "tranche_api_request_seconds_bucket{%s,le=\"+Inf\"} %d\n", labels, h.total)
		fmt.Fprintf(w, "tranche_api_request_seconds_sum{%s} %g\ntranche_api_request_seconds_count{%s} %d\n", labels, h.sum, labels, h.total)
	}
}
