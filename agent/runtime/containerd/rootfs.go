package containerd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"

	"github.com/tranche-cloud/tranche/agent/runtime/oci"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Ids for containers that the agent gave none: this many ranges from this id on.
const (
	firstIDs = 1 << 29
	ranges   = 8192
)

// giveIDs chooses a range that no other container has.
func (d *Driver) giveIDs(ctx context.Context, s *runtime.Spec) error {
	if s.Extra.IDBase != 0 {
		return nil
	}
	d.ids.Lock()
	defer d.ids.Unlock()
	found, err := d.client.Containers(ctx)
	if err != nil {
		return err
	}
	used := map[uint32]bool{}
	for _, base := range d.taken {
		used[base] = true
	}
	for _, c := range found {
		labels, err := c.Labels(ctx)
		if ignoreGone(err) != nil {
			return err
		}
		base, _ := strconv.ParseUint(labels[labelIDs], 10, 32) // 0 is no range of ours
		used[uint32(base)] = true
	}
	for n := range uint32(ranges) {
		if base := firstIDs + n*oci.IDs; !used[base] {
			d.taken[s.Name], s.Extra.IDBase = base, base
			return nil
		}
	}
	return runtime.Refuse(runtime.Broken, "start", s.Name, "all %d ranges of user ids are taken", ranges)
}

// idsNoted is called when the container's labels hold its range, or nothing does.
func (d *Driver) idsNoted(name string) {
	d.ids.Lock()
	defer d.ids.Unlock()
	delete(d.taken, name)
}

// remapping is how a snapshotter says that it shifts ids in the mount itself.
const remapping = "remap-ids"

// prepare makes the container's layer, owned by its ids, and finds its user. A
// snapshotter that shifts ids does so for nothing; otherwise every file is given
// away once, in the container's own layer.
func (d *Driver) prepare(ctx context.Context, s runtime.Spec, image pulled) (oci.User, error) {
	snapshotter := d.client.SnapshotService(d.cfg.Snapshotter)
	able, err := d.client.GetSnapshotterCapabilities(ctx, d.cfg.Snapshotter)
	if err != nil {
		return oci.User{}, err
	}
	var opts []snapshots.Opt
	shifts := slices.Contains(able, remapping)
	if shifts {
		opts = append(opts, client.WithRemapperLabels(0, s.Extra.IDBase, 0, s.Extra.IDBase, oci.IDs))
	}
	mounts, err := snapshotter.Prepare(ctx, s.Name, image.chain, opts...)
	if err != nil {
		return oci.User{}, err
	}
	var user oci.User
	err = mount.WithTempMount(ctx, mounts, func(root string) error {
		if user, err = findUser(root, image.config.User); err != nil || shifts {
			return err
		}
		return shift(ctx, root, s.Extra.IDBase)
	})
	return user, err
}

func findUser(root, name string) (oci.User, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return oci.User{}, err
	}
	user, err := oci.FindUser(dir.FS(), name)
	return user, errors.Join(err, dir.Close())
}

// shift gives every file to the mapped ids. No program of the tenant runs yet, so
// nothing moves underneath.
func shift(ctx context.Context, root string, base uint32) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return errors.New("no owner of " + path)
		}
		if stat.Uid-base < oci.IDs && stat.Gid-base < oci.IDs {
			return nil // another name of a file that was given away before
		}
		if err := os.Lchown(path, int(base+inside(stat.Uid)), int(base+inside(stat.Gid))); err != nil {
			return err
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 && info.Mode()&fs.ModeSymlink == 0 {
			return os.Chmod(path, info.Mode()) // giving a file away takes these bits
		}
		return nil
	})
}

// inside maps ids that no user namespace has to nobody.
func inside(id uint32) uint32 {
	const nobody = 65534
	if id >= oci.IDs {
		return nobody
	}
	return id
}
