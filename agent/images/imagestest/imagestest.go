// Package imagestest serves the images of runtime tests from registries inside the
// test's process, assembled from the machine's static busybox.
//
// It owns no rule of images; it is for tests alone.
package imagestest

import (
	"archive/tar"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/images/assembly"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
	"github.com/tranche-cloud/tranche/nodeagent/runtime/runtimetest"
)

// Registry is a public and a private registry on loopback.
type Registry struct {
	Public, Private string // host:port
	Login           runtime.Login
	away            string
}

// Serve starts both until the test ends. They are empty.
func Serve(t *testing.T) *Registry {
	t.Helper()
	r := &Registry{Login: runtime.Login{Username: "alice", Password: "secret"}}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.Public = serve(t, handler)
	private := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.Private = serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		if user != r.Login.Username || password != r.Login.Password {
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			http.Error(w, "login", http.StatusUnauthorized)
			return
		}
		private.ServeHTTP(w, req)
	}))
	r.Login.Registry = r.Private
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.away = unused.Addr().String()
	require.NoError(t, unused.Close())
	return r
}

func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// Allow is an allow-list of all of it.
func (r *Registry) Allow() []string {
	return []string{r.Public + "/ok/", r.Private + "/ok/", r.away + "/ok/"}
}

// Push stores an image as repository:tag of the public or the private registry, and
// returns its reference.
func (r *Registry) Push(t *testing.T, host, repository string, image v1.Image) string {
	t.Helper()
	ref, err := name.ParseReference(host + "/" + repository)
	require.NoError(t, err)
	login := authn.Anonymous
	if host == r.Private {
		login = &authn.Basic{Username: r.Login.Username, Password: r.Login.Password}
	}
	require.NoError(t, remote.Write(ref, image, remote.WithAuth(login)))
	return ref.Name()
}

// Busybox is the static busybox of this machine as an image.
func Busybox(t *testing.T) v1.Image {
	t.Helper()
	image, err := assembly.Busybox(program(t))
	require.NoError(t, err)
	return image
}

func program(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("busybox")
	require.NoError(t, err, "install busybox-static")
	return path
}

// Images pushes what the conformance suite of runtimes needs.
func (r *Registry) Images(t *testing.T) runtimetest.Images {
	t.Helper()
	shell := Busybox(t)
	hostile, err := assembly.Image(shell, v1.Config{Cmd: assembly.Wait, Env: []string{
		assembly.Path, "LD_PRELOAD=/evil.so", "NVIDIA_VISIBLE_DEVICES=all", "CUDA_VISIBLE_DEVICES=0", "TRANCHE_TOKEN=x", "KEEP=1",
	}})
	require.NoError(t, err)
	layer, err := assembly.Tree(program(t))
	require.NoError(t, err)
	bare, err := assembly.Image(nil, v1.Config{}, layer)
	require.NoError(t, err)
	secret, err := assembly.Image(shell, v1.Config{Cmd: assembly.Wait, Env: []string{assembly.Path}}, marked(t))
	require.NoError(t, err)
	return runtimetest.Images{
		Shell:   r.Push(t, r.Public, "ok/shell:latest", shell),
		Bare:    r.Push(t, r.Public, "ok/bare:latest", bare),
		Hostile: r.Push(t, r.Public, "ok/hostile:latest", hostile),
		Private: r.Push(t, r.Private, "ok/private:latest", secret),
		Login:   r.Login,
		Missing: r.Public + "/ok/missing:latest",
		Refused: r.Public + "/other/shell:latest",
		Away:    r.away + "/ok/shell:latest",
	}
}

// marked is a layer that only the private image has.
func marked(t *testing.T) v1.Layer {
	t.Helper()
	layer, err := assembly.Layer(func(out *tar.Writer) error {
		return assembly.File(out, "etc/private", []byte("yes"), 0o600)
	})
	require.NoError(t, err)
	return layer
}
