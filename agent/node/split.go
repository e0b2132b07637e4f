package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tranche-cloud/tranche/agent/injection"
	"github.com/tranche-cloud/tranche/agent/sshgw"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
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

// MPS are the node's MPS daemons; nil where no GPU is ever in mps mode.
func (n *Node) MPS() mpsd.Control { return n.mps }

// GPUs is the node's driver.
func (n *Node) GPUs() gpudrv.Driver { return n.gpus }

// Background runs what a helper does beside its verbs, until ctx ends.
func (n *Node) Background(ctx context.Context) {
	if n.floors != nil {
		hourly(ctx, n.Host.Clock, n.floors)
	}
	<-ctx.Done()
}

// Linked is the link's part of a host: the ports that a helper gives, a spool in the
// link's own folder, the SSH gateway's audit if audit names its folder, and metrics if
// metricsListen names an address.
func Linked(h nodeagent.Host, gpus gpudrv.Driver, audit, metricsListen string) (_ *Node, err error) {
	n := &Node{Host: h, gpus: gpus, metricsListen: metricsListen}
	defer n.undo(&err)
	if n.Spool, err = (Options{Dir: h.Dir}).openSpool(surroundings{bootID: h.BootID, clock: h.Clock}); err != nil {
		return nil, err
	}
	n.close = append(n.close, n.Spool.Close)
	if h.RuntimeName != Fake {
		n.sliceOf = sliceOf
	}
	if audit == "" {
		return n, nil
	}
	records, err := sshgw.OpenSpool(audit)
	if err != nil {
		return nil, err
	}
	n.loops = append(n.loops, func(ctx context.Context) error {
		collect(ctx, records, n.Spool, h.Clock, h.Log)
		return nil
	})
	return n, nil
}
