package oci_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/agent/runtime/oci"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

func input() oci.Input {
	return oci.Input{
		Spec: runtime.Spec{
			Name: "asg_1", Instance: "inst_1", Image: "img", VCPU: 2, RAM: 512,
			Extra: runtime.Extra{IDBase: 1 << 20, Init: []string{"/.tranche/init"}},
		},
		Image:  oci.Image{Entrypoint: []string{"/entry"}, Command: []string{"arg"}},
		RootFS: "/run/rootfs", Cgroup: "/tranche/asg_1",
		Host: oci.Host{Seccomp: true, CPUs: 4, RAM: 1024, MemLock: 8 << 20, OpenFiles: 20000, SwapLimit: true},
	}
}

func build(t *testing.T, change func(*oci.Input)) *specs.Spec {
	t.Helper()
	in := input()
	change(&in)
	spec, err := oci.Build(in)
	require.NoError(t, err)
	return spec
}

func TestEveryContainerIsConfined(t *testing.T) {
	spec := build(t, func(*oci.Input) {})
	var kinds []specs.LinuxNamespaceType
	for _, n := range spec.Linux.Namespaces {
		require.Empty(t, n.Path, "no namespace of the host or another container")
		kinds = append(kinds, n.Type)
	}
	require.ElementsMatch(t, []specs.LinuxNamespaceType{"user", "pid", "ipc", "uts", "mount", "network", "cgroup"}, kinds)
	require.Equal(t, []specs.LinuxIDMapping{{HostID: 1 << 20, Size: 65536}}, spec.Linux.UIDMappings)
	require.Equal(t, spec.Linux.UIDMappings, spec.Linux.GIDMappings)
	require.True(t, spec.Process.NoNewPrivileges)
	require.NotNil(t, spec.Linux.Seccomp)
	require.Equal(t, specs.ActErrno, spec.Linux.Seccomp.DefaultAction)
	caps := spec.Process.Capabilities
	for _, c := range []string{"CAP_MKNOD", "CAP_NET_RAW", "CAP_SYS_CHROOT", "CAP_AUDIT_WRITE", "CAP_SYS_ADMIN", "CAP_NET_ADMIN"} {
		require.NotContains(t, caps.Bounding, c)
	}
	require.Empty(t, caps.Inheritable)
	require.Empty(t, caps.Ambient)
	require.Equal(t, specs.LinuxDeviceCgroup{Allow: false, Access: "rwm"}, spec.Linux.Resources.Devices[0], "all is denied first")
	for _, d := range spec.Linux.Resources.Devices[1:] {
		require.Equal(t, "c", d.Type)
		require.NotContains(t, d.Access, "m")
	}
	require.Equal(t, "inst_1", spec.Hostname)
}

func TestLimitsOfTheHostStand(t *testing.T) {
	spec := build(t, func(in *oci.Input) { in.Spec.PIDs, in.Spec.Extra.CPUs = 64, "0-1" })
	r := spec.Linux.Resources
	require.EqualValues(t, 512<<20, *r.Memory.Limit)
	require.EqualValues(t, 512<<20, *r.Memory.Swap, "swap included")
	require.EqualValues(t, 200_000, *r.CPU.Quota)
	require.EqualValues(t, 100_000, *r.CPU.Period)
	require.EqualValues(t, 2048, *r.CPU.Shares)
	require.Equal(t, "0-1", r.CPU.Cpus)
	require.EqualValues(t, 64, *r.Pids.Limit)
	for _, l := range spec.Process.Rlimits {
		switch l.Type {
		case "RLIMIT_MEMLOCK":
			require.EqualValues(t, 8<<20, l.Hard, "never above the agent's own")
		case "RLIMIT_NOFILE":
			require.EqualValues(t, 20000, l.Hard)
		}
	}
	free := build(t, func(in *oci.Input) { in.Host.MemLock = 1 << 40; in.Host.SwapLimit = false })
	require.Nil(t, free.Linux.Resources.Memory.Swap)
	require.EqualValues(t, 512<<20, free.Process.Rlimits[1].Hard)
	require.EqualValues(t, runtime.DefaultPIDs, *free.Linux.Resources.Pids.Limit)
}

func TestSharedMemoryIsHalfUnlessAsked(t *testing.T) {
	size := func(spec *specs.Spec) string {
		i := slices.IndexFunc(spec.Mounts, func(m specs.Mount) bool { return m.Destination == "/dev/shm" })
		require.Contains(t, spec.Mounts[i].Options, "mode=1777")
		return spec.Mounts[i].Options[len(spec.Mounts[i].Options)-1]
	}
	require.Equal(t, "size=268435456", size(build(t, func(*oci.Input) {})))
	require.Equal(t, "size=67108864", size(build(t, func(in *oci.Input) { in.Spec.Shm = 64 })))
}

func TestCommandRule(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*oci.Input)
		want   []string
	}{
		"image's entrypoint and command": {func(*oci.Input) {}, []string{"/.tranche/init", "/entry", "arg"}},
		"the tenant's replaces both":     {func(in *oci.Input) { in.Spec.Command = []string{"sh"} }, []string{"/.tranche/init", "sh"}},
		"init alone":                     {func(in *oci.Input) { in.Image = oci.Image{} }, []string{"/.tranche/init"}},
		"no init":                        {func(in *oci.Input) { in.Spec.Extra.Init = nil }, []string{"/entry", "arg"}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, build(t, c.change).Process.Args) })
	}
}

func TestEnvironment(t *testing.T) {
	env := build(t, func(in *oci.Input) {
		in.Image.Env = []string{
			"PATH=/image", "LD_PRELOAD=/evil.so", "LD_AUDIT=/evil.so", "NVIDIA_VISIBLE_DEVICES=all", "CUDA_VISIBLE_DEVICES=0",
			"TRANCHE_X=1", "LD_LIBRARY_PATH=/lib", "A=image",
		}
		in.Spec.Env = map[string]string{
			"A": "tenant", "LD_PRELOAD": "/mine.so", "NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all",
			"CUDA_MPS_PIPE_DIRECTORY": "/x", "CUDA_VISIBLE_DEVICES": "1", "TRANCHE_Y": "1", "CUDA_CACHE_PATH": "/c",
		}
	}).Process.Env
	require.Equal(t, []string{
		"PATH=/image", "HOSTNAME=inst_1", "HOME=/", "LD_LIBRARY_PATH=/lib", "A=tenant", "CUDA_CACHE_PATH=/c", "LD_PRELOAD=/mine.so",
	}, env)
}

const cdiFile = `{"cdiVersion":"0.6.0","kind":"tranche.dev/slice","devices":[{"name":"asg_1-0","containerEdits":{
 "deviceNodes":[{"path":"/dev/zero"}],"env":["CUDA_CACHE_PATH=/slice","CUDA_VISIBLE_DEVICES=MIG-1"]}}]}`

func TestTheSliceHasTheLastWord(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "slice.json"), []byte(cdiFile), 0o600))
	spec := build(t, func(in *oci.Input) {
		in.CDIDirs, in.Spec.Extra.CDI = []string{dir}, []string{"tranche.dev/slice=asg_1-0"}
		in.Spec.Env = map[string]string{"CUDA_CACHE_PATH": "/tenant"}
	})
	require.Contains(t, spec.Process.Env, "CUDA_CACHE_PATH=/slice")
	require.NotContains(t, spec.Process.Env, "CUDA_CACHE_PATH=/tenant")
	require.Contains(t, spec.Process.Env, "CUDA_VISIBLE_DEVICES=MIG-1")
	require.Equal(t, "/dev/zero", spec.Linux.Devices[0].Path)

	in := input()
	in.CDIDirs, in.Spec.Extra.CDI = []string{dir}, []string{"tranche.dev/slice=other"}
	_, err := oci.Build(in)
	require.Equal(t, runtime.Broken, runtime.KindOf(err))
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*oci.Input)
		want   runtime.Kind
	}{
		"little memory":      {func(in *oci.Input) { in.Spec.RAM = 15 }, runtime.LimitInvalid},
		"much memory":        {func(in *oci.Input) { in.Spec.RAM = 1025 }, runtime.LimitInvalid},
		"no cpu":             {func(in *oci.Input) { in.Spec.VCPU = 0 }, runtime.LimitInvalid},
		"many cpus":          {func(in *oci.Input) { in.Spec.VCPU = 5 }, runtime.LimitInvalid},
		"few processes":      {func(in *oci.Input) { in.Spec.PIDs = 7 }, runtime.LimitInvalid},
		"large shm":          {func(in *oci.Input) { in.Spec.Shm = 513 }, runtime.LimitInvalid},
		"host name":          {func(in *oci.Input) { in.Spec.Hostname = "a/b" }, runtime.LimitInvalid},
		"no command":         {func(in *oci.Input) { in.Spec.Extra.Init, in.Image = nil, oci.Image{} }, runtime.CommandMissing},
		"no seccomp":         {func(in *oci.Input) { in.Host.Seccomp = false }, runtime.Unavailable},
		"root's ids":         {func(in *oci.Input) { in.Spec.Extra.IDBase = 0 }, runtime.Broken},
		"ids beyond the end": {func(in *oci.Input) { in.Spec.Extra.IDBase = 1<<32 - 65536 }, runtime.Broken},
		"mount over /proc": {func(in *oci.Input) {
			in.Spec.Extra.Mounts = []runtime.Mount{{Source: "/a", Target: "/proc/x"}}
		}, runtime.Broken},
		"mount outside": {func(in *oci.Input) {
			in.Spec.Extra.Mounts = []runtime.Mount{{Source: "/a", Target: "/x/../y"}}
		}, runtime.Broken},
	} {
		t.Run(name, func(t *testing.T) {
			in := input()
			c.change(&in)
			_, err := oci.Build(in)
			require.Equal(t, c.want, runtime.KindOf(err), "%v", err)
		})
	}
}

func TestBindMountsAreReadOnlyUnlessTheAgentSays(t *testing.T) {
	spec := build(t, func(in *oci.Input) {
		in.Spec.Extra.Mounts = []runtime.Mount{{Source: "/a", Target: "/x"}, {Source: "/b", Target: "/y", Writable: true}}
	})
	last := spec.Mounts[len(spec.Mounts)-2:]
	require.Equal(t, []string{"rbind", "rprivate", "nosuid", "nodev", "ro"}, last[0].Options)
	require.Equal(t, []string{"rbind", "rprivate", "nosuid", "nodev", "rw"}, last[1].Options)
}

func TestUserComesFromTheImage(t *testing.T) {
	rootfs := fstest.MapFS{
		"etc/passwd": {Data: []byte("root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\nfar:x:70000:1::/:/bin/sh\n")},
		"etc/group":  {Data: []byte("app:x:1000:\nvideo:x:44:app\n")},
	}
	u, err := oci.FindUser(rootfs, "app")
	require.NoError(t, err)
	require.Equal(t, oci.User{UID: 1000, GID: 1000, Groups: []uint32{44}, Home: "/home/app"}, u)
	u, err = oci.FindUser(fstest.MapFS{}, "7:8")
	require.NoError(t, err)
	require.Equal(t, oci.User{UID: 7, GID: 8, Home: "/"}, u)
	for _, name := range []string{"nobody-here", "far", "70000"} {
		_, err = oci.FindUser(rootfs, name)
		require.Equal(t, runtime.ImageInvalid, runtime.KindOf(err), name)
	}
}

// Whatever an image and a tenant write, these variables never reach a program.
func TestReservedNamesNeverPass(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := input()
		in.Image.Env = rapid.SliceOf(rapid.StringMatching(`(LD_PRELOAD|NVIDIA_[A-Z]+|CUDA_[A-Z]+|TRANCHE_[A-Z]*|[A-Z]+)=?.{0,3}`)).Draw(rt, "image")
		spec, err := oci.Build(in)
		require.NoError(rt, err)
		for _, pair := range spec.Process.Env {
			for _, p := range []string{"LD_PRELOAD=", "LD_AUDIT=", "NVIDIA_", "CUDA_", "TRANCHE_"} {
				require.False(rt, strings.HasPrefix(pair, p), pair)
			}
		}
	})
}

func TestThisHostHasFacts(t *testing.T) {
	host, err := oci.HostFacts()
	require.NoError(t, err)
	require.True(t, host.Seccomp)
	require.Positive(t, host.CPUs)
	require.Positive(t, host.RAM)
	require.Positive(t, host.OpenFiles)
}

// An image with no room for the kernel's file systems is the image's fault.
func TestAnImageHasRoomForTheKernel(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("/etc", filepath.Join(dir, "sys")))
	for name, rootfs := range map[string]fs.FS{
		"a file": fstest.MapFS{"proc": {Data: []byte("x")}}, "a link": os.DirFS(dir),
	} {
		_, err := oci.FindUser(rootfs, "0")
		require.Equal(t, runtime.ImageInvalid, runtime.KindOf(err), name)
	}
	_, err := oci.FindUser(fstest.MapFS{"proc": {Mode: fs.ModeDir | 0o555}}, "0")
	require.NoError(t, err)
}
