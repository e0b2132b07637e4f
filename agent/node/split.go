package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/tranche-cloud/tranche/agent/boundary"
	"github.com/tranche-cloud/tranche/agent/injection"
	"github.com/tranche-cloud/tranche/agent/sshgw"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
	"github.com/tranche-cloud/tranche/nodeagent/simhost"
)

// Gateway is an SSH gateway that is a process of its own, as the helper knows it.
type Gateway struct {
	State    string // folder of its desired state, which the helper writes
	HostKey  string // file with its public host key
	Port     int    // on which tenants reach it
	UID, GID int    // whose the guests' shell folders are
}

// apart tells a gateway in another process who may enter.
func (n *Node) apart(o Options, containers runtime.Driver) error {
	state, err := sshgw.OpenState(o.Gateway.State)
	if err != nil {
		return err
	}
	n.Door = &door{state: state, guests: filepath.Join(o.runDir(), "guests"), runtime: containers, refresh: func() {}}
	n.Reach = o.reach(nil)
	key, err := os.ReadFile(o.Gateway.HostKey)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not there yet: start the SSH gateway before the helper: %w", o.Gateway.HostKey, err)
	}
	if err != nil {
		return fmt.Errorf("read the SSH gateway's public key: %w", err)
	}
	n.Reach.SSHPort, n.Reach.SSHHostKey = o.Gateway.Port, strings.TrimSpace(string(key))
	return nil
}

// SimulatedOver opens a host of a fleet file whose simulated GPUs another process
// drives; its techniques are those of simhost.Over. The node closes the driver.
func SimulatedOver(ctx context.Context, cfg simhost.Config, gpus gpudrv.Driver, o Options) (_ *Node, err error) {
	n := &Node{close: []func() error{gpus.Close}}
	defer n.undo(&err)
	host, err := simhost.Over(ctx, cfg, gpus)
	if err != nil {
		return nil, err
	}
	n.Host = host.Host
	return n, n.furnish(ctx, o, surroundings{gpus: gpus, kind: injection.Simulated, bootID: host.BootID, clock: cfg.Clock, log: cfg.Log})
}

// Helper is what a helper needs to serve this host.
func (n *Node) Helper() boundary.Config {
	c := boundary.Config{Host: n.Host, ComputeMode: n.computeMode, Traffic: n.traffic, Log: n.Log}
	if !n.noResets {
		c.Reset = n.gpus.Reset
	}
	if n.guards() {
		c.Guard = n.Guard
	}
	return c
}

// Background runs what a helper does beside its verbs, until ctx ends.
func (n *Node) Background(ctx context.Context) {
	if n.floors != nil {
		hourly(ctx, n.Host.Clock, n.floors)
	}
	<-ctx.Done()
}

// Link says what a link has of its own.
type Link struct {
	Dir           string // data folder
	Audit         string // folder of the SSH gateway's audit; "" collects none
	MetricsListen string // host:port for Prometheus; "" is nowhere
	HealthPolicy  string // file that replaces parts of the Xid policy; "" is none
	Log           *slog.Logger
}

// Linked is the link's part of a host, over what a helper gives.
func Linked(ctx context.Context, c *boundary.Client, l Link) (_ *Node, err error) {
	offers, err := c.Offers(ctx)
	if err != nil {
		return nil, err
	}
	n := &Node{
		gpus: c.Driver(), metricsListen: l.MetricsListen, healthPolicy: l.HealthPolicy, noResets: !offers.Reset,
		computeMode: offers.ComputeMode,
	}
	defer n.undo(&err)
	if n.Host, err = c.Host(ctx, l.Dir, l.Log); err != nil {
		return nil, err
	}
	if n.Spool, err = (Options{Dir: l.Dir}).openSpool(surroundings{bootID: n.BootID, clock: n.Host.Clock}); err != nil {
		return nil, err
	}
	n.close = append(n.close, n.Spool.Close)
	if n.RuntimeName != Fake {
		n.sliceOf = sliceOf
	}
	if offers.Traffic {
		n.counters = c.Traffic
	}
	if offers.Guard {
		n.watchman = c.Guard
	}
	if l.Audit == "" {
		return n, nil
	}
	records, err := sshgw.OpenSpool(l.Audit)
	if err != nil {
		return nil, err
	}
	n.loops = append(n.loops, func(ctx context.Context) error {
		collect(ctx, records, n.Spool, n.Host.Clock, l.Log)
		return nil
	})
	return n, nil
}
