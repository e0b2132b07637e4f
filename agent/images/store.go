package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Config opens a Store.
type Config struct {
	// Dir keeps layers and writable disks. It is made 0700.
	Dir string
	// RunDir has the mount points of root file systems. Every folder above it must be
	// searchable by everybody (0711), because a container's ids are nobody's here. It may
	// be empty after a reboot.
	RunDir   string
	Registry *Registry
	// Disk bounds what an instance writes; 0 is DefaultDisk. It is a sparse file with an
	// ext4 of its own, so the host needs mkfs.ext4 and loop devices; see Unbounded.
	Disk units.MiB
	// Copy makes each root file system a copy of the layers, for kernels without
	// overlayfs or idmapped mounts. Open finds out by itself when it is false.
	Copy bool
	// High and Low are the sizes of all unpacked layers, in bytes, at which GC begins and
	// ends to remove those that nobody uses: 64 GiB and 48 GiB.
	High, Low int64
	// Now is for the age of layers, as GC removes the one used longest ago first.
	Now func() time.Time
}

// Store is the image store of a host. One process has it open at a time.
type Store struct {
	cfg Config

	mu    sync.Mutex
	locks map[string]*keyLock // per layer digest
}

type keyLock struct {
	sync.Mutex
	users int
}

// Open makes the folders, removes what an interrupted pull left, and finds out how
// root file systems can be made here.
func Open(cfg Config) (*Store, error) {
	cfg.Disk = cmp.Or(cfg.Disk, DefaultDisk)
	cfg.High, cfg.Low = cmp.Or(cfg.High, 64<<30), cmp.Or(cfg.Low, 48<<30)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{cfg: cfg, locks: map[string]*keyLock{}}
	if err := os.RemoveAll(s.path("tmp")); err != nil {
		return nil, fmt.Errorf("clear unfinished layers: %w", err)
	}
	for _, dir := range []string{"", "tmp", "layers", "mounts"} {
		if err := os.MkdirAll(s.path(dir), 0o700); err != nil {
			return nil, fmt.Errorf("make image folder: %w", err)
		}
	}
	if err := os.MkdirAll(cfg.RunDir, 0o711); err != nil {
		return nil, fmt.Errorf("make mount folder: %w", err)
	}
	if !cfg.Copy {
		works, err := s.probe()
		if err != nil {
			return nil, err
		}
		s.cfg.Copy = !works
	}
	return s, nil
}

// Copies reports that root file systems are copies, not overlays.
func (s *Store) Copies() bool { return s.cfg.Copy }

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.cfg.Dir}, elem...)...)
}

// layer is the folder of an unpacked layer: fs and meta.json.
func (s *Store) layer(digest string) string {
	return s.path("layers", strings.TrimPrefix(digest, "sha256:"))
}

// lock serialises work on one layer.
func (s *Store) lock(key string) func() {
	s.mu.Lock()
	l := s.locks[key]
	if l == nil {
		l = &keyLock{}
		s.locks[key] = l
	}
	l.users++
	s.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(s.locks, key)
		}
	}
}

// Pull brings an image here ahead of its use. Nothing holds it: GC may remove it.
func (s *Store) Pull(ctx context.Context, req Request) (Image, error) {
	return s.pull(ctx, req, func(Image) error { return nil })
}

// Take brings an image here for an instance, which holds its layers until Release.
func (s *Store) Take(ctx context.Context, instance string, req Request) (Image, error) {
	return s.pull(ctx, req, func(image Image) error { return s.hold(instance, image) })
}

func (s *Store) pull(ctx context.Context, req Request, hold func(Image) error) (Image, error) {
	ctx, cancel := s.cfg.Registry.within(ctx, req.Reference)
	defer cancel()
	req.tell("asking the registry")
	found, err := s.cfg.Registry.Resolve(ctx, req)
	if err != nil {
		return Image{}, err
	}
	if err := hold(found.Image); err != nil {
		return Image{}, err
	}
	p := &progress{tell: req.tell}
	for _, l := range found.Layers {
		p.total += l.Size
	}
	for i, l := range found.Layers {
		if err := s.ensure(ctx, found, i, p); err != nil {
			return Image{}, classify(ctx, found.Reference, err)
		}
		p.finish(l.Size)
	}
	req.tell("image is here")
	return found.Image, nil
}

// meta is what is known of an unpacked layer.
type meta struct {
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"`
}

// ensure unpacks a layer unless it lies here.
func (s *Store) ensure(ctx context.Context, image Resolved, index int, p *progress) error {
	l := image.Layers[index]
	defer s.lock(l.Digest)()
	if _, err := os.Stat(s.layer(l.Digest)); err == nil {
		now := s.cfg.Now()
		if err := os.Chtimes(filepath.Join(s.layer(l.Digest), "meta.json"), now, now); err != nil {
			return cannotStore(err, "mark layer as used")
		}
		return nil
	}
	layers, err := image.Source.Layers()
	if err != nil {
		return err
	}
	stored, err := layers[index].Compressed()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = stored.Close() })
	defer stop()
	archive, err := decompress(p.reader(stored))
	if err != nil {
		return errors.Join(err, stored.Close())
	}
	err = s.write(l, archive)
	return errors.Join(err, archive.Close(), stored.Close())
}

// write unpacks beside the layers and moves the whole in place, so that a layer is
// there or not.
func (s *Store) write(l Layer, archive io.Reader) (err error) {
	temp, err := os.MkdirTemp(s.path("tmp"), "layer-")
	if err != nil {
		return cannotStore(err, "make layer folder")
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(temp) // Open removes what stays
		}
	}()
	root := filepath.Join(temp, "fs")
	if err := os.Mkdir(root, 0o755); err != nil {
		return cannotStore(err, "make layer folder")
	}
	total, err := unpack(archive, root, l.Size*s.cfg.Registry.policy.MaxRatio+slack)
	if err != nil {
		return err
	}
	text, err := json.Marshal(meta(total))
	if err != nil {
		return cannotStore(err, "write layer")
	}
	file, now := filepath.Join(temp, "meta.json"), s.cfg.Now()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return cannotStore(err, "write layer")
	}
	if err := os.Chtimes(file, now, now); err != nil {
		return cannotStore(err, "write layer")
	}
	if err := syncAll(temp); err != nil {
		return err
	}
	if err := os.Rename(temp, s.layer(l.Digest)); err != nil {
		return cannotStore(err, "store layer")
	}
	return nil
}

// syncAll makes the data durable before its name: after a power cut a layer that is
// there is whole.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return cannotStore(err, "sync layer")
	}
	if err := errors.Join(unix.Syncfs(int(f.Fd())), f.Close()); err != nil {
		return cannotStore(err, "sync layer")
	}
	return nil
}

// GC removes layers that no instance holds, the longest unused first, if all of them
// take more than High, until they take less than Low. It returns the bytes freed.
func (s *Store) GC(ctx context.Context) (int64, error) {
	type candidate struct {
		digest string
		bytes  int64
		used   time.Time
	}
	names, err := os.ReadDir(s.path("layers"))
	if err != nil {
		return 0, fmt.Errorf("list layers: %w", err)
	}
	var found []candidate
	var total int64
	for _, n := range names {
		m, used, err := readMeta(s.path("layers", n.Name(), "meta.json"))
		if err != nil {
			return 0, err
		}
		total += m.Bytes
		found = append(found, candidate{"sha256:" + n.Name(), m.Bytes, used})
	}
	if total <= s.cfg.High {
		return 0, nil
	}
	slices.SortFunc(found, func(a, b candidate) int { return a.used.Compare(b.used) })
	var freed int64
	for _, c := range found {
		if total-freed <= s.cfg.Low || ctx.Err() != nil {
			break
		}
		gone, err := s.drop(c.digest)
		if err != nil {
			return freed, err
		}
		if gone {
			freed += c.bytes
		}
	}
	return freed, ctx.Err()
}

func readMeta(file string) (meta, time.Time, error) {
	var m meta
	info, err := os.Stat(file)
	if err != nil {
		return m, time.Time{}, fmt.Errorf("read layer: %w", err)
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, time.Time{}, fmt.Errorf("read layer: %w", err)
	}
	return m, info.ModTime(), nil
}

// drop removes a layer unless an instance holds it. An instance holds its layers
// before it looks for them, so that one of the two sees the other.
func (s *Store) drop(digest string) (bool, error) {
	defer s.lock(digest)()
	held, err := s.held()
	if err != nil || held[digest] {
		return false, err
	}
	temp, err := os.MkdirTemp(s.path("tmp"), "gone-")
	if err != nil {
		return false, fmt.Errorf("remove layer: %w", err)
	}
	if err := os.Rename(s.layer(digest), filepath.Join(temp, "layer")); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, os.RemoveAll(temp)
		}
		return false, fmt.Errorf("remove layer: %w", err)
	}
	if err := os.RemoveAll(temp); err != nil {
		return true, fmt.Errorf("remove layer: %w", err)
	}
	return true, nil
}

// cannotStore makes an error of the host's disk while an image comes.
func cannotStore(err error, doing string) error {
	return runtime.Refuse(runtime.Broken, "pull", "", "%s", doing).Because(err)
}

// broken makes an error of the host's own disk or kernel.
func broken(name string, err error, doing string) error {
	return runtime.Refuse(runtime.Broken, "start", name, "%s", doing).Because(err)
}
