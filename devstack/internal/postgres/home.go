package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tranche-cloud/tranche/devstack/internal/process"
)

// makeHome makes the server's folder, Dir/pg. Where the server's user may not
// walk down to it (a clone in root's home), the folder lies in /var/tmp and
// Dir/pg is a link to it.
func (c *Cluster) makeHome(ctx context.Context) error {
	link := filepath.Join(c.Dir, "pg")
	c.home = link
	if c.user != nil && !c.reaches(ctx, c.Dir) {
		var err error
		if c.home, err = elsewhere(c.Dir); err != nil {
			return err
		}
		if _, err := os.Lstat(link); errors.Is(err, os.ErrNotExist) {
			// Dir was deleted by hand since: its data belong to nothing any more.
			if err := errors.Join(os.RemoveAll(c.home), os.Symlink(c.home, link)); err != nil {
				return fmt.Errorf("link the data folder: %w", err)
			}
		}
	}
	if err := os.MkdirAll(c.home, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	return c.own(c.home)
}

// reaches tells whether the server's user may enter the folder.
func (c *Cluster) reaches(ctx context.Context, dir string) bool {
	_, err := process.Run(ctx, process.Spec{Name: "test", Path: "/usr/bin/test", Args: []string{"-x", dir}, User: c.user})
	return err == nil
}

// elsewhere makes a folder of root's own that the server's user can walk
// through. Its parent is writable by all: one that someone else made is refused.
func elsewhere(dir string) (string, error) {
	sum := sha256.Sum256([]byte(dir))
	outer := filepath.Join("/var/tmp", "tranche-"+hex.EncodeToString(sum[:6]))
	if err := os.Mkdir(outer, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("make a data folder outside %s: %w", dir, err)
	}
	info, err := os.Lstat(outer)
	if err != nil {
		return "", fmt.Errorf("look at the data folder: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() || !info.IsDir() {
		return "", fmt.Errorf("%s belongs to someone else", outer)
	}
	// Mkdir's mode is cut by the umask.
	return filepath.Join(outer, "pg"), os.Chmod(outer, 0o711)
}

// Remove deletes the cluster, which must not run, with all its data.
func Remove(dir string) error {
	link := filepath.Join(dir, "pg")
	if target, err := os.Readlink(link); err == nil {
		if err := os.RemoveAll(filepath.Dir(target)); err != nil {
			return fmt.Errorf("remove the data folder: %w", err)
		}
	}
	if err := os.RemoveAll(link); err != nil {
		return fmt.Errorf("remove the data folder: %w", err)
	}
	return nil
}
