package node

import (
	"cmp"
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/guard"
	"github.com/tranche-cloud/tranche/nodeagent/meter"
	"github.com/tranche-cloud/tranche/nodeagent/watch"
)

// Loops are what runs beside the agent's own work: health, metering, the guard of
// shared GPUs, metrics, SSH. Each ends with its context. The driver's events are taken
// from now on, so call it before the keeper adopts. linked says whether the control
// plane is heard.
func (n *Node) Loops(ctx context.Context, k *nodeagent.Keeper, linked func() bool) ([]func(context.Context) error, error) {
	cfg := watch.Config{
		Host: n.Host, Keeper: k, Driver: n.gpus, Spool: n.Spool, Linked: linked, Policy: n.healthPolicy, NoResets: n.noResets,
		MetricsListen: cmp.Or(n.metricsListen, watch.NoMetrics), MPSProof: n.proveMPS(), SliceOf: n.sliceOf, Traffic: n.traffic,
	}
	if n.guards() {
		cfg.Guard = func(sink guard.Sink) *guard.Guard {
			return n.Guard(func() []guard.Target { return targets(k, n.computeMode) }, sink)
		}
	}
	w, err := watch.New(cfg)
	if err != nil {
		return nil, err
	}
	if err := w.Register(ctx); err != nil {
		return nil, err
	}
	loops := append(n.loops, w.Run)
	if n.watchman != nil {
		loops = append(loops, func(ctx context.Context) error {
			return n.watchman(ctx, func() []guard.Target { return targets(k, n.computeMode) }, w.Health)
		})
	}
	if n.floors != nil {
		loops = append(loops, func(ctx context.Context) error { hourly(ctx, n.Host.Clock, n.floors); return nil })
	}
	return loops, nil
}

// proveMPS runs a fresh client after a fault of a GPU's server; nil where nothing can.
func (n *Node) proveMPS() func(context.Context, string) error {
	prover, ok := n.Host.Carve.(interface {
		Prove(ctx context.Context, uuid string) error
	})
	if !ok {
		return nil
	}
	return prover.Prove
}

// processesOfSlice is how many programs of one slice may compute at a time: the limits
// of a daemon hold for each of them.
const processesOfSlice = 1

// targets are the GPUs that slices share without a wall between them.
func targets(k *nodeagent.Keeper, computeMode string) []guard.Target {
	byGPU := map[string]*guard.Target{}
	for _, t := range k.Tenancies() {
		for _, s := range t.Slots {
			kind := s.Slot.Mode.Kind
			if kind != gpu.MPS && kind != gpu.TimeSlice {
				continue
			}
			at := byGPU[s.Slot.GPU]
			if at == nil {
				at = &guard.Target{GPU: s.Slot.GPU, Kind: kind}
				if kind == gpu.MPS {
					at.ComputeMode = computeMode
				}
				byGPU[s.Slot.GPU] = at
			}
			slice := guard.Slice{Assignment: t.Assignment.String(), Memory: s.Memory}
			if kind == gpu.MPS {
				slice.Processes = processesOfSlice
			}
			at.Slices = append(at.Slices, slice)
		}
	}
	out := make([]guard.Target, 0, len(byGPU))
	for _, t := range byGPU {
		out = append(out, *t)
	}
	return out
}

// guards says whether this process has all that a guard needs.
func (n *Node) guards() bool { return n.sliceOf != nil && n.mps != nil }

// Guard makes the guard of shared GPUs.
func (n *Node) Guard(targets func() []guard.Target, sink guard.Sink) *guard.Guard {
	return guard.New(guard.Config{
		Driver: n.gpus, Daemons: n.mps, Targets: targets, SliceOf: n.sliceOf, Sink: sink, Clock: n.Host.Clock, Log: n.Log,
	})
}

// traffic are the network's counters, none without a network.
func (n *Node) traffic(ctx context.Context) (map[string]meter.Traffic, error) {
	if n.counters != nil {
		return n.counters(ctx)
	}
	if n.network == nil {
		return nil, nil
	}
	counters, err := n.network.Counters(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]meter.Traffic, len(counters))
	for name, b := range counters {
		out[name] = meter.Traffic{In: b.In, Out: b.Out}
	}
	return out, nil
}

// hourly does something at once and then each hour.
func hourly(ctx context.Context, c clock.Clock, do func(context.Context)) {
	for {
		do(ctx)
		timer := c.NewTimer(time.Hour)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
