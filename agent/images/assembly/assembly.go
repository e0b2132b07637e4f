// Package assembly makes small images from files of this machine, without a builder:
// busybox with its applets, and layers of a folder or a program. Development
// registries and tests serve them.
//
// It pushes and pulls nothing. Files belong to root in the image.
package assembly

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	goruntime "runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Path is where the applets of Busybox are found.
const Path = "PATH=/usr/local/bin:/usr/bin:/bin"

// Wait is a command of Busybox that does nothing until it is told to end.
var Wait = []string{"sh", "-c", "trap 'exit 0' TERM INT; sleep 1000000 & wait"}

// Layer makes a layer of what write puts into the archive.
func Layer(write func(*tar.Writer) error) (v1.Layer, error) {
	var archive bytes.Buffer
	out := tar.NewWriter(&archive)
	if err := write(out); err != nil {
		return nil, err
	}
	if err := out.Close(); err != nil {
		return nil, fmt.Errorf("close layer: %w", err)
	}
	text := archive.Bytes()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
	if err != nil {
		return nil, fmt.Errorf("make layer: %w", err)
	}
	return layer, nil
}

// Image puts layers on a base (nil is nothing) under a configuration, for this
// machine's architecture.
func Image(base v1.Image, config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	if base == nil {
		base = empty.Image
	}
	image, err := mutate.AppendLayers(base, layers...)
	if err != nil {
		return nil, fmt.Errorf("put layers on image: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read image configuration: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", goruntime.GOARCH, config
	image, err = mutate.ConfigFile(image, file)
	if err != nil {
		return nil, fmt.Errorf("configure image: %w", err)
	}
	return image, nil
}

// Busybox makes an image of a static busybox: its applets in /bin, the accounts root
// and app (1000), and the folders that programs expect. Its command is Wait.
func Busybox(program string) (v1.Image, error) {
	layer, err := Layer(func(out *tar.Writer) error { return busybox(out, program) })
	if err != nil {
		return nil, err
	}
	return Image(nil, v1.Config{Env: []string{Path}, Cmd: Wait}, layer)
}

func busybox(out *tar.Writer, program string) error {
	applets, err := exec.Command(program, "--list").Output() //nolint:gosec // the caller's program
	if err != nil {
		return fmt.Errorf("list the applets of %s: %w", program, err)
	}
	for _, dir := range []string{"bin", "dev", "etc", "mnt", "proc", "root", "sys", "usr", "usr/local", "usr/local/bin"} {
		if err := Dir(out, dir, 0o755); err != nil {
			return err
		}
	}
	if err := Dir(out, "tmp", 0o1777); err != nil {
		return err
	}
	if err := copyFile(out, "bin/busybox", program, 0o755); err != nil {
		return err
	}
	for _, applet := range strings.Fields(string(applets)) {
		if applet == "busybox" {
			continue
		}
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox", Mode: 0o777}); err != nil {
			return fmt.Errorf("add applet %s: %w", applet, err)
		}
	}
	if err := File(out, "etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/tmp:/bin/sh\n"), 0o644); err != nil {
		return err
	}
	return File(out, "etc/group", []byte("root:x:0:\napp:x:1000:\n"), 0o644)
}

// Tree makes a layer of a folder's contents, or of one program that lands in /.
func Tree(from string) (v1.Layer, error) {
	info, err := os.Stat(from)
	if err != nil {
		return nil, fmt.Errorf("read what goes into the layer: %w", err)
	}
	return Layer(func(out *tar.Writer) error {
		if !info.IsDir() {
			return copyFile(out, filepath.Base(from), from, int64(info.Mode().Perm()))
		}
		return filepath.WalkDir(from, func(p string, entry fs.DirEntry, err error) error {
			if err != nil || p == from {
				return err
			}
			return add(out, from, p, entry)
		})
	})
}

func add(out *tar.Writer, from, p string, entry fs.DirEntry) error {
	name, err := filepath.Rel(from, p)
	if err != nil {
		return fmt.Errorf("add %s: %w", p, err)
	}
	info, err := entry.Info()
	if err != nil {
		return fmt.Errorf("add %s: %w", p, err)
	}
	switch {
	case entry.IsDir():
		return Dir(out, name, int64(info.Mode().Perm()))
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(p)
		if err != nil {
			return fmt.Errorf("add %s: %w", p, err)
		}
		return out.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: path.Clean(name), Linkname: target, Mode: 0o777})
	case info.Mode().IsRegular():
		return copyFile(out, name, p, int64(info.Mode().Perm()))
	}
	return fmt.Errorf("add %s: only files, folders and links can be in an image", p)
}

// Dir adds a folder.
func Dir(out *tar.Writer, name string, mode int64) error {
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}); err != nil {
		return fmt.Errorf("add folder %s: %w", name, err)
	}
	return nil
}

// File adds a file.
func File(out *tar.Writer, name string, body []byte, mode int64) error {
	err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(body)), Mode: mode})
	if err == nil {
		_, err = out.Write(body)
	}
	if err != nil {
		return fmt.Errorf("add file %s: %w", name, err)
	}
	return nil
}

func copyFile(out *tar.Writer, name, from string, mode int64) error {
	body, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("add file %s: %w", name, err)
	}
	return File(out, name, body, mode)
}
