package market

import (
	"fmt"
	"strings"
)

// GPUs is a group of alike simulated GPUs of a host.
type GPUs struct {
	Model string // a slug of the simulator's catalogue
	Mode  string // for example mig or mps:4x25
	Count int
}

// Host is one simulated machine.
type Host struct {
	Name string
	GPUs []GPUs
}

// Fleet is a set of simulated machines, each run by an agent of its own.
type Fleet []Host

// Every simulated host is alike but for its GPUs, and has enough of the rest.
const (
	hostVCPU   = 256
	hostRAMMiB = 2 << 20
)

// YAML is the fleet file that agents read.
func (f Fleet) YAML() []byte {
	var b strings.Builder
	b.WriteString("hosts:\n")
	for _, h := range f {
		fmt.Fprintf(&b, "  - name: %s\n    vcpu: %d\n    ram_mib: %d\n    gpus:\n", h.Name, hostVCPU, hostRAMMiB)
		for _, g := range h.GPUs {
			fmt.Fprintf(&b, "      - {model: %s, mode: %q, count: %d}\n", g.Model, g.Mode, g.Count)
		}
	}
	return []byte(b.String())
}

// Count is the number of GPUs in all.
func (f Fleet) Count() int {
	n := 0
	for _, h := range f {
		for _, g := range h.GPUs {
			n += g.Count
		}
	}
	return n
}

// Small is a fleet with all four modes, n GPUs of each, on four hosts.
func Small(n int) Fleet {
	return Fleet{
		{"whole-1", []GPUs{{"H100-80", "whole", n}}},
		{"mig-1", []GPUs{{"H200-141", "mig", n}}},
		{"mps-1", []GPUs{{"A100-80", "mps:4x25", n}}},
		{"timeslice-1", []GPUs{{"A100-80", "timeslice:2", n}}},
	}
}

// Replay is the fleet that traces are played on: 40 hosts of one GPU.
func Replay() Fleet {
	var f Fleet
	add := func(prefix string, hosts int, g GPUs) {
		for i := range hosts {
			f = append(f, Host{fmt.Sprintf("%s-%02d", prefix, i+1), []GPUs{g}})
		}
	}
	add("whole", 20, GPUs{"H100-80", "whole", 1})
	add("mig", 6, GPUs{"H200-141", "mig", 1})
	add("mps", 6, GPUs{"A100-80", "mps:4x25", 1})
	add("timeslice", 8, GPUs{"A100-80", "timeslice:2", 1})
	return f
}

// Wide is n hosts of eight GPUs that hold 32 quarters each, for benchmarks.
func Wide(n int) Fleet {
	var f Fleet
	for i := range n {
		f = append(f, Host{fmt.Sprintf("wide-%02d", i+1), []GPUs{{"A100-80", "mps:4x25", 8}}})
	}
	return f
}
