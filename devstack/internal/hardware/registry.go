package hardware

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// registry serves one image on loopback, as registries do.
type registry struct {
	listener net.Listener
	server   *http.Server
	blobs    map[string]blob // by digest
	manifest string          // its digest
}

type blob struct {
	kind string
	body []byte
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"

	repository, imageTag = "cuda/programs", "1"
	programFolder        = "cuda" // in the image
)

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
}

func (r *registry) put(kind string, body []byte) descriptor {
	sum := sha256.Sum256(body)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	r.blobs[digest] = blob{kind, body}
	return descriptor{kind, digest, len(body)}
}

// serve makes the image of the programs and serves it.
func serve(programs string) (*registry, error) {
	r := &registry{blobs: map[string]blob{}}
	plain, err := layer(programs)
	if err != nil {
		return nil, fmt.Errorf("make the image's layer: %w", err)
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(plain); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(plain)
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Cmd": []string{"/" + programFolder + "/spin", "1"}, "Env": []string{"PATH=/" + programFolder}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": r.put(configType, config), "layers": []descriptor{r.put(layerType, packed.Bytes())},
	})
	if err != nil {
		return nil, err
	}
	r.manifest = r.put(manifestType, manifest).Digest
	if r.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("listen for pulls: %w", err)
	}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.server.Serve(r.listener) }()
	return r, nil
}

func (r *registry) close() { _ = r.server.Close() }

// prefix is what the agent's allow-list names.
func (r *registry) prefix() string { return r.listener.Addr().String() + "/" }

func (r *registry) image() string { return r.prefix() + repository + ":" + imageTag }

// ServeHTTP answers the read half of the distribution protocol.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	rest, ok := strings.CutPrefix(req.URL.Path, "/v2/")
	if !ok {
		http.NotFound(w, req)
		return
	}
	if rest == "" {
		w.WriteHeader(http.StatusOK)
		return
	}
	reference := path.Base(rest)
	if reference == imageTag {
		reference = r.manifest
	}
	b, ok := r.blobs[reference]
	if !ok || !strings.HasPrefix(rest, repository+"/") {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", b.kind)
	w.Header().Set("Docker-Content-Digest", reference)
	w.Header().Set("Content-Length", strconv.Itoa(len(b.body)))
	if req.Method != http.MethodHead {
		_, _ = w.Write(b.body)
	}
}

// layer is a tar of the programs and of the libraries that they are linked to, at
// the places where this machine has them.
func layer(programs string) ([]byte, error) {
	found, err := filepath.Glob(filepath.Join(programs, "*"))
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("no programs in %s: cuda/build makes them (%w)", programs, err)
	}
	files := map[string]string{} // in the image → here
	for _, program := range found {
		files[programFolder+"/"+filepath.Base(program)] = program
		for _, lib := range libraries(program) {
			files[strings.TrimPrefix(lib, "/")] = lib
		}
	}
	for _, lib := range beside(files) {
		files[strings.TrimPrefix(lib, "/")] = lib
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	folders := map[string]bool{}
	for _, name := range sorted(files) {
		if err := addFolders(w, folders, path.Dir(name)); err != nil {
			return nil, err
		}
		body, err := os.ReadFile(files[name]) // what a link points to
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(body)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := io.Copy(w, bytes.NewReader(body)); err != nil {
			return nil, err
		}
	}
	for _, folder := range []string{"tmp", "etc", "dev", "proc", "sys", "run"} {
		if err := addFolders(w, folders, folder); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

func addFolders(w *tar.Writer, have map[string]bool, folder string) error {
	if folder == "." || have[folder] {
		return nil
	}
	if err := addFolders(w, have, path.Dir(folder)); err != nil {
		return err
	}
	have[folder] = true
	return w.WriteHeader(&tar.Header{Name: folder + "/", Mode: 0o755, Typeflag: tar.TypeDir})
}

func sorted(m map[string]string) []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// beside lists the parts of the C library that no program of ours is linked to but
// the driver's library is; every image of a distribution has them.
func beside(files map[string]string) []string {
	var out []string
	for _, lib := range files {
		if filepath.Base(lib) != "libc.so.6" {
			continue
		}
		for _, name := range []string{"libdl.so.2", "libpthread.so.0", "librt.so.1"} {
			if part := filepath.Join(filepath.Dir(lib), name); exists(part) {
				out = append(out, part)
			}
		}
	}
	return out
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// libraries lists what a program is linked to; a static one is linked to nothing.
func libraries(program string) []string {
	said, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil
	}
	var out []string
	for _, word := range strings.Fields(string(said)) {
		if strings.HasPrefix(word, "/") {
			out = append(out, word)
		}
	}
	return out
}
