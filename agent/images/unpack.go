package images

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/agent/runtime/oci"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	// nobody owns what an image gives to ids beyond those of a user namespace.
	nobody = 65534
	// maxFiles bounds the inodes of one layer.
	maxFiles = 1 << 20
	// slack is what a layer may have beyond its ratio, for small ones.
	slack = 64 << 20
)

// contents counts what a layer became.
type contents struct {
	Bytes, Files int64
}

// extractor writes one layer into a folder that it cannot leave.
type extractor struct {
	root  *os.Root
	total contents
}

// unpack writes the archive of a layer, as an overlay's lower folder: with the
// kernel's own whiteouts. limit is of bytes read from the archive. The error of an
// archive that breaks a rule is IMAGE_REFUSED or IMAGE_INVALID; an error of the source
// comes back as it is.
func unpack(archive io.Reader, dir string, limit int64) (contents, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return contents{}, fmt.Errorf("open layer folder: %w", err)
	}
	defer root.Close()
	x := &extractor{root: root}
	bounded := &boundedReader{from: archive, left: limit}
	in := tar.NewReader(bounded)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = x.entry(h, in)
		}
		if err != nil {
			return contents{}, bounded.blame(err)
		}
	}
	// The rest is padding; reading it completes the check of the digest.
	if _, err := io.Copy(io.Discard, bounded); err != nil {
		return contents{}, bounded.blame(err)
	}
	return x.total, nil
}

// boundedReader fails when more is read than a layer of its size may hold. It keeps
// the error of its source, to tell it from one of the archive or the disk.
type boundedReader struct {
	from   io.Reader
	left   int64
	failed error
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed = err
	}
	if b.left -= int64(n); b.left < 0 {
		b.failed = refuse(runtime.ImageRefused, "a layer unpacks to far more than its size: it looks like a decompression bomb")
		return 0, b.failed
	}
	return n, err
}

// blame says whose fault an error of unpacking is: the source's, the host's or the
// image's.
func (b *boundedReader) blame(err error) error {
	if b.failed != nil {
		return b.failed
	}
	if _, ok := errors.AsType[*runtime.Error](err); ok {
		return err
	}
	if escapes(err) {
		return refuse(runtime.ImageRefused, "a layer has an entry that leads out of the image through a link").Because(err)
	}
	for _, own := range []error{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EROFS, unix.EPERM} {
		if errors.Is(err, own) {
			return runtime.Refuse(runtime.Broken, "pull", "", "this host cannot store the layer").Because(err)
		}
	}
	return refuse(runtime.ImageInvalid, "a layer cannot be unpacked: build the image again").Because(err)
}

// entry writes one file of the archive.
func (x *extractor) entry(h *tar.Header, content io.Reader) error {
	name, err := inside(h.Name)
	if err != nil {
		return err
	}
	if x.total.Files++; x.total.Files > maxFiles {
		return refuse(runtime.ImageRefused, "a layer has more than %d files", maxFiles)
	}
	base := path.Base(name)
	switch {
	case base == opaque:
		return x.opaque(path.Dir(name))
	case strings.HasPrefix(base, whiteout):
		return x.whiteout(path.Join(path.Dir(name), strings.TrimPrefix(base, whiteout)))
	}
	if err := x.make(name, h, content); err != nil {
		return fmt.Errorf("unpack %q: %w", h.Name, err)
	}
	return nil
}

// inside cleans a name; those that point upwards are refused, absolute ones are taken
// as of the image's root.
func inside(name string) (string, error) {
	name = strings.TrimLeft(name, "/")
	clean := path.Clean(name)
	if strings.ContainsRune(name, 0) || clean != "." && !fs.ValidPath(clean) {
		return "", refuse(runtime.ImageRefused, "layer entry %q leads out of the image", name)
	}
	return clean, nil
}

// escapes recognises the error of os.Root, which has no name of its own.
func escapes(err error) bool { return strings.Contains(err.Error(), "escapes") }

func (x *extractor) make(name string, h *tar.Header, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir, tar.TypeReg, tar.TypeSymlink, tar.TypeLink:
	default:
		return nil // devices, FIFOs and extensions are not for tenants
	}
	if err := x.clear(name, h.Typeflag == tar.TypeDir); err != nil {
		return err
	}
	mode := os.FileMode(h.Mode).Perm() //nolint:gosec // twelve bits
	switch h.Typeflag {
	case tar.TypeDir:
		if err := x.root.MkdirAll(name, 0o755); err != nil {
			return err
		}
	case tar.TypeSymlink:
		if err := x.root.Symlink(h.Linkname, name); err != nil {
			return err
		}
		return x.root.Lchown(name, id(h.Uid), id(h.Gid))
	case tar.TypeLink:
		target, err := inside(h.Linkname)
		if err != nil {
			return err
		}
		if info, err := x.root.Lstat(target); err == nil && info.IsDir() {
			return refuse(runtime.ImageInvalid, "layer entry %q is a hard link to a folder", h.Name)
		}
		return x.root.Link(target, name)
	default:
		if err := x.file(name, content); err != nil {
			return err
		}
	}
	if err := x.root.Lchown(name, id(h.Uid), id(h.Gid)); err != nil {
		return err
	}
	if err := x.root.Chmod(name, mode|setBits(h.Mode)); err != nil {
		return err
	}
	return x.root.Chtimes(name, h.ModTime, h.ModTime)
}

// setBits turns the set-id and sticky bits of a tar header into Go's.
func setBits(mode int64) os.FileMode {
	var out os.FileMode
	for bit, flag := range map[int64]os.FileMode{0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid, 0o1000: os.ModeSticky} {
		if mode&bit != 0 {
			out |= flag
		}
	}
	return out
}

// clear makes way for an entry: its parents exist and nothing else has its name. A
// folder stays what it is.
func (x *extractor) clear(name string, dir bool) error {
	if parent := path.Dir(name); parent != "." {
		if err := x.root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	info, err := x.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || dir && info.IsDir() || name == "." {
		return err
	}
	return x.root.RemoveAll(name)
}

func (x *extractor) file(name string, content io.Reader) error {
	f, err := x.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, content)
	x.total.Bytes += n
	return errors.Join(err, f.Close())
}

func id(n int) int {
	if n < 0 || n >= oci.IDs {
		return nobody
	}
	return n
}

// opaque marks a folder that hides what lower layers have in it.
func (x *extractor) opaque(name string) error {
	if err := x.root.MkdirAll(name, 0o755); err != nil {
		return fmt.Errorf("unpack %q: %w", name, err)
	}
	dir, err := x.root.Open(name)
	if err != nil {
		return fmt.Errorf("unpack %q: %w", name, err)
	}
	return errors.Join(unix.Fsetxattr(int(dir.Fd()), opaqueAttribute, []byte("y"), 0), dir.Close())
}

// whiteout hides a file of lower layers. Its parent is opened below the root first,
// so that no link can lead the node elsewhere.
func (x *extractor) whiteout(name string) error {
	if base := path.Base(name); base == "" || base == "." || base == ".." || strings.HasPrefix(base, whiteout) {
		return nil // the marks of other tools
	}
	if err := x.clear(name, false); err != nil {
		return fmt.Errorf("unpack whiteout of %q: %w", name, err)
	}
	parent, err := x.root.Open(path.Dir(name))
	if err != nil {
		return fmt.Errorf("unpack whiteout of %q: %w", name, err)
	}
	err = unix.Mknodat(int(parent.Fd()), filepath.Base(name), unix.S_IFCHR, 0)
	return errors.Join(err, parent.Close())
}
