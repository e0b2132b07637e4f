package containerd_test

import (
	"archive/tar"
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/images"
	"github.com/tranche-cloud/tranche/agent/images/assembly"
	"github.com/tranche-cloud/tranche/agent/images/imagestest"
	"github.com/tranche-cloud/tranche/agent/injection"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// layer is a layer with one file.
func layer(t *testing.T, path, text string) v1.Layer {
	t.Helper()
	l, err := assembly.Layer(func(out *tar.Writer) error { return assembly.File(out, path, []byte(text), 0o644) })
	require.NoError(t, err)
	return l
}

// withLayers is busybox and some layers, with the usual command.
func withLayers(t *testing.T, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := assembly.Image(imagestest.Busybox(t), v1.Config{Cmd: []string{"sleep", "1000"}, Env: []string{assembly.Path}}, layers...)
	require.NoError(t, err)
	return image
}

// registryOf serves one image by a handler that changes what the registry says.
func (l *lab) registryOf(t *testing.T, change func(http.ResponseWriter, *http.Request, http.Handler)) string {
	t.Helper()
	behind := "http://" + l.registry.Public
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		change(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, behind+r.URL.Path, http.StatusTemporaryRedirect)
		}))
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	var err error
	l.images, err = images.NewRegistry(images.Policy{Allow: append(l.registry.Allow(), host+"/ok/")})
	require.NoError(t, err)
	return host
}

// A registry may name the digest of anybody's image without having the image.
func TestADigestIsNoRightToACachedImage(t *testing.T) {
	l := newLab(t)
	image := withLayers(t, layer(t, "etc/private", "a secret"))
	private := l.registry.Push(t, l.registry.Private, "ok/private:latest", image)
	manifest, err := image.RawManifest()
	require.NoError(t, err)
	media, err := image.MediaType()
	require.NoError(t, err)
	config, err := image.RawConfigFile()
	require.NoError(t, err)
	configName, err := image.ConfigName()
	require.NoError(t, err)
	evil := l.registryOf(t, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		switch {
		case r.URL.Path == "/v2/":
		case strings.Contains(r.URL.Path, "/manifests/"):
			w.Header().Set("Content-Type", string(media))
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(manifest))
		case strings.HasSuffix(r.URL.Path, configName.String()):
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(config))
		default:
			http.NotFound(w, r)
		}
	})
	d := l.open(t, t.TempDir())
	s := spec(t, private)
	s.Login = &l.registry.Login
	start(t, d, s)

	other := spec(t, evil+"/ok/stolen:latest")
	other.Org = "org_2"
	_, err = d.Start(t.Context(), other)
	require.Error(t, err, "the layers lie in the daemon, but this registry cannot show them")
	require.Contains(t, []runtime.Kind{runtime.ImageNotFound, runtime.ImageUnavailable, runtime.ImageInvalid}, runtime.KindOf(err), "%v", err)
	require.Empty(t, l.leftovers(t, other.Name))
	start(t, d, s)
}

// An image may describe itself as the unpacked layers of anybody's image.
func TestADescriptionIsNoRightToUnpackedLayers(t *testing.T) {
	l := newLab(t)
	image := withLayers(t, layer(t, "etc/private", "a secret"))
	private := l.registry.Push(t, l.registry.Private, "ok/private:latest", image)
	d := l.open(t, t.TempDir())
	s := spec(t, private)
	s.Login = &l.registry.Login
	start(t, d, s)

	victim, err := image.ConfigFile()
	require.NoError(t, err)
	forged := withLayers(t, layer(t, "etc/x", "nothing"))
	file, err := forged.ConfigFile()
	require.NoError(t, err)
	file = file.DeepCopy()
	file.RootFS = victim.RootFS
	forged, err = mutate.ConfigFile(forged, file)
	require.NoError(t, err)
	other := spec(t, l.registry.Push(t, l.registry.Public, "ok/forged:latest", forged))
	_, err = d.Start(t.Context(), other)
	require.Equal(t, runtime.ImageInvalid, runtime.KindOf(err), "%v", err)
	require.Empty(t, l.leftovers(t, other.Name))
}

func TestALayerIsFetchedOnceARepository(t *testing.T) {
	l := newLab(t)
	image := withLayers(t)
	fetched := 0
	host := l.registryOf(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.Contains(r.URL.Path, "/blobs/") && r.Method == http.MethodGet {
			fetched++
		}
		next.ServeHTTP(w, r)
	})
	for _, repository := range []string{"ok/one:1", "ok/two:1"} {
		l.registry.Push(t, l.registry.Public, repository, image)
	}
	d := l.open(t, t.TempDir())
	run := func(reference string) int {
		fetched = 0
		s := spec(t, host+"/"+reference)
		start(t, d, s)
		require.NoError(t, d.Stop(t.Context(), s.Name))
		return fetched
	}
	require.Equal(t, 2, run("ok/one:1"), "configuration and layer")
	require.Equal(t, 1, run("ok/one:1"), "the configuration")
	require.Equal(t, 2, run("ok/two:1"), "another repository has to show the layer once")
	require.Equal(t, 1, run("ok/two:1"))
}

func TestABombIsRefused(t *testing.T) {
	l := newLab(t)
	var err error
	l.images, err = images.NewRegistry(images.Policy{Allow: l.registry.Allow(), MaxRatio: 1})
	require.NoError(t, err)
	bomb := withLayers(t, layer(t, "zeros", strings.Repeat("\x00", 70<<20)))
	s := spec(t, l.registry.Push(t, l.registry.Public, "ok/bomb:latest", bomb))
	d := l.open(t, t.TempDir())
	_, err = d.Start(t.Context(), s)
	require.Equal(t, runtime.ImageRefused, runtime.KindOf(err), "%v", err)
	require.Contains(t, err.Error(), "bomb")
}

func TestASlowRegistryEndsThePullAndSaysSo(t *testing.T) {
	l := newLab(t)
	l.registry.Push(t, l.registry.Public, "ok/slow:latest", withLayers(t))
	stop := make(chan struct{})
	host := l.registryOf(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.Contains(r.URL.Path, "/blobs/") {
			select {
			case <-stop:
			case <-r.Context().Done():
			}
			return
		}
		next.ServeHTTP(w, r)
	})
	t.Cleanup(func() { close(stop) })
	var err error
	l.images, err = images.NewRegistry(images.Policy{Allow: append(l.registry.Allow(), host+"/ok/"), Deadline: time.Second})
	require.NoError(t, err)
	d := l.open(t, t.TempDir())
	s := spec(t, host+"/ok/slow:latest")
	_, err = d.Start(t.Context(), s)
	require.Equal(t, runtime.ImageUnavailable, runtime.KindOf(err), "%v", err)
	require.Contains(t, err.Error(), "longer than 1s")
}

func TestASimulatedSliceIsInsideAndItsNeighbourIsNot(t *testing.T) {
	l := newLab(t)
	store, err := injection.Open(injection.Config{Dir: l.cdi})
	require.NoError(t, err)
	s := spec(t, l.shell(t))
	for _, assignment := range []string{s.Name, "asg_neighbour"} {
		device, err := store.Write(injection.Slice{Assignment: assignment, Driver: injection.Simulated, Technique: gpu.MIG, UUID: "MIG-1"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Remove(assignment, 0)) })
		s.Extra.CDI = []string{device}
	}
	s.Extra.CDI = []string{injection.Qualified(s.Name, 0)}
	d := l.open(t, t.TempDir())
	start(t, d, s)
	var out bytes.Buffer
	script := "ls /dev/tranche-mock; echo $TRANCHE_SIMULATED_GPU $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES; echo x > /dev/tranche-mock/*"
	code, err := d.Exec(t.Context(), s.Name, runtime.Exec{Args: []string{"sh", "-c", script}, Stdout: &out})
	require.NoError(t, err)
	require.Zero(t, code)
	require.Equal(t, injection.Device(s.Name, 0)+"\n1 MIG-1 void\n", out.String())
}
