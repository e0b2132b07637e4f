// Package bench owns the benchmarks of a whole installation: accepting creates,
// bringing instances to running, and memory, each next to a peer measured in the
// same run.
//
// It prints and records; it judges nothing. Times are milliseconds, memory is
// MiB. GPUs are simulated.
package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
)

// Sizes of the work. Together the phases leave 1,000 instances on 40 hosts.
const (
	hosts         = 40
	organizations = 8
	clients       = 64
	alone         = 40  // creates one after the other
	together      = 300 // creates in flight with 64 clients, to running
	accepted      = 350 // creates of 64 clients, to 202, in each of two phases
	patience      = 10 * time.Minute
)

// Record is one measured value, as it goes to the JSON file.
type Record struct {
	ID        string  `json:"id"`
	Case      string  `json:"case"`
	Metric    string  `json:"metric"`
	Unit      string  `json:"unit"`
	Value     float64 `json:"value"`
	SD        float64 `json:"sd"`
	N         int     `json:"n"`
	Peer      string  `json:"peer,omitempty"`
	PeerValue float64 `json:"peer_value,omitempty"`
	// Goal is for the table only.
	Goal string `json:"-"`
}

// run is one benchmark run on a stack of its own.
type run struct {
	stack   *stack.Stack
	out     io.Writer
	buyers  []market.Buyer
	clients []*client.Client // one a buyer
	waiting []rented
	records []Record
}

// Run measures everything on a fresh stack that runs `tranched all`.
func Run(ctx context.Context, s *stack.Stack, out io.Writer) ([]Record, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := &run{stack: s, out: out}
	for _, phase := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"pgbench -N on the same Postgres", r.pgbench},
		{"bare workflows on the same Temporal", r.bareWorkflows},
		{fmt.Sprintf("%d hosts, %d organizations", hosts, organizations), r.prepare},
		{fmt.Sprintf("%d creates to running, one after the other", alone), r.oneByOne},
		{fmt.Sprintf("%d creates to running, %d clients", together, clients), r.inFlight},
		{fmt.Sprintf("%d creates to 202, %d clients, Temporal paused", accepted, clients), r.acceptAlone},
		{fmt.Sprintf("%d creates to 202, %d clients, then all to running", accepted, clients), r.acceptAtWork},
		{"memory", r.memory},
	} {
		began := time.Now()
		if err := phase.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", phase.title, err)
		}
		fmt.Fprintf(out, "%-60s %6.1f s\n", phase.title, time.Since(began).Seconds())
	}
	return r.records, nil
}

func (r *run) prepare(ctx context.Context) error {
	if err := r.stack.Enrol(ctx, market.Wide(hosts)); err != nil {
		return err
	}
	admin := r.stack.Admin()
	if err := market.Stock(ctx, admin); err != nil {
		return err
	}
	for i := range organizations {
		b, err := market.Enlist(ctx, admin, fmt.Sprintf("Bench %d", i+1), market.Terms{
			Quota:  client.Quota{Instances: 100_000, Gpus: 100_000},
			Limits: client.RateLimits{Read: 1_000_000, Write: 1_000_000, Launch: 1_000_000},
		})
		if err != nil {
			return err
		}
		r.buyers = append(r.buyers, b)
		r.clients = append(r.clients, r.stack.Client(b.Key))
	}
	return nil
}

func (r *run) add(records ...Record) { r.records = append(r.records, records...) }

// peerOf finds what an earlier phase measured of a peer.
func (r *run) peerOf(id, metric string) float64 {
	for _, record := range r.records {
		if record.ID == id && record.Metric == metric {
			return record.Value
		}
	}
	return 0
}
