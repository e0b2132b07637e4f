package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	goruntime "runtime"
	"sync"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/agent/injection"
	"github.com/tranche-cloud/tranche/agent/network"
	"github.com/tranche-cloud/tranche/agent/preflight"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/guard"
	"github.com/tranche-cloud/tranche/nodeagent/meter"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
	"github.com/tranche-cloud/tranche/nodeagent/spool"
)

// Node is a host ready to be kept.
type Node struct {
	nodeagent.Host
	Spool *spool.Spool

	gpus    gpudrv.Driver
	mps     mpsd.Control // nil where no GPU is ever in mps mode
	network *network.Manager
	// sliceOf names the assignment that a process belongs to; nil where no container
	// has processes.
	sliceOf     func(pid int) (string, bool)
	computeMode string                // that a GPU in mps mode must be in; "" is not watched
	floors      func(context.Context) // judges the host anew
	// metricsListen is where scrapes are answered; "" is nowhere.
	metricsListen string
	healthPolicy  string // file that replaces parts of the Xid policy; "" is none
	noResets      bool
	// The parts of another process, nil for those of this one.
	counters func(context.Context) (map[string]meter.Traffic, error)
	watchman func(ctx context.Context, targets func() []guard.Target, sink guard.Sink) error

	loops []func(context.Context) error
	close []func() error
}

// Close ends everything but the containers.
func (n *Node) Close() error {
	var errs []error
	for i := len(n.close) - 1; i >= 0; i-- {
		errs = append(errs, n.close[i]())
	}
	return errors.Join(errs...)
}

// Uninstall takes the host's network rules and settings back. It refuses while an
// instance is attached.
func (n *Node) Uninstall(ctx context.Context) error {
	if n.network == nil {
		return nil
	}
	return n.network.Uninstall(ctx)
}

// undo closes what was opened when a later step failed.
func (n *Node) undo(err *error) {
	if *err != nil {
		*err = errors.Join(*err, n.Close())
	}
}

// furnish gives a host its runtime, its SSH gateway and its spool.
func (n *Node) furnish(ctx context.Context, o Options, s surroundings) error {
	n.gpus, n.mps, n.metricsListen = s.gpus, s.mps, o.MetricsListen
	n.healthPolicy = o.HealthPolicy
	n.judge(o, s)
	var err error
	if n.Spool, err = o.openSpool(s); err != nil {
		return err
	}
	n.close = append(n.close, n.Spool.Close)
	if o.Runtime == Fake {
		if s.kind != injection.Simulated {
			return errors.New("the fake runtime starts nothing: real GPUs need --runtime=containerd or runc")
		}
		return nil // the simulated host has it already
	}
	parts, err := o.containers(ctx, s)
	if err != nil {
		return err
	}
	n.close = append(n.close, parts.Close)
	n.Host.Runtime, n.RuntimeName = parts.Launcher, o.Runtime
	n.PIDs, n.sliceOf, n.network = pidsOf, sliceOf, parts.Network
	if o.Gateway != nil {
		return n.apart(o, parts.Launcher)
	}
	if o.SSHListen == "" {
		n.Reach = o.reach(nil)
		return nil
	}
	gw, err := o.openGateway(ctx, s.clock, s.log)
	if err != nil {
		return err
	}
	n.close = append(n.close, func() error { return closed(gw.listener.Close()) })
	n.Reach = o.reach(gw)
	n.Door = &door{
		state: gw.state, guests: filepath.Join(o.runDir(), "guests"), runtime: parts.Launcher, refresh: gw.server.Refresh,
	}
	n.loops = append(n.loops,
		func(ctx context.Context) error { return gw.server.Serve(ctx, gw.listener) },
		func(ctx context.Context) error { collect(ctx, gw.audit, n.Spool, s.clock, s.log); return nil },
	)
	return nil
}

// judge watches the minimum versions and settings that tenants' isolation rests on.
// Nothing of a simulated host would mean anything.
func (n *Node) judge(o Options, s surroundings) {
	if s.kind == injection.Simulated {
		return
	}
	var mu sync.Mutex
	var below []string
	n.Floors = func() []string { mu.Lock(); defer mu.Unlock(); return below }
	n.floors = func(ctx context.Context) {
		facts := preflight.Gather(ctx, preflight.Options{
			Shared: true, Runtime: o.Runtime, DataDir: o.Dir, CDIDir: o.CDIDir, Runc: absolute(o.RuncPath), GPUs: s.gpus,
		})
		list := preflight.BelowFloor(preflight.Judge(facts))
		mu.Lock()
		below = list
		mu.Unlock()
	}
}

// absolute keeps a path that preflight may run, and drops any other.
func absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return ""
}

var groups = sync.OnceValues(func() (*cgroup.Tree, error) { return cgroup.Open("") })

// pidsOf lists the processes of a container by its control group.
func pidsOf(name string) ([]int, error) {
	tree, err := groups()
	if err != nil {
		return nil, err
	}
	pids, err := tree.PIDs(cgroup.Path(name))
	if cgroup.Gone(err) {
		return nil, nil
	}
	return pids, err
}

// sliceOf is the assignment whose container a process runs in.
func sliceOf(pid int) (string, bool) {
	group, err := cgroup.OfPID(pid)
	if err != nil {
		return "", false
	}
	return cgroup.Container(group)
}

// machine fills in what the operating system says.
func machine(h *nodeagent.Host, c clock.Clock, log *slog.Logger) error {
	boot, err := nodeagent.BootID()
	if err != nil {
		return err
	}
	h.BootID, h.Uptime, h.Clock, h.Log = boot, nodeagent.Uptime, c, log
	if h.VCPU == 0 {
		h.VCPU = goruntime.NumCPU()
	}
	if h.RAM == 0 {
		if h.RAM, err = memory(); err != nil {
			return fmt.Errorf("read the machine's memory: %w", err)
		}
	}
	return nil
}
