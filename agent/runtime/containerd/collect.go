package containerd

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	core "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
)

// Labels of an image.
const (
	labelUsed  = "tranche.dev/used"  // when it was last wanted, RFC 3339
	labelChain = "tranche.dev/chain" // its topmost layer
)

// fresh is how long an image is safe after it was wanted: a start may be about to
// stand on it.
const fresh = time.Hour

// GC removes images that no container has, the longest unused first, if what the
// registries sent for all of them takes more than Config.High, until it takes less
// than Low. It returns how many went. Stop calls it.
func (d *Driver) GC(ctx context.Context) (int, error) {
	total, err := d.stored(ctx)
	if err != nil || total <= d.cfg.High {
		return 0, typed("collect", "", err)
	}
	idle, err := d.idle(ctx)
	if err != nil {
		return 0, typed("collect", "", err)
	}
	for n, image := range idle {
		if err := d.forget(ctx, image); err != nil {
			return n, typed("collect", "", err)
		}
		if total, err = d.stored(ctx); err != nil || total <= d.cfg.Low {
			return n + 1, typed("collect", "", err)
		}
	}
	return len(idle), nil
}

// stored is the size of all contents, compressed as they came.
func (d *Driver) stored(ctx context.Context) (int64, error) {
	var total int64
	err := d.client.ContentStore().Walk(ctx, func(info content.Info) error {
		total += info.Size
		return nil
	})
	return total, err
}

// idle lists the images that may go, the longest unused first.
func (d *Driver) idle(ctx context.Context) ([]core.Image, error) {
	all, err := d.client.ImageService().List(ctx)
	if err != nil {
		return nil, err
	}
	containers, err := d.client.ContainerService().List(ctx)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, c := range containers {
		used[c.Image] = true
	}
	limit := d.cfg.Clock.Now().Add(-fresh).UTC().Format(time.RFC3339)
	idle := slices.DeleteFunc(all, func(image core.Image) bool { return used[image.Name] || image.Labels[labelUsed] > limit })
	slices.SortFunc(idle, func(a, b core.Image) int { return strings.Compare(a.Labels[labelUsed], b.Labels[labelUsed]) })
	return idle, nil
}

// forget removes an image and its copies for ranges of ids. The daemon's collector
// then takes what nothing else refers to, before the call returns.
func (d *Driver) forget(ctx context.Context, image core.Image) error {
	chain := image.Labels[labelChain]
	if chain != "" {
		of := func(info snapshots.Info) bool { return strings.HasPrefix(info.Name, shiftedPrefix+chain+"-") }
		if err := d.dropShifted(ctx, of); err != nil {
			return err
		}
	}
	return ignoreGone(d.client.ImageService().Delete(ctx, image.Name, core.SynchronousDelete()))
}

// now is the present as a label.
func (d *Driver) now() string { return d.cfg.Clock.Now().UTC().Format(time.RFC3339) }
