package oci

import (
	"fmt"
	"path"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/tranche-cloud/tranche/agent/injection"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// kernelTargets are the mounts that no bind mount may cover.
var kernelTargets = []string{"/proc", "/sys", "/dev"}

// mountsOf are the kernel's file systems and the agent's bind mounts. Volumes of the
// image are folders of its writable layer: no path of a tenant becomes one of the
// host.
func mountsOf(in Input) ([]specs.Mount, error) {
	shm := in.Spec.Shm
	if shm == 0 {
		shm = in.Spec.RAM / 2
	}
	out := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", fmt.Sprintf("size=%d", shm.Bytes())}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
	}
	for _, m := range in.Spec.Extra.Mounts {
		if err := checkMount(in.Spec, m); err != nil {
			return nil, err
		}
		access := "ro"
		if m.Writable {
			access = "rw"
		}
		out = append(out, specs.Mount{
			Destination: m.Target, Type: "bind", Source: m.Source, Options: []string{"rbind", "rprivate", "nosuid", "nodev", access},
		})
	}
	return out, nil
}

func checkMount(s runtime.Spec, m runtime.Mount) error {
	if !path.IsAbs(m.Source) || !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || m.Target == "/" {
		return refuse(runtime.Broken, s, "bind mount of %q at %q: both must be clean absolute paths, and not the root", m.Source, m.Target)
	}
	for _, t := range kernelTargets {
		if m.Target == t || strings.HasPrefix(m.Target, t+"/") {
			return refuse(runtime.Broken, s, "bind mount at %q: %s is the kernel's", m.Target, t)
		}
	}
	return nil
}

// inject applies the CDI files of the slices. The folders are read at every start: a
// file is written moments before and must not be missed.
func inject(spec *specs.Spec, in Input) error {
	names := in.Spec.Extra.CDI
	if len(names) == 0 {
		return nil
	}
	if err := injection.Inject(spec, in.CDIDirs, names); err != nil {
		return refuse(runtime.Broken, in.Spec, "devices %v: their CDI files must be in %v before the start", names, in.CDIDirs).Because(err)
	}
	return nil
}
