package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tranche-cloud/tranche/agent/images"
	"github.com/tranche-cloud/tranche/agent/network"
	"github.com/tranche-cloud/tranche/agent/node"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
)

// nodeFlags are the settings of a host's containers, network and SSH.
type nodeFlags struct {
	runtime    string
	runDir     string
	containerd string
	namespace  string
	firstID    uint32
	runc       string
	guest      string
	network    string
	uplink     string
	deny       []string
	allow      []string
	resolvers  []string
	mbit       int
	address    string
	sshListen  string
	ports      string
	imageAllow []string
	disk       int64
	cdiDir     string
	library    string
	mpsControl string
	metrics    string
	policy     string
	probe      []string
	scrub      string
	programs   string
	modes      []string
}

func (f *nodeFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.runtime, "runtime", node.Containerd, "container runtime: containerd or runc; fake starts nothing (sim only)")
	flags.StringVar(&f.runDir, "run-dir", "", "folder of what need not outlive a boot (default: run in the data folder)")
	flags.StringVar(&f.containerd, "containerd", "", "socket of containerd (default: the packaged daemon's)")
	flags.StringVar(&f.namespace, "containerd-namespace", "", "namespace of containerd (default: tranche)")
	flags.Uint32Var(&f.firstID, "first-id", 0, "first host id of instances' user namespaces (default: 1048576)")
	flags.StringVar(&f.runc, "runc", "", "path of runc (default: the one on the PATH)")
	flags.StringVar(&f.guest, "guest", "", "path of tranche-guest (default: beside this program)")
	flags.StringVar(&f.network, "network", "10.213.0.0/16", "IPv4 addresses for instances; none gives them no network")
	flags.StringVar(&f.uplink, "uplink", "", "interface to the Internet (default: that of the default route)")
	flags.StringSliceVar(&f.deny, "deny", nil, "networks that no instance may reach: management, storage")
	flags.StringSliceVar(&f.allow, "allow", nil, "private networks that instances may reach")
	flags.StringSliceVar(&f.resolvers, "resolvers", nil, "name servers of instances")
	flags.IntVar(&f.mbit, "mbit-per-instance", 0, "limit of each direction in Mbit/s; 0 is none")
	flags.StringVar(&f.address, "address", "", "name or address under which tenants reach this host (default: that of --ssh-listen)")
	flags.StringVar(&f.sshListen, "ssh-listen", "", "host:port of the SSH gateway; empty is none")
	flags.StringVar(&f.ports, "ports", "30000-31999", "range of host ports that instances may publish; empty is none")
	flags.StringSliceVar(&f.imageAllow, "image-allow", nil, "prefixes of images that may run; none allows every public registry")
	flags.Int64Var(&f.disk, "disk-mib", 0, "what an instance may write, in MiB; 0 is the default of the image store (runc)")
	flags.StringVar(&f.cdiDir, "cdi-dir", "", "folder of device files (default: /var/run/cdi)")
	flags.StringVar(&f.library, "driver-libraries", "", "folder of the driver's libraries (default: the linker's cache)")
	flags.StringVar(&f.mpsControl, "mps-control", "", "absolute path of nvidia-cuda-mps-control (default: the usual places)")
	flags.StringSliceVar(&f.probe, "mps-probe", nil, "small CUDA program, and its arguments, that shows that MPS works after a fault")
	flags.StringVar(&f.metrics, "metrics-listen", "", "host:port for Prometheus, for example 127.0.0.1:8084; empty is none")
	flags.StringVar(&f.policy, "xid-policy", "", "file that replaces parts of the Xid policy")
	flags.StringVar(&f.scrub, "scrub", "trust-driver", "nvml: how GPU memory is cleaned between tenants: trust-driver, verify or fill")
	flags.StringVar(&f.programs, "scrub-programs", "", "nvml: folder of the CUDA programs scan and pattern, for verify and fill")
	flags.StringSliceVar(&f.modes, "gpu-mode", nil, "nvml: UUID=MODE of a GPU, for example GPU-…=mps:4x25")
}

// options checks the flags and gives them to the assembly.
func (f *nodeFlags) options(dir string) (node.Options, error) {
	o := node.Options{
		Dir: dir, RunDir: f.runDir, Runtime: f.runtime, ContainerdAddress: f.containerd, Namespace: f.namespace, FirstID: f.firstID,
		RuncPath: f.runc, GuestPath: f.guest,
		Network: f.network, Uplink: f.uplink, Mbit: f.mbit, Address: f.address, MetricsListen: f.metrics, HealthPolicy: f.policy, SSHListen: f.sshListen,
		Images: images.Policy{Allow: f.imageAllow}, Disk: units.MiB(f.disk), CDIDir: f.cdiDir, Library: f.library,
	}
	self, err := os.Executable()
	if err != nil {
		return o, fmt.Errorf("find this program: %w", err)
	}
	o.Shim = []string{self, shimCommandName}
	if o.GuestPath == "" {
		o.GuestPath = filepath.Join(filepath.Dir(self), "tranche-guest")
	}
	if o.Deny, err = prefixes("deny", f.deny); err != nil {
		return o, err
	}
	if o.Allow, err = prefixes("allow", f.allow); err != nil {
		return o, err
	}
	for _, text := range f.resolvers {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return o, fmt.Errorf("--resolvers: %w", err)
		}
		o.Resolvers = append(o.Resolvers, addr)
	}
	o.Ports, err = portRange(f.ports)
	return o, err
}

func prefixes(flag string, list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--%s is a network such as 192.168.0.0/24: %w", flag, err)
		}
		out = append(out, p)
	}
	return out, nil
}

func portRange(text string) (network.PortRange, error) {
	if text == "" {
		return network.PortRange{}, nil
	}
	first, last, ok := strings.Cut(text, "-")
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(last)
	if !ok || errA != nil || errB != nil || a < 1 || b > 65535 || a > b {
		return network.PortRange{}, fmt.Errorf("--ports is a range such as 30000-31999, not %q", text)
	}
	return network.PortRange{First: a, Last: b}, nil
}

// gpuModes reads UUID=MODE pairs.
func (f *nodeFlags) gpuModes() (map[string]gpu.Mode, error) {
	out := map[string]gpu.Mode{}
	for _, pair := range f.modes {
		uuid, text, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("--gpu-mode is UUID=MODE, not %q", pair)
		}
		m, err := gpu.ParseMode(text)
		if err != nil {
			return nil, fmt.Errorf("--gpu-mode of %s: %w", uuid, err)
		}
		out[uuid] = m
	}
	return out, nil
}
