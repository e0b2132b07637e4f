package injection_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-cloud/tranche/agent/injection"
	"github.com/tranche-cloud/tranche/internal/gpu"
)

const (
	first  = "asg_01kbs0000000000000000000a1"
	second = "asg_01kbs0000000000000000000b2"
)

func whole() injection.Slice {
	return injection.Slice{Assignment: first, Driver: injection.NVIDIA, Technique: gpu.Whole, Minor: 0, UUID: "GPU-aa"}
}

func mig(gi int) injection.Slice {
	return injection.Slice{
		Assignment: second, Driver: injection.NVIDIA, Technique: gpu.MIG, Minor: 3, GI: gi, UUID: "MIG-" + strings.Repeat("b", gi),
	}
}

func mps() injection.Slice {
	s := whole()
	s.Technique, s.MPS = gpu.MPS, &injection.MPS{PipeDir: "/run/tranche/pipes/GPU-aa", Percent: 25, Memory: 35000}
	return s
}

func simulated() injection.Slice {
	s := mig(7)
	s.Driver = injection.Simulated
	return s
}

func TestFilesAreAsRecorded(t *testing.T) {
	t.Parallel()
	slice := whole()
	slice.Technique = gpu.TimeSlice
	shared := mig(9)
	shared.MPS = &injection.MPS{PipeDir: "/run/tranche/pipes/MIG-b", Percent: 50, Memory: 8000}
	for name, slice := range map[string]injection.Slice{
		"mps-in-mig": shared, "whole": whole(), "timeslice": slice, "mig": mig(7), "mps": mps(), "sim": simulated(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			device, err := m.open(t).Write(slice)
			require.NoError(t, err)
			require.Equal(t, injection.Qualified(slice.Assignment, slice.Slot), device)
			text, err := os.ReadFile(filepath.Join(m.cfg.Dir, "tranche-"+injection.Device(slice.Assignment, slice.Slot)+".json"))
			require.NoError(t, err)
			m.golden(t, name+".json", string(text))
		})
	}
}

// injected are the names of the nodes in a spec, without the folder.
func injected(spec *oci.Spec) []string {
	var nodes []string
	for _, device := range spec.Linux.Devices {
		nodes = append(nodes, strings.TrimPrefix(device.Path, "/dev/"))
	}
	slices.Sort(nodes)
	return nodes
}

func TestTheLibraryReadsExactlyTheSlicesNodes(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	store := m.open(t)
	for _, gi := range []int{7, 9} {
		slice := mig(gi)
		slice.Slot = gi
		_, err := store.Write(slice)
		require.NoError(t, err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(m.cfg.Dir))
	require.NoError(t, err)
	require.Empty(t, cache.GetErrors())
	for _, file := range cache.GetVendorSpecs("tranche.dev") {
		least, err := specs.MinimumRequiredVersion(file.Spec)
		require.NoError(t, err)
		require.Equal(t, least, file.Version)
	}
	spec := &oci.Spec{}
	_, err = cache.InjectDevices(spec, injection.Qualified(second, 7))
	require.NoError(t, err)
	require.Equal(t, []string{"nvidia-caps/nvidia-cap66", "nvidia-caps/nvidia-cap67", "nvidia-uvm", "nvidia-uvm-tools", "nvidia3", "nvidiactl"}, injected(spec))
	for i, rule := range spec.Linux.Resources.Devices {
		require.True(t, rule.Allow)
		require.Equal(t, "rw", rule.Access, "nobody makes nodes")
		require.EqualValues(t, 240, *rule.Major, "numbers come from the node")
		require.Equal(t, spec.Linux.Devices[i].Minor, *rule.Minor)
	}
}

func TestInjectionPutsOurFoldersInFrontAndKeepsTheImagesOwn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	_, err := m.open(t).Write(whole())
	require.NoError(t, err)
	spec := &oci.Spec{Process: &oci.Process{Env: []string{
		"LD_LIBRARY_PATH=/opt/app/lib::/usr/local/nvidia/lib64", "PATH=/opt/app/bin", "CUDA_VISIBLE_DEVICES=7", "NVIDIA_VISIBLE_DEVICES=all", "A=b",
	}}}
	require.NoError(t, injection.Inject(spec, []string{m.cfg.Dir}, []string{injection.Qualified(first, 0)}))
	require.ElementsMatch(t, []string{
		"LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/opt/app/lib", "PATH=/usr/local/nvidia/bin:/opt/app/bin", "NVIDIA_VISIBLE_DEVICES=void", "A=b",
	}, spec.Process.Env)
	require.Contains(t, spec.Mounts, oci.Mount{
		Source: filepath.Join(m.cfg.Libraries, "libcuda.so."+driverVersion), Destination: "/usr/local/nvidia/lib64/libcuda.so.1",
		Type: "bind", Options: []string{"ro", "nosuid", "nodev", "bind", "private"},
	})
}

func TestSeveralSlicesOfOneInstanceAreJoined(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	store := m.open(t)
	var devices []string
	for slot, gi := range []int{7, 9} {
		slice := mig(gi)
		slice.Slot = slot
		device, err := store.Write(slice)
		require.NoError(t, err)
		devices = append(devices, device)
	}
	spec := &oci.Spec{Linux: &oci.Linux{Resources: &oci.LinuxResources{Devices: []oci.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}}}}
	require.NoError(t, injection.Inject(spec, []string{m.cfg.Dir}, devices))
	require.Equal(t, []string{
		"nvidia-caps/nvidia-cap66", "nvidia-caps/nvidia-cap67", "nvidia-caps/nvidia-cap75", "nvidia-caps/nvidia-cap76",
		"nvidia-uvm", "nvidia-uvm-tools", "nvidia3", "nvidiactl",
	}, injected(spec))
	require.Len(t, spec.Linux.Resources.Devices, 9, "one denial, one rule a node")
	require.Contains(t, spec.Process.Env, "CUDA_VISIBLE_DEVICES=MIG-bbbbbbb,MIG-bbbbbbbbb")
	require.Contains(t, spec.Process.Env, "PATH=/usr/local/nvidia/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	var targets []string
	for _, mount := range spec.Mounts {
		require.NotContains(t, targets, mount.Destination)
		targets = append(targets, mount.Destination)
	}
}

func TestADeviceWithoutAFileIsRefused(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.open(t)
	err := injection.Inject(&oci.Spec{}, []string{m.cfg.Dir}, []string{injection.Qualified(first, 0)})
	require.Equal(t, injection.DeviceMissing, injection.KindOf(err), "%v", err)
}

func TestRefusalsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	gone := mig(8)
	locked := mig(7)
	for name, c := range map[string]struct {
		slice injection.Slice
		spoil func(t *testing.T, m *machine)
		kind  injection.Kind
	}{
		"path as assignment": {slice: injection.Slice{Assignment: "../x", Driver: injection.NVIDIA, Technique: gpu.Whole}, kind: injection.Invalid},
		"no driver":          {slice: injection.Slice{Assignment: first, Technique: gpu.Whole}, kind: injection.Invalid},
		"no technique":       {slice: injection.Slice{Assignment: first, Driver: injection.NVIDIA}, kind: injection.Invalid},
		"MIG without UUID":   {slice: injection.Slice{Assignment: first, Driver: injection.NVIDIA, Technique: gpu.MIG}, kind: injection.Invalid},
		"MPS without daemon": {slice: injection.Slice{Assignment: first, Driver: injection.NVIDIA, Technique: gpu.MPS}, kind: injection.Invalid},
		"MIG instance gone":  {slice: gone, kind: injection.MinorMissing},
		"reserved minor": {slice: mig(7), kind: injection.MinorMissing, spoil: func(t *testing.T, m *machine) {
			m.file(t, "mig-minors", "gpu3/gi7/access 1\ngpu3/gi7/ci0/access 2\n")
		}},
		"node missing": {slice: whole(), kind: injection.NodeMissing, spoil: func(t *testing.T, m *machine) {
			require.NoError(t, os.Remove(filepath.Join(m.cfg.Devices, "nvidia0")))
		}},
		"node of another GPU": {slice: whole(), kind: injection.NodeMissing, spoil: func(t *testing.T, m *machine) {
			require.NoError(t, os.Rename(filepath.Join(m.cfg.Devices, "nvidia3"), filepath.Join(m.cfg.Devices, "nvidia0")))
		}},
		"file as node": {slice: whole(), kind: injection.NodeMissing, spoil: func(t *testing.T, m *machine) {
			require.NoError(t, os.Remove(filepath.Join(m.cfg.Devices, "nvidiactl")))
			m.file(t, "dev/nvidiactl", "")
		}},
		"locked node": {slice: locked, kind: injection.NodeLocked, spoil: func(t *testing.T, m *machine) {
			require.NoError(t, os.Chmod(filepath.Join(m.cfg.Devices, "nvidia-caps/nvidia-cap66"), 0o400))
		}},
		"library missing": {slice: whole(), kind: injection.LibraryMissing, spoil: func(t *testing.T, m *machine) {
			require.NoError(t, os.Remove(filepath.Join(m.cfg.Libraries, "libnvidia-ml.so."+driverVersion)))
		}},
		"other version": {slice: whole(), kind: injection.LibraryMissing, spoil: func(_ *testing.T, m *machine) { m.cfg.Version = "575.1.1" }},
		"no nvidia-smi": {slice: whole(), kind: injection.LibraryMissing, spoil: func(t *testing.T, m *machine) {
			require.NoError(t, os.Remove(m.cfg.Management))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			if c.spoil != nil {
				c.spoil(t, &m)
			}
			store := m.open(t)
			_, err := store.Write(c.slice)
			require.Equal(t, c.kind, injection.KindOf(err), "%v", err)
			names, err := store.List()
			require.NoError(t, err)
			require.Empty(t, names, "a refusal leaves no file")
		})
	}
}

func TestOnlyOneMPSSliceAnInstance(t *testing.T) {
	t.Parallel()
	slice := mps()
	slice.Slot = 1
	_, err := newMachine(t).open(t).Write(slice)
	require.Equal(t, injection.Invalid, injection.KindOf(err), "%v", err)
}

func TestSweepKeepsForeignFilesAndWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	store := m.open(t)
	_, err := store.Write(whole())
	require.NoError(t, err)
	_, err = store.Write(simulated())
	require.NoError(t, err)
	foreign := map[string]string{
		"nvidia.yaml":          "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n",
		"tranche-foreign.json": `{"cdiVersion":"0.5.0","kind":"example.org/x","devices":[{"name":"foreign"}]}`,
		"tranche-renamed.json": `{"cdiVersion":"0.5.0","kind":"tranche.dev/slice","devices":[{"name":"other"}]}`,
		"tranche-broken.json":  `{`,
	}
	for name, text := range foreign {
		m.file(t, "cdi/"+name, text)
	}
	m.file(t, "cdi/tranche-x.123.tmp", "")
	names, err := store.List()
	require.NoError(t, err)
	require.Equal(t, []string{first + "-0", second + "-0"}, names)

	removed, err := store.Sweep([]string{first + "-0"})
	require.NoError(t, err)
	require.Equal(t, []string{second + "-0"}, removed)
	require.NoFileExists(t, filepath.Join(m.cfg.Mock, second+"-0"))
	require.NoFileExists(t, filepath.Join(m.cfg.Dir, "tranche-x.123.tmp"))
	for name := range foreign {
		require.FileExists(t, filepath.Join(m.cfg.Dir, name))
	}
	removed, err = store.Sweep(nil)
	require.NoError(t, err)
	require.Equal(t, []string{first + "-0"}, removed)
}

func TestWriteAndRemoveMayBeRepeated(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	store := m.open(t)
	for range 2 {
		_, err := store.Write(simulated())
		require.NoError(t, err)
	}
	var stat unix.Stat_t
	require.NoError(t, unix.Stat(filepath.Join(m.cfg.Mock, second+"-0"), &stat))
	require.EqualValues(t, 1<<8|3, stat.Rdev, "a clone of /dev/null")
	require.EqualValues(t, 0o666, stat.Mode&0o777)
	for range 2 {
		require.NoError(t, store.Remove(second, 0))
	}
	require.Error(t, store.Remove("../etc", 0))
	names, err := store.List()
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestLookupReadsTheLinkersCache(t *testing.T) {
	t.Parallel()
	listing := "12 libs found in cache `/etc/ld.so.cache'\n" +
		"\tlibcuda.so.1 (libc6) => /lib/i386-linux-gnu/libcuda.so.1\n" +
		"\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1\n" +
		"\tlibcuda.so (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so\n"
	require.Equal(t, "/lib/x86_64-linux-gnu/libcuda.so.1", injection.Lookup(listing, "libcuda.so.1", "amd64"))
	require.Empty(t, injection.Lookup(listing, "libcuda.so.1", "arm64"))
}
