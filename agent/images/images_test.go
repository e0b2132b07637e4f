package images_test

import (
	"archive/tar"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/images"
	"github.com/tranche-cloud/tranche/agent/images/assembly"
	"github.com/tranche-cloud/tranche/agent/images/imagestest"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

const idBase = 1 << 20

func registry(t *testing.T, policy images.Policy) *images.Registry {
	t.Helper()
	r, err := images.NewRegistry(policy)
	require.NoError(t, err)
	return r
}

func open(t *testing.T, served *imagestest.Registry, change func(*images.Config)) *images.Store {
	t.Helper()
	cfg := images.Config{
		Dir: t.TempDir(), RunDir: runDir(t), Registry: registry(t, images.Policy{Allow: served.Allow()}), Disk: 64,
	}
	if change != nil {
		change(&cfg)
	}
	s, err := images.Open(cfg)
	require.NoError(t, err)
	return s
}

// runDir is a folder that everybody may search.
func runDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tranche-images-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func layer(t *testing.T, headers ...tar.Header) v1.Layer {
	t.Helper()
	l, err := assembly.Layer(func(out *tar.Writer) error {
		for _, h := range headers {
			body := ""
			if h.Typeflag == tar.TypeReg {
				body, h.Size = h.Linkname, int64(len(h.Linkname))
				h.Linkname = ""
			}
			if h.Mode == 0 {
				h.Mode = 0o755
			}
			if err := out.WriteHeader(&h); err != nil {
				return err
			}
			if _, err := out.Write([]byte(body)); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	return l
}

func file(name, body string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: body, Uid: 7, Gid: 8}
}

func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Uid: 7} }

func image(t *testing.T, layers ...v1.Layer) v1.Image {
	t.Helper()
	i, err := assembly.Image(nil, v1.Config{Cmd: []string{"/x"}, User: "7", WorkingDir: "/w", Env: []string{"A=1"}}, layers...)
	require.NoError(t, err)
	return i
}

func TestReferences(t *testing.T) {
	r := registry(t, images.Policy{Allow: []string{"docker.io/library/", "registry.example:5000/team/app"}})
	for reference, kind := range map[string]runtime.Kind{
		"busybox": "", "docker.io/library/busybox:1": "", "registry.example:5000/team/app:v1": "",
		"registry.example:5000/team/app2": runtime.ImageRefused, "registry.example:5000/team/app/sub": runtime.ImageRefused,
		"registry.example/team/app": runtime.ImageRefused, "docker.io/other/busybox": runtime.ImageRefused,
		"evil.example/docker.io/library/x": runtime.ImageRefused, "": runtime.ImageInvalid, "A b": runtime.ImageInvalid,
		"x@sha256:12": runtime.ImageInvalid,
	} {
		_, err := r.Parse(reference)
		require.Equal(t, kind, runtime.KindOf(err), "%q: %v", reference, err)
	}
	for _, pattern := range []string{"busybox", "/x", "bad host/x"} {
		_, err := images.NewRegistry(images.Policy{Allow: []string{pattern}})
		require.Error(t, err, pattern)
	}
}

// Both ways of making a root file system show the same files.
func TestRootFileSystem(t *testing.T) {
	served := imagestest.Serve(t)
	ref := served.Push(t, served.Public, "ok/x:1", image(t,
		layer(t, dir("d"), file("d/old", "old"), file("d/kept", "kept"), dir("o"), file("o/hidden", "x"), file("gone", "x"),
			tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "d/kept"}, tar.Header{Typeflag: tar.TypeDir, Name: "later"},
			tar.Header{Typeflag: tar.TypeSymlink, Name: "abs", Linkname: "/etc/shadow"},
			tar.Header{Typeflag: tar.TypeChar, Name: "dev", Devmajor: 1, Devminor: 3}, tar.Header{Typeflag: tar.TypeFifo, Name: "fifo"},
			tar.Header{Typeflag: tar.TypeReg, Name: "huge", Uid: 1 << 24, Mode: 0o4755}),
		layer(t, file("d/old", "new"), file(".wh.gone", ""), dir("o"), file("o/.wh..wh..opq", ""), file("o/seen", "seen"),
			tar.Header{Typeflag: tar.TypeSymlink, Name: "later", Linkname: "/d"}),
	))
	for _, copies := range []bool{false, true} {
		t.Run(map[bool]string{false: "overlay", true: "copy"}[copies], func(t *testing.T) {
			s := open(t, served, func(c *images.Config) { c.Copy = copies })
			require.Equal(t, copies, s.Copies(), "this kernel has overlays with mapped ids")
			var told []string
			got, err := s.Take(t.Context(), "asg_1", images.Request{Reference: ref, Progress: func(text string) { told = append(told, text) }})
			require.NoError(t, err)
			require.Contains(t, strings.Join(told, "\n"), "pulling 100 %")
			require.Equal(t, []string{"/x"}, got.Config.Command)
			require.Equal(t, "/w", got.Config.WorkingDir)
			require.Equal(t, "7", got.Config.User)
			t.Cleanup(func() { require.NoError(t, s.Release("asg_1")) })
			root, err := s.Mount("asg_1", idBase)
			require.NoError(t, err)
			gate, err := os.Stat(filepath.Dir(root))
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o710), gate.Mode().Perm(), "people of the host stay out")
			require.Equal(t, [2]int{0, idBase}, owner(t, filepath.Dir(root)))
			for name, want := range map[string]string{"d/old": "new", "d/kept": "kept", "hard": "kept", "o/seen": "seen"} {
				text, err := os.ReadFile(filepath.Join(root, name))
				require.NoError(t, err)
				require.Equal(t, want, string(text), name)
			}
			for _, name := range []string{"gone", "o/hidden", "dev", "fifo"} {
				require.NoFileExists(t, filepath.Join(root, name))
			}
			target, err := os.Readlink(filepath.Join(root, "later"))
			require.NoError(t, err)
			require.Equal(t, "/d", target)
			require.Equal(t, [2]int{idBase + 7, idBase + 8}, owner(t, root, "d/old"))
			require.Equal(t, [2]int{idBase + 65534, idBase}, owner(t, root, "huge"))
			require.Equal(t, [2]int{idBase, idBase}, owner(t, root, "."))

			require.NoError(t, os.WriteFile(filepath.Join(root, "d", "kept"), []byte("mine"), 0o600))
			require.NoError(t, s.Release("asg_1"))
			require.NoError(t, s.Release("asg_1"), "again")
			require.NoDirExists(t, root)
			_, err = s.Take(t.Context(), "asg_1", images.Request{Reference: ref})
			require.NoError(t, err)
			root, err = s.Mount("asg_1", idBase*2)
			require.NoError(t, err)
			text, err := os.ReadFile(filepath.Join(root, "d", "kept"))
			require.NoError(t, err)
			require.Equal(t, "kept", string(text), "nobody sees what another wrote")
		})
	}
}

func owner(t *testing.T, elem ...string) [2]int {
	t.Helper()
	info, err := os.Lstat(filepath.Join(elem...))
	require.NoError(t, err)
	stat, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	return [2]int{int(stat.Uid), int(stat.Gid)}
}

func TestDiskIsBounded(t *testing.T) {
	served := imagestest.Serve(t)
	ref := served.Push(t, served.Public, "ok/x:1", image(t, layer(t, file("x", "x"))))
	s := open(t, served, func(c *images.Config) { c.Disk = 16 * units.MiB(1) })
	_, err := s.Take(t.Context(), "asg_1", images.Request{Reference: ref})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Release("asg_1")) })
	root, err := s.Mount("asg_1", idBase)
	require.NoError(t, err)
	err = os.WriteFile(filepath.Join(root, "large"), make([]byte, 32<<20), 0o600)
	require.ErrorIs(t, err, syscall.ENOSPC)
}

// A release finishes what was begun, wherever it stopped.
func TestReleaseAfterEveryStep(t *testing.T) {
	served := imagestest.Serve(t)
	ref := served.Push(t, served.Public, "ok/x:1", image(t, layer(t, file("x", "x"))))
	s := open(t, served, nil)
	require.NoError(t, s.Release("asg_1"), "nothing was begun")
	_, err := s.Take(t.Context(), "asg_1", images.Request{Reference: ref})
	require.NoError(t, err)
	require.NoError(t, s.Release("asg_1"), "never mounted")
	_, err = s.Mount("asg_1", idBase)
	require.Equal(t, runtime.Broken, runtime.KindOf(err), "it holds nothing")
	require.Error(t, s.Release("../x"))
}

func TestHostileLayersStayInside(t *testing.T) {
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	require.NoError(t, os.WriteFile(victim, []byte("safe"), 0o600))
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	hard := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
	}
	up := strings.Repeat("../", 20) + strings.TrimPrefix(outside, "/")
	for name, c := range map[string]struct {
		entries []tar.Header
		kind    runtime.Kind
	}{
		"dots":                {[]tar.Header{file(up+"/new", "x")}, runtime.ImageRefused},
		"dots within":         {[]tar.Header{dir("a"), file("a/../../new", "x")}, runtime.ImageRefused},
		"absolute link":       {[]tar.Header{link("l", outside), file("l/new", "x")}, runtime.ImageRefused},
		"relative link":       {[]tar.Header{link("l", up), file("l/new", "x")}, runtime.ImageRefused},
		"link to a file":      {[]tar.Header{link("l", victim), file("l", "x")}, ""},
		"hard link outside":   {[]tar.Header{hard("h", up+"/victim"), file("h", "x")}, runtime.ImageRefused},
		"hard link absolute":  {[]tar.Header{hard("h", victim)}, runtime.ImageInvalid},
		"hard link by link":   {[]tar.Header{link("l", outside), hard("h", "l/victim")}, runtime.ImageRefused},
		"whiteout outside":    {[]tar.Header{link("l", outside), file("l/.wh.victim", "")}, runtime.ImageRefused},
		"opaque outside":      {[]tar.Header{link("l", outside), file("l/.wh..wh..opq", "")}, runtime.ImageRefused},
		"whiteout of dots":    {[]tar.Header{file(".wh...", "")}, ""},
		"folder over link":    {[]tar.Header{link("l", outside), dir("l"), file("l/new", "x")}, ""},
		"file as folder":      {[]tar.Header{file("f", "x"), file("f/new", "x")}, runtime.ImageInvalid},
		"root is not a file":  {[]tar.Header{file(".", "x")}, runtime.ImageInvalid},
		"links in a circle":   {[]tar.Header{link("a", "b"), link("b", "a"), file("a/x", "x")}, runtime.ImageInvalid},
		"names are not bytes": {[]tar.Header{file("a//b/./c", "x")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			served := imagestest.Serve(t)
			ref := served.Push(t, served.Public, "ok/x:1", image(t, layer(t, c.entries...)))
			s := open(t, served, nil)
			_, err := s.Pull(t.Context(), images.Request{Reference: ref})
			require.Equal(t, c.kind, runtime.KindOf(err), "%v", err)
			names, err := os.ReadDir(outside)
			require.NoError(t, err)
			require.Len(t, names, 1)
			text, err := os.ReadFile(victim)
			require.NoError(t, err)
			require.Equal(t, "safe", string(text))
		})
	}
}

// Archives of random links and names never write beyond their folder.
func TestRandomLayersStayInside(t *testing.T) {
	served := imagestest.Serve(t)
	s := open(t, served, nil)
	outside := t.TempDir()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	draw := rand.New(rand.NewPCG(seed, 1))
	parts := []string{"a", "b", "..", ".", outside, "/", ".wh.a", ".wh..wh..opq", ""}
	name := func() string {
		var out []string
		for range 1 + draw.IntN(4) {
			out = append(out, parts[draw.IntN(len(parts))])
		}
		return strings.TrimRight("./"+strings.Join(out, "/"), "/") // an archive has no other slash at the end
	}
	kinds := []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo, tar.TypeChar}
	for i := range 40 {
		var entries []tar.Header
		for range 1 + draw.IntN(8) {
			entries = append(entries, tar.Header{Typeflag: kinds[draw.IntN(len(kinds))], Name: name(), Linkname: name()})
		}
		ref := served.Push(t, served.Public, "ok/random:"+strconv.Itoa(i), image(t, layer(t, entries...)))
		_, err := s.Pull(t.Context(), images.Request{Reference: ref})
		require.Contains(t, []runtime.Kind{"", runtime.ImageRefused, runtime.ImageInvalid}, runtime.KindOf(err), "%v", err)
		left, err := os.ReadDir(outside)
		require.NoError(t, err)
		require.Empty(t, left, "%+v", entries)
	}
}

func TestLimits(t *testing.T) {
	served := imagestest.Serve(t)
	one, two := layer(t, file("a", "a")), layer(t, file("b", "b"))
	ref := served.Push(t, served.Public, "ok/x:1", image(t, one, two))
	bomb := served.Push(t, served.Public, "ok/bomb:1", image(t, layer(t, file("zero", strings.Repeat("\x00", 70<<20)))))
	for name, c := range map[string]struct {
		policy images.Policy
		ref    string
	}{
		"layers": {images.Policy{MaxLayers: 1}, ref},
		"size":   {images.Policy{MaxCompressed: 10}, ref},
		"ratio":  {images.Policy{MaxRatio: 1}, bomb},
	} {
		t.Run(name, func(t *testing.T) {
			c.policy.Allow = served.Allow()
			s := open(t, served, func(cfg *images.Config) { cfg.Registry = registry(t, c.policy) })
			_, err := s.Pull(t.Context(), images.Request{Reference: c.ref})
			require.Equal(t, runtime.ImageRefused, runtime.KindOf(err), "%v", err)
		})
	}
}

// All layers lie here, and still nobody gets them whom the registry does not know.
func TestCacheIsNoWayAroundTheRegistry(t *testing.T) {
	served := imagestest.Serve(t)
	ref := served.Push(t, served.Private, "ok/x:1", image(t, layer(t, file("a", "a"))))
	s := open(t, served, nil)
	got, err := s.Pull(t.Context(), images.Request{Reference: ref, Login: &served.Login})
	require.NoError(t, err)
	wrong, elsewhere := served.Login, served.Login
	wrong.Password, elsewhere.Registry = "guess", "registry.example"
	byDigest := served.Private + "/ok/x@" + got.Digest
	for _, login := range []*runtime.Login{nil, &wrong, &elsewhere} {
		for _, r := range []string{ref, byDigest} {
			_, err := s.Take(t.Context(), "asg_2", images.Request{Reference: r, Login: login})
			require.Equal(t, runtime.ImageUnauthorized, runtime.KindOf(err), "%v", err)
		}
	}
	_, err = s.Pull(t.Context(), images.Request{Reference: byDigest, Login: &served.Login})
	require.NoError(t, err)
}

// A registry on this host or in its network is reached only if the operator named it,
// and without TLS only on loopback.
func TestEgress(t *testing.T) {
	served := imagestest.Serve(t)
	served.Push(t, served.Public, "ok/x:1", image(t, layer(t, file("a", "a"))))
	for name, c := range map[string]struct {
		allow []string
		ref   string
	}{
		"loopback without a name": {nil, served.Public + "/ok/x:1"},
		"plain HTTP elsewhere":    {[]string{"10.255.255.1:5000/"}, "10.255.255.1:5000/x"},
		"private address":         {nil, "10.255.255.1/x"},
		"metadata address":        {nil, "169.254.169.254/x"},
		"another port":            {nil, "registry.example:8443/x"},
		"IPv6 loopback":           {nil, "[::1]/x"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := registry(t, images.Policy{Allow: c.allow}).Resolve(t.Context(), images.Request{Reference: c.ref})
			require.Equal(t, runtime.ImageRefused, runtime.KindOf(err), "%v", err)
		})
	}
	redirect := httptest.NewServer(http.RedirectHandler("http://"+served.Public+"/v2/", http.StatusFound))
	defer redirect.Close()
	host := strings.TrimPrefix(redirect.URL, "http://")
	_, err := registry(t, images.Policy{Allow: []string{host + "/"}}).Resolve(t.Context(), images.Request{Reference: host + "/x"})
	require.Equal(t, runtime.ImageRefused, runtime.KindOf(err), "a registry cannot send us on: %v", err)
}

func TestAnswersOfRegistries(t *testing.T) {
	for status, kind := range map[int]runtime.Kind{
		401: runtime.ImageUnauthorized, 403: runtime.ImageUnauthorized, 404: runtime.ImageNotFound, 429: runtime.ImageUnavailable,
		500: runtime.ImageUnavailable, 418: runtime.ImageInvalid,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v2/" {
				http.Error(w, "no", status)
			}
		}))
		host := strings.TrimPrefix(server.URL, "http://")
		_, err := registry(t, images.Policy{Allow: []string{host + "/"}}).Resolve(t.Context(), images.Request{Reference: host + "/x"})
		require.Equal(t, kind, runtime.KindOf(err), "%d: %v", status, err)
		server.Close()
	}
}

func TestPullHasADeadline(t *testing.T) {
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(stop)
	host := strings.TrimPrefix(server.URL, "http://")
	s := open(t, imagestest.Serve(t), func(c *images.Config) {
		c.Registry = registry(t, images.Policy{Allow: []string{host + "/"}, Deadline: 50 * time.Millisecond})
	})
	_, err := s.Pull(t.Context(), images.Request{Reference: host + "/x"})
	require.Equal(t, runtime.ImageUnavailable, runtime.KindOf(err))
	require.ErrorContains(t, err, "longer than 50ms")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Pull(ctx, images.Request{Reference: host + "/x"})
	require.ErrorIs(t, err, context.Canceled)
}

func TestOldestUnusedLayersGo(t *testing.T) {
	served := imagestest.Serve(t)
	now := time.Unix(1_800_000_000, 0)
	s := open(t, served, func(c *images.Config) {
		c.High, c.Low = 250, 150
		c.Now = func() time.Time { now = now.Add(time.Minute); return now }
	})
	push := func(name string) string {
		return served.Push(t, served.Public, "ok/"+name+":1", image(t, layer(t, file(name, strings.Repeat(name, 100)))))
	}
	a, b, c := push("a"), push("b"), push("c")
	_, err := s.Take(t.Context(), "asg_a", images.Request{Reference: a})
	require.NoError(t, err)
	for _, ref := range []string{b, c, b} {
		_, err := s.Pull(t.Context(), images.Request{Reference: ref})
		require.NoError(t, err)
	}
	freed, err := s.GC(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 200, freed, "both that nobody holds, to get below the mark")
	freed, err = s.GC(t.Context())
	require.NoError(t, err)
	require.Zero(t, freed)
	_, err = s.Mount("asg_a", idBase)
	require.NoError(t, errors.Join(err, s.Release("asg_a")))
}

// An interrupted pull leaves nothing that a later one could take for a layer.
func TestOpenClearsWhatWasUnfinished(t *testing.T) {
	served := imagestest.Serve(t)
	root, run := t.TempDir(), runDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "tmp", "layer-1", "fs"), 0o700))
	open(t, served, func(c *images.Config) { c.Dir, c.RunDir = root, run })
	names, err := os.ReadDir(filepath.Join(root, "tmp"))
	require.NoError(t, err)
	require.Empty(t, names)
	all, err := os.ReadDir(run)
	require.NoError(t, err)
	require.Empty(t, all, "the probe leaves no mount point")
}
