package containerd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"
)

// mounted lets a function look into a layer. The place is the driver's own, so that
// what an agent that was killed leaves there is found (sweep).
func (d *Driver) mounted(mounts []mount.Mount, look func(root string) error) (err error) {
	root, err := os.MkdirTemp(d.mountDir(), "layer-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmount(root)) }()
	if err := mount.All(mount.RemoveVolatileOption(mounts), root); err != nil {
		return err
	}
	return look(root)
}

func (d *Driver) mountDir() string { return filepath.Join(d.cfg.StateDir, "layers") }

// unmount removes the folder only as an empty one: if the layer is still mounted, its
// files are not ours to delete.
func unmount(root string) error {
	if err := mount.UnmountAll(root, unix.MNT_DETACH); err != nil {
		return err
	}
	return os.Remove(root)
}

// sweep removes what an earlier agent left: layers that it had mounted, and the pipes
// of its execs, which nobody will open again.
func (d *Driver) sweep() error {
	if err := errors.Join(os.RemoveAll(d.pipeDir()), os.MkdirAll(d.mountDir(), 0o700)); err != nil {
		return err
	}
	left, err := os.ReadDir(d.mountDir())
	for _, entry := range left {
		gone := unmount(filepath.Join(d.mountDir(), entry.Name()))
		if !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}
