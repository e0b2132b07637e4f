package containerd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/stretchr/testify/require"

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
