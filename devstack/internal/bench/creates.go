package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// image is never pulled: hosts are simulated.
const image = "registry.example/bench:1"

// create asks for a quarter of a GPU for the n-th organization, in turn.
func (r *run) create(ctx context.Context, n int) (buyer int, accepted client.Instance, err error) {
	buyer = n % len(r.buyers)
	in := client.InstanceCreate{Offer: market.MPS.Offer, Image: image}
	accepted, err = r.clients[buyer].CreateInstance(ctx, r.buyers[buyer].Project, in)
	return buyer, accepted, err
}

func (r *run) await(ctx context.Context, buyer int, instance string, want client.WaitStatus) error {
	_, err := r.clients[buyer].WaitInstance(ctx, r.buyers[buyer].Project, instance, want)
	return err
}

// oneByOne measures create → running of a single client. Its instances go again.
func (r *run) oneByOne(ctx context.Context) error {
	var took sample
	for n := range alone {
		began := time.Now()
		buyer, instance, err := r.create(ctx, n)
		if err != nil {
			return err
		}
		if err := r.await(ctx, buyer, instance.Id, wire.WaitStatusRunning); err != nil {
			return err
		}
		took = append(took, time.Since(began))
		if _, err := r.clients[buyer].DeleteInstance(ctx, r.buyers[buyer].Project, instance.Id); err != nil {
			return err
		}
		if err := r.await(ctx, buyer, instance.Id, wire.WaitStatusDeleted); err != nil {
			return err
		}
	}
	r.add(
		Record{ID: "B5", Case: "create to running/1 client/ours", Metric: "p50", Unit: "ms", Value: took.percentile(50), SD: took.deviation(), N: len(took),
			Peer: "bare workflow", PeerValue: r.peerOf("B5-peer", "p50"), Goal: "<= 250"},
		Record{ID: "B5", Case: "create to running/1 client/ours", Metric: "p99", Unit: "ms", Value: took.percentile(99), SD: took.deviation(), N: len(took)},
	)
	return nil
}

// inFlight measures how many creates a second reach running.
func (r *run) inFlight(ctx context.Context) error {
	before, err := r.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	took, err := spread(together, func(n int) (time.Duration, error) {
		began := time.Now()
		buyer, instance, err := r.create(ctx, n)
		if err != nil {
			return 0, err
		}
		err = r.await(ctx, buyer, instance.Id, wire.WaitStatusRunning)
		return time.Since(began), err
	})
	if err != nil {
		return err
	}
	rate := together / time.Since(began).Seconds()
	after, err := r.cpu()
	if err != nil {
		return err
	}
	label := fmt.Sprintf("create to running/%d clients/ours", clients)
	r.add(
		Record{ID: "B5", Case: label, Metric: "rate", Unit: "1/s", Value: rate, N: len(took),
			Peer: "bare workflow", PeerValue: r.peerOf("B5-peer", "rate"), Goal: ">= 15"},
		Record{ID: "B5", Case: label, Metric: "p50", Unit: "ms", Value: took.percentile(50), SD: took.deviation(), N: len(took)},
	)
	for _, part := range parts {
		r.add(Record{ID: "B5", Case: label, Metric: "cpu of " + part, Unit: "ms", N: together,
			Value: 1000 * (after[part] - before[part]) / together})
	}
	return nil
}

// rented is an accepted create and who asked for it.
type rented struct {
	buyer    int
	instance string
}

// acceptAlone measures create → 202 by itself: with Temporal paused nothing else
// competes for the processors, and accepting does not need it.
func (r *run) acceptAlone(ctx context.Context) error {
	temporal, err := r.stack.Process("temporal")
	if err != nil {
		return err
	}
	if err := temporal.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return errors.Join(r.accept(ctx, "accept only", "<= 100"), temporal.Signal(syscall.SIGCONT))
}

// acceptAtWork measures create → 202 while the instances are placed and started,
// and returns when all of both phases run.
func (r *run) acceptAtWork(ctx context.Context) error {
	if err := r.accept(ctx, "accept and run", ""); err != nil {
		return err
	}
	_, err := spread(len(r.waiting), func(n int) (time.Duration, error) {
		return 0, r.await(ctx, r.waiting[n].buyer, r.waiting[n].instance, wire.WaitStatusRunning)
	})
	return err
}

func (r *run) accept(ctx context.Context, what, goal string) error {
	asked := make([]rented, accepted)
	began := time.Now()
	took, err := spread(accepted, func(n int) (time.Duration, error) {
		began := time.Now()
		buyer, instance, err := r.create(ctx, n)
		asked[n] = rented{buyer, instance.Id}
		return time.Since(began), err
	})
	r.waiting = append(r.waiting, asked...)
	if err != nil {
		return err
	}
	rate := accepted / time.Since(began).Seconds()
	label := fmt.Sprintf("%s/%d clients/%d organizations/ours", what, clients, organizations)
	r.add(
		Record{ID: "B4", Case: label, Metric: "rate", Unit: "1/s", Value: rate, N: len(took),
			Peer: "pgbench -N", PeerValue: r.peerOf("B4-peer", "rate"), Goal: ">= 15 % of the peer"},
		Record{ID: "B4", Case: label, Metric: "p50", Unit: "ms", Value: took.percentile(50), SD: took.deviation(), N: len(took)},
		Record{ID: "B4", Case: label, Metric: "p99", Unit: "ms", Value: took.percentile(99), SD: took.deviation(), N: len(took), Goal: goal},
	)
	return nil
}

// spread makes n calls by 64 clients and returns how long each took.
func spread(n int, call func(n int) (time.Duration, error)) (sample, error) {
	took, errs := make(sample, n), make([]error, clients)
	var next atomic.Int64
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || errs[c] != nil {
					return
				}
				took[i], errs[c] = call(i)
			}
		})
	}
	all.Wait()
	return took, errors.Join(errs...)
}
