package containerd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/agent/images/assembly"
	"github.com/tranche-cloud/tranche/agent/runtime/containerd"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

func TestOwnersAndModesOfAnImageAreKept(t *testing.T) {
	l := newLab(t)
	given, err := assembly.Layer(func(out *tar.Writer) error {
		for name, h := range map[string]tar.Header{
			"setuid": {Mode: 0o4755, Uid: 0, Gid: 0}, "setgid": {Mode: 0o2755, Uid: 1000, Gid: 1001},
			"strange": {Mode: 0o640, Uid: 70000, Gid: 1 << 20},
		} {
			h.Name, h.Typeflag, h.Size = name, tar.TypeReg, 1
			if err := out.WriteHeader(&h); err != nil {
				return err
			}
			if _, err := out.Write([]byte("x")); err != nil {
				return err
			}
		}
		return out.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: "other", Linkname: "setgid", Mode: 0o2755, Uid: 1000, Gid: 1001})
	})
	require.NoError(t, err)
	image := l.registry.Push(t, l.registry.Public, "ok/owners:latest", withLayers(t, given))
	d := l.open(t, t.TempDir())
	for range 2 { // made, and found again
		s := spec(t, image)
		start(t, d, s)
		var out bytes.Buffer
		_, err = d.Exec(t.Context(), s.Name, runtime.Exec{Args: []string{"stat", "-c", "%n %a %u %g", "/setuid", "/setgid", "/strange", "/other"}, Stdout: &out})
		require.NoError(t, err)
		require.Equal(t, "/setuid 4755 0 0\n/setgid 2755 1000 1001\n/strange 640 65534 65534\n/other 2755 1000 1001\n", out.String())
		require.NoError(t, d.Stop(t.Context(), s.Name))
	}
}

func TestCopiesForRangesOfIDsAreBounded(t *testing.T) {
	l := newLab(t)
	d := l.open(t, t.TempDir())
	facts, err := d.Probe(t.Context())
	require.NoError(t, err)
	first := l.registry.Push(t, l.registry.Public, "ok/first:latest", withLayers(t, layer(t, "a", "a")))
	second := l.registry.Push(t, l.registry.Public, "ok/second:latest", withLayers(t, layer(t, "b", "b")))
	for _, image := range []string{first, second, first, second} {
		s := spec(t, image)
		s.Extra.IDBase = 1 << 30
		start(t, d, s)
		require.NoError(t, d.Stop(t.Context(), s.Name))
	}
	var copies []string
	snapshotter := l.daemon.Client(containerd.DefaultNamespace).SnapshotService(containerd.DefaultSnapshotter)
	require.NoError(t, snapshotter.Walk(t.Context(), func(_ context.Context, info snapshots.Info) error {
		if strings.HasPrefix(info.Name, "tranche-shifted-") {
			copies = append(copies, info.Name)
		}
		return nil
	}))
	if facts.Remaps {
		require.Empty(t, copies, "the mount shifts")
		return
	}
	require.Len(t, copies, 1, "one a range")
}

func TestUnusedImagesGoWhenThereAreTooMany(t *testing.T) {
	l := newLab(t)
	image := l.registry.Push(t, l.registry.Public, "ok/old:latest", withLayers(t, layer(t, "old", "old")))
	small := func(c *containerd.Config) { c.High = 1 }
	d := l.open(t, t.TempDir(), small)
	s := spec(t, image)
	start(t, d, s)
	later := func(c *containerd.Config) { c.Clock = skewed{c.Clock, 2 * time.Hour} }
	other := l.open(t, t.TempDir(), small, later)
	n, err := other.GC(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "it is used")
	require.NoError(t, d.Stop(t.Context(), s.Name))
	n, err = d.GC(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "it was used just now")
	n, err = other.GC(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	client := l.daemon.Client(containerd.DefaultNamespace)
	require.Eventually(t, func() bool {
		left := 0
		require.NoError(t, client.SnapshotService(containerd.DefaultSnapshotter).Walk(t.Context(), func(context.Context, snapshots.Info) error {
			left++
			return nil
		}))
		return left == 0
	}, patience, poll, "layers and copies go with it")
	start(t, d, s)
}

func TestMountsOfAKilledAgentAreRemoved(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir()
	l.open(t, dir)
	left := filepath.Join(dir, "layers", "layer-1")
	require.NoError(t, os.Mkdir(left, 0o700))
	require.NoError(t, unix.Mount("none", left, "tmpfs", 0, ""))
	require.NoError(t, os.WriteFile(filepath.Join(left, "file"), nil, 0o600))
	l.open(t, dir)
	require.NoDirExists(t, left)
}
