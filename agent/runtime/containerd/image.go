package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/containerd/containerd/v2/client"
	core "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/tranche-cloud/tranche/agent/images"
	"github.com/tranche-cloud/tranche/agent/runtime/oci"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// pulled is an image that lies unpacked in the daemon.
type pulled struct {
	name   string // of the daemon's image
	digest string
	chain  string // name of its topmost layer in the snapshotter
	config oci.Image
}

// pull asks the registry with the caller's own login, every time, and brings what the
// daemon lacks. What lies there already is used only if it is proven (blob).
func (d *Driver) pull(ctx context.Context, s runtime.Spec) (pulled, error) {
	deadline := d.cfg.Images.Policy().Deadline
	slow := runtime.Refuse(runtime.ImageUnavailable, "pull", s.Name, "%s took longer than %s to pull", s.Image, deadline)
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, slow)
	defer cancel()
	told := &progress{tell: s.Extra.Progress}
	told.say("asking the registry")
	found, err := d.cfg.Images.Resolve(ctx, images.Request{Reference: s.Image, Login: s.Login, Progress: s.Extra.Progress})
	if err != nil {
		return pulled{}, pullFailed(ctx, s.Name, err)
	}
	image, err := d.bring(ctx, found, told)
	if err != nil {
		return pulled{}, pullFailed(ctx, s.Name, err)
	}
	return image, nil
}

// pullFailed types what neither the registry's nor the daemon's side typed: a stream
// that broke.
func pullFailed(ctx context.Context, name string, err error) error {
	if known, ok := errors.AsType[*runtime.Error](context.Cause(ctx)); ok {
		return known.Because(err)
	}
	if known, ok := errors.AsType[*runtime.Error](err); ok {
		return known
	}
	if context.Cause(ctx) != nil {
		return runtime.Refuse(runtime.ImageUnavailable, "pull", name, "given up").Because(err)
	}
	return typed("pull", name, err)
}

// bring stores an image's parts and unpacks it, one caller at a time.
func (d *Driver) bring(ctx context.Context, found images.Resolved, told *progress) (pulled, error) {
	release, err := d.pulls.lock(ctx, found.Digest)
	if err != nil {
		return pulled{}, err
	}
	defer release()
	manifest, err := found.Source.Manifest()
	if err != nil {
		return pulled{}, err
	}
	config, err := found.Source.ConfigFile()
	if err != nil {
		return pulled{}, err
	}
	diffs := config.RootFS.DiffIDs
	if len(diffs) != len(manifest.Layers) {
		return pulled{}, runtime.Refuse(runtime.ImageInvalid, "pull", "", "%s has %d layers and describes %d", found.Reference, len(manifest.Layers), len(diffs))
	}
	p := &puller{d: d, found: found, source: provenance(found.Name.Context().Name()), told: told}
	for _, layer := range manifest.Layers {
		p.total += layer.Size
	}
	for n, layer := range manifest.Layers {
		if err := p.layer(ctx, layer, diffs[n]); err != nil {
			return pulled{}, err
		}
	}
	target, err := p.describe(ctx, manifest)
	if err != nil {
		return pulled{}, err
	}
	image := pulled{name: "tranche/" + found.Digest, digest: found.Digest, chain: chainOf(diffs), config: found.Config}
	return image, d.unpack(ctx, image, target, told)
}

func chainOf(diffs []v1.Hash) string {
	ids := make([]digest.Digest, 0, len(diffs))
	for _, diff := range diffs {
		ids = append(ids, digest.Digest(diff.String()))
	}
	return identity.ChainID(ids).String()
}

// unpack records the image, so that the daemon keeps its parts, and applies layers
// that no image had before.
func (d *Driver) unpack(ctx context.Context, p pulled, target ocispec.Descriptor, told *progress) error {
	record := core.Image{Name: p.name, Target: target, Labels: map[string]string{labelChain: p.chain, labelUsed: d.now()}}
	kept, err := d.client.ImageService().Create(ctx, record)
	if errdefs.IsAlreadyExists(err) {
		kept, err = d.client.ImageService().Update(ctx, record, "labels."+labelUsed)
	}
	if err != nil {
		return err
	}
	image := client.NewImage(d.client, kept)
	done, err := image.IsUnpacked(ctx, d.cfg.Snapshotter)
	if err != nil || done {
		return err
	}
	told.say("unpacking")
	if err := image.Unpack(ctx, d.cfg.Snapshotter); err != nil {
		if unavailable(err) || ctx.Err() != nil {
			return err
		}
		return runtime.Refuse(runtime.ImageInvalid, "pull", "", "its layers cannot be unpacked").Because(err)
	}
	return nil
}

// progress tells people what takes long, without repeating itself.
type progress struct {
	mu   sync.Mutex
	tell func(string)
	last string
}

func (p *progress) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tell == nil || text == p.last {
		return
	}
	p.last = text
	p.tell(text)
}

// pulling counts the bytes that arrive, in steps of five percent.
func (p *progress) pulling(have, of int64) {
	const step = 5
	if of > 0 {
		p.say(fmt.Sprintf("pulling %d %%", 100*have/of/step*step))
	}
}

// meter is a writer that reports what passes.
type meter struct {
	p    *puller
	into io.Writer
}

func (m meter) Write(b []byte) (int, error) {
	n, err := m.into.Write(b)
	m.p.have += int64(n)
	m.p.told.pulling(m.p.have, m.p.total)
	return n, err
}
