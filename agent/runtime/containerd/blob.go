package containerd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/tranche-cloud/tranche/agent/images"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// The daemon shares contents by digest among all its users. A digest alone is no
// right to a content: whoever runs a registry can name any. So a stored layer counts
// only if it came from the very repository whose registry just answered the caller,
// and only as the file system that the image's description says; otherwise its bytes
// are fetched with the caller's login once more, checked, and not stored again. The
// same holds for unpacked layers, which the daemon finds by the description alone.
const (
	labelFrom = "tranche.dev/from."    // and a short name of a repository
	labelDiff = "tranche.dev/unpacked" // digest of the layer's archive
)

// slack is what a layer may have beyond its ratio, for small ones.
const slack = 64 << 20

// provenance is the label of what came from a repository.
func provenance(repository string) string {
	sum := sha256.Sum256([]byte(repository))
	return labelFrom + hex.EncodeToString(sum[:16])
}

// puller brings the parts of one image.
type puller struct {
	d           *Driver
	found       images.Resolved
	source      string // label of its repository
	told        *progress
	have, total int64
}

func descriptor(d v1.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: string(d.MediaType), Digest: digest.Digest(d.Digest.String()), Size: d.Size}
}

// layer makes sure that a layer lies in the daemon and is proven.
func (p *puller) layer(ctx context.Context, layer v1.Descriptor, diff v1.Hash) error {
	store := p.d.client.ContentStore()
	info, err := store.Info(ctx, digest.Digest(layer.Digest.String()))
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	stored := err == nil
	if stored && info.Labels[p.source] != "" && info.Labels[labelDiff] == diff.String() {
		p.have += layer.Size
		return nil
	}
	stream, err := p.open(layer.Digest)
	if err != nil {
		return p.d.cfg.Images.Classify(ctx, p.found, err)
	}
	labels := map[string]string{p.source: "1", labelDiff: diff.String()}
	err = p.store(ctx, descriptor(layer), labels, func(into io.Writer) error { return p.check(ctx, stream, into, layer, diff) })
	return errors.Join(err, stream.Close())
}

// open asks the registry for a layer.
func (p *puller) open(layer v1.Hash) (io.ReadCloser, error) {
	remote, err := p.found.Source.LayerByDigest(layer)
	if err != nil {
		return nil, err
	}
	return remote.Compressed()
}

// check copies a layer while it looks at what is inside: whoever reads the stream to
// its end has seen the right digest, which the stream itself checks.
func (p *puller) check(ctx context.Context, stream io.Reader, into io.Writer, layer v1.Descriptor, diff v1.Hash) error {
	r, w := io.Pipe()
	inspected := make(chan error, 1)
	go func() {
		err := p.inspect(r, layer.Size, diff)
		r.CloseWithError(err)
		inspected <- err
	}()
	_, err := io.Copy(io.MultiWriter(meter{p, into}, w), reader{ctx, p, stream})
	w.CloseWithError(err)
	if found := <-inspected; found != nil {
		return found
	}
	return err
}

// reader ends with its context, and says whose fault a broken stream is.
type reader struct {
	ctx  context.Context
	p    *puller
	from io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	err := r.ctx.Err()
	n := 0
	if err == nil {
		n, err = r.from.Read(b)
	}
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if strings.Contains(err.Error(), "error verifying") { // its type is the library's own
		return n, runtime.Refuse(runtime.ImageInvalid, "pull", "", "the registry sends other bytes than it names").Because(err)
	}
	return n, r.p.d.cfg.Images.Classify(r.ctx, r.p.found, err)
}

// inspect reads a compressed layer to its end: it must be the archive that the image
// describes, and no decompression bomb.
func (p *puller) inspect(stream io.Reader, size int64, diff v1.Hash) error {
	archive, err := compression.DecompressStream(stream)
	if err != nil {
		return runtime.Refuse(runtime.ImageInvalid, "pull", "", "a layer of %s is not compressed as it says", p.found.Reference).Because(err)
	}
	sum := sha256.New()
	limit := p.d.cfg.Images.Policy().MaxRatio*size + slack
	n, err := io.Copy(sum, io.LimitReader(archive, limit+1))
	if err = errors.Join(err, archive.Close()); err != nil {
		return err
	}
	if n > limit {
		return runtime.Refuse(runtime.ImageRefused, "pull", "", "a layer of %s unpacks to far more than its size: it looks like a decompression bomb", p.found.Reference)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != diff.String() {
		return runtime.Refuse(runtime.ImageInvalid, "pull", "", "a layer of %s is %s and is described as %s", p.found.Reference, got, diff)
	}
	_, err = io.Copy(io.Discard, stream)
	return err
}

// store writes a content with its labels, or, if the daemon has it, only checks the
// bytes and adds the labels.
func (p *puller) store(ctx context.Context, d ocispec.Descriptor, labels map[string]string, write func(io.Writer) error) error {
	store := p.d.client.ContentStore()
	w, err := content.OpenWriter(ctx, store, content.WithRef("tranche-"+d.Digest.String()), content.WithDescriptor(d))
	if errdefs.IsAlreadyExists(err) {
		if err := write(io.Discard); err != nil {
			return err
		}
		return relabel(ctx, store, d.Digest, labels)
	}
	if err != nil {
		return err
	}
	if err := w.Truncate(0); err != nil { // an earlier attempt is not to be trusted
		return errors.Join(err, w.Close())
	}
	if err := write(w); err != nil {
		return errors.Join(err, w.Close(), store.Abort(context.WithoutCancel(ctx), "tranche-"+d.Digest.String()))
	}
	err = w.Commit(ctx, d.Size, d.Digest, content.WithLabels(labels))
	if errdefs.IsAlreadyExists(err) {
		err = relabel(ctx, store, d.Digest, labels)
	}
	return errors.Join(err, w.Close())
}

func relabel(ctx context.Context, store content.Manager, d digest.Digest, labels map[string]string) error {
	fields := make([]string, 0, len(labels))
	for name := range labels {
		fields = append(fields, "labels."+name)
	}
	_, err := store.Update(ctx, content.Info{Digest: d, Labels: labels}, fields...)
	return err
}

// describe stores configuration and manifest, both just read from the registry, and
// ties the layers to them for the daemon's collector.
func (p *puller) describe(ctx context.Context, manifest *v1.Manifest) (ocispec.Descriptor, error) {
	config, err := p.found.Source.RawConfigFile()
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	raw, err := p.found.Source.RawManifest()
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	target := ocispec.Descriptor{MediaType: string(manifest.MediaType), Digest: digest.Digest(p.found.Digest), Size: int64(len(raw))}
	if target.MediaType == "" {
		target.MediaType = ocispec.MediaTypeImageManifest
	}
	const keep = "containerd.io/gc.ref.content."
	ties := map[string]string{keep + "config": manifest.Config.Digest.String()}
	for n, layer := range manifest.Layers {
		ties[fmt.Sprintf("%sl.%d", keep, n)] = layer.Digest.String()
	}
	bytesOf := func(text []byte) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.Copy(w, bytes.NewReader(text)); return err }
	}
	if err := p.once(ctx, descriptor(manifest.Config), map[string]string{p.source: "1"}, bytesOf(config)); err != nil {
		return ocispec.Descriptor{}, err
	}
	return target, p.once(ctx, target, ties, bytesOf(raw))
}

// once stores a content that was read in any case, unless it is there with a label.
func (p *puller) once(ctx context.Context, d ocispec.Descriptor, labels map[string]string, write func(io.Writer) error) error {
	info, err := p.d.client.ContentStore().Info(ctx, d.Digest)
	if err == nil {
		for name, value := range labels {
			if info.Labels[name] != value {
				return p.store(ctx, d, labels, write)
			}
		}
		return nil
	}
	if !errdefs.IsNotFound(err) {
		return err
	}
	return p.store(ctx, d, labels, write)
}
