package oci

import (
	"bytes"
	"errors"
	"io"
	"io/fs"

	"github.com/moby/sys/user"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// User is who runs the command, in ids of the container.
type User struct {
	UID, GID uint32
	Groups   []uint32
	Home     string
}

// maxAccounts bounds what is read of a tenant's /etc/passwd and /etc/group.
const maxAccounts = 1 << 20

// FindUser looks the image's user up in the image's own accounts, and makes sure that
// the kernel's file systems can be mounted in it. The file system must not leave the
// image, as os.Root's does not. The error is IMAGE_INVALID.
func FindUser(rootfs fs.FS, name string) (User, error) {
	if err := mountable(rootfs); err != nil {
		return User{}, err
	}
	passwd, group := accounts(rootfs, "etc/passwd"), accounts(rootfs, "etc/group")
	u, err := user.GetExecUser(name, &user.ExecUser{Home: "/"}, passwd, group)
	if err != nil {
		return User{}, runtime.Refuse(runtime.ImageInvalid, "start", "", "user %q is not in the image", name).Because(err)
	}
	if u.Uid < 0 || u.Uid >= IDs || u.Gid < 0 || u.Gid >= IDs {
		return User{}, runtime.Refuse(runtime.ImageInvalid, "start", "", "user %q is %d:%d: ids must be below %d", name, u.Uid, u.Gid, IDs)
	}
	out := User{UID: uint32(u.Uid), GID: uint32(u.Gid), Home: u.Home}
	for _, g := range u.Sgids {
		if g >= 0 && g < IDs {
			out.Groups = append(out.Groups, uint32(g))
		}
	}
	return out, nil
}

// mountable refuses what the OCI runtime would: an image's fault must not look like one
// of the host.
func mountable(rootfs fs.FS) error {
	for _, name := range []string{"proc", "sys"} {
		info, err := fs.Lstat(rootfs, name)
		if err == nil && !info.IsDir() {
			return runtime.Refuse(runtime.ImageInvalid, "start", "", "/%s in the image is no folder: the kernel's is mounted there", name)
		}
	}
	return nil
}

// accounts reads a regular file; anything else counts as empty, as a FIFO would
// never end.
func accounts(rootfs fs.FS, name string) io.Reader {
	info, err := fs.Stat(rootfs, name)
	if err != nil || !info.Mode().IsRegular() {
		return bytes.NewReader(nil)
	}
	f, err := rootfs.Open(name)
	if err != nil {
		return bytes.NewReader(nil)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxAccounts))
	if errors.Join(err, f.Close()) != nil {
		return bytes.NewReader(nil)
	}
	return bytes.NewReader(text)
}

func (u User) home() string {
	if u.Home == "" {
		return "/"
	}
	return u.Home
}

func (u User) user() specs.User {
	return specs.User{UID: u.UID, GID: u.GID, AdditionalGids: u.Groups}
}
