// Package node assembles the agent of one host: which GPU driver, which container
// runtime, and the parts around them (network, guests, SSH gateway, image store). It is
// the one place that knows all of them.
//
// It decides nothing and keeps nothing; every part owns its own state in the folders
// that the Options name. A fake runtime is taken only when asked for by name.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	goruntime "runtime"

	"github.com/tranche-cloud/tranche/agent/guest"
	"github.com/tranche-cloud/tranche/agent/images"
	"github.com/tranche-cloud/tranche/agent/injection"
	"github.com/tranche-cloud/tranche/agent/launch"
	"github.com/tranche-cloud/tranche/agent/network"
	"github.com/tranche-cloud/tranche/agent/runtime/containerd"
	"github.com/tranche-cloud/tranche/agent/runtime/oci"
	"github.com/tranche-cloud/tranche/agent/runtime/runc"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Names of container runtimes.
const (
	Containerd = "containerd"
	Runc       = "runc"
	Fake       = "fake"
)

// NoNetwork leaves instances without any network but their own loopback.
const NoNetwork = "none"

// Options are an operator's settings of one host.
type Options struct {
	Dir     string // data folder
	RunDir  string // what need not outlive a boot, short; "" is Dir/run
	Runtime string // containerd, runc or fake

	ContainerdAddress string // "" is the packaged daemon's
	Namespace         string // of containerd; "" is tranche
	RuncPath          string // "" is the one on the PATH
	FirstID           uint32 // of user namespaces; 0 is launch.FirstID
	// Shim is this program and its subcommand that holds a container of runc's; the
	// program alone keeps logs for containerd's.
	Shim      []string
	GuestPath string // of the static guest program

	Network   string // an IPv4 prefix for instances, or none
	Uplink    string
	Deny      []netip.Prefix
	Allow     []netip.Prefix
	Resolvers []netip.Addr
	Mbit      int

	Address   string // under which tenants reach the host; "" they cannot
	SSHListen string // host:port of the SSH gateway in this process; "" is none
	Gateway   *Gateway
	Ports     network.PortRange

	MetricsListen string // host:port for Prometheus; "" is nowhere
	HealthPolicy  string // file that replaces parts of the Xid policy; "" is none

	Images images.Policy
	Disk   units.MiB // what an instance may write; 0 is the store's default

	CDIDir  string // "" is injection.DefaultDir
	MockDir string // of simulated GPUs' nodes; "" is injection's default
	// Library is the folder of the driver's libraries; "" asks the linker's cache.
	Library string
}

// Parts is what Containers made; Close ends them, containers go on.
type Parts struct {
	Launcher *launch.Launcher
	Guests   *guest.Hub
	Network  *network.Manager
	close    []func() error
}

// Close ends the parts in the reverse order of their making.
func (p *Parts) Close() error {
	var errs []error
	for i := len(p.close) - 1; i >= 0; i-- {
		errs = append(errs, p.close[i]())
	}
	return errors.Join(errs...)
}

// surroundings are the facts of a host that the parts need.
type surroundings struct {
	gpus   gpudrv.Driver
	kind   injection.Driver
	mps    mpsd.Control
	bootID string
	clock  clock.Clock
	log    *slog.Logger
}

// containers makes the runtime and what stands around it.
func (o Options) containers(ctx context.Context, s surroundings) (_ *Parts, err error) {
	p := &Parts{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if err := o.checkGuest(); err != nil {
		return nil, err
	}
	run := o.runDir()
	for _, dir := range []string{o.Dir, run} {
		if err := passable(dir); err != nil {
			return nil, err
		}
	}
	devices, err := injection.Open(injection.Config{Dir: o.CDIDir, Libraries: o.Library, Mock: o.MockDir})
	if err != nil {
		return nil, err
	}
	driver, err := o.driver(p, s, run, devices.Dir())
	if err != nil {
		return nil, err
	}
	if o.Network != NoNetwork {
		if p.Network, err = o.network(ctx); err != nil {
			return nil, err
		}
		p.close = append(p.close, p.Network.Close)
	}
	hub := guest.Config{Dir: filepath.Join(run, "guests"), Uptime: nodeagent.Uptime, Log: s.log}
	if o.Gateway != nil {
		hub.GatewayUID, hub.GatewayGID = o.Gateway.UID, o.Gateway.GID
	}
	p.Guests, err = guest.NewHub(hub)
	if err != nil {
		return nil, err
	}
	p.close = append(p.close, func() error { p.Guests.Shutdown(); return nil })
	names, err := o.resolv(run)
	if err != nil {
		return nil, err
	}
	ids, err := launch.OpenIDs(filepath.Join(o.Dir, "ids.json"), o.FirstID)
	if err != nil {
		return nil, err
	}
	vcpu, ram, err := s.bounds()
	if err != nil {
		return nil, err
	}
	p.Launcher, err = launch.New(launch.Config{
		VCPU: vcpu, RAM: ram,
		Runtime: driver, Devices: devices, Kind: s.kind, GPUs: s.gpus, MPS: s.mps, Network: p.Network, Guests: p.Guests,
		GuestPath: o.GuestPath, Resolv: names, IDs: ids, Logs: filepath.Join(o.Dir, "logs"), CPUs: nearGPUs(s), Uptime: nodeagent.Uptime, Log: s.log,
	})
	if err != nil {
		return nil, err
	}
	return p, p.Launcher.Sweep(ctx)
}

func (o Options) checkGuest() error {
	info, err := os.Stat(o.GuestPath)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("the guest program %q is no executable file: --guest names it (scripts/build makes bin/tranche-guest)", o.GuestPath)
	}
	return nil
}

// passable makes a folder that the ids of containers may pass through by name.
func passable(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := os.Chmod(dir, info.Mode().Perm()|0o111); err != nil { //nolint:gosec // by name only, not readable
		return fmt.Errorf("let containers pass through %s: %w", dir, err)
	}
	return nil
}

// driver opens the container runtime that was asked for, and no other.
func (o Options) driver(p *Parts, s surroundings, run, cdi string) (runtime.Driver, error) {
	registry, err := images.NewRegistry(o.Images)
	if err != nil {
		return nil, err
	}
	switch o.Runtime {
	case Containerd:
		facts, err := oci.HostFacts()
		if err != nil {
			return nil, err
		}
		d, err := containerd.Open(containerd.Config{
			Address: o.ContainerdAddress, Namespace: o.Namespace, Runc: o.RuncPath, Logger: o.Shim[0], StateDir: filepath.Join(run, "containerd"), CDIDirs: []string{cdi},
			Host: facts, Images: registry, BootID: s.bootID, Uptime: nodeagent.Uptime, Clock: s.clock,
		})
		if err != nil {
			return nil, err
		}
		p.close = append(p.close, d.Close)
		return d, nil
	case Runc:
		store, err := images.Open(images.Config{
			Dir: filepath.Join(o.Dir, "images"), RunDir: filepath.Join(run, "roots"), Registry: registry, Disk: o.Disk, Now: s.clock.Now,
		})
		if err != nil {
			return nil, err
		}
		return runc.Open(runc.Config{
			Dir: filepath.Join(o.Dir, "containers"), RunDir: filepath.Join(run, "runc"), Runc: o.RuncPath, Shim: o.Shim,
			Images: store, CDIDirs: []string{cdi}, BootID: s.bootID, Clock: s.clock, Log: s.log,
		})
	}
	return nil, fmt.Errorf("no container runtime %q: --runtime is containerd, runc or, with simulated GPUs only, fake", o.Runtime)
}

func (o Options) network(ctx context.Context) (*network.Manager, error) {
	prefix, err := netip.ParsePrefix(o.Network)
	if err != nil {
		return nil, fmt.Errorf("--network is an IPv4 prefix such as 10.213.0.0/16, or none: %w", err)
	}
	return network.Open(ctx, network.Config{
		Range: prefix, Uplink: o.Uplink, Ports: o.Ports, Deny: o.Deny, Allow: o.Allow, Resolvers: o.Resolvers,
		MbitPerInstance: o.Mbit, StateDir: filepath.Join(o.Dir, "network"),
	})
}

// bounds are this machine's size for a simulated host, whose fleet file may claim
// more; nothing for a real one.
func (s surroundings) bounds() (vcpu int, ram units.MiB, err error) {
	if s.kind != injection.Simulated {
		return 0, 0, nil
	}
	ram, err = memory()
	const share = 2 // the machine has more to do than one container
	return goruntime.NumCPU(), ram / share, err
}

// resolv writes the file that tells instances whom to ask for names.
func (o Options) resolv(run string) (string, error) {
	if o.Network == NoNetwork {
		return "", nil
	}
	path := filepath.Join(run, "resolv.conf")
	text := "# Written by the host.\n"
	for _, r := range o.Resolvers {
		text += "nameserver " + r.String() + "\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // instances read it
		return "", fmt.Errorf("write the instances' resolver file: %w", err)
	}
	return path, nil
}

// nearGPUs keeps an instance on the CPUs beside its GPUs, where the driver names them.
// A simulated GPU sits beside no CPU of this machine.
func nearGPUs(s surroundings) func(context.Context, []string) (string, string) {
	if s.kind == injection.Simulated {
		return nil
	}
	return func(ctx context.Context, gpus []string) (cpus, nodes string) {
		for i, uuid := range gpus {
			at, err := s.gpus.Topology(ctx, uuid)
			if err != nil {
				return "", ""
			}
			near := at.CPUs.Or("")
			if i > 0 && near != cpus {
				return "", "" // GPUs of several nodes: anywhere is as near
			}
			cpus = near
		}
		return cpus, ""
	}
}
