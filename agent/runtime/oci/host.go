package oci

import (
	"fmt"
	"os"
	goruntime "runtime"

	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/internal/units"
)

// Host is what the machine and the agent's own process allow.
type Host struct {
	CgroupV2  bool      // unified hierarchy only
	SwapLimit bool      // the memory cgroup counts swap
	Seccomp   bool      // filters can be loaded
	CPUs      int       // 0 is not known
	RAM       units.MiB // 0 is not known
	// MemLock and OpenFiles are the agent's own hard limits, in bytes and files.
	MemLock, OpenFiles uint64
}

// HostFacts reads them from the kernel.
func HostFacts() (Host, error) {
	host := Host{CPUs: goruntime.NumCPU()}
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil {
		return Host{}, fmt.Errorf("read the cgroup mount: %w", err)
	}
	host.CgroupV2 = fs.Type == unix.CGROUP2_SUPER_MAGIC
	swap := "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"
	if host.CgroupV2 {
		swap = "/proc/swaps" // the runtime leaves the limit out where the kernel has none
	}
	_, err := os.Stat(swap)
	host.SwapLimit = err == nil
	// Asked for the mode of a null filter, a kernel with filters answers EFAULT.
	err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, 0, 0, 0)
	host.Seccomp = err == unix.EFAULT
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return Host{}, fmt.Errorf("read the memory size: %w", err)
	}
	host.RAM = units.FromBytes(info.Totalram * uint64(info.Unit))
	if host.MemLock, err = hardLimit(unix.RLIMIT_MEMLOCK); err != nil {
		return Host{}, err
	}
	if host.OpenFiles, err = hardLimit(unix.RLIMIT_NOFILE); err != nil {
		return Host{}, err
	}
	return host, nil
}

func hardLimit(kind int) (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(kind, &limit); err != nil {
		return 0, fmt.Errorf("read own limit %d: %w", kind, err)
	}
	return limit.Max, nil
}
