package containerd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

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
// snapshotter that shifts ids does so for nothing; otherwise the layer stands on a
// copy of the image that was given away as a whole.
func (d *Driver) prepare(ctx context.Context, s runtime.Spec, image pulled) (oci.User, error) {
	able, err := d.client.GetSnapshotterCapabilities(ctx, d.cfg.Snapshotter)
	if err != nil {
		return oci.User{}, err
	}
	parent := image.chain
	var opts []snapshots.Opt
	if slices.Contains(able, remapping) {
		opts = append(opts, client.WithRemapperLabels(0, s.Extra.IDBase, 0, s.Extra.IDBase, oci.IDs))
	} else if parent, err = d.shifted(ctx, image.chain, s.Extra.IDBase); err != nil {
		return oci.User{}, err
	}
	mounts, err := d.client.SnapshotService(d.cfg.Snapshotter).Prepare(ctx, s.Name, parent, opts...)
	if err != nil {
		return oci.User{}, err
	}
	var user oci.User
	err = d.mounted(mount.RemoveIDMapOption(mounts), func(root string) error {
		user, err = findUser(root, image.config.User)
		return err
	})
	return user, err
}

// Copies of images that were given to a range of ids. Ranges come back, and so do
// images to them: giving every file away costs far more than a start. Of each range
// the newest copy is kept, which bounds them by the number of containers at a time.
const (
	shiftedPrefix = "tranche-shifted-"
	shiftedDraft  = "-draft"
	keepLabel     = "containerd.io/gc.root"
)

// shifted returns the name of an image's copy for a range, which it makes if need be.
func (d *Driver) shifted(ctx context.Context, chain string, base uint32) (string, error) {
	suffix := "-" + strconv.FormatUint(uint64(base), 10)
	name := shiftedPrefix + chain + suffix
	release, err := d.pulls.lock(ctx, name)
	if err != nil {
		return "", err
	}
	defer release()
	snapshotter := d.client.SnapshotService(d.cfg.Snapshotter)
	_, err = snapshotter.Stat(ctx, name)
	if err == nil || !errdefs.IsNotFound(err) {
		return name, err
	}
	others := func(info snapshots.Info) bool {
		return strings.HasSuffix(strings.TrimSuffix(info.Name, shiftedDraft), suffix)
	}
	if err := d.dropShifted(ctx, others); err != nil {
		return "", err
	}
	mounts, err := snapshotter.Prepare(ctx, name+shiftedDraft, chain)
	if err != nil {
		return "", err
	}
	if err := d.mounted(mounts, func(root string) error { return shift(ctx, root, base) }); err != nil {
		return "", err // the draft goes with the lease, or with the next attempt
	}
	keep := snapshots.WithLabels(map[string]string{keepLabel: d.cfg.Clock.Now().Format(time.RFC3339)})
	return name, snapshotter.Commit(ctx, name, name+shiftedDraft, keep)
}

// dropShifted removes copies and drafts. One on which a container still stands stays.
func (d *Driver) dropShifted(ctx context.Context, which func(snapshots.Info) bool) error {
	snapshotter := d.client.SnapshotService(d.cfg.Snapshotter)
	var names []string
	err := snapshotter.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if strings.HasPrefix(info.Name, shiftedPrefix) && which(info) {
			names = append(names, info.Name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		err := ignoreGone(snapshotter.Remove(ctx, name))
		if err != nil && !errdefs.IsFailedPrecondition(err) {
			return err
		}
	}
	return nil
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
