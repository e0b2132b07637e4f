// Package replay owns the playing of a trace as real API calls, and the account
// of what came of it.
//
// It does not read traces (package trace) or start anything (package stack). A
// trace's second lasts 1/speed real seconds, and exactly one business second.
package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
	"github.com/tranche-cloud/tranche/devstack/internal/trace"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

const (
	// patience bounds the wait for one instance to run or to be gone.
	patience = 2 * time.Minute
	// settlePoll paces the look at an instance that is interrupted.
	settlePoll = 100 * time.Millisecond
	// longest is what fits between the 2nd of a month and its end.
	longest = 26 * 24 * time.Hour
	// image is never pulled: hosts are simulated.
	image = "registry.example/replay:1"
	// retries let calls outlive a killed API process.
	retries = 12
)

// Play is what to play and how.
type Play struct {
	Arrivals      []trace.Arrival
	Organizations int
	Speed         int
	// Tail is how long after the last arrival what still runs is deleted, real time.
	Tail time.Duration
}

// Outcome is what came of one arrival.
type Outcome struct {
	trace.Arrival
	Buyer    market.Buyer
	Instance client.Instance // as last seen: the tombstone when all went well
	Code     string          // problem that ended it; empty when it ran
	Accept   time.Duration   // create to 202
	Running  time.Duration   // create to running; 0 when it never ran
}

// Result is the outcome of a play.
type Result struct {
	Play
	Buyers   []market.Buyer
	Outcomes []Outcome
	Opened   stack.Clock
	Took     time.Duration
}

// Prepare stocks the region and makes the buying organizations.
func Prepare(ctx context.Context, s *stack.Stack, organizations int) ([]market.Buyer, error) {
	admin := s.Admin()
	if err := market.Stock(ctx, admin); err != nil {
		return nil, err
	}
	terms := market.Terms{
		Quota:  client.Quota{Instances: 10_000, Gpus: 10_000},
		Limits: client.RateLimits{Read: 600_000, Write: 600_000, Launch: 600_000},
	}
	buyers := make([]market.Buyer, organizations)
	for i := range buyers {
		var err error
		if buyers[i], err = market.Enlist(ctx, admin, fmt.Sprintf("Tenant %d", i+1), terms); err != nil {
			return nil, err
		}
	}
	return buyers, nil
}

// Run plays the arrivals and returns when everything is deleted. It fails when
// an instance was lost or did not go; lack of capacity is an outcome, no failure.
func Run(ctx context.Context, s *stack.Stack, buyers []market.Buyer, p Play) (*Result, error) {
	last := p.Arrivals[len(p.Arrivals)-1].At
	if span := last + p.Tail*time.Duration(p.Speed); span > longest {
		return nil, fmt.Errorf("the trace is %s long, and %s fit into one month: lower the limit", span, longest)
	}
	opened, err := s.OpenMonth(ctx, p.Speed)
	if err != nil {
		return nil, err
	}
	result := &Result{Play: p, Buyers: buyers, Opened: opened, Outcomes: make([]Outcome, len(p.Arrivals))}
	clients := make([]*client.Client, len(buyers))
	for i, b := range buyers {
		if clients[i], err = client.New(s.URL(), b.Key, client.WithRetries(retries)); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	real := func(d time.Duration) time.Duration { return d / time.Duration(p.Speed) }
	end := began.Add(real(last) + p.Tail)
	errs := make([]error, len(p.Arrivals))
	var all sync.WaitGroup
	for i, a := range p.Arrivals {
		result.Outcomes[i] = Outcome{Arrival: a, Buyer: buyers[a.Organization]}
		all.Go(func() {
			if errs[i] = until(ctx, began.Add(real(a.At))); errs[i] == nil {
				life := life{client: clients[a.Organization], out: &result.Outcomes[i], lasts: real(a.Life), end: end}
				errs[i] = life.live(ctx)
			}
		})
	}
	all.Wait()
	result.Took = time.Since(began)
	return result, errors.Join(errs...)
}

// life is one instance from create to tombstone.
type life struct {
	client *client.Client
	out    *Outcome
	lasts  time.Duration // from running
	end    time.Time     // latest delete
}

func (l *life) live(ctx context.Context) error {
	created := time.Now()
	offer := market.Of(l.out.Shape).Offer
	in := client.InstanceCreate{Name: &l.out.Task, Offer: offer, Image: image}
	instance, err := l.client.CreateInstance(ctx, l.out.Buyer.Project, in, client.IdempotencyKey("replay-"+l.out.Task))
	var refused *client.Problem
	if errors.As(err, &refused) && refused.Status < 500 {
		l.out.Code = refused.Code
		return nil
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", l.out.Task, err)
	}
	l.out.Instance, l.out.Accept = instance, time.Since(created)

	if err := l.settle(ctx); err != nil {
		return err
	}
	if l.out.Code == "" {
		l.out.Running = time.Since(created)
		leave := time.Now().Add(l.lasts)
		if leave.After(l.end) {
			leave = l.end
		}
		if err := until(ctx, leave); err != nil {
			return err
		}
	}
	return l.delete(ctx)
}

// settle waits until the instance runs or has failed. A host that is not heard
// of for a while interrupts it in between.
func (l *life) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	for ; ; <-tick.C {
		seen, err := l.client.WaitInstance(ctx, l.out.Buyer.Project, l.out.Instance.Id, wire.WaitStatusRunning)
		var ended *client.OperationError
		if err != nil && !errors.As(err, &ended) {
			return fmt.Errorf("wait for %s: %w", l.out.Task, err)
		}
		l.out.Instance = seen
		switch seen.Status {
		case wire.InstanceStatusRunning:
			return nil
		case wire.InstanceStatusFailed:
			l.out.Code = client.CodeOf(err)
			return nil
		}
	}
}

func (l *life) delete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	project, id := l.out.Buyer.Project, l.out.Instance.Id
	if _, err := l.client.DeleteInstance(ctx, project, id); err != nil {
		return fmt.Errorf("delete %s: %w", l.out.Task, err)
	}
	gone, err := l.client.WaitInstance(ctx, project, id, wire.WaitStatusDeleted)
	if err != nil {
		return fmt.Errorf("wait until %s is deleted: %w", l.out.Task, err)
	}
	l.out.Instance = gone
	return nil
}

func until(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ran counts the arrivals that ran.
func (r *Result) Ran() int {
	n := 0
	for _, o := range r.Outcomes {
		if o.Running > 0 {
			n++
		}
	}
	return n
}

// Codes counts the problems by code.
func (r *Result) Codes() map[string]int {
	codes := map[string]int{}
	for _, o := range r.Outcomes {
		if o.Code != "" {
			codes[o.Code]++
		}
	}
	return codes
}

// BilledMicros sums the billed intervals of an organization's instances.
func (r *Result) BilledMicros(organization int) (int64, error) {
	var sum int64
	for _, o := range r.Outcomes {
		if o.Organization != organization {
			continue
		}
		n, err := BilledMicros(o.Instance)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// BilledMicros sums an instance's billed intervals; an open one is an error.
func BilledMicros(i client.Instance) (int64, error) {
	var sum int64
	for _, b := range i.Billed {
		to, err := b.To.Get()
		if err != nil {
			return 0, fmt.Errorf("instance %s is billed on: %w", i.Id, err)
		}
		sum += to.Sub(b.From.Time).Microseconds()
	}
	return sum, nil
}

// percentile of durations, 0 to 100; 0 of none.
func percentile(of []time.Duration, p float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*p/100))]
}
