package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/agent/runtime/oci"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

const opaqueAttribute = "trusted.overlay.opaque"

// holding says which layers an instance holds. It is written before the layers are
// looked for and removed last.
type holding struct {
	Digest string   `json:"digest"`
	Layers []string `json:"layers"` // lowest first
}

func (s *Store) hold(instance string, image Image) error {
	dir := s.path("mounts", instance)
	if !fs.ValidPath(instance) || strings.Contains(instance, "/") {
		return broken(instance, fs.ErrInvalid, "hold image")
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return broken(instance, err, "hold image")
	}
	h := holding{Digest: image.Digest}
	for _, l := range image.Layers {
		h.Layers = append(h.Layers, l.Digest)
	}
	text, err := json.Marshal(h)
	if err != nil {
		return broken(instance, err, "hold image")
	}
	temp := filepath.Join(dir, "holding.new")
	if err := os.WriteFile(temp, text, 0o600); err != nil {
		return broken(instance, err, "hold image")
	}
	if err := os.Rename(temp, filepath.Join(dir, "holding.json")); err != nil {
		return broken(instance, err, "hold image")
	}
	return nil
}

func (s *Store) holding(instance string) (holding, error) {
	var h holding
	text, err := os.ReadFile(s.path("mounts", instance, "holding.json"))
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	return h, err
}

// held is every layer that some instance holds. An instance whose file is not there
// yet or not any more holds nothing.
func (s *Store) held() (map[string]bool, error) {
	names, err := os.ReadDir(s.path("mounts"))
	if err != nil {
		return nil, fmt.Errorf("list held images: %w", err)
	}
	out := map[string]bool{}
	for _, n := range names {
		h, err := s.holding(n.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read held image: %w", err)
		}
		for _, l := range h.Layers {
			out[l] = true
		}
	}
	return out, nil
}

// RootFS is where the root file system of an instance is mounted. The folder above it
// lets nobody of the host through but root and the instance's own root.
func (s *Store) RootFS(instance string) string { return filepath.Join(s.cfg.RunDir, instance, "fs") }

// Mount makes the root file system of an instance that took an image, owned by the
// 65,536 ids from idBase, and returns its path. After an error Release cleans up.
func (s *Store) Mount(instance string, idBase uint32) (string, error) {
	h, err := s.holding(instance)
	if err != nil {
		return "", broken(instance, err, "read held image")
	}
	target := s.RootFS(instance)
	if err := mountPoint(target, idBase); err != nil {
		return "", broken(instance, err, "make mount point")
	}
	disk := s.path("mounts", instance, "disk")
	if err := s.disk(instance, disk); err != nil {
		return "", err
	}
	if s.cfg.Copy {
		return target, s.copied(instance, h, disk, target, idBase)
	}
	return target, s.overlaid(instance, h, disk, target, idBase)
}

func mountPoint(target string, idBase uint32) error {
	gate := filepath.Dir(target)
	if err := os.Mkdir(gate, 0o700); err != nil {
		return err
	}
	if err := os.Chown(gate, 0, int(idBase)); err != nil {
		return err
	}
	return errors.Join(os.Mkdir(target, 0o711), os.Chmod(gate, 0o710))
}

// disk mounts the writable part of an instance: a file system that ends where its
// limit is, or a plain folder.
func (s *Store) disk(instance, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return broken(instance, err, "make disk")
	}
	if s.cfg.Disk == Unbounded {
		return nil
	}
	file := dir + ".img"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return broken(instance, err, "make disk")
	}
	if err := os.Truncate(file, s.cfg.Disk.Bytes()); err != nil {
		return broken(instance, err, "make disk")
	}
	mkfs := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=1", file) //nolint:gosec // our own path
	if out, err := mkfs.CombinedOutput(); err != nil {
		return runtime.Refuse(runtime.Unavailable, "start", instance,
			"a disk of %s cannot be made (%s): install e2fsprogs", s.cfg.Disk, strings.TrimSpace(string(out))).Because(err)
	}
	m := mount.Mount{Type: "ext4", Source: file, Options: []string{"loop", "nosuid", "nodev", "noatime"}}
	if err := m.Mount(dir); err != nil {
		return runtime.Refuse(runtime.Unavailable, "start", instance, "a disk of %s cannot be mounted: the kernel needs loop devices", s.cfg.Disk).Because(err)
	}
	return nil
}

// overlaid mounts the layers, seen with the instance's ids, below its own disk.
func (s *Store) overlaid(instance string, h holding, disk, target string, idBase uint32) error {
	upper, work := filepath.Join(disk, "upper"), filepath.Join(disk, "work")
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o700), s.ownRoot(h, upper, idBase)); err != nil {
		return broken(instance, err, "make writable layer")
	}
	lower := s.path("mounts", instance, "lower")
	if err := os.Mkdir(lower, 0o700); err != nil {
		return broken(instance, err, "make lower folders")
	}
	ids := fmt.Sprintf("0:%d:%d", idBase, oci.IDs)
	space, err := mount.GetUsernsFD(ids, ids)
	if err != nil {
		return broken(instance, err, "make user namespace")
	}
	defer space.Close()
	var folders []string
	for i, digest := range h.Layers {
		folder := filepath.Join(lower, strconv.Itoa(i))
		if err := os.Mkdir(folder, 0o700); err != nil {
			return broken(instance, err, "make lower folders")
		}
		if err := mount.IDMapMountWithAttrs(filepath.Join(s.layer(digest), "fs"), folder, int(space.Fd()), unix.MOUNT_ATTR_RDONLY, 0); err != nil {
			return broken(instance, err, "map ids of layer")
		}
		folders = append(folders, folder)
	}
	slices.Reverse(folders) // an overlay names the highest first
	m := mount.Mount{Type: "overlay", Source: "overlay", Options: []string{
		"nosuid", "nodev", "lowerdir=" + strings.Join(folders, ":"), "upperdir=" + upper, "workdir=" + work,
	}}
	if err := m.Mount(target); err != nil {
		return broken(instance, err, "mount overlay")
	}
	// The overlay holds clones of them.
	return s.dropLower(instance)
}

// ownRoot gives the root folder of the writable layer the owner and mode that the
// image's topmost layer gives it.
func (s *Store) ownRoot(h holding, upper string, idBase uint32) error {
	var info unix.Stat_t
	if err := unix.Stat(filepath.Join(s.layer(h.Layers[len(h.Layers)-1]), "fs"), &info); err != nil {
		return err
	}
	if err := os.Chown(upper, int(idBase)+int(info.Uid), int(idBase)+int(info.Gid)); err != nil {
		return err
	}
	return unix.Chmod(upper, info.Mode&0o7777|0o555)
}

func (s *Store) dropLower(instance string) error {
	lower := s.path("mounts", instance, "lower")
	folders, err := os.ReadDir(lower)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return broken(instance, err, "list lower folders")
	}
	for _, f := range folders {
		if err := unmount(filepath.Join(lower, f.Name())); err != nil {
			return broken(instance, err, "unmount layer")
		}
		// Not RemoveAll: were it a mount still, that would empty the layer.
		if err := os.Remove(filepath.Join(lower, f.Name())); err != nil {
			return broken(instance, err, "remove lower folder")
		}
	}
	if err := os.Remove(lower); err != nil {
		return broken(instance, err, "remove lower folders")
	}
	return nil
}

// Release unmounts and removes what an instance had, its disk included. It succeeds
// if there is nothing, and may be repeated after any interruption.
func (s *Store) Release(instance string) error {
	if !fs.ValidPath(instance) || strings.Contains(instance, "/") {
		return broken(instance, fs.ErrInvalid, "release image")
	}
	target := s.RootFS(instance)
	if err := unmount(target); err != nil {
		return broken(instance, err, "unmount root file system")
	}
	for _, dir := range []string{target, filepath.Dir(target)} {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return broken(instance, err, "remove mount point")
		}
	}
	if err := s.dropLower(instance); err != nil {
		return err
	}
	dir := s.path("mounts", instance)
	if err := unmount(filepath.Join(dir, "disk")); err != nil {
		return broken(instance, err, "unmount disk")
	}
	for _, part := range []string{"disk", "disk.img", ""} {
		if err := os.RemoveAll(filepath.Join(dir, part)); err != nil {
			return broken(instance, err, "remove disk")
		}
	}
	return nil
}

// unmount undoes every mount at a path. What is busy for a moment is detached: no
// process of the instance lives any more.
func unmount(path string) error {
	if err := mount.UnmountAll(path, unix.UMOUNT_NOFOLLOW); err == nil || !errors.Is(err, unix.EBUSY) {
		return err
	}
	return mount.UnmountAll(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
}

// probe makes one small overlay with mapped ids and removes it.
func (s *Store) probe() (bool, error) {
	const name = "probe"
	empty := holding{Layers: []string{"sha256:probe"}}
	layer := filepath.Join(s.layer("sha256:probe"), "fs")
	if err := errors.Join(s.Release(name), os.MkdirAll(layer, 0o755), os.MkdirAll(s.path("mounts", name, "disk"), 0o700), os.MkdirAll(s.RootFS(name), 0o711)); err != nil {
		return false, fmt.Errorf("probe overlays: %w", err)
	}
	err := s.overlaid(name, empty, s.path("mounts", name, "disk"), s.RootFS(name), 1<<20)
	if cleaned := errors.Join(s.Release(name), os.RemoveAll(s.layer("sha256:probe"))); cleaned != nil {
		return false, fmt.Errorf("probe overlays: %w", cleaned)
	}
	return err == nil, nil
}
