package oci

import (
	"math"
	"regexp"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// The least that a container gets: below it not even a shell starts.
const (
	minRAM  = 16 * units.MiB(1)
	minVCPU = 1
	minPIDs = 8
)

// maxPIDs is what a 64-bit kernel can count.
const maxPIDs = 4 << 20

// period is that of the CPU quota, in µs: the kernel's default.
const period = 100_000

// sharesPerCPU is the weight of one CPU where CPUs are contended: the kernel's default
// for a group.
const (
	sharesPerCPU = 1024
	maxShares    = 1 << 18 // the kernel's
)

// maxOpenFiles is the limit of open files where the agent's own limit allows it.
const maxOpenFiles = 1 << 20

var hostnames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Check refuses limits that no container can have on this host, so that a driver can
// say so before it pulls anything: LIMIT_INVALID.
func Check(s runtime.Spec, host Host) error {
	invalid := func(format string, args ...any) error { return refuse(runtime.LimitInvalid, s, format, args...) }
	switch {
	case s.RAM < minRAM:
		return invalid("memory of %d MiB is below the minimum of %d MiB", s.RAM, minRAM)
	case host.RAM > 0 && s.RAM > host.RAM:
		return invalid("memory of %d MiB is more than the host's %d MiB", s.RAM, host.RAM)
	case s.VCPU < minVCPU:
		return invalid("%d CPUs are below the minimum of %d", s.VCPU, minVCPU)
	case host.CPUs > 0 && s.VCPU > host.CPUs:
		return invalid("%d CPUs are more than the host's %d", s.VCPU, host.CPUs)
	case s.PIDs != 0 && (s.PIDs < minPIDs || s.PIDs > maxPIDs):
		return invalid("a limit of %d processes is not within %d to %d", s.PIDs, minPIDs, maxPIDs)
	case s.Shm < 0 || s.Shm > s.RAM:
		return invalid("/dev/shm of %d MiB is not within the memory of %d MiB", s.Shm, s.RAM)
	case !hostnames.MatchString(hostname(s)):
		return invalid("host name %q: use 1 to 64 letters, digits, dots, hyphens and underscores", hostname(s))
	}
	return nil
}

func resources(in Input) *specs.LinuxResources {
	s := in.Spec
	ram, pids := s.RAM.Bytes(), int64(s.PIDs)
	if pids == 0 {
		pids = runtime.DefaultPIDs
	}
	quota, every, shares := int64(s.VCPU)*period, uint64(period), min(uint64(s.VCPU)*sharesPerCPU, maxShares)
	out := &specs.LinuxResources{
		Devices: devices(),
		Memory:  &specs.LinuxMemory{Limit: &ram},
		CPU:     &specs.LinuxCPU{Quota: &quota, Period: &every, Shares: &shares, Cpus: s.Extra.CPUs, Mems: s.Extra.MemoryNodes},
		Pids:    &specs.LinuxPids{Limit: &pids},
	}
	if in.Host.SwapLimit {
		out.Memory.Swap = &ram
	}
	return out
}

// devices denies all but the standard nodes and the container's own terminals. CDI
// adds the slice's.
func devices() []specs.LinuxDeviceCgroup {
	out := []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
	allow := func(major, minor int64) {
		d := specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &major, Access: "rw"}
		if minor >= 0 {
			d.Minor = &minor
		}
		out = append(out, d)
	}
	for _, minor := range []int64{3, 5, 7, 8, 9} { // null, zero, full, random, urandom
		allow(1, minor)
	}
	allow(5, 0)    // tty
	allow(5, 2)    // ptmx
	allow(136, -1) // pts/*
	return out
}

// rlimits never rise above the agent's own, which only a more privileged process
// could grant.
func rlimits(in Input) []specs.POSIXRlimit {
	limit := func(kind string, want, own uint64) specs.POSIXRlimit {
		n := min(want, own)
		return specs.POSIXRlimit{Type: kind, Hard: n, Soft: n}
	}
	return []specs.POSIXRlimit{
		limit("RLIMIT_CORE", 0, math.MaxUint64),
		limit("RLIMIT_MEMLOCK", uint64(in.Spec.RAM.Bytes()), in.Host.MemLock),
		limit("RLIMIT_NOFILE", maxOpenFiles, in.Host.OpenFiles),
	}
}
