package injection_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/agent/injection"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const driverVersion = "580.159.04"

// machine is a made-up host with a driver: nodes, libraries, MIG capabilities.
type machine struct {
	root string
	cfg  injection.Config
}

// newMachine makes GPUs 0 and 3, the second cut into MIG instances 7 and 9.
func newMachine(t *testing.T) machine {
	t.Helper()
	root := t.TempDir()
	m := machine{root: root, cfg: injection.Config{
		Dir: filepath.Join(root, "cdi"), Devices: filepath.Join(root, "dev"),
		MigMinors: filepath.Join(root, "mig-minors"), Libraries: filepath.Join(root, "lib"),
		Management: filepath.Join(root, "nvidia-smi"), Version: driverVersion, Mock: filepath.Join(root, "mock"),
	}}
	require.NoError(t, os.MkdirAll(filepath.Join(m.cfg.Devices, "nvidia-caps"), 0o755))
	require.NoError(t, os.Mkdir(m.cfg.Libraries, 0o755))
	m.node(t, "nvidia0", 0)
	m.node(t, "nvidia3", 3)
	m.node(t, "nvidiactl", 255)
	m.node(t, "nvidia-uvm", 0)
	m.node(t, "nvidia-uvm-tools", 1)
	for name, minor := range map[string]uint32{"cap1": 1, "cap2": 2, "cap66": 66, "cap67": 67, "cap75": 75, "cap76": 76} {
		m.node(t, "nvidia-caps/nvidia-"+name, minor)
	}
	m.file(t, "mig-minors", "config 1\nmonitor 2\ngpu3/gi7/access 66\ngpu3/gi7/ci0/access 67\ngpu3/gi9/access 75\ngpu3/gi9/ci0/access 76\n")
	m.file(t, "nvidia-smi", "#!/bin/sh\n")
	m.library(t, "libcuda", "libcuda.so.1")
	m.library(t, "libnvidia-ml", "libnvidia-ml.so.1")
	m.library(t, "libnvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1")
	m.library(t, "libnvidia-nvvm", "libnvidia-nvvm.so.4")
	m.library(t, "libnvidia-gpucomp", "libnvidia-gpucomp.so."+driverVersion)
	m.library(t, "libcudadebugger", "libcudadebugger.so.1")
	m.library(t, "libnvidia-glcore", "libnvidia-glcore.so."+driverVersion)
	require.NoError(t, os.Symlink("libcuda.so."+driverVersion, filepath.Join(m.cfg.Libraries, "libcuda.so.1")))
	m.file(t, "lib/libnvidia-ml.so.550.54.15", "of an older driver")
	return m
}

func (m machine) node(t *testing.T, name string, minor uint32) {
	t.Helper()
	const experimental = 240
	path := filepath.Join(m.cfg.Devices, name)
	require.NoError(t, unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(experimental, minor))))
	require.NoError(t, os.Chmod(path, 0o666))
}

func (m machine) file(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(m.root, name), []byte(text), 0o644))
}

func (m machine) library(t *testing.T, base, soname string) {
	t.Helper()
	m.file(t, "lib/"+base+".so."+driverVersion, string(sharedObject(t, soname)))
}

func (m machine) open(t *testing.T) *injection.Store {
	t.Helper()
	s, err := injection.Open(m.cfg)
	require.NoError(t, err)
	return s
}

// sharedObject is the smallest ELF file with a name of its own: a string table and a
// dynamic section.
func sharedObject(t *testing.T, soname string) []byte {
	t.Helper()
	const header, entry = 64, 64
	names := append([]byte("\x00"), append([]byte(soname), 0)...)
	for len(names)%8 != 0 {
		names = append(names, 0)
	}
	dynamic := []uint64{14, 1, 0, 0} // DT_SONAME at offset 1, DT_NULL
	sections := header + len(names) + 8*len(dynamic)
	var out bytes.Buffer
	put := func(v ...any) {
		for _, x := range v {
			require.NoError(t, binary.Write(&out, binary.LittleEndian, x))
		}
	}
	out.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	put(uint16(3), uint16(62), uint32(1), uint64(0), uint64(0), uint64(sections), uint32(0))
	put(uint16(header), uint16(0), uint16(0), uint16(entry), uint16(3), uint16(1))
	out.Write(names)
	put(dynamic)
	section := func(kind, link uint32, offset, size, each uint64) {
		put(uint32(0), kind, uint64(0), uint64(0), offset, size, link, uint32(0), uint64(8), each)
	}
	section(0, 0, 0, 0, 0)
	section(3, 0, header, uint64(len(names)), 0)
	section(6, 1, uint64(header+len(names)), uint64(8*len(dynamic)), 16)
	return out.Bytes()
}

// golden compares a text with a file, in which the machine's folder is called ROOT.
func (m machine) golden(t *testing.T, name, got string) {
	t.Helper()
	got = strings.ReplaceAll(got, m.root, "ROOT")
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}
