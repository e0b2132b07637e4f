package node

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/guard"
	"github.com/tranche-cloud/tranche/nodeagent/health"
	"github.com/tranche-cloud/tranche/nodeagent/meter"
)

// Loops are what runs beside the agent's own work: health, metering, the guard of
// shared GPUs, SSH. Each ends with its context. The keeper must not have adopted yet,
// so that its first orders meet GPUs that are watched.
func (n *Node) Loops(k *nodeagent.Keeper) ([]func(context.Context) error, error) {
	loops := n.loops
	proof := n.proveMPS()
	monitor, err := health.New(health.Config{
		Driver: n.gpus, Keeper: k, Spool: n.Spool, SelfTest: n.SelfTest, MPSProof: proof, Dir: n.Host.Dir, BootID: n.BootID,
		Uptime: n.Uptime, Clock: n.Host.Clock, Log: n.Log,
	})
	if err != nil {
		return nil, err
	}
	metering, err := meter.New(meter.Config{
		Driver: n.gpus, Tenants: k.Tenancies, Spool: n.Spool, Depth: n.Spool.Len, Stats: n.Host.Runtime.Stats, SliceOf: n.sliceOf,
		Traffic: n.traffic, Dir: n.Host.Dir, BootID: n.BootID, Uptime: n.Uptime, Clock: n.Host.Clock, Log: n.Log,
	})
	if err != nil {
		return nil, err
	}
	loops = append(loops, monitor.Run, metering.Run)
	if n.sliceOf != nil && n.mps != nil {
		watch := guard.New(guard.Config{
			Driver: n.gpus, Daemons: n.mps, Targets: func() []guard.Target { return targets(n.gpus, k, n.computeMode) },
			SliceOf: n.sliceOf, Sink: monitor, Clock: n.Host.Clock, Log: n.Log,
		})
		loops = append(loops, func(ctx context.Context) error { _ = watch.Run(ctx); return nil })
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
func targets(drv gpudrv.Reader, k *nodeagent.Keeper, computeMode string) []guard.Target {
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

// traffic are the network's counters, none without a network.
func (n *Node) traffic(ctx context.Context) (map[string]meter.Traffic, error) {
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
