package preflight_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/preflight"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/replay"
)

// good is a host without a finding above pass.
func good() preflight.Facts {
	on := true
	tool := func(v string) preflight.Tool { return preflight.Tool{Path: "/usr/bin/x", Version: v} }
	return preflight.Facts{
		Shared: true, Runtime: "containerd", Root: true, Kernel: "6.8.0-45-generic",
		Cgroup: preflight.Cgroup{Version: 2, Controllers: []string{"cpuset", "cpu", "io", "memory", "pids"}}, UserSpaces: 1000,
		Nftables: preflight.Probe{OK: true}, Overlay: preflight.Probe{OK: true}, CDI: preflight.Probe{OK: true},
		Data:  preflight.Filesystem{Path: "/var/lib/tranche", Type: "xfs", Quota: true},
		Clock: preflight.Clock{Synchronised: true, MaxError: 20 * time.Millisecond},
		Runc:  tool("1.3.3"), Containerd: tool("2.1.5"), Toolkit: tool("1.18.0"), MPSControl: tool(""), SMI: tool(""),
		Driver: preflight.Driver{Module: "580.159.04", Library: "580.159.04", ProfilingAdminOnly: &on},
		GPUs:   []preflight.GPU{{UUID: "GPU-1", Name: "NVIDIA H200", ECC: &on, Fabric: "completed"}},
		Fabric: preflight.FabricManager{Switches: 4, Running: true, Version: "580.159.04"},
	}
}

func levelOf(t *testing.T, f preflight.Facts, check string) preflight.Finding {
	t.Helper()
	for _, x := range preflight.Judge(f) {
		if x.Check == check {
			return x
		}
	}
	t.Fatalf("nothing was said about %s", check)
	return preflight.Finding{}
}

func TestAGoodHostPasses(t *testing.T) {
	t.Parallel()
	list := preflight.Judge(good())
	for _, f := range list {
		require.Equal(t, preflight.Pass, f.Level, "%+v", f)
		require.NotEmpty(t, f.Have)
		require.NotEmpty(t, f.Want)
	}
	require.False(t, preflight.Failed(list))
	require.Equal(t, []string{}, preflight.BelowFloor(list))
}

func TestEveryFaultIsNamed(t *testing.T) {
	t.Parallel()
	off := false
	for name, c := range map[string]struct {
		spoil func(*preflight.Facts)
		check string
		want  preflight.Level
	}{
		"no root":            {func(f *preflight.Facts) { f.Root = false }, "rights", preflight.Fail},
		"cut down":           {func(f *preflight.Facts) { f.Capabilities = []string{"CAP_NET_ADMIN"} }, "rights", preflight.Fail},
		"old kernel":         {func(f *preflight.Facts) { f.Kernel = "4.19.0-27-amd64" }, "kernel", preflight.Fail},
		"ageing kernel":      {func(f *preflight.Facts) { f.Kernel = "5.10.0" }, "kernel", preflight.Warn},
		"no memory group":    {func(f *preflight.Facts) { f.Cgroup.Controllers = []string{"cpu", "cpuset", "pids"} }, "cgroups", preflight.Fail},
		"no user namespace":  {func(f *preflight.Facts) { f.UserSpaces = 0 }, "user namespaces", preflight.Fail},
		"no filters":         {func(f *preflight.Facts) { f.Nftables = preflight.Probe{Why: "protocol not supported"} }, "nftables", preflight.Fail},
		"no overlay":         {func(f *preflight.Facts) { f.Overlay = preflight.Probe{Why: "no"} }, "overlayfs", preflight.Warn},
		"read-only cdi":      {func(f *preflight.Facts) { f.CDI = preflight.Probe{Why: "read-only"} }, "cdi folder", preflight.Fail},
		"no quota":           {func(f *preflight.Facts) { f.Data.Quota = false }, "disk quota", preflight.Warn},
		"clock adrift":       {func(f *preflight.Facts) { f.Clock.MaxError = 3 * time.Second }, "clock", preflight.Fail},
		"clock alone":        {func(f *preflight.Facts) { f.Clock.Synchronised = false }, "clock", preflight.Warn},
		"clock unknown":      {func(f *preflight.Facts) { f.Clock.Unknown = "refused" }, "clock", preflight.Warn},
		"no runc":            {func(f *preflight.Facts) { f.Runc = preflight.Tool{Missing: "none"} }, "runc", preflight.Fail},
		"old runc":           {func(f *preflight.Facts) { f.Runc.Version = "1.0.0-rc93" }, "runc", preflight.Fail},
		"ageing runc":        {func(f *preflight.Facts) { f.Runc.Version = "1.1.5+ds1" }, "runc", preflight.Warn},
		"runc of no version": {func(f *preflight.Facts) { f.Runc.Version = "unknown" }, "runc", preflight.Fail},
		"no containerd":      {func(f *preflight.Facts) { f.Containerd = preflight.Tool{} }, "containerd", preflight.Fail},
		"old containerd":     {func(f *preflight.Facts) { f.Containerd.Version = "1.5.18" }, "containerd", preflight.Fail},
		"old toolkit":        {func(f *preflight.Facts) { f.Toolkit.Version = "1.17.7" }, "nvidia-container-toolkit", preflight.Fail},
		"no driver":          {func(f *preflight.Facts) { f.Driver = preflight.Driver{Missing: "DRIVER_NOT_LOADED"} }, "driver", preflight.Fail},
		"old driver": {func(f *preflight.Facts) {
			f.Driver.Module, f.Driver.Library, f.Fabric = "570.86.15", "570.86.15", preflight.FabricManager{}
		}, "driver", preflight.Fail},
		"ageing driver": {func(f *preflight.Facts) {
			f.Driver.Module, f.Driver.Library, f.Fabric = "580.95.05", "580.95.05", preflight.FabricManager{}
		}, "driver", preflight.Warn},
		"dead branch": {func(f *preflight.Facts) {
			f.Driver.Module, f.Driver.Library, f.Fabric = "545.23.08", "545.23.08", preflight.FabricManager{}
		}, "driver", preflight.Fail},
		"future branch": {func(f *preflight.Facts) {
			f.Driver.Module, f.Driver.Library, f.Fabric = "700.10", "700.10", preflight.FabricManager{}
		}, "driver", preflight.Warn},
		"half an upgrade":    {func(f *preflight.Facts) { f.Driver.Library = "580.160.00" }, "driver library", preflight.Fail},
		"open counters":      {func(f *preflight.Facts) { f.Driver.ProfilingAdminOnly = &off }, "profiling counters", preflight.Fail},
		"open, not shared":   {func(f *preflight.Facts) { f.Shared, f.Driver.ProfilingAdminOnly = false, nil }, "profiling counters", preflight.Warn},
		"no mps":             {func(f *preflight.Facts) { f.MPSControl = preflight.Tool{} }, "mps control", preflight.Warn},
		"no nvidia-smi":      {func(f *preflight.Facts) { f.SMI = preflight.Tool{} }, "nvidia-smi", preflight.Warn},
		"no gpu":             {func(f *preflight.Facts) { f.GPUs = nil }, "gpus", preflight.Fail},
		"lost gpu":           {func(f *preflight.Facts) { f.GPUs[0].Lost = true }, "gpus", preflight.Warn},
		"no ecc":             {func(f *preflight.Facts) { f.GPUs[0].ECC = &off }, "ecc", preflight.Fail},
		"no ecc, not shared": {func(f *preflight.Facts) { f.Shared, f.GPUs[0].ECC = false, &off }, "ecc", preflight.Warn},
		"no fabric manager":  {func(f *preflight.Facts) { f.Fabric.Running = false }, "fabric manager", preflight.Fail},
		"other fabric":       {func(f *preflight.Facts) { f.Fabric.Version = "580.95.05" }, "fabric manager", preflight.Fail},
		"fabric in progress": {func(f *preflight.Facts) { f.GPUs[0].Fabric = "in_progress" }, "fabric manager", preflight.Warn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := good()
			c.spoil(&f)
			got := levelOf(t, f, c.check)
			require.Equal(t, c.want, got.Level, "%+v", got)
			require.NotEmpty(t, got.Why)
			require.NotEmpty(t, got.Fix)
			require.Equal(t, c.want == preflight.Fail, preflight.Failed(preflight.Judge(f)))
		})
	}
}

func TestFloorsAreShort(t *testing.T) {
	t.Parallel()
	f := good()
	f.Runc.Version, f.Driver.Module, f.Driver.Library, f.Nftables = "1.0.3", "570.86.15", "570.86.15", preflight.Probe{Why: "no"}
	require.Equal(t, []string{
		"runc: 1.0.3, needs 1.1.5, better 1.2.8 or later",
		"driver: 570.86.15, needs 570.172.08, better 570.211.01 or later",
	}, preflight.BelowFloor(preflight.Judge(f))[:2])
}

func TestASimulatedHostNeedsNoDriver(t *testing.T) {
	t.Parallel()
	f := good()
	f.Simulated, f.Driver, f.GPUs = true, preflight.Driver{}, nil
	require.False(t, preflight.Failed(preflight.Judge(f)))
}

// TestGatherReadsAHost reads a made-up file system, and for what cannot be made
// up this machine.
func TestGatherReadsAHost(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/sys/kernel/osrelease":         "6.18.44-vendor-gpu\n",
		"proc/sys/user/max_user_namespaces": "256\n",
		"proc/self/status":                  "Name:\tx\nCapEff:\t000001ffffffffff\n",
		"proc/filesystems":                  "nodev\tsysfs\nnodev\toverlay\n\text4\n",
		"sys/fs/cgroup/cgroup.controllers":  "cpuset cpu io memory hugetlb pids\n",
		"sys/module/nvidia/version":         "580.159.04\n",
		"proc/driver/nvidia/params":         "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 0\nRegistryDwords: \"\"\n",
		"proc/self/mountinfo": "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n" +
			"40 22 8:2 / /srv rw,relatime shared:2 - xfs /dev/sdb rw,attr2,prjquota\n",
		"proc/driver/nvidia-nvswitch/devices/0000:01:00.0": "",
		"proc/77/comm": "nv-fabricmanage\n",
	} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	drv, err := replay.Open("../../nodeagent/gpudrv/replay/testdata/h200-141.json")
	require.NoError(t, err)
	f := preflight.Gather(t.Context(), preflight.Options{
		Root: root, DataDir: "/srv/tranche", CDIDir: filepath.Join(root, "var/run/cdi"), Shared: true, Runtime: "runc", GPUs: drv,
		Runc: script(t, "echo runc version 1.1.5+ds1; echo go: go1.19.8"), Containerd: script(t, "echo containerd example.org/containerd v1.6.20~ds1 abc"),
	})
	require.Equal(t, "6.18.44-vendor-gpu", f.Kernel)
	require.Equal(t, 256, f.UserSpaces)
	require.Empty(t, f.Capabilities)
	require.True(t, f.Overlay.OK && f.CDI.OK)
	require.Equal(t, 2, f.Cgroup.Version)
	require.Equal(t, preflight.Filesystem{Path: "/srv/tranche", Type: "xfs", Quota: true}, f.Data)
	require.Equal(t, "1.1.5+ds1", f.Runc.Version)
	require.Equal(t, "1.6.20~ds1", f.Containerd.Version)
	require.Equal(t, "580.159.04", f.Driver.Module)
	require.False(t, *f.Driver.ProfilingAdminOnly)
	require.Len(t, f.GPUs, 1)
	require.True(t, *f.GPUs[0].ECC)
	require.Equal(t, 1, f.Fabric.Switches)
	require.True(t, f.Fabric.Running)
	require.Contains(t, preflight.BelowFloor(preflight.Judge(f)), "profiling counters: open to tenants, needs RmProfilingAdminOnly=1 on shared hosts")
	_, err = json.Marshal(f)
	require.NoError(t, err)
}

func TestGatherOnABareMachine(t *testing.T) {
	t.Parallel()
	f := preflight.Gather(t.Context(), preflight.Options{Root: t.TempDir(), Runtime: "containerd", DriverError: errors.New("no library"), Containerd: "/nonexistent"})
	list := preflight.Judge(f)
	require.True(t, preflight.Failed(list))
	require.Contains(t, levelOf(t, f, "driver").Have, "no library")
	require.Equal(t, preflight.Fail, levelOf(t, f, "containerd").Level)
	require.Equal(t, preflight.Fail, levelOf(t, f, "kernel").Level)
}

func TestGatherReadsOldGroups(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc"), 0o755))
	text := "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t2\t4\t1\nmemory\t3\t1\t1\nio\t0\t1\t1\npids\t4\t1\t0\n"
	require.NoError(t, os.WriteFile(filepath.Join(root, "proc/cgroups"), []byte(text), 0o600))
	f := preflight.Gather(t.Context(), preflight.Options{Root: root, Simulated: true})
	require.Equal(t, preflight.Cgroup{Version: 1, Controllers: []string{"cpu", "memory"}}, f.Cgroup)
}

func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700))
	return path
}
