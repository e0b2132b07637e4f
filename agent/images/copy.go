package images

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"
)

// copied makes the root file system a copy of the layers, for hosts where overlays
// or mapped ids do not work.
func (s *Store) copied(instance string, h holding, disk, target string, idBase uint32) error {
	own := filepath.Join(disk, "root")
	if err := os.Mkdir(own, 0o755); err != nil {
		return broken(instance, err, "make root folder")
	}
	root, err := os.OpenRoot(own)
	if err != nil {
		return broken(instance, err, "open root folder")
	}
	defer root.Close()
	for _, digest := range h.Layers {
		c := copier{from: filepath.Join(s.layer(digest), "fs"), to: root, idBase: int(idBase), links: map[uint64]string{}}
		if err := filepath.WalkDir(c.from, c.visit); err != nil {
			return broken(instance, err, "copy layer")
		}
	}
	m := mount.Mount{Type: "bind", Source: own, Options: []string{"bind", "rw"}}
	if err := m.Mount(target); err != nil {
		return broken(instance, err, "mount root folder")
	}
	if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return broken(instance, err, "mount root folder")
	}
	return nil
}

// copier applies one layer to a folder, whiteouts included. It never follows a link:
// what a layer says is a folder becomes one.
type copier struct {
	from   string
	to     *os.Root
	idBase int
	links  map[uint64]string // inode of the layer → name in the copy
}

func (c *copier) visit(path string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	name, err := filepath.Rel(c.from, path)
	if err != nil {
		return err
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("copy %s: no owner", name)
	}
	if err := c.clear(path, name, info); err != nil {
		return err
	}
	switch {
	case info.Mode()&fs.ModeCharDevice != 0:
		return nil // a whiteout
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return errors.Join(c.to.Symlink(target, name), c.to.Lchown(name, c.idBase+int(stat.Uid), c.idBase+int(stat.Gid)))
	case info.IsDir():
		if err := c.to.MkdirAll(name, 0o755); err != nil {
			return err
		}
	default:
		if first, ok := c.links[stat.Ino]; ok && stat.Nlink > 1 {
			return c.to.Link(first, name)
		}
		c.links[stat.Ino] = name
		if err := c.file(path, name); err != nil {
			return err
		}
	}
	if err := c.to.Lchown(name, c.idBase+int(stat.Uid), c.idBase+int(stat.Gid)); err != nil {
		return err
	}
	if err := c.to.Chmod(name, info.Mode()); err != nil {
		return err
	}
	return c.to.Chtimes(name, info.ModTime(), info.ModTime())
}

// clear removes what the layer's entry replaces: anything, except that folders are
// merged unless the layer's is opaque.
func (c *copier) clear(path, name string, info fs.FileInfo) error {
	old, err := c.to.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || name == "." {
		return err
	}
	if info.IsDir() && old.IsDir() {
		value := make([]byte, 1)
		if n, err := unix.Lgetxattr(path, opaqueAttribute, value); err != nil || n != 1 || value[0] != 'y' {
			return nil
		}
	}
	return c.to.RemoveAll(name)
}

func (c *copier) file(path, name string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := c.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
